"""A phase: one step of the definition as a core runs it, over rings and buffers that all phases have in common."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from ...model import ir as m
from ...model.facts import STEP
from ...model.instance import Instance
from ...records import frozen
from .ops import Dot, LayerLoop, Op, Repeat, RowLoop
from .refs import ProductRef


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
    def runs(self) -> Counter[str]:
        """How often each part runs in all layers together: one may stand twice in a layer."""
        return Counter(part for parts in self.layer_parts.values() for part in parts)

    @cached_property
    def early(self) -> frozenset[ProductRef]:
        """The products of the step itself that are multiplied before its layers: the tapes begin with them."""
        return frozenset(_multiplied(self.around[0])) if self.loop is not None else frozenset()

    @cached_property
    def row_loops(self) -> dict[str, tuple[str, RowLoop]]:
        """By their places, the loops over rows, each with the part or step that it is in."""
        found = {op.place: (self.place, op) for op in self.body if isinstance(op, RowLoop)}
        for switch in self.loop.choices if self.loop is not None else ():
            for part, body in switch.bodies:
                found |= {op.place: (part, op) for op in body if isinstance(op, RowLoop)}
        return found

    @cached_property
    def carried(self) -> frozenset[str]:
        """The names that the step sets before its loop over the layers; none where there is no loop."""
        return carried(self.step)


def _multiplied(ops: tuple[Op, ...]) -> list[ProductRef]:
    found: list[ProductRef] = []
    for op in ops:
        if isinstance(op, Repeat | RowLoop):
            found += _multiplied(op.body)
        elif isinstance(op, Dot):
            found.append(op.product)
    return found


def carried(step: m.Step) -> frozenset[str]:
    """The names that a step sets before its loop over the layers; none where there is no loop."""
    found: set[str] = set()
    for statement in step.body:
        if isinstance(statement, m.Loop) and statement.variable == "layer":
            return frozenset(found)
        if isinstance(statement, m.Assign):
            found.update(statement.names)
    return frozenset()


def rope_key(call: m.Call, channels: int, instance: Instance, step: str = m.DECODE) -> str:
    """What two rotary embeddings that turn alike have in common: those of another step have rows elsewhere."""
    said = [f"{name} {float(instance.number(static)):g}" for name, static in sorted(call.options, key=lambda o: o[0])]
    return ", ".join([f"{channels} channels", *said, *([f"in {step}"] if step else [])])
