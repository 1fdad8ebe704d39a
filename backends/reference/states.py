"""Room for states and caches: one array for the layers whose entries take the same room."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from attrs import frozen

from ...dsl.model import ir as m
from ...dsl.model import ops as registry
from ...dsl.model.expressions import walk
from ...dsl.model.instance import Instance
from . import ops
from .caches import TILE
from .rounding import DTYPES

type Arrays = dict[str, jax.Array]


@frozen
class Store:
    """An array `[layers, rows, *entry]` under `key`; a cache's entry has an axis of positions at `axis`.

    `layers` are those it serves (`None`: it is the model's own), `last` the positions that a token sees (`None`: all).
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    layers: tuple[int, ...] | None
    axis: int | None = None
    last: int | None = None


@frozen
class Room:
    """Where each state and cache is kept."""

    stores: Mapping[str, tuple[Store, ...]]

    def of(self, state: str, layer: int) -> Store:
        """The array that serves a layer."""
        return next(s for s in self.stores[state] if s.layers is None or layer in s.layers)

    def empty(self) -> Arrays:
        """All arrays, zero."""
        return {s.key: jnp.zeros(s.shape, DTYPES[s.dtype]) for stores in self.stores.values() for s in stores}

    def random(self, generator: np.random.Generator) -> Arrays:
        """All arrays with numbers between -1 and 1."""

        def values(store: Store) -> jax.Array:
            return jnp.asarray(generator.random(store.shape, np.float32) * 2 - 1, DTYPES[store.dtype])

        return {s.key: values(s) for stores in self.stores.values() for s in stores}

    @property
    def bytes(self) -> int:
        """The size of all arrays."""
        return sum(math.prod(s.shape) * DTYPES[s.dtype](0).nbytes for stores in self.stores.values() for s in stores)


def plan(instance: Instance, rows: int, context: int, span: int) -> Room:
    """Room for `rows` sequences of up to `context` tokens, read in passes of up to `span`."""
    axes = dict(_position_axes(instance.model))
    stores: dict[str, tuple[Store, ...]] = {}
    for state in instance.model.states.values():
        layers = instance.owner_layers(state.part)
        if layers == ():
            continue  # no layer runs the part
        entry, dtype = instance.shape(state.type.shape), instance.dtype(state.type)
        if state.kind == "state":
            stores[state.name] = (Store(state.name, (len(layers or (0,)), rows, *entry), dtype, layers),)
        elif state.kind == "cache":
            stores[state.name] = _cache(instance, state, axes.get(state.name, 0), rows, context, span)
    return Room(stores)


def _cache(instance: Instance, state: m.State, axis: int, rows: int, context: int, span: int) -> tuple[Store, ...]:
    layers, entry = instance.owner_layers(state.part), list(instance.shape(state.type.shape))
    groups: dict[int | None, list[int]] = {}
    for layer in layers or (0,):
        groups.setdefault(_last(instance, state, layer, context), []).append(layer)
    stores = []
    for last, served in groups.items():
        # A pass writes all its tokens before any is looked at, so a ring holds them beside the first one's window.
        size = context if last is None else min(context, last + span - 1)
        size = -(-size // TILE) * TILE
        shape = (len(served), rows, *entry[:axis], size, *entry[axis:])
        key = state.name if len(groups) == 1 else f"{state.name} last {last or 'all'}"
        own = None if layers is None else tuple(served)
        stores.append(Store(key, shape, instance.dtype(state.type), own, axis, last))
    return tuple(stores)


def _last(instance: Instance, state: m.State, layer: int, context: int) -> int | None:
    if state.last is None:
        return None
    last = instance.number(state.last, layer)
    return int(last) if last < context else None


def _position_axes(model: m.Model) -> Iterator[tuple[str, int]]:
    for call in calls(model):
        op = registry.find(call.op)
        for parameter, arg in zip(op.parameters if op else (), call.args, strict=False):
            if op is not None and parameter in op.caches and isinstance(arg, m.StateRef):
                yield arg.name, ops.position_axes.get(op.name, {}).get(parameter, 0)


def calls(model: m.Model) -> Iterator[m.Call]:
    """Every call of an op in a model's parts and steps."""
    bodies = [part.body for part in model.parts.values()] + [step.body for step in model.steps.values()]
    statements = [s for body in bodies for s in body]
    while statements:
        statement = statements.pop()
        if isinstance(statement, m.Loop):
            statements.extend(statement.body)
        elif isinstance(statement, m.Assign | m.Write):
            yield from (node for node in walk(statement.value) if isinstance(node, m.Call))
