"""Expressions to values inside the kernel: f32 `[B, *shape]`, or `[1, *shape]` where all rows share a value."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ....dsl.model import ir as m
from ....dsl.model import ops as registry
from ....dsl.model.shapes import Shape
from ....dsl.program import ir as p
from ....dsl.program.ir import scratch as work
from ...reference.ops import Brought
from ...reference.rounding import DTYPES
from .. import ops
from ..collectives.peers import Scalar
from ..ops.causal_conv import after_each
from ..ops.delta_rule import delta_rule
from ..ops.mix import mix
from ..ops.rope import rotated
from .context import Core, when
from .scopes import BEGINS, bank_scope
from .signature import StepInput
from .transfers import own_entry

type Value = Any  # an array, a plain number, or a tuple of arrays


def evaluate(node: m.Node, core: Core) -> Value:
    """A node's value."""
    match node:
        case m.Static():
            return core.number(node) if node in core.program.scalars else core.scalar(node)
        case m.Local():
            return core.scope[node.name] if node.name in core.scope else read(node, core)
        case m.Read():
            return read(node, core)
        case m.Input():
            return core.positions() if node.name == "position" else core.given[StepInput.TOKENS][...]
        case m.WeightRef():
            return _vector(node.name, core)
        case m.Call():
            return _call(node, core)
        case m.Select():
            then, other = (_spread(evaluate(n, core), n.type.shape, node.type.shape) for n in (node.then, node.other))
            return jnp.where(core.holds(node.condition), then, other)
        case m.Let():
            outer = core.scope
            core.scope = outer | {name: evaluate(value, core) for name, value in node.bindings}
            found = evaluate(node.body, core)
            core.scope = outer
            return found
    raise AssertionError(f"lowering left a {type(node).__name__}")


def _call(node: m.Call, core: Core) -> Value:
    op, own = registry.find(node.op), WITH_CORE.get(node.op)
    scalars: dict[str, Any] = {name: core.scalar(static) for name, static in node.options}
    if own is not None:
        return own(node, scalars, core)
    if op is not None and op.updates:
        return _update(node, op, scalars, core)
    args = [evaluate(a, core) for a in node.args]
    if op is not None and op.elementwise and len(args) > 1:
        args = [_spread(a, arg.type.shape, node.type.shape) for a, arg in zip(args, node.args, strict=True)]
        if all(isinstance(a, int | float) for a in args):
            args[0] = jnp.float32(args[0])
    function = ops.find(node.op)
    value = function(*args, **scalars)
    if isinstance(function, Brought):
        _check(function, value, node, args, core)
    return value


def _check(function: Brought, value: Value, node: m.Call, args: list[Value], core: Core) -> None:
    """What another package's function gives. What is elementwise may work on some columns of a scattered value."""
    if registry.is_elementwise(node.op):
        function.check(value, [jnp.broadcast_shapes(*map(jnp.shape, args))], (), args)
    else:
        function.check(value, [core.program.shares.shape(type_.shape) for type_ in node.types], (core.rows,), args)


def _heads(node: m.Call, scalars: dict[str, Any], core: Core) -> Value:
    """As many as this core has."""
    return ops.find("heads")(evaluate(node.args[0], core), n=core.program.shares.length(node.type.shape[0]))


def _split(node: m.Call, scalars: dict[str, Any], core: Core) -> Value:
    """Of each piece, this core's columns."""
    width = tuple(core.program.shares.length(t.shape[-1]) for t in node.types)
    return ops.find("split")(evaluate(node.args[0], core), width=width)


def _bf16(node: m.Call, scalars: dict[str, Any], core: Core) -> Value:
    return _rounded(evaluate(node.args[0], core), core)


def _mask_of_share(node: m.Call, scalars: dict[str, Any], core: Core) -> jax.Array:
    """This core's columns `[B, n]` of a vector, with `fill` for those from the vector's index `used` on."""
    x = evaluate(node.args[0], core)
    index = core.first(node.type.shape[-1]) + lax.broadcasted_iota(jnp.int32, x.shape, 1)
    return jnp.where(index < scalars["used"], x, scalars["fill"])


def _mix(node: m.Call, scalars: dict[str, Any], core: Core) -> jax.Array:
    """Over the elements of a buffer that are written by now."""
    banks, x, folded = node.args
    base = banks.base if isinstance(banks, m.Slice) else banks
    assert isinstance(base, m.StateRef)
    ref = core.refs[p.ModelBufferRef(base.name)]
    used: Any = core.scalar(banks.stop) if isinstance(banks, m.Slice) else ref.shape[0]
    eps = core.number(node.options[0][1])
    scope = bank_scope(core.place)
    return mix(ref, evaluate(x, core), evaluate(folded, core), eps=eps, used=used, scope=scope)


def _rope(node: m.Call, scalars: dict[str, Any], core: Core) -> jax.Array:
    """By what the rows' positions turn every channel by, which is known since the start of the step."""
    x = evaluate(node.args[0], core)
    found = core.program.turns[p.rope_key(node, x.shape[-1], core.program.instance)]
    turn = (core.refs[found.cos][...], core.refs[found.sin][...])
    return rotated(x, turn, width=scalars.get("width"), pairs=int(scalars.get("pairs", 0)))


# The ops that need more of a core than their operands: its share, its buffers, or the rows' positions.
WITH_CORE: dict[str, Callable[[m.Call, dict[str, Any], Core], Value]] = {
    "mask_of_share": _mask_of_share,
    "mix": _mix,
    "rope": _rope,
    "bf16": _bf16,
    "heads": _heads,
    "split": _split,
}


def _update(node: m.Call, op: registry.Op, scalars: dict[str, Any], core: Core) -> Value:
    """An op that keeps states: they are zero for rows that begin, and stay in their buffers when it is done."""
    args: list[Any] = []
    kept: list[Any] = []
    for parameter, arg in zip(op.parameters, node.args, strict=True):
        if parameter in op.updates and isinstance(arg, m.StateRef):
            ref = core.held(p.StateRef(arg.name))
            kept.append(ref)
            if op.name == "delta_rule" or core.program.consecutive:
                _clear(ref, core)
                args.append(ref)
            else:
                state = ref[...]
                begins = core.begins().reshape(core.rows, *(1,) * (state.ndim - 1))
                args.append(jnp.where(begins, jnp.zeros_like(state), state))
        else:
            value = evaluate(arg, core)
            args.append(_rounded(value, core) if parameter in op.matrix and not _is_rounded(arg, core) else value)
    if op.name == "delta_rule":
        return _delta_rule(args, core.program.consecutive)
    if core.program.consecutive:
        (ref,) = kept
        found, ref[1:] = after_each(args[0], args[1], ref[0])
        return found
    function = ops.find(op.name)
    found = function(*args, **scalars)
    if isinstance(function, Brought):
        states = [arg for parameter, arg in zip(op.parameters, args, strict=True) if parameter in op.updates]
        function.check_updated(found, states, args)
        _check(function, found[0], node, args, core)
    for ref, value in zip(kept, found[1:], strict=True):
        ref[...] = value
    return found[0]


def _delta_rule(args: list[Any], consecutive: bool) -> jax.Array:
    (b, kh, key), (_, h, val) = args[0].shape, args[2].shape
    needs = work.delta_rule(b, kh, h, key, val, args[3].ndim == 3)
    room = [pltpu.VMEM(need.shape, DTYPES[need.dtype]) for need in needs]
    return pl.run_scoped(lambda *refs: delta_rule(*args, *refs, consecutive=consecutive), *room)


def _clear(ref: Any, core: Core) -> None:
    """Rows that begin have no past."""

    def row(b: Scalar, _: None) -> None:
        @pl.when(core.given[StepInput.AT][b] == 0)
        @jax.named_scope(BEGINS)
        def clear() -> None:
            ref[b] = jnp.zeros(ref.shape[1:], ref.dtype)

    lax.fori_loop(0, 1 if core.program.consecutive else core.rows, row, None)


def _is_rounded(node: m.Node, core: Core) -> bool:
    """Whether a value already has the working type."""
    while isinstance(node, m.Call) and node.op in ("heads", "flat", "split"):
        node = node.args[0]
    return isinstance(node, m.Local) and node.type.dtype == "bf16" and node.name not in core.scope


def _rounded(value: jax.Array, core: Core) -> jax.Array:
    if core.program.instance.working == "f32":
        return value
    return value.astype(jnp.bfloat16).astype(jnp.float32)


def read(node: m.Local | m.Read, core: Core) -> jax.Array:
    """A value where it lies, in f32 unless it is of integers."""
    name = core.program.ref_of(node, core.place)
    assert name is not None
    view = core.program.views[name]
    buffer, ref = core.program.buffers[view.buffer], core.held(view.buffer)
    if isinstance(name, p.RowRef):
        return _row_of_table(name, view, ref, core)
    if len(view.shape) == 1 and len(buffer.shape) == 2:
        value = columns(ref, view.start, view.shape[0])
    else:
        value = ref[...]
        if buffer.shape[-1] != view.shape[-1]:
            value = value[..., : view.shape[-1]]
    return value if buffer.dtype == "int32" else value.astype(jnp.float32)


def columns(ref: Any, start: int, width: int) -> jax.Array:
    """Whole lanes are read, then cut."""
    first = start // 128 * 128
    last = min(-(-(start + width) // 128) * 128, ref.shape[-1])
    whole = ref[:, first:last]
    return whole if (start, start + width) == (first, last) else whole[:, start - first : start - first + width]


def _row_of_table(name: p.RowRef, view: p.View, ref: Any, core: Core) -> jax.Array:
    """Words to numbers: of bf16, the low halves come first and the high ones after them. Rows elsewhere are zero."""
    weight, index = name.table, name.index
    words = ref[:, 0, :]
    if core.program.instance.dtype(core.program.instance.model.weights[weight].type) == "f32":
        value = lax.bitcast_convert_type(words, jnp.float32)
    else:
        low = lax.bitcast_convert_type(words << 16, jnp.float32)
        high = lax.bitcast_convert_type(words & jnp.int32(-65536), jnp.float32)
        value = jnp.concatenate([low, high], axis=-1)
    value = value[:, : view.shape[0]]
    share = core.program.arrays[p.TableRef(weight)].shape[0]
    if share == core.program.instance.shape(core.program.instance.model.weights[weight].shape)[0]:
        return value
    local = own_entry(core.given[StepInput.TOKENS][...] if index == "token" else core.positions(), weight, core)
    return jnp.where((local >= 0) & (local < share), value, 0.0)


def _vector(weight: str, core: Core) -> jax.Array:
    """`[1, n]`, or a matrix with its lines of the last axis first, `[lines, n]`."""
    view = core.program.views[p.SmallWeightRef(weight)]
    ref = core.held(view.buffer)
    if not view.transposed:
        flat = columns(ref, view.start, prod(view.shape))
        return flat.reshape(1, *view.shape) if len(view.shape) > 1 else flat
    width, lines = view.shape
    room = -(-width // 128) * 128
    return jnp.concatenate([columns(ref, view.start + i * room, width) for i in range(lines)], axis=0)


def _spread(value: Value, shape: Shape, wanted: Shape) -> Value:
    """A value of `shape` with axes of length 1 put in where `wanted` has others, so that they broadcast by name."""
    if isinstance(value, int | float) or len(shape) == len(wanted) or value.ndim == 0:
        return value
    places, start = [], 0
    for axis in shape:
        start = wanted.index(axis, start) + 1
        places.append(start - 1)
    axes = [1] * len(wanted)
    for place, length in zip(places, value.shape[1:], strict=True):
        axes[place] = length
    return value.reshape(value.shape[0], *axes)


def store(op: p.Compute, core: Core) -> None:
    """Evaluate a statement into its buffers, rounded to their types; operands' padding is zero."""
    when(core.holds(op.guard), lambda: _store(op, core))


def put(op: p.Put, core: Core) -> None:
    """Evaluate an element of a buffer."""

    def write() -> None:
        ref = core.refs[op.buffer]
        value = evaluate(op.node, core)
        ref[core.scalar(op.index)] = jnp.broadcast_to(value, ref.shape[1:]).astype(ref.dtype)

    when(core.holds(op.guard), write)


def _store(op: p.Compute, core: Core) -> None:
    value = evaluate(op.node, core)
    values = value if isinstance(value, tuple) else (value,)
    for name, each in zip(op.outputs, values, strict=True):
        ref, dtype = core.held(name), DTYPES[core.program.buffers[name].dtype]
        each = jnp.asarray(each, jnp.float32) if not isinstance(each, jax.Array) else each
        each = jnp.broadcast_to(each, (ref.shape[0], *each.shape[1:])) if each.ndim else jnp.full(ref.shape, each)
        missing = ref.shape[-1] - each.shape[-1]
        if missing:
            each = jnp.concatenate([each, jnp.zeros((*each.shape[:-1], missing), each.dtype)], axis=-1)
        ref[...] = each.astype(dtype)
