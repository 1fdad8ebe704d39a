"""The walk gives every op once, under a path of its own, in its place, as often as a call runs it."""

from __future__ import annotations

from collections import Counter

import pytest
from helpers.definitions import FOLDER

from mks.dsl.frontend import load_definition
from mks.dsl.model.instantiate import instantiate
from mks.dsl.program import ir as p
from mks.dsl.program.ir.walk import children, executed, walk
from mks.dsl.program.lower.lower import lower


def program(name: str) -> p.Program:
    """A shipped definition's first schedule."""
    definition = load_definition(FOLDER / f"{name}.mks")
    schedule = next(s for s in definition.schedules.values() if s.model.drafts is None)
    instance, _ = instantiate(schedule.model)
    assert instance is not None
    return lower(schedule, instance, 2)


@pytest.mark.parametrize("name", ["qwen3", "kimi_k3"])
def test_trips_are_what_a_call_runs(name: str) -> None:
    """Layer by layer, and repetition by repetition; what is done with an expert counts for one."""
    made = program(name)
    ran = Counter(at.path for at in executed(made))
    found = {at.path: at for at in walk(made)}

    assert len(found) == sum(1 for _ in walk(made))
    assert {path: at.trips for path, at in found.items()} == ran


def test_a_path_leads_to_its_op() -> None:
    """From the phase on; a switch has the number of the part before that of the op."""
    made = program("kimi_k3")
    for at in walk(made):
        phase, first, *rest = at.path
        op, way = made.phases[phase].body[first], rest
        while way:
            body = next(body for body in children(op) if tuple(way[: len(body.path)]) == body.path)
            number, *way = way[len(body.path) :]
            op = body.ops[number]

        assert op is at.op


def test_parts_are_places() -> None:
    """An op of a part is in it, inside of repetitions and experts too; others are in the step."""
    made = program("kimi_k3")
    inside = {type(each.op) for at in walk(made) if isinstance(at.op, p.Experts) for each in at.inside}

    assert p.ExpertDot in inside
    assert {at.place for at in walk(made) if isinstance(at.op, p.ExpertDot)} == {"moe"}
    assert {at.place for at in walk(made) if isinstance(at.op, p.Argmax | p.LayerLoop)} == {"step"}
