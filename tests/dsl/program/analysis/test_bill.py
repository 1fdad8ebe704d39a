"""Bills of Programs: every buffer once, by name, and totals that add up."""

from __future__ import annotations

import pytest
from helpers.definitions import changed
from helpers.drawing import FULL, draw

from mks.dsl.program import ir as p
from mks.dsl.program.analysis.memory import TEMPORARIES, Bill, bill
from mks.dsl.program.analysis.spills import temporaries
from mks.dsl.program.lower.lower import lower
from mks.dsl.targets.targets import padded_bytes


def lowered(name: str, rows: int, *edits: tuple[str, str]) -> p.Program:
    """A shipped schedule's Program."""
    found = changed(name, *edits)
    key = found.own_schedules[0]
    schedule = found.schedules[key]
    assert schedule is not None
    return lower(schedule, found.instances[key[0]], rows)


def sizes(found: Bill) -> dict[str, int]:
    """VMEM by line."""
    return {line.name: line.bytes for line in found.lines}


@pytest.mark.parametrize("rows", [1, 8])
def test_every_buffer_has_a_line_of_its_padded_bytes(rows: int) -> None:
    """Qwen3.8: what the Program holds, its ring, messages, columns and what the compiler adds; nothing else."""
    program = lowered("qwen38", rows)
    found = bill(program)
    lines = sizes(found)
    for buffer in program.buffers.values():
        assert lines.pop(buffer.name.label) == padded_bytes(buffer.shape, buffer.dtype)
    assert lines.pop("stream dense") == 14 * 2560 * 1024
    assert lines.pop("tokens, positions, ids") == 3 * padded_bytes((rows, 1), "int32")
    assert lines.pop(TEMPORARIES) == temporaries(program)
    room = ((rows, 8, 128), (rows, 6, 128), (rows, 12))
    assert lines.pop("room of delta_rule") == sum(padded_bytes(shape, "f32") for shape in room)
    assert all(name.startswith("messages of ") for name in lines)
    assert found.total == sum(sizes(found).values())
    assert [line.bytes for line in found.lines] == sorted((line.bytes for line in found.lines), reverse=True)


def test_collectives_of_one_shape_share_their_buffers() -> None:
    """A layer's sums and the embedding's, which travels as they do, have one set; the choice of ids has its own."""
    names = [line.name for line in bill(lowered("qwen38", 1)).lines if line.name.startswith("messages of ")]
    assert sorted(names) == ["messages of attention.h, delta.h, mlp.h, step.h", "messages of ids"]


def test_the_peak_is_where_an_op_takes_most_room() -> None:
    """The delta rule takes room while it runs; a model without it is the same everywhere."""
    assert bill(lowered("qwen38", 1)).peak == "delta"
    assert bill(lowered("smollm2", 1)).peak == ""


def test_lines_show_what_asks_for_them() -> None:
    """A cache's tiles, an early state and vectors are the prefetch line's, a ring is its `slots`."""
    words = {line.name: line.span and line.span.text for line in bill(lowered("qwen38", 1)).lines}
    assert words["stream dense"] == "slots = 14"
    assert str(words["tiles of attention.keys"]).startswith("prefetch attention.cache")
    assert str(words["state delta.S"]).startswith("prefetch delta.state")
    assert str(words["vectors mlp"]).startswith("prefetch vectors")


def test_other_memories_have_lines_too() -> None:
    """SmolLM2: tape, table, vectors and caches in HBM; a word of SMEM for each transfer and tile; semaphores."""
    program = lowered("smollm2", 1)
    found = bill(program)
    hbm = {line.name: line.bytes for line in found.hbm}
    assert hbm["attention.keys"] == 30 * 3 * 2048 * 128 * 2
    assert hbm["table embed"] == 49152 * 384 * 4
    assert found.held == sum(hbm.values())
    smem = {line.name: line.bytes for line in found.smem}
    assert smem["tiles of 256 positions"] == 512
    assert smem["table of layers"] == 32 * 512
    assert {line.name for line in found.semaphores} >= {"unstreamed weights", "cache attention", "lookups"}


def test_more_of_anything_never_takes_less() -> None:
    """Bills grow with rows, slots and tiles: the search for what fits rests on it."""
    totals = [bill(lowered("qwen38", rows)).total for rows in (1, 2, 4, 8)]
    assert totals == sorted(totals)
    slots = [bill(lowered("qwen38", 1, ("slots = 14", f"slots = {n}"))).total for n in (2, 14, 15, 24)]
    assert slots == sorted(slots)
    tiles = [bill(lowered("qwen38", 1, ("tile = 1024 tokens", f"tile = {n} tokens"))).total for n in (128, 256, 1024)]
    assert tiles == sorted(tiles)


@pytest.mark.parametrize("seed", range(20))
def test_random_schedules_are_billed(seed: int) -> None:
    """Names are unique, no line is empty, and only a band above the memory is left to the compiler."""
    program = draw(seed, FULL).lowered()
    if not isinstance(program, p.Program):
        return
    found = bill(program)
    assert len(sizes(found)) == len(found.lines)
    assert all(line.bytes > 0 for line in (*found.lines, *found.hbm, *found.smem))
    assert found.in_band == (found.limit < found.total <= 1.05 * found.limit)
