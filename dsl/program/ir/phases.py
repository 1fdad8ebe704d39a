"""A phase: one step of the definition as a core runs it, over rings and buffers that all phases have in common."""

from __future__ import annotations

from functools import cached_property

from ...model import ir as m
from ...model.facts import STEP
from ...records import frozen
from .ops import LayerLoop, Op


@frozen(repr=False, slots=False)
class Phase:
    """`body` are the ops of a step of the definition, over `rows` rows.

    With `consecutive` the rows are tokens of one sequence: a state's buffer begins with what it was before the first,
    and caches have room for one sequence. `layer_parts` gives for each layer its parts in order.
    """

    step: m.Step
    rows: int
    consecutive: bool
    layer_parts: dict[int, tuple[str, ...]]
    body: tuple[Op, ...]

    @property
    def name(self) -> str:
        """The step's; `decode` where it has none."""
        return self.step.name or "decode"

    @property
    def place(self) -> str:
        """Where ops run that are in no part."""
        return self.step.name or STEP

    @property
    def loop(self) -> LayerLoop | None:
        """The loop over the layers, if there is one."""
        return next((op for op in self.body if isinstance(op, LayerLoop)), None)

    @property
    def around(self) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
        """The ops before the loop over the layers and those after it; without a loop all come after."""
        loop = self.loop
        at = 0 if loop is None else self.body.index(loop)
        return self.body[:at], self.body[at + (loop is not None) :]

    @cached_property
    def layers(self) -> dict[str, tuple[int, ...]]:
        """For each part that runs, its layers in order."""
        found: dict[str, list[int]] = {}
        for layer, parts in self.layer_parts.items():
            for part in dict.fromkeys(parts):
                found.setdefault(part, []).append(layer)
        return {part: tuple(layers) for part, layers in found.items()}

    @cached_property
    def carried(self) -> frozenset[str]:
        """The names that the step sets before its loop over the layers; none where there is no loop."""
        return carried(self.step)


def carried(step: m.Step) -> frozenset[str]:
    """The names that a step sets before its loop over the layers; none where there is no loop."""
    found: set[str] = set()
    for statement in step.body:
        if isinstance(statement, m.Loop):
            return frozenset(found)
        if isinstance(statement, m.Assign):
            found.update(statement.names)
    return frozenset()
