"""What a core does, one action after the other: the only things that take time."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from attrs import frozen

from ...dsl.model.ir import Ref
from ...dsl.records import frozen as ref


class Verb(Enum):
    """What is done with a thing, where it is not simply used."""

    START = "start"
    WAIT = "wait"
    LOAD = "load"
    SAVE = "save"
    SAVED = "saved"
    SEND = "send"


class Work(Enum):
    """What has no name in a Program."""

    CHOICE = "choice"
    ATTEND = "attend"
    CACHE = "cache"
    ROUTE = "route"
    ROPE_TABLES = "turns"
    ARGMAX = "argmax"
    COMMIT = "commit"


@ref(cache_hash=True)
class ExpertsRef(Ref):
    """A part's experts, all together."""

    LABEL: ClassVar[str] = "experts of {0.part}"
    part: str


@ref(cache_hash=True)
class SlotRef(Ref):
    """A slot of a ring, a cache or a pool."""

    LABEL: ClassVar[str] = "{0.of} {0.number}"
    of: Ref
    number: int


@frozen
class Where:
    """The place of an action: a part or `step`, the layer if there is one, and in words what in it.

    `of` is the thing itself, and `verb` what is done with it.
    """

    scope: str
    layer: int | None
    what: str
    of: Ref | Work | None = None
    verb: Verb | None = None

    @property
    def subject(self) -> object:
        """The thing and what is done with it."""
        return self.what if self.of is None else (self.of, self.verb)


@frozen
class Run:
    """The core computes for so many seconds on `unit`, `mxu` or `vpu`."""

    where: Where
    seconds: float
    unit: str = "vpu"


@frozen
class Issue:
    """A transfer between HBM and VMEM sets out, known by `key`; `lane` is the ring's slot or the buffer."""

    where: Where
    key: object
    bytes: int
    lane: Ref | str


@frozen
class Await:
    """The core waits for a transfer; `kind` is `tape`, `copy`, `cache`, `expert`, `row`, `output` or `commit`."""

    where: Where
    key: object
    kind: str


@frozen
class Post:
    """A collective sets out; its `rounds`, in seconds, follow one another."""

    where: Where
    key: object
    rounds: tuple[float, ...]


@frozen
class Collect:
    """The core waits for a collective: for its first round, then for each later one, which starts when it is there.

    Between rounds it computes for `between` seconds.
    """

    where: Where
    key: object
    between: float = 0.0


type Action = Run | Issue | Await | Post | Collect
