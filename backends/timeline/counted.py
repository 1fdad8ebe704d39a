"""Bundles that the compiler scheduled, counted by place, in the place of those estimated by op."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from attrs import frozen

from ...dsl.program import ir as p
from ...dsl.program.ir.walk import walk
from ..pallas.cycles.bundles import Bundles
from ..pallas.emit.scopes import LAYERS, expert_scope, part_scope, tiles_scope

# A place and the loop in it whose length is not the Program's: over a cache's `tiles`, over `experts`, or none.
type Group = tuple[str, str]


@frozen
class Counted:
    """Bundles of one run of a place, or of one iteration of its loop: as counted, and as estimated by op."""

    scope: str
    loop: str
    counted: float
    estimated: float

    @property
    def factor(self) -> float:
        """What the estimate is multiplied by."""
        return self.counted / self.estimated


def group(scope: str, loop: str, always: frozenset[str]) -> Group:
    """Where a place's bundles are counted: parts that every layer runs have no branch in the loop over layers."""
    return (LAYERS if scope in always and not loop else scope, loop)


def always(program: p.Program) -> frozenset[str]:
    """The parts that every layer runs, so that no branch chooses them."""
    switches = (at.op for at in walk(program) if isinstance(at.op, p.LayerSwitch))
    return frozenset(switch.bodies[0][0] for switch in switches if program.unconditional(switch))


def compared(
    program: p.Program, bundles: Bundles, spent: Mapping[Group, float], rounds: Mapping[Group, float]
) -> tuple[Counted, ...]:
    """Each place's bundles; `spent` are those estimated in a step, `rounds` how often loops of unknown length ran."""
    counted = _counted(program, bundles)
    result = []
    for key, estimated in spent.items():
        scope, loop = key
        times = rounds.get(key, 0) if loop else _times(program, scope)
        if key in counted and times and estimated:
            result.append(Counted(scope, loop, counted[key], estimated / times))
    return tuple(result)


def _times(program: p.Program, scope: str) -> int:
    return sum(len(phase.layer_parts) for phase in program.phases) if scope == LAYERS else program.times(scope)


def _counted(program: p.Program, bundles: Bundles) -> dict[Group, float]:
    """Bundles of a run of each place, or of an iteration of its loop."""
    totals: dict[Group, float] = defaultdict(float)
    times: dict[Group, float] = {}
    names = dict(_groups(program))
    around: list[Group] = []
    for row in bundles.rows:
        del around[row.depth :]
        key = names.get(row.name) if row.kind != "call" else ("step", "")
        around.append(key or around[-1])
        totals[around[-1]] += row.total
        if key is not None:
            times[key] = row.times
    return {key: total / times[key] for key, total in totals.items() if times[key]}


def _groups(program: p.Program) -> Iterator[tuple[str, Group]]:
    """By the name of a region."""
    yield LAYERS, (LAYERS, "")
    for at in walk(program):
        match op := at.op:
            case p.LayerSwitch():
                yield from ((part_scope(part), (part, "")) for part, _ in op.bodies)
            case p.Attend():
                yield tiles_scope(op), (at.place, "tiles")
            case p.Experts():
                yield expert_scope(program.banks[op.bank].name), (at.place, "experts")
