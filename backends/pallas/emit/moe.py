"""Experts: chosen, fetched and multiplied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from ....dsl.program import ir as p
from ....dsl.program.ir.walk import Placed
from ..collectives.peers import Scalar
from ..ops.expert_dot import expert_dot as multiply
from ..ops.route import list_chosen, weight_of
from ..ops.route import route as choose
from . import scopes as places
from . import transfers
from .context import Core, following
from .evaluate import evaluate
from .signature import ExpertListRef


def route(op: p.Route, core: Core) -> None:
    """The rows' weights of all experts, and the list of this core's that any row chose."""
    bank = core.program.banks[op.bank]
    scalars: dict[str, Any] = {name: core.scalar(static) for name, static in op.call.options}
    bias = evaluate(op.call.args[1], core)
    weights, chosen = choose(core.refs[op.scores][...], bias, **scalars)
    core.refs[op.weights][...] = weights
    list_ = core.refs[ExpertListRef(bank.name)]
    list_chosen(chosen, _first(bank, core), bank.count, list_, places.listed_scope(bank.name))


def _first(bank: p.ExpertPool, core: Core) -> Scalar:
    """The number of this core's first expert."""
    return core.rank(bank.axes) * bank.count


def experts(op: p.Experts, core: Core, emit: Callable[[Sequence[Placed], Core], None]) -> None:
    """Each expert for all rows; a row that did not choose it adds nothing."""
    bank, chosen = core.program.banks[op.bank], core.refs[ExpertListRef(op.bank)]
    result, weights, total = core.refs[op.result], core.refs[bank.routes], chosen[0]
    result[...] = jnp.zeros(result.shape, jnp.float32)
    body = core.at.inside

    def one(i: Scalar, slot: Scalar) -> Scalar:
        transfers.wait_expert(bank, slot, core)
        core.slot = slot
        weight = weight_of(weights, chosen[i + 1] + _first(bank, core))
        core.alone = _alone(weight, core)
        emit(body, core)
        result[...] += weighted(weight, core.refs[op.value][...])

        @pl.when(i + bank.slots < total)
        @jax.named_scope(places.next_scope(bank.name))
        def _() -> None:
            transfers.fetch_expert(bank, i + bank.slots, slot, core)

        return following(slot, bank.slots)

    lax.fori_loop(0, total, jax.named_scope(places.expert_scope(bank.name))(one), jnp.int32(0))


def chose(weight: jax.Array) -> jax.Array:
    """Which rows chose an expert, by its weights of all rows: a route's may be negative, and adds nothing if zero."""
    return weight != 0


def weighted(weight: jax.Array, value: jax.Array) -> jax.Array:
    """What an expert's `value` `[B, n]` adds by the rows' weights `[B, 1]`: nothing to a row that did not choose it.

    Its value may be infinite there, and zero times that is no number. The only row of all has chosen it.
    """
    return weight * value if value.shape[0] == 1 else jnp.where(chose(weight), weight * value, 0.0)


def _alone(weight: jax.Array, core: Core) -> jax.Array | None:
    """The only row that chose an expert, -1 if several did: one row costs less, and has the same bits in bf16."""
    if core.rows == 1 or core.program.instance.working == "f32":
        return None
    row = lax.broadcasted_iota(jnp.int32, weight.shape, 0)
    seen = jnp.sum(jnp.where(chose(weight), row + 16, 0))
    return jnp.where((seen >= 16) & (seen < 32), seen - 16, -1)


def expert_dot(op: p.ExpertDot, core: Core) -> None:
    """One product with the expert in the slot at hand."""
    bank = core.program.banks[op.bank]
    slot = core.refs[bank.name].at[core.slot]
    name = bank.layout.products[op.product].name
    x, native = core.refs[op.operand][...], _has_float4(core)
    scopes = places.ways_scopes(bank.name)
    core.refs[op.result][...] = multiply(x, slot, bank.layout, name, native, core.alone, scopes)


def _has_float4(core: Core) -> bool:
    """Whether the target has a type of four bits that its matrix units take."""
    return core.program.schedule.target.features.float4
