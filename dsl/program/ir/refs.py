"""What a Program calls its resources by: a class for each kind, so that no name of a definition meets another's.

A `label` is for people and for files: texts, JSON and packed folders show it. Nothing reads it back: what a reference
is of stands in its fields.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from ...model.ir import Ref
from ...records import frozen


@frozen(cache_hash=True)
class ProductRef(Ref):
    """Weights of a place that are multiplied together; by head, `piece` is a piece of the one weight."""

    place: str
    weights: tuple[str, ...]
    piece: str = ""

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.place}.{self.short}"

    @property
    def short(self) -> str:
        """Without its place."""
        weights = "+".join(weight.split(".")[-1] for weight in self.weights)
        return f"{weights}{f' {self.piece}' if self.piece else ''}"


class RingRef(Ref):
    """What a tape's transfers pass through."""

    __slots__ = ()


@frozen(cache_hash=True)
class StreamRef(RingRef):
    """A stream of the schedule."""

    LABEL: ClassVar[str] = "{0.name}"
    name: str


@frozen(cache_hash=True)
class UnstreamedRef(RingRef):
    """For all weights that no stream brings."""

    LABEL: ClassVar[str] = "unstreamed weights"


@frozen(cache_hash=True)
class EarlyRef(RingRef):
    """For a product that a line of the schedule prefetches."""

    LABEL: ClassVar[str] = "{0.product.label}"
    product: ProductRef


@frozen(cache_hash=True)
class CacheRingRef(Ref):
    """For the tiles of a part's caches."""

    LABEL: ClassVar[str] = "cache {0.part}"
    part: str


class CollectiveRef(Ref):
    """What cores do together."""

    __slots__ = ()


@frozen(cache_hash=True)
class SumRef(CollectiveRef):
    """The sum that a statement of a place completes; from the second one on they have numbers."""

    place: str
    value: str
    number: int = 0

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.place}.{self.value}{f' {self.number}' if self.number else ''}"

    @property
    def qualified(self) -> str:
        """The value as schedules name it."""
        return f"{self.place}.{self.value}"


@frozen(cache_hash=True)
class ChoiceRef(CollectiveRef):
    """The largest of all cores' numbers, of a statement; from the second one on they have numbers."""

    place: str
    value: str
    number: int = 0

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.place}.{self.value}{f' {self.number}' if self.number else ''}"


@frozen(cache_hash=True)
class ColumnsRef(CollectiveRef):
    """The gather that ends a sum of which each core completes its own columns."""

    LABEL: ClassVar[str] = "{0.sum} columns"
    sum: SumRef


@frozen(cache_hash=True)
class GatherRef(CollectiveRef):
    """Rows of weights' products that are shared out."""

    LABEL: ClassVar[str] = "{0.product.label}"
    product: ProductRef


@frozen(cache_hash=True)
class QueriesRef(CollectiveRef):
    """Queries of all heads, before attention."""

    LABEL: ClassVar[str] = "{0.attention} queries"
    attention: TempRef


@frozen(cache_hash=True)
class MergeRef(CollectiveRef):
    """The softmaxes over all positions, after it."""

    LABEL: ClassVar[str] = "{0.attention} merged"
    attention: TempRef


@frozen(cache_hash=True)
class OfOpRef(CollectiveRef):
    """What an op brings together: a norm's squares, or a softmax's sums."""

    LABEL: ClassVar[str] = "{0.value.label}"
    value: TempRef


@frozen(cache_hash=True)
class IdsRef(CollectiveRef):
    """The choice of ids."""

    LABEL: ClassVar[str] = "ids"


class BufferRef(Ref):
    """Room in fast memory, or a value that lies in some."""

    __slots__ = ()


@frozen(cache_hash=True)
class ValueRef(BufferRef):
    """A value of the definition: of a place, or, without one, of the step or carried through the layers."""

    place: str
    name: str

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.place}.{self.name}" if self.place else self.name


LOGITS = ValueRef("", "logits")


@frozen(cache_hash=True)
class TempRef(BufferRef):
    """A value of a place that the definition does not name."""

    LABEL: ClassVar[str] = "{0.place}.{0.what} {0.number}"
    place: str
    what: str
    number: int


class Role(Enum):
    """What a buffer is for another thing, as labels say it."""

    OPERAND = "operand of {}"
    RESULT = "product {}"
    QUERY = "query of {}"
    QUERIES = "queries of {}"
    ABSORBED = "absorbed of {}"
    COMMON = "common of {}"
    EXPANDED = "{} expanded"
    MERGED = "{} merged"
    SHARE = "share of {}"
    OWN = "own {}"
    SUM = "sum of {}"
    SQUARES = "squares of {}"
    TOTAL_SQUARES = "sum of squares of {}"
    COMPLETE = "+{}"
    TILES = "tiles of {}"
    WHOLE = "whole {}"
    KEYS = "keys of {}"
    VALUES = "values of {}"
    NUMBERS = "numbers of {}"


@frozen(cache_hash=True)
class PartRef(BufferRef):
    """What serves another thing; `item` counts the values of one message."""

    role: Role
    of: Ref
    item: int | None = None

    @property
    def label(self) -> str:
        """For people."""
        return self.role.value.format(self.of) + ("" if self.item is None else f" {self.item}")


@frozen(cache_hash=True)
class MatmulRef(BufferRef):
    """The product with a weight; `place` is one that is not the weight's own."""

    weight: str
    place: str = ""

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.place}.@{self.weight}" if self.place else f"@{self.weight}"


@frozen(cache_hash=True)
class GatheredRef(BufferRef):
    """The product with a weight, whose rows were shared out, of all cores."""

    LABEL: ClassVar[str] = "whole {0.weight}"
    weight: str


@frozen(cache_hash=True)
class SmallWeightRef(BufferRef):
    """A weight among those that a place reads besides its products' matrices; `place` is one that is not its own."""

    weight: str
    place: str = ""

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.place}/{self.weight}" if self.place else self.weight


@frozen(cache_hash=True)
class RowRef(BufferRef):
    """What was looked up in a table by an input, `token` or `position`, or by a value; `place` if it is one's own."""

    table: str
    index: str | Ref
    place: str = ""

    @property
    def label(self) -> str:
        """For people."""
        row = f"row of {self.table}{'' if self.index == 'token' else f' at {self.index}'}"
        return f"{self.place}.{row}" if self.place else row


@frozen(cache_hash=True)
class ModelBufferRef(BufferRef):
    """A buffer of the model, which lasts through the layers."""

    LABEL: ClassVar[str] = "{0.state}"
    state: str


@frozen(cache_hash=True)
class RopeRef(BufferRef):
    """The `cos` or `sin` that rotary embeddings turn by."""

    LABEL: ClassVar[str] = "{0.what} {0.number}"
    what: str
    number: int


@frozen(cache_hash=True)
class ExpertPoolRef(BufferRef):
    """A part's experts that were fetched."""

    LABEL: ClassVar[str] = "experts {0.part}"
    part: str
