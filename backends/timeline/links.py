"""How long the rounds of a collective take: by latency where messages are small, by the busiest link where large."""

from __future__ import annotations

from math import prod

from ...dsl.collectives.collective import CollectivePlan, Round
from ...dsl.program import ir as p
from ...dsl.program.ir.scratch import collective
from ...dsl.schedule.ir import Schedule
from ...dsl.targets.target import Target


def round_seconds(messages: Round, group: tuple[int, ...], target: Target) -> float:
    """From the first message's start to the last one's arrival; `group` are the chips taking part, along each axis."""
    if not messages.peers:
        return 0.0
    chips = prod(group)
    if messages.sibling or chips == 1:
        return target.links.sibling_latency.value + messages.peers * messages.message / target.links.sibling_rate.value
    crossing = messages.message * crossings(messages.peers + 1, group) / target.links.link_rate.value
    return max(target.links.chip_latency.value, target.links.chip_setup.value + crossing)


def crossings(cores: int, group: tuple[int, ...]) -> float:
    """Messages over the busiest link when all of `cores` send one to each other, counted for each core of a chip.

    Half of all messages cross the middle of a line of chips, which has no link back from its end to its start.
    """
    return max(cores * length / 4 for length in group if length > 1)


def chips(schedule: Schedule, axes: tuple[str, ...]) -> tuple[int, ...]:
    """The box of chips along the topology's axes that a group over mesh axes takes up; cores of a chip come first.

    Mesh axes are laid out over the topology with the last axis fastest; a group's own axes stay, the others go.
    """
    box = [1] * len(schedule.topology)
    fastest = [(axis, length) for axis, length in reversed(schedule.mesh)]
    left = [schedule.target.cores, *schedule.topology]
    at = 0
    for axis, length in fastest:
        rest = length
        while rest > 1 and at < len(left):
            took = min(rest, left[at])
            if at and axis in axes:
                box[at - 1] *= took
            rest, left[at] = -(-rest // took), -(-left[at] // took)
            if left[at] == 1:
                at += 1
    return tuple(box)


def rounds(program: p.Program, exchange: p.Collective, target: Target) -> tuple[float, ...]:
    """The seconds of each round of one of a Program's collectives."""
    plan: CollectivePlan = collective(program, exchange)
    group = chips(program.schedule, exchange.axes)
    return tuple(round_seconds(each, group, target) for each in plan.rounds)
