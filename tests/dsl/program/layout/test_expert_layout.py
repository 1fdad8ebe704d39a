"""Where a routed expert's matrices lie in the array that is fetched for it."""

import pytest
from helpers.experts import expert
from hypothesis import given
from hypothesis import strategies as st


def test_real_expert_is_one_transfer_of_the_expected_size() -> None:
    """Kimi K3 on eight cores: codes and scales as small as stored, but for two percent."""
    found = expert(384, 3584, "mxfp4")

    assert (found.rows, found.nbytes) == (1088, 2228224)
    assert found.padding == found.nbytes - (3 * 384 * 3584) // 2 - 3 * 384 * 3584 // 32 < found.nbytes * 0.02
    assert [(p.row, p.scale_row, p.end) for p in found.products] == [(0, 672, 720), (720, 1056, 1088)]


@pytest.mark.parametrize(("codec", "rows"), [("bf16", 4032), ("f32", 8064)])
def test_plain_numbers_have_no_scales(codec: str, rows: int) -> None:
    """An expert that is not quantised takes its numbers' bytes, at these sizes with nothing between."""
    found = expert(384, 3584, codec)

    assert (found.rows, found.padding) == (rows, 0)
    assert [product.group for product in found.products] == [0, 0]


@pytest.mark.parametrize(("share", "group"), [(8, 8), (16, 16), (48, 16), (96, 32), (384, 32)])
def test_shares_that_cut_groups_have_shorter_ones(share: int, group: int) -> None:
    """All groups of a share are equally long, and none lies in two of the stored ones, whichever core's it is."""
    found = expert(share, 64, "mxfp4")

    assert (found["gate+up"].group, found["down"].group) == (32, group)


def test_blocks_of_eight_bit_numbers() -> None:
    """Twice the bytes; blocks of 256 inputs, a short one at the end, and none beyond a piece of the inputs."""
    found = expert(384, 3584, "fp8")

    assert (found.rows, found.nbytes) == (2040, 4177920)
    assert found.padding == found.nbytes - 3 * 384 * 3584 - 768 * 14 - 3584 * 2 < found.nbytes * 0.012
    assert [(p.group, p.groups) for p in found.products] == [(256, 14), (256, 2)]
    assert [product.group for product in expert(96, 3584, "fp8").products] == [256, 256]
    assert [product.group for product in expert(48, 3584, "fp8").products] == [128, 256]


@given(width=st.integers(1, 900), latent=st.integers(1, 1200), codec=st.sampled_from(["mxfp4", "fp8", "bf16", "f32"]))
def test_nothing_overlaps(width: int, latent: int, codec: str) -> None:
    """Blocks and octets of scales have rows of their own, in whole registers, and end where the array does."""
    found = expert(width, latent, codec)

    taken = set()
    for product in found.products:
        octets = 0
        for block in product.blocks:
            assert block.row % 8 == block.rows % 8 == 0
            assert block.rows * product.tiling.per_word * block.fold == product.tiling.inputs
            assert block.octet == octets
            octets += product.octets(block.fold)
            places = {(row, byte) for row in range(block.row, block.row + block.rows) for byte in range(4)}
            assert not places & taken
            taken |= places
        for octet in range(octets):
            row, byte = product.place(octet)
            places = {(row + i, byte) for i in range(8)}
            assert row % 8 == 0
            assert product.scale_row <= row < product.end
            assert not places & taken
            taken |= places
        assert product.end % 8 == 0
    assert max(row for row, _ in taken) + 1 == found.rows
    assert found.padding >= 0
