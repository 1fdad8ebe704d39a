"""Experts that a schedule stores as fp8: packed exactly, or refused with what is in the way."""

from collections.abc import Callable, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from helpers.definitions import FOLDER
from helpers.oracles import DATA
from helpers.packs import in_memory, pack, prepared

from mks.dsl.diagnostics import MksError
from mks.dsl.program.ir import ExpertPoolRef
from mks.dsl.program.print.json import numerics
from mks.dsl.source import Source
from mks.models.checkpoint.read import Quantised, read
from mks.models.packing.experts import unpack_expert
from mks.models.packing.layout import fingerprint
from mks.models.packing.packed import open_packed, verify

type Save = Callable[[Path, Mapping[str, np.ndarray]], None]

EXPERTS, FFN, D, GROUP = 4, 320, 512, 32
TEXT = """mks 1

model toy {
  size d   = 512  from d
  size n   = 4    from n
  size ffn = 320  from ffn
  weights {
    embed : bf16[d, d]  "embed"
  }
  part moe {
    weights "{layer}." {
      router   : bf16[n, d]        "router"
      bias     : f32[n]            "bias"
      gate, up : mxfp4[n, ffn, d]  "{n}.{name}"  scale "{n}.{name}_scale"
      down     : mxfp4[n, d, ffn]  "{n}.down"    scale "{n}.down_scale"
    }
    score  = f32(sigmoid(router @ x))
    chosen = route(score, bias, 2)
    y = experts(x, chosen) { e -> down[e] @ (silu(gate[e] @ x) * (up[e] @ x)) }
    x = x + y
  }
  step {
    x = embed[token]
    for layer in 0 .. 2 {
      moe
    }
    logits = f32(embed @ x)
  }
}

schedule one for toy {
  target v5e 1x1
  context 64
  STORE
}
"""


def source(store: str) -> Source:
    """The model, with a line in its schedule."""
    return Source("toy.mks", TEXT.replace("STORE", store))


@pytest.fixture
def checkpoint(tmp_path: Path, save_file: Save) -> Callable[[], Path]:
    """Writes one whose scales are up to 2 ** 6 apart, but for changes: a tensor's name, an index and a byte."""

    def write(*changes: tuple[str, tuple[int, int], int]) -> Path:
        rng = np.random.default_rng(3)
        arrays: dict[str, np.ndarray] = {"embed": rng.normal(size=(D, D)).astype(ml_dtypes.bfloat16)}
        for layer in range(2):
            arrays[f"{layer}.router"] = rng.normal(size=(EXPERTS, D)).astype(ml_dtypes.bfloat16)
            arrays[f"{layer}.bias"] = rng.normal(size=EXPERTS).astype(np.float32)
            for name, (outputs, inputs) in {"gate": (FFN, D), "up": (FFN, D), "down": (D, FFN)}.items():
                for e in range(EXPERTS):
                    key = f"{layer}.{e}.{name}"
                    arrays[key] = rng.integers(0, 256, (outputs, inputs // 2), np.uint8)
                    arrays[f"{key}_scale"] = rng.integers(117, 124, (outputs, inputs // GROUP), np.uint8)
        for name, index, byte in changes:
            arrays[name][index] = byte
        folder = tmp_path / "checkpoint"
        folder.mkdir()
        save_file(folder / "model.safetensors", arrays)
        (folder / "config.json").write_text(f'{{"d": {D}, "n": {EXPERTS}, "ffn": {FFN}}}')
        return folder

    return write


@pytest.mark.parametrize("store", ["moe.gate, moe.up, moe.down", "moe.up", "moe.down"])
def test_packed_experts_keep_their_values(checkpoint: Callable[..., Path], tmp_path: Path, store: str) -> None:
    """Each matrix in its codec, bit by bit the checkpoint's numbers; a file is what is made in memory."""
    made = prepared(source(f"store {store} as fp8 block 256"), checkpoint())
    pack(made, tmp_path / "packed")
    packed = open_packed(tmp_path / "packed")

    assert verify(packed) == []
    _, binding, program = made
    said = [text for kind, text in numerics(program) if kind == "store"]
    assert said == [f"{name} as fp8 block 256" for name in store.split(", ")]
    np.testing.assert_array_equal(packed.operand("bank moe", 0), in_memory(made, 0)["bank moe"])
    bank = program.banks[ExpertPoolRef("moe")]
    for layer, experts in enumerate(packed.operand("bank moe", 0)):
        for e, rows in enumerate(experts):
            matrices = iter(unpack_expert(rows, bank.layout))
            for product, names in zip(bank.layout.products, bank.products, strict=True):
                for name in names:
                    matrix = next(matrices)
                    assert (product.codec.name == "fp8") == (name in store)
                    if product.codec.name == "fp8":
                        assert isinstance(matrix, Quantised)
                        scales = np.ldexp(np.float32(1), matrix.scales.astype(int) - 127)
                        spread = np.repeat(scales, product.group, axis=1)[:, : product.inputs]
                        found = matrix.codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * spread
                        np.testing.assert_array_equal(found, read(binding, name, layer)[e].astype(np.float32))


def test_a_block_that_would_lose_bits_is_refused(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """E429 names tensor, expert, block and scales that are too far apart; what it proposes can be done."""
    folder = checkpoint(("1.2.down_scale", (7, 9), 100))
    line = "store moe.down as fp8 block {}"

    with pytest.raises(MksError) as raised:
        pack(prepared(source(line.format(320)), folder), tmp_path / "refused")
    (found,) = raised.value.diagnostics
    assert found.code == "E429"
    assert found.message == "`moe.down` cannot be kept as fp8 block 320: a block would lose bits"
    assert found.primary is not None
    assert found.primary.span.text == "moe.down"
    where = "`1.2.down_scale`: expert 2, output 7, inputs 0 .. 320: scales from 2 ** -27 to 2 ** -"
    assert found.notes[0].startswith(where)
    assert "448 and 2 ** -9" in found.notes[1]
    assert found.helps == (
        "`store moe.down as fp8 block 288` would keep this matrix",
        "without the line `moe.down` stays as it is stored",
    )

    for other in (line.format(288), "store moe.gate as fp8 block 256", "store moe.up, moe.gate as fp8 block 32"):
        pack(prepared(source(other), folder), tmp_path / other.replace(" ", "_"))


def test_plain_experts_are_refused() -> None:
    """A checkpoint of numbers that are not quantised has more bits than can be kept."""
    text = (FOLDER / "kimi_k3.mks").read_text("utf-8")
    one = "schedule one for kimi_k3 {\n  target v5e 1x1\n  context 256\n  store moe.gate, moe.up as fp8 block 256\n}\n"
    tried = Source("kimi_k3.mks", text[: text.index("schedule ironwood16")] + one)

    with pytest.raises(MksError) as raised:
        prepared(tried, DATA / "kimi_k3_tiny", "one")

    (found,) = raised.value.diagnostics
    assert found.code == "E429"
    assert "the checkpoint has plain numbers" in found.message
    assert prepared(tried, DATA / "kimi_k3_mxfp4_tiny", "one")


def test_other_blocks_are_another_layout(checkpoint: Callable[..., Path]) -> None:
    """Kernels for one form do not take a folder of another for theirs."""
    folder = checkpoint()
    lines = (
        "",
        "store moe.down as fp8 block 256",
        "store moe.down as fp8 block 128",
        "store moe.gate as fp8 block 256",
    )

    assert len({fingerprint(prepared(source(line), folder)[2]) for line in lines}) == len(lines)
