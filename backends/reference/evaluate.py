"""Expressions to arrays. Inside a statement everything is f32; operands of matrix products are rounded as ops say."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from attrs import evolve, frozen

from ...dsl.model import ir as m
from ...dsl.model import ops as registry
from ...dsl.model.expressions import walk
from ...dsl.model.shapes import Shape
from . import ops
from .caches import Index
from .frame import Frame, Value
from .loading import product
from .ops.experts import experts
from .ops.index import index
from .ops.matmul import matmul
from .rounding import rounded, widened


@frozen
class _Range:
    """A buffer `[B, T, n, ...]`, of which the elements `used` `[n]` are meant."""

    whole: jax.Array
    used: jax.Array


def evaluate(node: m.Node, frame: Frame) -> Value:
    """A node's value: an array with leading axes `[B, T]` or none, a plain number, routes, or a tuple of arrays."""
    match node:
        case m.Static():
            return frame.scalar(node)
        case m.Local():
            return jax.tree.map(widened, frame.names[node.name])
        case m.Input():
            return _input(node, frame)
        case m.WeightRef():
            return widened(frame.weight(node.name))
        case m.StateRef():
            return widened(frame.buffers[node.name])
        case m.Slice():
            return _slice(node, frame)
        case m.Call():
            return _call(node, frame)
        case m.Select():
            return _select(node, frame)
        case m.Let():
            outer = frame.names
            frame.names = outer | {name: evaluate(value, frame) for name, value in node.bindings}
            body = evaluate(node.body, frame)
            frame.names = outer
            return body
        case m.Experts():
            return _experts(node, frame)


def _input(node: m.Input, frame: Frame) -> Value:
    if node.name == "row":
        return jnp.arange(frame.at.token.shape[1])[None] if frame.row is None else frame.row
    return frame.at.token if node.name == "token" else frame.at.position


def _slice(node: m.Slice, frame: Frame) -> Value:
    whole = widened(frame.buffers[node.base.name])
    start, stop = frame.scalar(node.start), frame.scalar(node.stop)
    if isinstance(start, int) and isinstance(stop, int):
        return whole[:, :, start:stop]
    order = jnp.arange(whole.shape[2])
    return _Range(whole, (order >= start) & (order < stop))


def _select(node: m.Select, frame: Frame) -> Value:
    condition = frame.scalar(node.condition)
    if not isinstance(condition, jax.Array):
        return evaluate(node.then if condition else node.other, frame)
    then, other = evaluate(node.then, frame), evaluate(node.other, frame)
    return jnp.where(_spread(condition, (), node.type.shape), then, other)


def _call(node: m.Call, frame: Frame) -> Value:
    op = registry.find(node.op)
    assert op is not None
    if op.name == "matmul":
        return _matmul(node, frame)
    if op.name == "index":
        table, at = node.args
        return _row(table, at, frame) if isinstance(table, m.WeightRef) else _element(table, at, frame)
    if op.name == "bf16":
        return widened(rounded(_array(evaluate(node.args[0], frame)), frame.at.instance.working))
    scalars = _scalars(node, op, frame)
    exact = any(_is_f32_weight(a) for p, a in zip(op.parameters, node.args, strict=True) if p in op.matrix)
    args: list[Value] = []
    carried: list[str] = []
    for parameter, arg in zip(op.parameters, node.args, strict=True):
        if parameter in op.updates and isinstance(arg, m.StateRef):
            carried.append(arg.name)
            args.append(frame.state(arg.name))
        elif parameter in op.caches and isinstance(arg, m.StateRef):
            args.append(frame.cache(arg.name))
        else:
            value = evaluate(arg, frame)
            if isinstance(value, _Range):
                scalars["used"], value = value.used, value.whole
            elif parameter in op.matrix:
                value = rounded(_array(value), "f32" if exact else frame.at.instance.working)
            args.append(value)
    if op.elementwise and len(args) > 1:
        shape = node.type.shape
        args = [_spread(a, arg.type.shape, shape) for a, arg in zip(args, node.args, strict=True)]
    if op.caches:
        scalars["position"] = frame.at.position
    if op.caches or op.updates:
        scalars["lengths"] = frame.at.lengths
    if op.name == "flat":
        scalars["lead"] = args[0].ndim - len(node.args[0].type.shape)
    if not op.updates and not op.caches:
        return _of_layer(node, op, args, scalars, frame)
    if not op.updates:
        return _computed(node, args, scalars, frame)
    function = ops.find(op.name)
    result = function(*args, **scalars)
    if isinstance(function, ops.Brought):
        states = [arg for parameter, arg in zip(op.parameters, args, strict=True) if parameter in op.updates]
        function.check_updated(result, states, args)
        _check(function, result[0], node, args, frame)
    for name, value in zip(carried, result[1:], strict=True):
        frame.keep(name, value)
    return result[0]


def _of_layer(node: m.Call, op: registry.Op, args: list[Value], scalars: dict[str, Any], frame: Frame) -> Value:
    """An op's value; where a trace is for layers whose options differ, one for each of them: ops take plain numbers."""
    ways: dict[tuple[Any, ...], tuple[list[int], dict[str, Any]]] = {}
    if any(isinstance(value, jax.Array) for value in scalars.values()) and not _by_row(node):
        for layer in frame.layers:
            own = _scalars(node, op, evolve(frame, layers=(layer,), layer=layer))
            ways.setdefault(tuple(own.values()), ([], own))[0].append(layer)
    selected: Value | None = None
    for layers, own in ways.values() or [([], {})]:
        value = _computed(node, args, scalars | own, frame)
        here = reduce(jnp.logical_or, [frame.layer == layer for layer in layers], jnp.bool_(False))
        selected = value if selected is None else jax.tree.map(partial(jnp.where, here), value, selected)
    return selected


def _computed(node: m.Call, args: list[Value], scalars: dict[str, Any], frame: Frame) -> Value:
    """What an op's function gives, which is looked at where it is another package's."""
    function = ops.find(node.op)
    value = function(*args, **scalars)
    if isinstance(function, ops.Brought):
        _check(function, value, node, args, frame)
    return value


def _check(function: ops.Brought, value: Value, node: m.Call, args: list[Value], frame: Frame) -> None:
    if not any(type_.dtype == "routes" for type_ in node.types):
        wanted = [frame.at.instance.shape(type_.shape) for type_ in node.types]
        function.check(value, wanted, frame.at.token.shape, args)


def _by_row(node: m.Call) -> bool:
    return any("row" in static.depends for _, static in node.options)


def _scalars(node: m.Call, op: registry.Op, frame: Frame) -> dict[str, Any]:
    scalars: dict[str, Any] = {}
    for name, static in node.options:
        value = frame.scalar(static)
        if op.repeats and name == op.scalars[-1]:
            scalars[name] = (*scalars.get(name, ()), value)
        else:
            scalars[name] = value
    return scalars


def _matmul(node: m.Call, frame: Frame) -> jax.Array:
    """Weights that share an operand are multiplied together, once."""
    w, x = node.args
    dtype = "f32" if w.type.dtype == "f32" and _is_f32_weight(w) else frame.at.instance.working
    name, operand = product(node)
    slice_ = frame.at.weights.slices[name] if name is not None else None
    if name is None or operand is None or slice_ is None or slice_.rows is None or name.split(".")[0] != frame.part:
        matrix = frame.weight(w.name) if isinstance(w, m.WeightRef) else rounded(_array(evaluate(w, frame)), dtype)
        return matmul(matrix, rounded(_array(evaluate(x, frame)), dtype))
    value = frame.names[operand.name]
    known = next((result for key, of, result in frame.products if key == slice_.key and of is value), None)
    if known is None:
        whole = frame.at.weights.whole(name, frame.layers, frame.layer)
        known = matmul(whole, rounded(widened(value), dtype))
        frame.products.append((slice_.key, value, known))
    return known[..., slice_.start : slice_.start + slice_.rows]


def _is_f32_weight(node: m.Node) -> bool:
    while isinstance(node, m.Call) and node.op == "index":
        node = node.args[0]
    return isinstance(node, m.WeightRef) and node.type.dtype == "f32"


def _row(table: m.WeightRef, i: m.Node, frame: Frame) -> jax.Array:
    at = evaluate(i, frame)
    if np.ndim(at) == 0:
        return widened(frame.at.weights.row(table.name, frame.layers, frame.layer, at))
    return widened(frame.at.weights.rows(table.name, frame.layers, frame.layer, at))


def _element(table: m.Node, i: m.Node, frame: Frame) -> jax.Array:
    """One of the first axis of a value or buffer, in each token its own."""
    values, at = _array(evaluate(table, frame)), evaluate(i, frame)
    lead = values.ndim - len(table.type.shape)
    if lead == 0:
        return index(values, at)
    at = jnp.clip(jnp.asarray(at), 0, values.shape[lead] - 1)
    each = at.reshape(*(at.shape or (1,) * lead), *(1,) * (values.ndim - lead))
    return jnp.take_along_axis(values, each, axis=lead).squeeze(lead)


def _experts(node: m.Experts, frame: Frame) -> jax.Array:
    routes = evaluate(node.routes, frame)
    used = {n.name for n in walk(node.body) if isinstance(n, m.Local)} & frame.names.keys()
    tokens = routes.ids.shape[0] * routes.ids.shape[1]

    def every(e: Index) -> jax.Array:
        inner = evolve(frame, names=frame.names | {node.parameter: e}, products=[])
        return _array(evaluate(node.body, inner))

    def one(e: Index, n: Index) -> jax.Array:
        own = {
            name: jax.tree.map(lambda v: v.reshape(tokens, *v.shape[2:])[n][None, None], frame.names[name])
            for name in used
        }
        inner = evolve(frame, names=own | {node.parameter: e}, products=[])
        return _array(evaluate(node.body, inner))[0, 0]

    count, width = frame.at.instance.shape((node.routes.type.shape[0], node.type.shape[0]))
    return experts(one, every, routes, count, width)


def _spread(value: Value, shape: Shape, wanted: Shape) -> Value:
    """A value of `shape` with axes of length 1 put in where `wanted` has others, so that they broadcast by name."""
    if len(shape) == len(wanted) or np.ndim(value) == 0:
        return value
    lead, dims, start = value.shape[: value.ndim - len(shape)], [], 0
    for axis in shape:
        start = wanted.index(axis, start) + 1
        dims.append(start - 1)
    axes = [1] * len(wanted)
    for dim, length in zip(dims, value.shape[len(lead) :], strict=True):
        axes[dim] = length
    return value.reshape(*lead, *axes)


def _array(value: Value) -> jax.Array:
    return value if isinstance(value, jax.Array) else jnp.asarray(value, jnp.float32)
