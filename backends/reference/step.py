"""Steps: statements one after the other, and the loops over layers and rows."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from attrs import evolve

from ...dsl.model import ir as m
from ...dsl.model.expressions import walk
from ...dsl.model.instance import Instance
from .caches import Index
from .evaluate import evaluate
from .frame import Frame, Pass, Value
from .layers import Segment, arrange, over_layers
from .rounding import DTYPES, rounded
from .states import Arrays, Room
from .weights import Weights

# By name, a carried value and the layers before which it is kept.
type Taps = Mapping[str, tuple[str, tuple[int, ...]]]


def run(
    at: Pass,
    step: m.Step,
    states: Arrays,
    given: dict[str, Value] | None = None,
    taps: Taps | None = None,
    *,
    last_only: bool = False,
    unrolled: bool = False,
) -> tuple[dict[str, Value], Arrays]:
    """A step over a pass: its values by name, taps among them as `[B, T, count, ...]`, and the states after it.

    `given` are values that the step takes from elsewhere. With `last_only` what follows the layers is evaluated for
    each row's last real token alone, T = 1; taps stay whole. With `unrolled` every layer is traced by itself.
    """
    frame = Frame(at, dict(given or {}), states, buffers_of(at))
    for statement in step.body:
        if isinstance(statement, m.Loop) and statement.variable == "layer":
            _layers(frame, step.name, taps or {}, unrolled)
            if last_only:
                tapped = {name: frame.names[name] for name in taps or {}}
                frame = _last(frame)
                frame.names |= tapped
        else:
            execute(statement, frame)
    return frame.names, frame.states


def execute(statement: m.Statement, frame: Frame) -> None:
    """An assignment or a write, or for each row of a block several."""
    if isinstance(statement, m.Loop):
        _rows(statement, frame)
        return
    assert isinstance(statement, m.Assign | m.Write)
    guard = True if statement.guard is None else frame.scalar(statement.guard)
    if not isinstance(guard, jax.Array):
        if not guard:
            return
        guard = True
    if isinstance(statement, m.Write):
        _write(statement, frame, guard)
        return
    value = evaluate(statement.value, frame)
    values = value if isinstance(value, tuple) else (value,)
    for name, each, type_ in zip(statement.names, values, statement.types, strict=True):
        if type_.dtype != "routes":
            each = rounded(jnp.asarray(each), frame.at.instance.dtype(type_))
            each = jnp.broadcast_to(each, (*frame.at.token.shape, *each.shape[each.ndim - len(type_.shape) :]))
        if isinstance(guard, jax.Array):
            each = jnp.where(guard, each, frame.names[name])
        frame.names[name] = each


def _write(statement: m.Write, frame: Frame, guard: bool | jax.Array) -> None:
    state = frame.at.instance.model.states[statement.state]
    value = rounded(evaluate(statement.value, frame), frame.at.instance.dtype(state.type))
    if state.kind == "cache":
        frame.write(state.name, value, guard)
        return
    buffer, index = frame.buffers[state.name], evaluate(statement.index, frame)
    value = jnp.where(guard, value, jax.lax.dynamic_index_in_dim(buffer, index, axis=2, keepdims=False))
    written = jax.lax.dynamic_update_index_in_dim(buffer, value, index, axis=2)
    frame.buffers = {**frame.buffers, state.name: written}


def buffers_of(at: Pass) -> Arrays:
    """The model's buffers before anything is written into them."""
    instance = at.instance
    return {
        s.name: jnp.zeros((*at.token.shape, *instance.shape(s.type.shape)), DTYPES[instance.dtype(s.type)])
        for s in instance.model.states.values()
        if s.kind == "buffer"
    }


def _layers(frame: Frame, step: str, taps: Taps, unrolled: bool) -> None:
    """Every layer's parts in order; the names set before are carried, all others are a part's own."""
    at, parts = frame.at, frame.at.instance.layer_parts(step)
    tapped = {
        tap: jnp.stack([jnp.zeros_like(frame.names[name])] * len(wanted), axis=2)
        for tap, (name, wanted) in taps.items()
    }

    def tap(tapped: Arrays, names: dict[str, Value], layer: Index, layers: tuple[int, ...]) -> Arrays:
        return {t: _tap(tapped[t], names[name], wanted, layer, layers) for t, (name, wanted) in taps.items()}

    def body(
        layer: Index, layers: tuple[int, ...], carry: tuple[dict[str, Value], Arrays, Arrays, Arrays]
    ) -> tuple[dict[str, Value], Arrays, Arrays, Arrays]:
        names, states, buffers, tapped = carry
        tapped = tap(tapped, names, layer, layers)
        for part in parts[layers[0]]:
            inner = Frame(at, dict(names), states, buffers, part, layers, layer)
            for statement in at.instance.model.parts[part].body:
                execute(statement, inner)
            names = {name: inner.names[name] for name in names}
            states, buffers = inner.states, inner.buffers
        return names, states, buffers, tapped

    carry = (frame.names, frame.states, frame.buffers, tapped)
    loops = segments(at.instance, at.room, step, unrolled)
    frame.names, frame.states, frame.buffers, tapped = over_layers(loops, body, carry)
    end = max(parts, default=-1) + 1
    frame.names = frame.names | tap(tapped, frame.names, end, (end,))


def segments(instance: Instance, room: Room, step: str = "", unrolled: bool = False) -> tuple[Segment, ...]:
    """A step's layers as loops over those with equal parts and storage, or each alone."""
    used = {part.name: states_of(part) & room.stores.keys() for part in instance.model.parts.values()}
    parts = instance.layer_parts(step)
    kinds = [
        (names, tuple(room.of(s, layer).key for part in names for s in sorted(used[part])))
        for layer, names in parts.items()
    ]
    return arrange(list(enumerate(kinds)) if unrolled else kinds, next(iter(parts), 0))


def states_of(part: m.Part) -> set[str]:
    """The states, caches and buffers that a part reads or writes."""
    values = [s.value for s in part.body if isinstance(s, m.Assign | m.Write)]
    read = {node.name for value in values for node in walk(value) if isinstance(node, m.StateRef)}
    return read | {s.state for s in part.body if isinstance(s, m.Write)}


def _tap(
    tapped: jax.Array, value: jax.Array, wanted: tuple[int, ...], layer: Index, layers: tuple[int, ...]
) -> jax.Array:
    """`tapped` `[B, T, count, ...]` with `value`, if this layer is one of those wanted."""
    if not set(wanted) & set(layers):
        return tapped
    table = np.full(layers[-1] + 1, -1, np.int32)
    table[[i for i in layers if i in wanted]] = [wanted.index(i) for i in layers if i in wanted]
    at = jnp.asarray(table)[layer]
    index = jnp.maximum(at, 0)
    updated = jnp.where(at >= 0, value, jax.lax.dynamic_index_in_dim(tapped, index, axis=2, keepdims=False))
    return jax.lax.dynamic_update_index_in_dim(tapped, updated, index, axis=2)


def _last(frame: Frame) -> Frame:
    """The frame for each row's last real token alone."""
    last = jnp.maximum(frame.at.lengths - 1, 0)

    def take(value: jax.Array) -> jax.Array:
        return jnp.take_along_axis(value, last.reshape(-1, *(1,) * (value.ndim - 1)), axis=1)

    at = evolve(
        frame.at, token=take(frame.at.token), position=take(frame.at.position), lengths=jnp.minimum(frame.at.lengths, 1)
    )
    return evolve(frame, at=at, names=jax.tree.map(take, frame.names), buffers=jax.tree.map(take, frame.buffers))


def _rows(loop: m.Loop, frame: Frame) -> None:
    """Row after row of a block: names set before and assigned in it go from row to row, its own are gathered."""
    start, stop = (int(frame.at.instance.number(bound)) for bound in (loop.start, loop.stop))
    assigned = {name for s in loop.body if isinstance(s, m.Assign) for name in s.names}
    carried: dict[str, Value] = {}
    rows: list[dict[str, Value]] = []
    for row in range(start, stop):
        cut = lambda v, row=row: v[:, row : row + 1]  # noqa: E731
        at = evolve(frame.at, token=cut(frame.at.token), position=cut(frame.at.position))
        names = jax.tree.map(cut, frame.names) | carried
        inner = evolve(frame, at=at, names=names, buffers={}, row=row, products=[])
        for statement in loop.body:
            execute(statement, inner)
        carried = {name: inner.names[name] for name in assigned & frame.names.keys()}
        rows.append({name: inner.names[name] for name in assigned})
    if rows:
        together = {name: jnp.concatenate([each[name] for each in rows], axis=1) for name in assigned}
        frame.names = frame.names | together


def decode_pass(
    instance: Instance,
    weights: Weights,
    room: Room,
    tokens: jax.Array,
    start: jax.Array,
    lengths: jax.Array,
    row: Index,
) -> Pass:
    """`tokens [B, T]` at positions `start [B]` on, in rows `row ..`, of which `lengths [B]` are real."""
    position = start[:, None] + jnp.arange(tokens.shape[1], dtype=start.dtype)
    return Pass(instance, weights, room, tokens, position, lengths, row)
