"""The choice of experts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from attrs import frozen
from jax import lax


@frozen
class Routes:
    """A token's experts, in ascending order, and their weights: int32 and f32 `[..., top]`."""

    ids: jax.Array
    weights: jax.Array


jax.tree_util.register_pytree_node(Routes, lambda r: ((r.ids, r.weights), None), lambda _, r: Routes(*r))


def route(
    score: jax.Array,
    bias: jax.Array | float,
    *,
    top: int,
    eps: float = 1e-20,
    scale: float = 1,
    groups: int = 1,
    keep: int = 1,
) -> Routes:
    """`score [..., n]`, `bias [n]` or a number.

    Chosen are the `top` largest of score + bias, the lowest index on ties; the weights are their scores over
    (their sum + eps), times `scale`. With several groups only those `keep` take part whose two largest sum to most.
    """
    choice = score + bias
    if groups > 1:
        grouped = choice.reshape(*choice.shape[:-1], groups, -1)
        strength = jnp.sum(lax.top_k(grouped, 2)[0], axis=-1)
        in_group = jnp.any(lax.top_k(strength, keep)[1][..., None] == jnp.arange(groups), axis=-2)
        choice = jnp.where(in_group[..., None], grouped, -jnp.inf).reshape(choice.shape)
    ids = jnp.sort(lax.top_k(choice, top)[1].astype(jnp.int32), axis=-1)
    chosen_scores = jnp.take_along_axis(score, ids, axis=-1)
    return Routes(ids, chosen_scores / (jnp.sum(chosen_scores, axis=-1, keepdims=True) + eps) * scale)
