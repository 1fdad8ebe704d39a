"""The Program: what every core does in one call, phase after phase.

All cores run the same Program on their shares; shapes are those of one core.
"""

from __future__ import annotations

from functools import cached_property

from ...diagnostics import Diagnostic, Label, MksError
from ...model import ir as m
from ...model.facts import STEP
from ...model.instance import Instance
from ...records import frozen
from ...schedule.ir import Pass, Schedule
from ...schedule.shares import Shares
from .array_refs import ArrayRef
from .ops import LayerSwitch, RopeTables
from .phases import Phase
from .refs import BufferRef, CacheRingRef, CollectiveRef, ExpertPoolRef, MatmulRef, ProductRef, RingRef, SmallWeightRef
from .resources import Array, Buffer, CacheRing, Collective, Copy, ExpertPool, Product, Ring, View, ref_of


def several_steps(program: Program) -> Diagnostic:
    """E901: that no kernel does several steps in one call."""
    names = " and ".join(f"`{phase.name}`" for phase in program.phases)
    return Diagnostic(
        "E901", f"kernels cannot do this yet: the steps {names} in one call", Label(program.instance.model.span)
    )


def weight_key(place: str, weight: m.Weight) -> SmallWeightRef:
    """What a place's view of a small weight is called: by its name alone in the part or decode step whose it is."""
    return SmallWeightRef(weight.name, "" if (weight.part or STEP) == place else place)


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
    buffers: dict[BufferRef, Buffer]
    views: dict[m.Ref, View]
    rings: dict[RingRef, Ring]
    products: dict[ProductRef, Product]
    copies: dict[ArrayRef, Copy]
    caches: dict[CacheRingRef, CacheRing]
    banks: dict[ExpertPoolRef, ExpertPool]
    exchanges: dict[CollectiveRef, Collective]
    turns: dict[str, RopeTables]
    scalars: dict[m.Static, tuple[float, ...]]
    arrays: dict[ArrayRef, Array]
    outputs: dict[ArrayRef, Array]

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
        """The phase of a Program that has one only, as those that decode have; raises `MksError` of any other."""
        if len(self.phases) > 1:
            raise MksError([several_steps(self)])
        return self.phases[0]

    @cached_property
    def _phase_of(self) -> dict[str, Phase]:
        return {place: phase for phase in self.phases for place in (*phase.layers, phase.place, *phase.row_loops)}

    def home(self, place: str) -> str:
        """The part or step that a place is in, which is itself but for the inside of a loop over rows."""
        phase = self._phase_of.get(place)
        return phase.row_loops[place][0] if phase is not None and place in phase.row_loops else place

    def rows_at(self, place: str) -> int:
        """The rows of values in a place: one inside of a loop over rows."""
        return 1 if self.home(place) != place else self.phase_of(place).rows

    def is_step(self, place: str | None) -> bool:
        """Whether what belongs to a place is there once a call: to a step, or to none."""
        return place in (None, "", *(phase.place for phase in self.phases))

    def ref_of(self, node: m.Node, place: str) -> m.Ref | None:
        """What a name in an expression of a place, or a read there, stands for: its own, its loop's part's, its step's.

        `None` if there is no such value.
        """
        return ref_of(node, (place, self.home(place), self.phase_of(place).step.name), self.views)

    def product_at(self, place: str, weight: str) -> MatmulRef | None:
        """Where a place looks for its product with a weight: its own, its loop's part's or its step's."""
        owners = (place, self.home(place), self.phase_of(place).step.name, "")
        return next((ref for owner in owners if (ref := MatmulRef(weight, owner)) in self.views), None)

    def weight_at(self, place: str, weight: str) -> SmallWeightRef:
        """What a place's view of one of its small weights is called."""
        return weight_key(self.home(place), self.instance.model.weights[weight])

    @cached_property
    def weight_keys(self) -> dict[SmallWeightRef, tuple[str, m.Weight]]:
        """Each place's weights by the names that their views there would have."""
        weights = self.instance.model.weights.values()
        return {weight_key(place, weight): (place, weight) for place in self.places for weight in weights}

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
        """How often a call runs a place: a part wherever a layer has it, what belongs to a step itself once."""
        if place is not None and self.home(place) != place:
            return self._trips(place) * self.times(self.home(place))
        return 1 if place is None or self.is_step(place) else self.phase_of(place).runs[place]

    def entries(self, part: str | None) -> int:
        """How many entries an array of a part has: one for each of its layers, one of what is no part's."""
        return 1 if part is None or self.is_step(part) else len(self.layers_of(part))

    def always(self, choice: LayerSwitch) -> bool:
        """Whether every layer runs one of a choice's parts."""
        names = {name for name, _ in choice.bodies}
        return all(names & set(parts) for parts in self.phase_of(next(iter(names))).layer_parts.values())

    def unconditional(self, choice: LayerSwitch) -> bool:
        """Whether there is nothing to choose: one part, which every layer runs."""
        return len(choice.bodies) == 1 and self.always(choice)

    def transfers(self, ring: RingRef) -> list[tuple[ProductRef, int | None]]:
        """The products whose matrices pass through a ring, with their layers, in the order of use."""
        found: list[tuple[ProductRef, int | None]] = []
        for phase in self.phases:
            by_place = {place: self.taken(ring, place) for place in (*phase.layers, phase.place)}
            early = [name for name in by_place[phase.place] if name in phase.early]
            found += [(name, None) for name in early]
            for layer, parts in phase.layer_parts.items():
                found += [(name, layer) for part in parts for name in by_place[part]]
            found += [(name, None) for name in by_place[phase.place] if name not in phase.early]
        return found

    def taken(self, ring: RingRef, place: str) -> list[ProductRef]:
        """The products that one run of a part or step takes from a ring, those of its loops over rows as often."""
        found: list[ProductRef] = []
        again: list[ProductRef] = []
        loop = place
        for product in self.products.values():
            if product.ring != ring or self.home(product.place) != place:
                continue
            if product.place != loop:
                found += again * self._trips(loop)
                again, loop = [], product.place
            again.append(product.name)
        return found + again * self._trips(loop)

    def _trips(self, place: str) -> int:
        """How often the inside of a loop over rows runs each time; any other place once."""
        if self.home(place) == place:
            return 1
        loop = self.phase_of(place).row_loops[place][1]
        return loop.stop - loop.start
