"""The Program: what every core does in one step.

All cores run the same Program on their shares; shapes are those of one core, with `rows` sequences decoded together.
"""

from __future__ import annotations

from ...model import ir as m
from ...model.facts import STEP
from ...model.instance import Instance
from ...records import frozen
from ...schedule.ir import Pass, Schedule
from ...schedule.shares import Shares
from .ops import LayerSwitch, Op, RopeTables
from .resources import Array, Buffer, CacheRing, Collective, Copy, ExpertPool, Product, Ring, View


def _is_small(value: float) -> bool:
    return value.is_integer() and abs(value) < 1 << 24  # as exact in f32


@frozen(repr=False)
class Program:
    """Everything that the checks, the printer and the backends walk over.

    With `consecutive` the rows are tokens of one sequence: a state's buffer begins with what it was before the first,
    and caches have room for one sequence. `scalars` are the numbers of the model that depend on the layer, with their
    values by layer.
    """

    schedule: Schedule
    instance: Instance
    shares: Shares
    rows: int
    consecutive: bool
    buffers: dict[str, Buffer]
    views: dict[str, View]
    rings: dict[str, Ring]
    products: dict[str, Product]
    copies: dict[str, Copy]
    caches: dict[str, CacheRing]
    banks: dict[str, ExpertPool]
    exchanges: dict[str, Collective]
    turns: dict[str, RopeTables]
    scalars: dict[m.Static, tuple[float, ...]]
    arrays: dict[str, Array]
    outputs: dict[str, Array]
    body: tuple[Op, ...]

    @property
    def whole_scalars(self) -> tuple[m.Static, ...]:
        """Those of `scalars` that are small whole numbers in every layer: counts, indices, conditions."""
        return tuple(static for static, values in self.scalars.items() if all(map(_is_small, values)))

    @property
    def real_scalars(self) -> tuple[m.Static, ...]:
        """The others."""
        whole = self.whole_scalars
        return tuple(static for static in self.scalars if static not in whole)

    @property
    def of(self) -> Pass:
        """The pass that it makes."""
        return Pass(self.rows, self.consecutive)

    @property
    def layer_parts(self) -> dict[int, tuple[str, ...]]:
        """For each layer, its parts in order."""
        return self.instance.layer_parts("")

    def layers_of(self, part: str) -> tuple[int, ...]:
        """The layers that run a part."""
        return self.instance.layers_of(part)

    def times(self, place: str | None) -> int:
        """How often a step runs a place: a part once for each of its layers, what belongs to the step itself once."""
        return 1 if place in (None, "", STEP) else len(self.layers_of(place))

    def always(self, choice: LayerSwitch) -> bool:
        """Whether every layer runs one of a choice's parts."""
        names = {name for name, _ in choice.bodies}
        return all(names & set(parts) for parts in self.layer_parts.values())

    def unconditional(self, choice: LayerSwitch) -> bool:
        """Whether there is nothing to choose: one part, which every layer runs."""
        return len(choice.bodies) == 1 and self.always(choice)

    def transfers(self, ring: str) -> list[tuple[str, int | None]]:
        """The products whose matrices pass through a ring, with their layers, in the order of use."""
        loop = self.instance.layer_loop.get("")
        by_place: dict[str, list[str]] = {}
        for product in self.products.values():
            if product.ring == ring:
                by_place.setdefault(product.place, []).append(product.name)
        found: list[tuple[str, int | None]] = []
        if loop is not None:
            for layer, parts in self.layer_parts.items():
                found += [(name, layer) for part in parts for name in by_place.get(part, ())]
        return found + [(name, None) for name in by_place.get(STEP, ())]
