"""The table of machines, and the padding rule."""

from collections.abc import Iterator
from importlib import metadata

import pytest
from attrs import evolve

from mks.dsl.frontend import check_source
from mks.dsl.source import Source
from mks.dsl.targets import targets as table
from mks.dsl.targets.target import Target
from mks.dsl.targets.targets import padded_bytes, targets


@pytest.mark.parametrize(
    ("shape", "dtype", "charged"),
    [
        ((1, 128), "f32", 512),
        ((1, 128), "bf16", 512),
        ((1, 128), "int8", 512),
        ((9, 128), "f32", 8192),
        ((8, 129), "f32", 8192),
        ((17, 128), "bf16", 6144),
        ((33, 128), "fp8", 5120),
        ((3, 5, 128), "bf16", 6144),
        ((3, 1, 1024), "f32", 12288),
        ((1, 7168), "bf16", 28672),
        ((2, 7168), "bf16", 28672),
        ((4, 7168), "bf16", 57344),
    ],
)
def test_padding_is_what_the_compiler_charged(shape: tuple[int, ...], dtype: str, charged: int) -> None:
    """Every shape that was measured by compilation."""
    assert padded_bytes(shape, dtype) == charged


@pytest.mark.parametrize("target", targets.values(), ids=lambda t: t.name)
def test_every_figure_has_a_source(target: Target) -> None:
    """No figure without a source; usable VMEM is never above the nominal size."""
    for _, figure in target.figures():
        assert figure.value > 0
        assert figure.source
    assert target.spills.source
    assert target.memory.vmem.value <= 128 << 20


# What libtpu 0.0.52 describes, asked by `jax.experimental.topologies`; of a flat machine it takes any size.
KNOWN = {
    "v5e": "1x1 1x2 2x1 1x4 2x2 2x4 4x2 4x4 1x6 2x6 1x10 6x12 4x8 8x8 8x16 16x16 1x16",
    "v6e": "1x1 2x2 4x8 16x16 12x2",
    "v5p": "1x1x1 1x1x2 1x1x3 1x1x5 2x2x1 2x2x3 4x4x5 6x6x3 2x1x1 8x6x5 16x1x1 1x12x16",
    "tpu7x": "1x1x1 2x2x1 2x2x4 4x4x4 1x1x3 4x2x1 6x6x6 8x8x4 2x4x5",
}
UNKNOWN = {
    "v5e": "1x3 3x1 3x5 5x1 5x5 3x3 2x3 4x5 10x3",
    "v6e": "3x4 16x5",
    "v5p": "3x1x1 1x3x1 1x3x4 3x3x3 4x5x5 5x5x2",
    "tpu7x": "3x1x1 2x3x3 5x1x1 16x5x3",
}
LARGER = {"v5e": "1000x1000 1x32 16x18", "v6e": "32x8", "v5p": "100x100x1", "tpu7x": "64x64x64"}


def lengths(names: str) -> list[tuple[int, ...]]:
    """`2x2x1 4x4x4`."""
    return [tuple(map(int, name.split("x"))) for name in names.split()]


@pytest.mark.parametrize("target", targets.values(), ids=lambda t: t.name)
def test_machines_that_exist(target: Target) -> None:
    """Those that the compiler describes and no larger ones; what is offered instead of others exists."""
    assert all(map(target.exists, lengths(KNOWN[target.name])))
    for topology in lengths(f"{UNKNOWN[target.name]} {LARGER[target.name]}"):
        assert not target.exists(topology)
        assert len(near := target.near(topology)) == 2
        assert all(map(target.exists, near))


def test_what_is_near() -> None:
    """About as many chips."""
    assert targets["v5e"].near((1000, 1000))[0] == (16, 16)
    assert targets["v5e"].near((1, 3)) == [(1, 2), (1, 4)]
    assert targets["tpu7x"].near((3, 1, 1))[0] == (1, 1, 3)


def test_cores_of_a_topology() -> None:
    """TPU7x has two devices a chip, the others one."""
    assert targets["tpu7x"].devices((2, 2, 4)) == 32
    assert targets["v5e"].devices((2, 2)) == 4
    assert targets["v5p"].devices((2, 2, 1)) == 4


BROUGHT = {
    "half": evolve(targets["v5e"], name="half", compiler_name="v5e"),
    "other": evolve(targets["v5e"], name="another"),
    "number": 5,
}
DEFINITION = """mks 1

model tiny {
  size d     = 128
  size vocab = 16
  weights {
    embed : bf16[vocab, d]  "embed"
  }
  step {
    h      = embed[token]
    logits = f32(embed @ h)
  }
}

schedule one for tiny {
  target half 1x1
  context 16
}
"""


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that brings a target, and two that it should not."""
    points = [metadata.EntryPoint(name, f"{__name__}:BROUGHT", "mks.targets") for name in BROUGHT]
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda self: BROUGHT[self.name])
    monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == "mks.targets" else [])
    table._brought.cache_clear()
    yield
    table._brought.cache_clear()


@pytest.mark.usefixtures("brought")
def test_a_target_of_another_package() -> None:
    """A schedule can name it, and what cannot be used is said where it is named."""
    assert list(table.known()) == [*targets, "half"]
    assert check_source(Source("tiny.mks", DEFINITION)).diagnostics == ()
    for name, said in (
        ("other", f"`{__name__}:BROUGHT` has the name `another`"),
        ("number", f"`{__name__}:BROUGHT` is no `Target`, but int"),
    ):
        (found,) = check_source(Source("tiny.mks", DEFINITION.replace("half", name))).diagnostics
        assert (found.code, found.notes[0]) == ("E201", said)
