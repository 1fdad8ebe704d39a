"""Experts as kernels fetch them: every code and scale is where the layout says, and comes out as it went in."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from attrs import evolve
from helpers.experts import expert, laid_out
from hypothesis import given, settings
from hypothesis import strategies as st

from mks.dsl.diagnostics import MksError
from mks.dsl.frontend import load_definition
from mks.dsl.program.layout.expert_layout import ExpertLayout, ExpertProduct
from mks.dsl.schedule.shares import Shares
from mks.models.checkpoint import codecs
from mks.models.checkpoint.binding import Binding
from mks.models.checkpoint.load import load
from mks.models.checkpoint.read import Quantised, read, read_expert
from mks.models.packing.experts import (
    Matrix,
    bank_expert,
    expert_share,
    pack_expert,
    unpack_expert,
)

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"


def drawn(outputs: int, inputs: int, product: ExpertProduct, seed: int) -> Quantised:
    """Any codes and scales."""
    draw = np.random.default_rng(seed)
    codes = draw.integers(0, 256, (outputs, -(-inputs * product.tiling.bits // 8)), np.uint8)
    if product.codec.name == "mxfp4" and inputs % 2:
        codes[:, -1] &= 15
    return Quantised(codes, draw.integers(0, 256, (outputs, product.groups), np.uint8))


def bits(matrix: Matrix) -> tuple[bytes, ...]:
    """A matrix as bytes."""
    parts = (matrix.codes, matrix.scales) if isinstance(matrix, Quantised) else (matrix,)
    return tuple(np.ascontiguousarray(part).tobytes() for part in parts)


@settings(max_examples=40, deadline=None)
@given(width=st.integers(1, 600), latent=st.integers(1, 20), codec=st.sampled_from(("mxfp4", "fp8")))
def test_what_is_packed_can_be_unpacked(width: int, latent: int, codec: str) -> None:
    """Bit by bit, for all shapes; the product whose inputs are shared may have short groups."""
    latent *= 32
    layout = expert(width, latent, codec)
    given = [drawn(width, latent, layout["gate+up"], seed) for seed in (0, 1)]
    given.append(drawn(latent, width, layout["down"], 2))

    rows = pack_expert(given, layout)

    assert (rows.shape, rows.dtype) == ((layout.rows, 512), np.int32)
    assert [bits(m) for m in unpack_expert(rows, layout)] == [bits(m) for m in given]


@pytest.mark.parametrize("codec", ["bf16", "f32"])
def test_plain_matrices_can_be_unpacked(codec: str) -> None:
    """Numbers of an expert that is not quantised."""
    dtype = np.dtype({"bf16": ml_dtypes.bfloat16, "f32": np.float32}[codec])
    layout = expert(40, 72, codec)
    draw = np.random.default_rng(0)
    given = [draw.normal(size=shape).astype(dtype) for shape in [(40, 72), (40, 72), (72, 40)]]

    found = unpack_expert(pack_expert(given, layout), layout)

    assert [bits(m) for m in found] == [bits(m) for m in given]


@pytest.mark.parametrize("codec", ["mxfp4", "fp8"])
@pytest.mark.parametrize(("widths", "inputs"), [((384, 384), 96), ((8,), 8), ((700,), 640), ((5, 90), 48)])
def test_every_code_and_scale_is_where_the_layout_says(widths: tuple[int, ...], inputs: int, codec: str) -> None:
    """One element at a time, as the layout's description says it."""
    layout = laid_out([("one", widths, inputs)], codec)
    product, bits, per_word = layout["one"], layout["one"].tiling.bits, layout["one"].tiling.per_word
    given = [drawn(width, inputs, product, i) for i, width in enumerate(widths)]
    codes, scales = (np.concatenate([getattr(m, name) for m in given]) for name in ("codes", "scales"))

    words = pack_expert(given, layout).view(np.uint32)

    used = np.zeros_like(words)
    for block in product.blocks:
        each = product.tiling.inputs // block.fold
        for output in range(block.first, min(block.first + block.columns, product.outputs)):
            for k in range(inputs):
                piece, at = divmod(k, each)
                lane = piece * block.columns + output - block.first
                code = codes[output, k // 2] >> 4 * (k % 2) & 15 if codec == "mxfp4" else codes[output, k]
                row, shift, every = block.row + at // per_word, bits * (at % per_word), 2**bits - 1
                assert words[row, lane] >> shift & every == code
                used[row, lane] |= every << shift
                if at % product.group == 0:
                    group = at // product.group
                    row, byte = product.place(block.octet + group // 8)
                    assert words[row + group % 8, lane] >> 8 * byte & 255 == scales[output, k // product.group]
                    used[row + group % 8, lane] |= 255 << 8 * byte
    assert not (words & ~used).any()


def bound(checkpoint: str) -> Binding:
    """Kimi K3 with the sizes of a small checkpoint."""
    model = load_definition(ROOT / "models" / "kimi_k3.mks").models["kimi_k3"]
    binding, found = load(model, DATA / checkpoint, adopt=True)
    assert binding is not None, found
    return binding


def shared(binding: Binding, ep: int, tp: int) -> Shares:
    """By the shipped schedule, but over so many cores."""
    found = load_definition(ROOT / "models" / "kimi_k3.mks").schedules["kimi_k3", "ironwood16"]
    assert found is not None
    return Shares(evolve(found, mesh=(("ep", ep), ("tp", tp))), binding.instance)


def of_core(shares: Shares, codec: str) -> tuple[ExpertLayout, list]:
    """The layout of one core's experts, and their weights."""
    weights = [shares.instance.model.weights[f"moe.{name}"] for name in ("gate", "up", "down")]
    gate, up, down = (shares.weight_shape(weight) for weight in weights)
    return laid_out([("gate+up", (gate[1], up[1]), gate[2]), ("down", (down[1],), down[2])], codec), weights


def plain(matrix: Matrix, product: ExpertProduct) -> np.ndarray:
    """In f32, of a share with groups of any length."""
    if not isinstance(matrix, Quantised):
        return matrix.astype(np.float32)
    values = matrix.codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    if product.codec.name == "mxfp4":
        codes = np.stack([matrix.codes & 15, matrix.codes >> 4], axis=-1).reshape(len(matrix.codes), -1)
        values = codecs.E2M1[codes][:, : product.inputs]
    scales = np.ldexp(np.float32(1), matrix.scales.astype(np.int32) - 127)
    return values * np.repeat(scales, product.group, axis=1)[:, : product.inputs]


@pytest.mark.parametrize(
    ("checkpoint", "codec"),
    [
        ("kimi_k3_mxfp4_tiny", "mxfp4"),
        ("kimi_k3_mxfp4_tp8", "mxfp4"),
        ("kimi_k3_mxfp4_tp8", "fp8"),
        ("kimi_k3_tiny", "f32"),
    ],
)
@pytest.mark.parametrize(("ep", "tp"), [(1, 1), (2, 4), (4, 8), (1, 32), (3, 5)])
def test_shares_of_all_cores_make_up_the_experts(checkpoint: str, codec: str, ep: int, tp: int) -> None:
    """Each core's bank, unpacked and decoded, is its part of the weight, bit by bit; groups are cut and padded."""
    binding = bound(checkpoint)
    shares, layer = shared(binding, ep, tp), 1
    layout, weights = of_core(shares, codec)
    whole = [read(binding, weight.name, layer).astype(np.float32) for weight in weights]
    found = [np.zeros_like(array) for array in whole]

    for core in range(ep * tp):
        experts = shares.weight_shape(weights[0])[0]
        for i in range(experts):
            rows = bank_expert(lambda name, e: read_expert(binding, name, layer, e), weights, layout, shares, core, i)
            expert = core // tp * experts + i
            if expert >= len(whole[0]):
                assert not rows.any()
                continue
            for at, (matrix, product) in enumerate(
                zip(unpack_expert(rows, layout), ["gate+up"] * 2 + ["down"], strict=True)
            ):
                values = plain(matrix, layout[product])
                place: list = [slice(None), slice(None)]
                axis = 1 if at == 2 else 0
                first = core % tp * values.shape[axis]
                place[axis] = slice(first, first + values.shape[axis])
                target = found[at][expert][tuple(place)]
                kept = tuple(slice(n) for n in target.shape)
                target[...] = values[kept]
                values[kept] = 0
                assert not values.any()

    for a, b in zip(found, whole, strict=True):
        np.testing.assert_array_equal(a, b)


def test_shares_are_views_of_what_is_stored() -> None:
    """Where a share cuts no group, nothing is copied before packing."""
    binding = bound("kimi_k3_mxfp4_tiny")
    shares = shared(binding, 2, 2)
    weight = binding.instance.model.weights["moe.down"]
    matrix = read_expert(binding, "moe.down", 1, 3)

    share = expert_share(matrix, weight, shares, 1)

    assert isinstance(matrix, Quantised)
    assert isinstance(share, Quantised)
    assert np.shares_memory(share.codes, matrix.codes)
    assert np.shares_memory(share.scales, matrix.scales)


@pytest.mark.parametrize("byte", [0, 255, 254])
def test_reserved_scales_are_refused(byte: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expert is refused for the scales that its whole weight is refused for."""
    binding = bound("kimi_k3_mxfp4_tiny")
    piece = binding.sources["moe.up", 1].pieces[2]
    assert piece.scales is not None
    bad = piece.scales.tensor.array().view(np.uint8).copy()
    bad.flat[5] = byte
    stored = type(piece.scales.tensor)
    good, name = stored.array, piece.scales.tensor.name
    monkeypatch.setattr(stored, "array", lambda self: bad if self.name == name else good(self))

    read_expert(binding, "moe.up", 1, 1)
    with pytest.raises(MksError) as raised:
        read_expert(binding, "moe.up", 1, 2)
    with pytest.raises(MksError) as expected:
        read(binding, "moe.up", 1)

    assert raised.value.diagnostics == expected.value.diagnostics
