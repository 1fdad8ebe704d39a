"""What a core does, one action after the other: the only things that take time."""

from __future__ import annotations

from attrs import frozen


@frozen
class Where:
    """The scope of an action: a part or `step`, the layer if there is one, and what in it, by its name in the text."""

    scope: str
    layer: int | None
    what: str


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
    lane: str


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
