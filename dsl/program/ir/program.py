"""The Program: what every core does in one call, phase after phase.

All cores run the same Program on their shares; shapes are those of one core.
"""

from __future__ import annotations

from functools import cached_property

from ...model import ir as m
from ...model.instance import Instance
from ...records import frozen
from ...schedule.ir import Pass, Schedule
from ...schedule.shares import Shares
from .ops import LayerSwitch, RopeTables
from .phases import Phase
from .resources import Array, Buffer, CacheRing, Collective, Copy, ExpertPool, Product, Ring, View


def _is_small(value: float) -> bool:
    return value.is_integer() and abs(value) < 1 << 24  # as exact in f32


@frozen(repr=False, slots=False)
class Program:
    """Everything that the checks, the printer and the backends walk over.

    `of` is the pass that it makes, in the order of its `phases`. `scalars` are the numbers of the model that depend on
    the layer, with their values by layer.
    """

    schedule: Schedule
    instance: Instance
    shares: Shares
    of: Pass
    phases: tuple[Phase, ...]
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
    def rows(self) -> int:
        """Tokens that a call takes: of so many sequences, or `consecutive` ones of one."""
        return self.of.tokens

    @property
    def consecutive(self) -> bool:
        """Whether a call's tokens are of one sequence."""
        return self.of.consecutive

    @property
    def phase(self) -> Phase:
        """The phase of a Program that has one only, as those that decode have."""
        (found,) = self.phases
        return found

    @cached_property
    def _phase_of(self) -> dict[str, Phase]:
        return {place: phase for phase in self.phases for place in (*phase.layers, phase.place)}

    @property
    def places(self) -> frozenset[str]:
        """The parts that run, and the steps themselves."""
        return frozenset(self._phase_of)

    def phase_of(self, place: str) -> Phase:
        """The phase that runs a part, or whose step it is; raises `LookupError` for a place that none runs."""
        return self._phase_of[place]

    def layers_of(self, place: str) -> tuple[int, ...]:
        """The layers that run a part; none for a step."""
        phase = self._phase_of.get(place)
        return () if phase is None else phase.layers.get(place, ())

    def times(self, place: str | None) -> int:
        """How often a call runs a place: a part once for each of its layers, what belongs to a step itself once."""
        steps = {phase.place for phase in self.phases}
        return 1 if place in (None, "") or place in steps else len(self.layers_of(place))

    def always(self, choice: LayerSwitch) -> bool:
        """Whether every layer runs one of a choice's parts."""
        names = {name for name, _ in choice.bodies}
        return all(names & set(parts) for parts in self.phase_of(next(iter(names))).layer_parts.values())

    def unconditional(self, choice: LayerSwitch) -> bool:
        """Whether there is nothing to choose: one part, which every layer runs."""
        return len(choice.bodies) == 1 and self.always(choice)

    def transfers(self, ring: str) -> list[tuple[str, int | None]]:
        """The products whose matrices pass through a ring, with their layers, in the order of use."""
        by_place: dict[str, list[str]] = {}
        for product in self.products.values():
            if product.ring == ring:
                by_place.setdefault(product.place, []).append(product.name)
        found: list[tuple[str, int | None]] = []
        for phase in self.phases:
            for layer, parts in phase.layer_parts.items():
                found += [(name, layer) for part in parts for name in by_place.get(part, ())]
            found += [(name, None) for name in by_place.get(phase.place, ())]
        return found
