"""One core while its Program is emitted: references, counters, and where in the Program it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
from attrs import define, field
from jax import lax
from jax.experimental import pallas as pl

from ....dsl.model import ir as m
from ....dsl.model.shapes import Poly
from ....dsl.program import ir as p
from ....dsl.program.ir.walk import Path, Placed, walk
from ..collectives.peers import Cores, Ref, Scalar
from ..layout.tape import Starts, starting
from .signature import GivenRef, StepInput

type Counters = dict[m.Ref, tuple[Scalar, ...]]


@define
class Core:
    """What ops are emitted against.

    `refs` holds buffers, arrays and outputs; `given` the step's own inputs, such as the positions. `pending` are
    collectives under way. `counters` holds a ring's waited slot, started
    transfer and its slot, or the parity of a set of exchange buffers. `layer` counts from the first; `index` counts the
    layers that run the part at hand, `slot` is the expert's at hand and `alone` the only row that chose it. `arrived`
    are slots and rows of the tiles that were last waited for. `at` is the op at hand; `starts` says by its path what a
    `Start` starts.
    """

    program: p.Program
    refs: Mapping[m.Ref, Ref]
    given: Mapping[GivenRef, Ref]
    counters: Counters
    cores: Cores
    at: Placed = field(init=False)
    place: str = "step"
    layer: Scalar = -1
    index: Scalar = 0
    block: Scalar = 0
    slot: Scalar = 0
    alone: jax.Array | None = None
    arrived: list[tuple[Scalar, int]] = field(factory=list)
    scope: dict[str, Any] = field(factory=dict)
    pending: dict[p.CollectiveRef, Any] = field(factory=dict)
    alternatives: dict[str, tuple[int, int]] = field(factory=dict)
    starts: dict[Path, Starts] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.starts = starting(self.program)
        for op in (at.op for at in walk(self.program)):
            if isinstance(op, p.LayerSwitch):
                self.alternatives |= {name: (op.position, i) for i, (name, _) in enumerate(op.bodies)}

    @property
    def rows(self) -> int:
        """How many sequences are decoded together."""
        return self.program.rows

    def held(self, name: p.BufferRef) -> Ref:
        """A buffer; of one with slots, this layer's."""
        copy = self.program.copies.get(name) if isinstance(name, p.ArrayRef) else None
        if copy is None:
            return self.refs[name]
        return self.refs[name].at[remainder(self.index, copy.slots)]

    def rank(self, axes: tuple[str, ...]) -> Scalar:
        """This core's place among those that share something out over `axes` of the mesh: not among all cores."""
        return Cores(self.program.schedule.mesh, axes).rank() if axes else 0

    def first(self, axis: Poly) -> Scalar:
        """The first entry of an axis that this core has."""
        shares = self.program.shares
        return self.rank(shares.over(axis)) // shares.repeats(axis) * shares.length(axis)

    def positions(self) -> jax.Array:
        """Each row's position, int32 `[B, 1]`."""
        return self.given[StepInput.POSITIONS][...]

    def begins(self) -> jax.Array:
        """Whether a row is at its first token, `[B, 1]`."""
        return self.positions() == 0

    def scalar(self, static: m.Static) -> Scalar | float:
        """A number of the model; one that differs between layers comes from a table, as int32 if all are whole."""
        values = self.program.scalars.get(static)
        if values is None:
            found = self.program.instance.value(static)
            return float(found) if isinstance(found, Fraction) else found  # type: ignore[return-value]
        if len(set(values)) == 1:
            return int(values[0]) if values[0].is_integer() else values[0]
        for name, own in ((StepInput.WHOLE, self.program.whole_scalars), (StepInput.REAL, self.program.real_scalars)):
            if static in own:
                return self.given[name][self.layer, own.index(static)]
        raise AssertionError("a number that no table has")

    def number(self, static: m.Static) -> jax.Array | float:
        """The same as f32."""
        found = self.scalar(static)
        return found.astype(jnp.float32) if isinstance(found, jax.Array) else float(found)

    def holds(self, condition: m.Static | None) -> jax.Array | bool:
        """Whether a condition of the model does."""
        if condition is None:
            return True
        found = self.scalar(condition)
        return found != 0 if isinstance(found, jax.Array) else bool(found)

    def run_of(self, part: str, ahead: bool) -> tuple[Scalar, jax.Array | bool]:
        """The index of a part's run in this layer, or the next one, and whether there is one."""
        if self.place == part and not ahead:
            return self.index, True
        position, alternative = self.alternatives[part]
        layer = self.layer + int(ahead)
        table = self.given[StepInput.LAYERS]
        return table[layer, 2 * position + 1], table[layer, 2 * position] == alternative

    def threaded(self, keys: Sequence[m.Ref]) -> tuple[Scalar, ...]:
        """Counters as a flat carry of a loop or branch."""
        return tuple(jnp.int32(value) for key in keys for value in self.counters[key])

    def restore(self, keys: Sequence[m.Ref], carry: tuple[Scalar, ...]) -> None:
        """Take them back."""
        values = iter(carry)
        for key in keys:
            self.counters[key] = tuple(next(values) for _ in self.counters[key])


def remainder(value: Scalar, count: int) -> Scalar:
    """Of a number that is not negative."""
    if isinstance(value, int) or count == 1:
        return value % count if isinstance(value, int) else 0
    return value & (count - 1) if count & (count - 1) == 0 else lax.rem(value, jnp.int32(count))


def following(slot: Scalar, count: int) -> Scalar:
    """The slot after one."""
    if count == 1:
        return slot
    if isinstance(slot, int):
        return (slot + 1) % count
    return jnp.where(slot == count - 1, 0, slot + 1)


def when(condition: jax.Array | bool, action: Any) -> None:
    """Do it where the condition holds."""
    if isinstance(condition, bool):
        if condition:
            action()
        return
    pl.when(condition)(action)
