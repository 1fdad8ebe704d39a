"""Codecs against straightforward decoding, one number at a time or by ml_dtypes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mks.dsl.diagnostics import MksError
from mks.dsl.model.ir import Model
from mks.models.checkpoint import codecs
from mks.models.checkpoint.load import load
from mks.models.checkpoint.read import read, read_all

ARRAYS = dict[str, np.ndarray]
SIGNED = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def e2m1(code: int) -> float:
    """A four-bit code's value."""
    return -SIGNED[code & 7] if code & 8 else SIGNED[code]


def nibbles(packed: np.ndarray) -> np.ndarray:
    """Codes of bytes, the low half first, number by number."""
    out = np.zeros((*packed.shape[:-1], packed.shape[-1] * 2), np.uint8)
    for index in np.ndindex(packed.shape):
        byte = int(packed[index])
        out[(*index[:-1], 2 * index[-1])] = byte & 15
        out[(*index[:-1], 2 * index[-1] + 1)] = byte >> 4
    return out


def encode_mxfp4(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nearest mxfp4 of `[rows, n]`: packed bytes and scale bytes."""
    groups = values.reshape(len(values), -1, 32)
    largest = np.maximum(np.abs(groups).max(-1), 2.0**-100)
    exponent = np.clip(np.floor(np.log2(largest)).astype(int) - 2, -126, 127)
    grid = np.array(SIGNED, np.float32)
    scaled = groups / np.exp2(exponent)[..., None]
    code = np.abs(np.abs(scaled)[..., None] - grid).argmin(-1) | np.where(scaled < 0, 8, 0)
    code = code.reshape(values.shape).astype(np.uint8)
    return code[:, 0::2] | code[:, 1::2] << 4, (exponent + 127).astype(np.uint8)


def test_e2m1_table_is_the_standard_one() -> None:
    """All sixteen codes agree with ml_dtypes' float4."""
    standard = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)

    assert np.array_equal(codecs.E2M1.view(np.uint32), standard.view(np.uint32))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_mxfp4(seed: int) -> None:
    """Random bytes decode as one code times two to the power of its group's byte minus 127."""
    rng = np.random.default_rng(seed)
    packed, scale = rng.integers(0, 256, (3, 32), np.uint8), rng.integers(1, 250, (3, 2), np.uint8)

    found = codecs.mxfp4(packed, scale)

    code = nibbles(packed)
    for row, column in np.ndindex(3, 64):
        assert found[row, column] == e2m1(code[row, column]) * 2.0 ** (int(scale[row, column // 32]) - 127)
    assert np.array_equal(found, codecs.mxfp4(packed, scale.view(ml_dtypes.float8_e8m0fnu)))
    # Every value but the smallest is exact in bf16 as well.
    assert np.array_equal(found, found.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_mxfp4_keeps_what_is_on_its_grid() -> None:
    """Encoding and decoding values of the grid changes none of them."""
    rng = np.random.default_rng(0)
    values = rng.choice([*SIGNED, *(-x for x in SIGNED)], (4, 64)).astype(np.float32)
    values[:, ::32] = 6.0
    values *= np.exp2(rng.integers(-9, 9, (4, 2))).repeat(32, axis=1).astype(np.float32)

    assert np.array_equal(codecs.mxfp4(*encode_mxfp4(values)), values)


@pytest.mark.parametrize(("byte", "words"), [(0, "are 0"), (255, "are 255"), (254, "infinite")])
def test_mxfp4_refuses_scales_that_mean_no_number(byte: int, words: str) -> None:
    """Reserved bytes and infinite products are refused; a large scale of small codes is not."""
    packed, scale = np.full((1, 16), 0x77, np.uint8), np.full((1, 1), byte, np.uint8)

    with pytest.raises(codecs.BadScale, match=words):
        codecs.mxfp4(packed, scale)
    assert np.isfinite(codecs.mxfp4(np.full((1, 16), 0x11, np.uint8), np.full((1, 1), 254, np.uint8))).all()


def test_nvfp4() -> None:
    """A code times its group's e4m3 times the global scale."""
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (2, 4, 24), np.uint8)
    scale = rng.uniform(0.1, 400, (2, 4, 3)).astype(ml_dtypes.float8_e4m3fn)
    spread = np.array([0.25, 3e-5], np.float32).reshape(2, 1, 1)

    found = codecs.nvfp4(packed, scale, spread)

    code = nibbles(packed)
    for e, row, column in np.ndindex(2, 4, 48):
        exact = np.float32(e2m1(code[e, row, column]) * float(scale[e, row, column // 16]))
        assert found[e, row, column] == exact * spread[e, 0, 0]
    with pytest.raises(codecs.BadScale):
        codecs.nvfp4(packed, np.full_like(scale, np.nan), spread)
    with pytest.raises(codecs.BadScale):
        codecs.nvfp4(packed, scale, np.full_like(spread, np.inf))


def test_int8_by_column() -> None:
    """One scale for each output."""
    rng = np.random.default_rng(0)
    codes = rng.integers(-128, 128, (3, 5), np.int8)
    scale = rng.normal(size=3).astype(ml_dtypes.bfloat16)

    found = codecs.int8(codes, scale)

    for row, column in np.ndindex(3, 5):
        assert found[row, column] == np.float32(int(codes[row, column])) * np.float32(scale[row])


@pytest.mark.parametrize("words", [True, False])
def test_int4(words: bool) -> None:
    """A nibble less eight times its group's scale, from 32-bit words and from bytes."""
    rng = np.random.default_rng(0)
    codes, scale = rng.integers(0, 16, (3, 64)), rng.normal(size=(3, 4)).astype(ml_dtypes.bfloat16)
    width, dtype = (8, np.uint32) if words else (2, np.uint8)
    packed = sum(codes[:, i::width].astype(np.uint64) << 4 * i for i in range(width)).astype(dtype)

    found = codecs.int4(packed.view(np.int32) if words else packed, scale, 16)

    for row, column in np.ndindex(3, 64):
        assert found[row, column] == (codes[row, column] - 8) * np.float32(scale[row, column // 16])


@pytest.mark.parametrize("skip", [0, 3])
def test_fp8_blocks(skip: int) -> None:
    """A scale for each block, the last ones short, also where rows begin inside a block."""
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(10, 11)).astype(ml_dtypes.float8_e4m3fn)
    scale = rng.uniform(0.5, 2, (3, 3)).astype(np.float32)

    found = codecs.fp8(whole[skip:], scale, 4, skip)

    for row, column in np.ndindex(*found.shape):
        value = np.float32(whole[row + skip, column])
        assert found[row, column] == value * scale[(row + skip) // 4, column // 4]


# Through a definition


TEXT = """mks 1

model toy {{
  size d = 64
  size n = 8
  size layers = 1
  size vocab = 4
  size e = 2
  weights {{
    embed : bf16[vocab, d]  "embed"
  }}
  part moe {{
    weights "l.{{layer}}." {{
      bias : f32[e]  "bias"
      g : {codec}[e, n, d]  "g" {g}
      u : {codec}[e, n, d]  "g" {u}
      down : bf16[d, n]     "down"
    }}
    chosen = route(bias, bias, 1)
    y = experts(h, chosen) {{ i -> (g[i] @ h) * (u[i] @ h) }}
    h = h + down @ y
  }}
  step {{
    h = embed[token]
    for layer in 0 .. layers {{
      moe
    }}
    logits = f32(embed @ h)
  }}
}}
"""


def arrays(**extra: np.ndarray) -> ARRAYS:
    """The plain tensors of that definition and `extra` ones of its layer."""
    bf16 = ml_dtypes.bfloat16
    plain = {"embed": np.ones((4, 64), bf16), "l.0.bias": np.zeros(2, np.float32), "l.0.down": np.ones((64, 8), bf16)}
    return plain | {f"l.0.{name}": array for name, array in extra.items()}


@pytest.fixture
def bound(compile_text: Callable[..., Model], tmp_path: Path, save_file: Any) -> Callable[..., Any]:
    """Loads the definition with a codec and places against tensors."""

    def run(codec: str, first: str, second: str, **extra: np.ndarray) -> Any:
        save_file(tmp_path / "model.safetensors", arrays(**extra))
        return load(compile_text(TEXT.format(codec=codec, g=first, u=second)), tmp_path)

    return run


def nvfp4_arrays() -> ARRAYS:
    """Gate and up of both experts in one packed tensor, with a global scale for each half of each expert."""
    rng = np.random.default_rng(0)
    return {
        "g": rng.integers(0, 256, (2, 16, 32), np.uint8),
        "g_scale": rng.uniform(1, 100, (2, 16, 4)).astype(ml_dtypes.float8_e4m3fn),
        "g_scale_2": np.array([[0.5, 2.0], [4.0, 8.0]], np.float32),
    }


PLACES = ('rows 0 .. scale "g_scale" global "g_scale_2"', 'rows n .. scale "g_scale" global "g_scale_2"')


@pytest.mark.parametrize("form", ["halves", "experts", "one"])
def test_nvfp4_global_scales(bound: Callable[..., Any], form: str) -> None:
    """One for all, one for each expert, or one for each half of the rows: gate reads the first, up the second."""
    tensors = nvfp4_arrays()
    spread = {"halves": tensors["g_scale_2"], "experts": np.float32([[3], [5]]), "one": np.float32([7])}[form]

    binding, found = bound("nvfp4", *PLACES, **tensors | {"g_scale_2": spread})

    assert binding is not None, found
    factor = np.broadcast_to(spread, (2, 2)).repeat(8, axis=1)[..., None]
    wanted = codecs.nvfp4(tensors["g"], tensors["g_scale"], factor).astype(ml_dtypes.bfloat16)
    assert binding.sources["moe.g", 0].packed
    assert np.array_equal(read(binding, "moe.g", 0), wanted[:, :8])
    assert np.array_equal(read(binding, "moe.u", 0), wanted[:, 8:])


def test_a_packed_weight_reads_its_plain_form_where_the_packed_one_is_absent(bound: Callable[..., Any]) -> None:
    """The second place has the same name without scales, and its numbers come as they are."""
    plain = np.random.default_rng(0).normal(size=(2, 16, 64)).astype(ml_dtypes.bfloat16)
    places = tuple(f'{place} or "g" {place.split("..")[0]}..' for place in PLACES)

    binding, found = bound("nvfp4", *places, g=plain)

    assert binding is not None, found
    assert not binding.sources["moe.g", 0].packed
    assert np.array_equal(read(binding, "moe.u", 0), plain[:, 8:])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"g_scale": None}, "E424"),
        ({"g_scale_2": None}, "E424"),
        ({"g_scale": np.ones((2, 16, 3), ml_dtypes.float8_e4m3fn)}, "E424"),
        ({"g_scale": np.ones((2, 16, 4), np.float32)}, "E424"),
        ({"g_scale_2": np.ones((2, 3), np.float32)}, "E424"),
        ({"g_scale_2": np.ones((2, 1), np.int8)}, "E424"),
        ({"g": np.ones((2, 16, 31), np.uint8)}, "E421"),
        ({"g": np.ones((3, 16, 32), np.uint8)}, "E421"),
        ({"g": np.ones((2, 16, 32), np.int8)}, "E422"),
        ({"g": np.ones((2, 16, 64), ml_dtypes.bfloat16)}, "E422"),
    ],
)
def test_packed_tensors_that_do_not_fit(bound: Callable[..., Any], change: Any, code: str) -> None:
    """Scales that are absent or misfit, and packed tensors of another shape or type, are told apart."""
    tensors = {name: array for name, array in (nvfp4_arrays() | change).items() if array is not None}

    binding, found = bound("nvfp4", *PLACES, **tensors)

    assert binding is None
    assert {d.code for d in found if d.severity == "error"} == {code}


def test_a_shape_that_does_not_divide_into_groups(bound: Callable[..., Any]) -> None:
    """A codec's group must divide the last axis."""
    place = 'scale "s"'

    binding, found = bound("int4 group 48", place, place, g=np.ones((2, 8, 32), np.uint8), s=np.ones(1, np.float32))

    assert binding is None
    assert [d.code for d in found if d.severity == "error"] == ["E428", "E428"]
    assert "its last axis has 64 elements" in found[-1].message


@pytest.mark.parametrize("codec", ["mxfp4", "int8 by column", "int4 group 32", "fp8 block 3"])
def test_every_codec_is_read_through_a_definition(bound: Callable[..., Any], codec: str) -> None:
    """Packed tensors with `rows` decode to the same numbers as the whole does."""
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 120, (2, 16, 64), np.uint8)
    packed, scale = {
        "mxfp4": (raw[..., :32], rng.integers(120, 130, (2, 16, 2), np.uint8)),
        "int8 by column": (raw.view(np.int8), rng.uniform(1, 2, (2, 16, 1)).astype(np.float32)),
        "int4 group 32": (raw[..., :32].copy().view(np.int32), rng.uniform(1, 2, (2, 16, 2)).astype(np.float32)),
        "fp8 block 3": (raw.view(ml_dtypes.float8_e4m3fn), rng.uniform(1, 2, (2, 6, 22)).astype(np.float32)),
    }[codec]

    binding, found = bound(codec, 'rows 0 .. scale "s"', 'rows n .. scale "s"', g=packed, s=scale)

    assert binding is not None, found
    whole = np.stack(
        [
            {
                "mxfp4": lambda e: codecs.mxfp4(packed[e], scale[e]),
                "int8 by column": lambda e: codecs.int8(packed[e], scale[e, :, 0]),
                "int4 group 32": lambda e: codecs.int4(packed[e], scale[e], 32),
                "fp8 block 3": lambda e: codecs.fp8(packed[e], scale[e], 3),
            }[codec](e)
            for e in range(2)
        ]
    ).astype(ml_dtypes.bfloat16)
    assert np.array_equal(read(binding, "moe.g", 0), whole[:, :8])
    assert np.array_equal(read(binding, "moe.u", 0), whole[:, 8:])
    assert len(list(read_all(binding))) == 5


def test_a_reserved_scale_is_found_when_it_is_read(bound: Callable[..., Any]) -> None:
    """The error names weight and tensor, and is data, not a numpy warning."""
    scale = np.full((2, 8, 2), 127, np.uint8)
    scale[1, 3, 1] = 255

    binding, _ = bound("mxfp4", 'scale "s"', 'scale "s"', g=np.ones((2, 8, 32), np.uint8), s=scale)

    with pytest.raises(MksError) as raised:
        read(binding, "moe.g", 0)
    (found,) = raised.value.diagnostics
    assert found.code == "E427"
    assert "`l.0.s`: 1 scale bytes are 255" in found.notes[0]
