"""What collectives need, counted by hand."""

import pytest
from helpers.small import Case, program

from mks.dsl.collectives.collective import BufferNeed, CollectivePlan, Exchanged, Round, Wire
from mks.dsl.collectives.kinds import table
from mks.dsl.diagnostics import MksError
from mks.dsl.program.ir import Program
from mks.dsl.program.verify.prove import prove


def plan(kind: str, cores: int, rows: int, width: int, wire: str, beside: int = 0) -> CollectivePlan:
    """Of a kind by name."""
    return table[kind].plan(Exchanged(cores, rows, width, Wire(wire), beside))


def test_direct() -> None:
    """One slot a core and parity; all is sent to all in one round."""
    found = plan("direct", 8, 1, 5120, "f32")

    assert found.buffers == (BufferNeed("slots", (2, 8, 1, 5120), "f32"),)
    assert (found.serial, found.sent, found.semaphores) == (1, 7 * 5120 * 4, (1, 2, 2))


def test_scatter_gather() -> None:
    """Two rounds of an eighth each; chunks are whole lanes."""
    found = plan("scatter_gather", 8, 3, 5000, "bf16")

    assert {need.shape[-2:] for need in found.buffers} == {(3, 640)}
    assert (found.serial, found.sent) == (2, 2 * 7 * 3 * 640 * 2)
    assert plan("scatter_gather", 8, 1, 64, "f32").buffers[0].shape == (8, 1, 128)


def test_scatter() -> None:
    """One round; each core's chunk, and what comes to every core after it."""
    found = plan("reduce_scatter", 32, 8, 7168 + 128, "bf16", 128)

    assert [need.shape for need in found.buffers] == [(32, 8, 256 + 128), (2, 32, 8, 256 + 128)]
    assert (found.serial, found.sent, found.beside) == (1, 31 * 8 * (256 + 128) * 2, 128)
    assert plan("reduce_scatter", 32, 8, 7168, "bf16").sent == 31 * 8 * 256 * 2
    with pytest.raises(ValueError, match="empty"):
        plan("reduce_scatter", 32, 8, 128, "bf16", 128)


def test_two_level() -> None:
    """A half to the sibling, a half to each other chip, a half back; two cores have no other chip."""
    found = plan("two_level", 8, 1, 5120, "bf16")

    half = 2560 * 2
    assert found.rounds == (Round(1, half, True), Round(3, half), Round(1, half, True))
    assert (found.serial, found.sent) == (3, 5 * half)
    assert plan("two_level", 2, 1, 5120, "bf16").serial == 2


def test_gather_and_argmax() -> None:
    """Shares are padded to whole lanes; a value and its id fill a row of lanes each."""
    assert plan("gather", 4, 2, 100, "bf16").sent == 3 * 2 * 128 * 2
    assert plan("argmax", 4, 8, 128, "int32").buffers == (BufferNeed("slots", (2, 4, 2, 8, 128), "int32"),)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("direct", 1, 1, 64, "f32"), "nobody"),
        (("two_level", 3, 1, 64, "f32"), "in pairs"),
        (("direct", 2, 0, 64, "f32"), "empty"),
        (("direct", 2, 1, 64, "int32"), "nothing travels as int32"),
        (("softmax_merge", 2, 1, 64, "bf16"), "nothing travels as bf16"),
    ],
)
def test_refusals(arguments: tuple, text: str) -> None:
    """What cannot be exchanged is refused."""
    with pytest.raises(ValueError, match=text):
        plan(*arguments)


def summed(mesh: str, ffn: str, by: str, target: str = "tpu7x 2x2x1") -> Program:
    """A layer of SmolLM2 whose MLP's sum is over some axes of a mesh."""
    lines = f"target {target}\ncontext 256\nmesh {mesh}\nshard {ffn} : ffn, vocab\nreduce mlp.h (by = {by})\n"
    return program(Case("smollm2", 1, lines, 1, (("vocab", 1536),)))


@pytest.mark.parametrize("mesh", ["ep = 1, tp = 8", "ep = 8, tp = 1"])
@pytest.mark.parametrize("by", ["direct", "scatter_gather", "two_level"])
def test_an_axis_of_one_core(mesh: str, by: str) -> None:
    """It tells no cores apart, so that collectives over the other axis are over all cores."""
    name = mesh.partition(" = 8")[0].rpartition(" ")[2]
    found = summed(mesh, name, by)

    assert prove(found) == []
    assert {each.axes for each in found.exchanges.values()} == {(name,)}


@pytest.mark.parametrize(
    ("mesh", "over", "target"),
    [
        ("ep = 2, tp = 4", "ep", "tpu7x 2x2x1"),
        ("tp = 3", "tp", "v5p 1x1x3"),
    ],
)
def test_cores_without_neighbours(mesh: str, over: str, target: str) -> None:
    """Two levels are for pairs along the last axis."""
    other = "vocab" if "," in mesh else "q_heads, kv_heads"
    with pytest.raises(MksError, match=f"sum over `{over}` by two_level"):
        program(
            Case(
                "smollm2",
                1,
                f"target {target}\ncontext 256\nmesh {mesh}\nshard {over} : ffn\n"
                f"shard tp : {other}\nreduce mlp.h (by = two_level)\n",
            )
        )
