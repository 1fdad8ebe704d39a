"""The table of kinds, those of other packages with them.

An installed package adds kinds of sums through the entry-point group `mks.collectives` (value: a `CollectiveKind`), and
the code of their kernels through `mks.pallas_collectives`. Schedules choose them by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from ..installed import Installed, installed, kind_faults, points
from .argmax import ARGMAX
from .collective import CollectiveKind, Operation, Wire
from .direct import DIRECT
from .gather import GATHER
from .reduce_scatter import REDUCE_SCATTER
from .scatter_gather import SCATTER_GATHER
from .softmax_merge import SOFTMAX_MERGE
from .two_level import TWO_LEVEL

GROUP, KERNELS = "mks.collectives", "mks.pallas_collectives"

table: dict[str, CollectiveKind] = {
    kind.name: kind for kind in (DIRECT, SCATTER_GATHER, TWO_LEVEL, REDUCE_SCATTER, GATHER, SOFTMAX_MERGE, ARGMAX)
}

SUMMING = (Operation.SUM, Operation.REDUCE_SCATTER)

# How a sum is completed of which a schedule says nothing.
UNSAID = (DIRECT, Wire.F32)


@cache
def _brought() -> Installed[CollectiveKind]:
    found = installed(GROUP, CollectiveKind, _faults)
    named: dict[str, list[str]] = {}
    for name, kind in found.good.items():
        if kind.operation in SUMMING:
            named.setdefault(kind.by, []).append(name)
    several = {by: names for by, names in named.items() if len(names) > 1}
    bad = {by: f"kinds of the same `by`: {', '.join(f'`{name}`' for name in names)}" for by, names in several.items()}
    good = {name: kind for name, kind in found.good.items() if not any(name in names for names in several.values())}
    return Installed(good, {**found.bad, **bad})


def _faults(kind: CollectiveKind) -> Iterator[str]:
    yield from kind_faults("`operation`", kind.operation, Operation)
    yield from kind_faults("`by`", kind.by, str)
    if not isinstance(kind.wires, tuple) or not kind.wires or not all(isinstance(wire, Wire) for wire in kind.wires):
        yield f"`wires` is {kind.wires!r}; it must be a tuple of `Wire`"


def fault(name: str) -> str | None:
    """Why an installed package's kind cannot be used."""
    return _brought().bad.get(name)


def find(name: str) -> CollectiveKind | None:
    """A kind by name; installed packages are asked only for what is not built in."""
    return table.get(name) or _brought().good.get(name)


def has_kernel(kind: CollectiveKind) -> bool:
    """Whether kernels have code for a kind; of what another package brings, it is not loaded."""
    return kind.name in table or kind.name in points(KERNELS)


def way(by: str) -> CollectiveKind | None:
    """What a schedule's `by = …` says of a sum."""
    own = next((kind for kind in table.values() if kind.by == by and kind.operation in SUMMING), None)
    if own is not None:
        return own
    return next((kind for kind in _brought().good.values() if kind.by == by and kind.operation in SUMMING), None)


def ways() -> tuple[str, ...]:
    """All that `by = …` can say."""
    return tuple(kind.by for kind in _known() if kind.operation in SUMMING)


def sums() -> tuple[CollectiveKind, ...]:
    """The kinds that complete a sum on every core."""
    return tuple(kind for kind in _known() if kind.operation is Operation.SUM)


def _known() -> tuple[CollectiveKind, ...]:
    return (*table.values(), *(kind for name, kind in _brought().good.items() if name not in table))
