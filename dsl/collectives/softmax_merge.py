"""Softmaxes over parts of the positions, of which each core completes its own heads: f32 `[rows, width]` of each."""

from __future__ import annotations

from ..records import frozen
from .collective import BufferNeed, CollectiveKind, CollectivePlan, Exchanged, Operation, Round, Wire, slot
from .reduce_scatter import home

_HOME, _MERGED = 1.25, 1.0  # bundles for each register of a softmax: on its way to its core, and with the others


@frozen
class SoftmaxMerge(CollectiveKind):
    """Each core sends every other its heads of a softmax over its own positions."""

    name: str = "softmax_merge"
    operation: Operation = Operation.SOFTMAX_MERGE
    by: str = "scatter"
    wires: tuple[Wire, ...] = (Wire.F32,)

    def buffers(self, given: Exchanged) -> tuple[BufferNeed, ...]:
        """Each core's heads, and all cores' softmaxes of this core's."""
        return home(given, slot(given))

    def rounds(self, given: Exchanged) -> tuple[Round, ...]:
        """Heads to their cores."""
        return (Round(given.cores - 1, given.bytes(slot(given))),)

    def sends(self, plan: CollectivePlan) -> int:
        """All cores' heads."""
        return plan.cores * plan.width

    def stored(self, plan: CollectivePlan) -> float:
        """All cores' heads."""
        return plan.cores * _HOME

    def combined(self, plan: CollectivePlan) -> float:
        """All cores' softmaxes."""
        return plan.cores * _MERGED


SOFTMAX_MERGE = SoftmaxMerge()
