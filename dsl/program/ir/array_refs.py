"""What lies in HBM, operands and outputs of a step, by what it is."""

from __future__ import annotations

from typing import ClassVar

from ...records import frozen
from .refs import BufferRef, RingRef, ValueRef


class ArrayRef(BufferRef):
    """An operand or output in HBM; what a layer has of it lies in a buffer of the same name."""

    __slots__ = ()


@frozen(cache_hash=True)
class TapeRef(ArrayRef):
    """The weights that pass through a ring."""

    LABEL: ClassVar[str] = "tape {0.ring}"
    ring: RingRef


@frozen(cache_hash=True)
class SmallWeightsRef(ArrayRef):
    """What a place reads besides its products' matrices."""

    LABEL: ClassVar[str] = "vectors {0.place}"
    place: str


@frozen(cache_hash=True)
class TableRef(ArrayRef):
    """A weight that is looked up row by row."""

    LABEL: ClassVar[str] = "table {0.weight}"
    weight: str


@frozen(cache_hash=True)
class ExpertArrayRef(ArrayRef):
    """A part's experts."""

    LABEL: ClassVar[str] = "bank {0.part}"
    part: str


@frozen(cache_hash=True)
class StateRef(ArrayRef):
    """A state of the model, by its qualified name."""

    LABEL: ClassVar[str] = "state {0.state}"
    state: str


class CacheRef(ArrayRef):
    """A cache as kernels keep it."""

    __slots__ = ()


@frozen(cache_hash=True)
class ModelCacheRef(CacheRef):
    """A cache of the model, by its qualified name."""

    LABEL: ClassVar[str] = "{0.state}"
    state: str


@frozen(cache_hash=True)
class ExpandedRef(CacheRef):
    """The `keys` or `values` that a part's latent cache is kept expanded to."""

    LABEL: ClassVar[str] = "{0.what} of {0.part}.cache"
    part: str
    what: str


@frozen(cache_hash=True)
class EntryRef(ArrayRef):
    """The entries that a step gives a cache."""

    LABEL: ClassVar[str] = "entry {0.cache}"
    cache: CacheRef


@frozen(cache_hash=True)
class LogitsRef(ArrayRef):
    """The logits that leave."""

    LABEL: ClassVar[str] = "logits"


@frozen(cache_hash=True)
class TraceRef(ArrayRef):
    """What a traced Program gives of a value, as each run of a place leaves it."""

    LABEL: ClassVar[str] = "trace {0.place}.{0.value}"
    place: str
    value: str


@frozen(cache_hash=True)
class TapsRef(ArrayRef):
    """What a drafter reads of the model that it drafts for."""

    LABEL: ClassVar[str] = "taps {0.tap}"
    tap: str


@frozen(cache_hash=True)
class StepOutputRef(ArrayRef):
    """A value that a step gives."""

    LABEL: ClassVar[str] = "{0.value}"
    value: ValueRef
