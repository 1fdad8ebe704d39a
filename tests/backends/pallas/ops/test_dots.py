"""Pieces of a matrix that lie side by side in a tile, as one product's sums again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

from mks.backends.pallas.emit.matmul import unfolded
from mks.dsl.program.layout.tiling import WIDTH, Run


@pytest.mark.parametrize(("fold", "rows"), [(1, 3), (2, 1), (2, 8), (4, 5), (8, 7), (16, 3), (16, 8)])
def test_each_piece_has_its_own_lanes(fold: int, rows: int) -> None:
    """Whatever else was multiplied has no part in the sums, NaN even."""
    run = Run(1, 1, WIDTH // fold, fold, 0, (8,))
    total = np.full((fold, rows, WIDTH), np.nan, np.float32)
    own = np.random.default_rng(fold).normal(size=(fold, rows, run.columns)).astype(np.float32)
    for i, piece in enumerate(own):
        total[i, :, i * run.columns : (i + 1) * run.columns] = piece

    def kernel(given: jax.Ref, out: jax.Ref) -> None:
        out[...] = unfolded(given[...], run)

    shape = jax.ShapeDtypeStruct((rows, run.columns), jnp.float32)
    found = pl.pallas_call(kernel, out_shape=shape, interpret=True)(total.reshape(fold * rows, WIDTH))
    np.testing.assert_allclose(found, own.sum(0), rtol=1e-5, atol=1e-5)
