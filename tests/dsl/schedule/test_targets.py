"""The table of machines, and the padding rule."""

import pytest

from mks.dsl.schedule.targets import Target, padded_bytes, targets


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
    for figure in (target.hbm, target.hbm_rate, target.vmem, target.smem, target.bf16_rate):
        assert figure.value > 0
        assert figure.source
    assert target.vmem.value <= 128 << 20


def test_cores_of_a_topology() -> None:
    """TPU7x has two devices a chip, the others one."""
    assert targets["tpu7x"].devices((2, 2, 4)) == 32
    assert targets["v5e"].devices((2, 2)) == 4
    assert targets["v5p"].devices((2, 2, 1)) == 4
