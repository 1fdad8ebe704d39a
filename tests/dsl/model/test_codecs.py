"""Bytes of packed weights."""

import pytest

from mks.dsl.model.codecs import kept_bytes, stored_bytes
from mks.dsl.model.ir import Codec


@pytest.mark.parametrize(
    ("codec", "shape", "count"),
    [
        (Codec("bf16"), (3, 5), 30),
        (Codec("f32"), (3, 5), 60),
        (Codec("f32"), (), 4),
        (Codec("bf16"), (0, 5), 0),
        (Codec("mxfp4", 32), (3, 64), 3 * (32 + 2)),
        (Codec("nvfp4", 16), (2, 3, 64), 2 * (3 * (32 + 4) + 4)),
        (Codec("int4", 32), (3, 64), 3 * (32 + 4)),
        (Codec("int8", 0), (2, 3, 64), 2 * 3 * (64 + 4)),
        (Codec("fp8", 16), (2, 40, 33), 2 * (40 * 33 + 4 * 3 * 3)),
    ],
)
def test_stored_bytes(codec: Codec, shape: tuple[int, ...], count: int) -> None:
    """Numbers and scales, with a short last group counted whole."""
    assert stored_bytes(codec, shape) == count


def test_one_expert_of_kimi_k3_is_as_large_as_its_checkpoint_says() -> None:
    """Gate, up and down of one expert take 17 547 264 bytes."""
    sides = [(3072, 3584), (3072, 3584), (3584, 3072)]

    assert sum(stored_bytes(Codec("mxfp4", 32), shape) for shape in sides) == 17_547_264


def test_kept_bytes() -> None:
    """A byte a number, and one for each output and block, a short one too."""
    assert kept_bytes(Codec("fp8", 256), (4, 40, 600)) == 4 * 40 * (600 + 3)


@pytest.mark.parametrize("text", ["mxfp4", "nvfp4", "bf16", "int4 group 128", "int8 by column", "fp8 block 256"])
def test_codecs_are_shown_as_they_are_written(text: str) -> None:
    """Whatever group a codec has of itself is not said."""
    name, *rest = text.split()
    group = {"mxfp4": 32, "nvfp4": 16, "int8": 0}.get(name, int(rest[-1]) if rest and rest[-1].isdigit() else None)

    assert str(Codec(name, group)) == text
