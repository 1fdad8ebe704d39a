"""A decode step taken apart: each part by itself, on values that come from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
from attrs import evolve, frozen

from ...dsl.model import ir as m
from ...dsl.model.instance import Instance
from .frame import Frame
from .ops.route import Routes
from .states import Arrays, Room
from .step import buffers_of, decode_pass, execute, states_of
from .weights import Weights

# Arrays of JAX or numpy, `[1, 1, …]`, by name.
type Names = dict[str, Any]


@frozen
class Values:
    """What one part leaves to the next: carried values, states, and the model's buffers."""

    names: Names
    states: Names
    buffers: Names


@frozen(slots=False)
class Parts:
    """The step of one row; `token` and `position` are int32 `[1, 1]` and `[1]`. Each kind of part is compiled once."""

    instance: Instance
    weights: Weights
    room: Room

    @cached_property
    def carried(self) -> frozenset[str]:
        """The names that the step sets before its layers."""
        return frozenset(n for s in self._around[0] if isinstance(s, m.Assign) for n in s.names)

    def begin(self, token: Any, position: Any, states: Names) -> Values:
        """What the step sets before its layers."""
        return self._run(self._begun, token, position, Values({}, states, {}))[0]

    def part(self, name: str, layer: int, token: Any, position: Any, before: Values) -> tuple[Values, Names]:
        """What a part leaves in a layer, and its own values."""
        used = states_of(self.instance.model.parts[name]) & self.room.stores.keys()
        key = lambda i: [self.room.of(state, i).key for state in sorted(used)]  # noqa: E731
        runs = [i for i, parts in self.instance.layer_parts().items() if name in parts]
        alike = tuple(i for i in runs if key(i) == key(layer))
        after, names = self._run(self._part(name, alike), token, position, before, jnp.int32(layer))
        own = {n: v for n, v in names.items() if n not in self.carried}
        return evolve(after, names={n: v for n, v in names.items() if n in self.carried}), own

    def end(self, token: Any, position: Any, before: Values) -> Names:
        """What the step sets after its layers, the logits among them."""
        return self._run(self._ended, token, position, before)[1]

    def _run(self, work: Any, token: Any, position: Any, before: Values, layer: Any = 0) -> tuple[Values, Names]:
        given = (before.names, before.states, before.buffers)
        names, states, buffers = work(self.weights.arrays, token, position, *given, layer)
        return Values(names, states, buffers), names

    @cached_property
    def _around(self) -> tuple[list[m.Statement], list[m.Statement]]:
        """The statements before the loop over the layers, and those after: all of them where there is no loop."""
        body = self.instance.model.decode.body
        at = next((i for i, s in enumerate(body) if isinstance(s, m.Loop)), -1)
        return list(body[: max(at, 0)]), list(body[at + 1 :])

    @cached_property
    def _begun(self) -> Any:
        return jax.jit(partial(self._execute, self._around[0], None, ()))

    @cached_property
    def _ended(self) -> Any:
        return jax.jit(partial(self._execute, self._around[1], None, ()))

    @cached_property
    def _compiled(self) -> dict[tuple[str, tuple[int, ...]], Any]:
        return {}

    def _part(self, name: str, layers: tuple[int, ...]) -> Any:
        if (name, layers) not in self._compiled:
            body = self.instance.model.parts[name].body
            self._compiled[name, layers] = jax.jit(partial(self._execute, body, name, layers))
        return self._compiled[name, layers]

    def _execute(
        self,
        statements: Any,
        part: str | None,
        layers: tuple[int, ...],
        arrays: Mapping[str, jax.Array],
        token: jax.Array,
        position: jax.Array,
        names: Names,
        states: Arrays,
        buffers: Arrays,
        layer: jax.Array,
    ) -> tuple[Names, Arrays, Arrays]:
        weights = Weights(dict(arrays), self.weights.slices)
        at = decode_pass(self.instance, weights, self.room, token, position, jnp.ones(1, jnp.int32), 0)
        frame = Frame(at, dict(names), states, buffers or buffers_of(at), part, layers, layer)
        for statement in statements:
            execute(statement, frame)
        types = {n: t for s in statements if isinstance(s, m.Assign) for n, t in zip(s.names, s.types, strict=True)}
        outputs = {
            name: _dense(value, self.instance.length(types[name].shape[0])) if isinstance(value, Routes) else value
            for name, value in frame.names.items()
        }
        return outputs, frame.states, frame.buffers


def _dense(routes: Routes, experts: int) -> jax.Array:
    """The weights of all experts, `[1, 1, experts]`."""
    one_hot = routes.ids[..., None] == jnp.arange(experts)
    return jnp.sum(jnp.where(one_hot, routes.weights[..., None], 0.0), axis=-2)
