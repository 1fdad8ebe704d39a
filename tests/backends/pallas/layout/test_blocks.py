"""Which core has a position, and where: the kernel's arithmetic against blocks dealt out one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from mks.backends.pallas.layout import position_blocks
from mks.dsl.schedule.blocks import BLOCK, most, room

CONTEXT = 3000


def dealt(ways: int) -> list[list[int]]:
    """The positions of each core, in its order, whole blocks."""
    found: list[list[int]] = [[] for _ in range(ways)]
    for block in range(-(-CONTEXT // (BLOCK * ways)) * ways):
        found[block % ways] += range(block * BLOCK, (block + 1) * BLOCK)
    return found


def core(ways: int, rank: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A program of which only the schedule is asked, on one of its cores."""
    monkeypatch.setattr(position_blocks, "cores", lambda program: SimpleNamespace(count=ways, rank=lambda: rank))
    over = ("tp",) if ways > 1 else ()
    return SimpleNamespace(schedule=SimpleNamespace(over_positions=over, ways=lambda axes: ways))


@pytest.mark.parametrize("ways", [1, 2, 3, 8, 32])
def test_every_position_is_on_one_core(ways: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept there at its place, and counted there among those before a later one."""
    at, owners = jnp.arange(CONTEXT), np.zeros(CONTEXT, int)
    for rank, own in enumerate(dealt(ways)):
        program, own = core(ways, rank, monkeypatch), np.asarray(own)
        mine = np.broadcast_to(np.asarray(position_blocks.mine(at, program)), at.shape)
        owners += mine
        np.testing.assert_array_equal(
            own[np.asarray(position_blocks.place(at, program))[mine]], np.arange(CONTEXT)[mine]
        )
        np.testing.assert_array_equal(position_blocks.before(at, program), np.searchsorted(own, at))
        assert len(own) == room(CONTEXT, ways)
        assert all(most(p, ways) >= np.searchsorted(own, p) for p in range(CONTEXT))
    assert (owners == 1).all()
    assert all(most(p, ways) == np.searchsorted(dealt(ways)[0], p) for p in range(CONTEXT))


def test_a_row_that_is_not_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is before it, and no core but one takes it for its own."""
    for rank in range(4):
        program = core(4, rank, monkeypatch)
        assert int(position_blocks.before(jnp.int32(-1), program)) == 0
        assert bool(position_blocks.mine(jnp.int32(-1), program)) == (rank == 0)


@pytest.mark.parametrize("ways", [1, 2, 3])
def test_orders(ways: int) -> None:
    """Core after core and position after position, and back."""
    order = np.concatenate(dealt(ways))
    cut = jnp.asarray(np.stack([order, -order], -1)[None])
    whole = position_blocks.in_order(cut, ways)
    np.testing.assert_array_equal(whole[0, :, 0], np.sort(order))
    np.testing.assert_array_equal(position_blocks.by_core(whole, ways), cut)
