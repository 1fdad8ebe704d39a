"""Several sums in one pass over memory."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax


def sums(terms: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """The sum over the last axis of each of several arrays of one shape.

    One variadic reduction: XLA fuses what makes the terms into it, so that an operand they share is read once.
    """
    zeros = (jnp.float32(0),) * len(terms)
    return tuple(lax.reduce(tuple(terms), zeros, lambda a, b: tuple(map(jnp.add, a, b)), (terms[0].ndim - 1,)))
