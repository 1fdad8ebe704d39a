"""Each part of a megakernel against the reference, which is given what the kernel's part was given.

So errors do not add up, and what is wrong is told from what comes after it. Beside that the reference runs by itself,
for the ids that it chooses and the errors that do add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from attrs import evolve, frozen

from ....dsl.model import ir as m
from ....dsl.program import ir as p
from ...reference.parts import Parts, Values
from ...reference.states import Room
from ...reference.weights import Weights
from ..emit.shard_map import Operand
from ..layout import resharding
from ..runtime.device import Machine
from .report import (
    STEP,
    Choice,
    Comparison,
    Errors,
    Verified,
    errors,
    limits_of,
)
from .traced_run import Array, Traced, Tracer


def verify(
    program: p.Program,
    operand: Operand,
    machine: Machine,
    weights: Weights,
    steps: Sequence[tuple[Sequence[int], Sequence[int]]],
    seed: int = 0,
) -> Verified:
    """Compare a traced Program's parts with the reference's, with `weights` that lie on the CPU.

    `steps` are tokens and positions of each row, in order; of consecutive tokens there is one step. States and caches
    begin with random numbers, so that any position has something before it.
    """
    tracer = Tracer(program, operand, machine)
    cpu = jax.devices("cpu")[0]
    reference = _Reference(program, Parts(program.instance, weights, tracer.rows.room), cpu)
    rng = np.random.default_rng(seed)
    alone: list[dict[str, Array]] = []
    for row in range(1 if program.consecutive else program.rows):
        tracer.hold(
            row, {name: (rng.normal(size=a.shape) / 2).astype(a.dtype) for name, a in tracer.rows.room.empty().items()}
        )
        alone.append(tracer.held(row))
    comparisons: list[Comparison] = []
    choices: list[Choice] = []
    limits = limits_of(program)
    for number, (tokens, positions) in enumerate(steps):
        before = [tracer.held(row) for row in range(program.rows)]
        traced_step = tracer.step(tokens, positions)
        after = [tracer.held(row) for row in range(program.rows)]
        if program.consecutive:
            before, after = _one_by_one(before[0], after, positions, tracer.rows.room)
        for row, (token, position) in enumerate(zip(tokens, positions, strict=True)):
            at, sequence = _At(number, row, token, position), 0 if program.consecutive else row
            with jax.default_device(cpu):
                own, alone[sequence], logits = reference.compare(
                    at, traced_step, before[row], after[row], alone[sequence]
                )
            comparisons += own
            best, next_id = int(logits.argmax()), int(traced_step.chosen[row])
            within = limits.largest * np.abs(logits[np.isfinite(logits)]).max()
            tie = 0 <= next_id < len(logits) and logits[best] - logits[next_id] <= within
            choices.append(Choice(number, row, token, position, next_id, best, bool(tie)))
    return Verified(limits, tuple(comparisons), tuple(choices))


def _one_by_one(
    first: dict[str, Array], after: list[dict[str, Array]], positions: Sequence[int], room: Room
) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
    """What each of some consecutive tokens began with and left, of what the first began with and all left.

    States are kept after each; of a cache, which is one for all, a token leaves its own entry, the last one all else.
    """
    axes = {store.key: store.axis for stores in room.stores.values() for store in stores}
    befores, afters = [first], []
    for number, position in enumerate(positions):
        left = dict(after[number])
        for key, axis in axes.items():
            if axis is None or number + 1 == len(positions):
                continue
            at = (slice(None),) * (axis + 2) + (position,)
            left[key] = befores[-1][key].copy()
            left[key][at] = after[number][key][at]
        afters.append(left)
        befores.append(left)
    return befores[:-1], afters


@frozen
class _At:
    step: int
    row: int
    token: int
    position: int


@frozen
class _Reference:
    """The reference's parts, beside the kernel's."""

    program: p.Program
    parts: Parts
    cpu: Any

    def compare(
        self, at: _At, traced_step: Traced, before: dict[str, Array], after: dict[str, Array], alone: dict[str, Array]
    ) -> tuple[list[Comparison], dict[str, Array], Array]:
        """A row's step: what differs, the states of the reference by itself after it, and its logits `[vocab]`.

        The kernel began with the states `before`, the reference by itself with `alone`.
        """
        given = (np.full((1, 1), at.token, np.int32), np.full(1, at.position, np.int32))
        put = lambda arrays: {name: jax.device_put(a, self.cpu) for name, a in arrays.items()}  # noqa: E731
        compared = []

        def note(part: str, value: str, layer: int | None, own: Errors, carried: Errors | None = None) -> None:
            compared.append(Comparison(part, value, layer, at.step, at.row, own, carried))

        forced, by_itself = (self.parts.begin(*given, put(states)) for states in (before, alone))
        kernel = self._given(traced_step, STEP, 0, at.row, forced)
        for name, value in kernel.names.items():
            note(STEP, name, None, errors(value, forced.names[name]), errors(value, by_itself.names[name]))
        written: dict[str, set[int]] = {name: set() for name in forced.buffers}
        runs: dict[str, int] = {}
        agreed = True
        for layer, parts in self.program.phase.layer_parts.items():
            for part in parts:
                index = runs[part] = runs.get(part, -1) + 1
                forced, own = self.parts.part(part, layer, *given, evolve(kernel, states=forced.states))
                by_itself, _ = self.parts.part(part, layer, *given, by_itself)
                kernel = self._given(traced_step, part, index, at.row, forced)
                for name, value in kernel.names.items():
                    note(part, name, layer, errors(value, forced.names[name]), errors(value, by_itself.names[name]))
                for name, value in self._own(traced_step, part, index, at.row):
                    if name in own:
                        note(part, name, layer, errors(value, own[name]))
                self._writes(part, layer, written)
                kernel = evolve(kernel, buffers={n: _only(b, written[n]) for n, b in kernel.buffers.items()})
                for name, buffer in kernel.buffers.items():
                    note(part, name, layer, errors(buffer, _only(np.asarray(forced.buffers[name]), written[name])))
                agree = self._cores_agree(traced_step, part, index, at.row)
                if agreed and not agree:
                    note(part, "all cores alike", layer, Errors(cosine=float("nan")))
                agreed = agree
        for scope, state, i, error in self._states(at, after, forced.states):
            note(scope, state, i, error)
        logits, alone_logits = (
            np.asarray(self.parts.end(*given, values)["logits"], np.float32)[0, 0]
            for values in (evolve(kernel, states=forced.states), by_itself)
        )
        note(
            STEP,
            "logits",
            None,
            errors(traced_step.logits[at.row], logits),
            errors(traced_step.logits[at.row], alone_logits),
        )
        return compared, {name: np.asarray(a) for name, a in by_itself.states.items()}, alone_logits

    def _given(self, traced_step: Traced, scope: str, index: int, row: int, like: Values) -> Values:
        """The kernel's carried values and buffers after a part's run, as the reference has them."""

        def trace(name: str) -> Array:
            array = traced_step.traces[p.TraceRef(scope, name).label][0]
            return array if scope == STEP else array[index]

        names = {name: trace(name)[row].reshape(value.shape) for name, value in like.names.items()}
        if scope == STEP:
            return Values(names, like.states, like.buffers)
        # [elements, rows, n] to [1, 1, elements, n]
        buffers = {name: trace(name)[:, row].reshape(value.shape) for name, value in like.buffers.items()}
        return Values(names, like.states, buffers)

    def _own(self, traced_step: Traced, part: str, index: int, row: int) -> Iterator[tuple[str, Array]]:
        """A part's named values, joined from all cores."""
        shares = self.program.shares
        for statement in self.program.instance.model.parts[part].body:
            for name, type_ in (
                zip(statement.names, statement.types, strict=True) if isinstance(statement, m.Assign) else ()
            ):
                array = traced_step.traces.get(p.TraceRef(part, name).label)
                if array is None or name in self.parts.carried:
                    continue
                mine = array[:, index, row]
                shape = type_.shape[:1] if type_.dtype == "routes" else type_.shape
                whole = shares.instance.shape(shape)
                if mine.shape[1:] == whole:
                    yield name, mine[0]
                elif mine.shape[1:] == shares.shape(shape):
                    yield name, np.asarray(resharding.of_value(shares, shape).joined(jnp.asarray(mine)))
                elif len(whole) == 1 and mine.shape[0] * mine.shape[1] >= whole[0]:
                    # A sum that is left scattered: each core has some of its columns.
                    yield name, mine.reshape(-1)[: whole[0]]

    def _writes(self, part: str, layer: int, written: dict[str, set[int]]) -> None:
        """Which elements of the model's buffers a part's run writes."""
        instance = self.program.instance
        for statement in instance.model.parts[part].body:
            if not isinstance(statement, m.Write) or statement.state not in written:
                continue
            assert isinstance(statement.index, m.Static)
            if statement.guard is None or instance.value(statement.guard, layer):
                written[statement.state].add(int(instance.number(statement.index, layer)))

    def _cores_agree(self, traced_step: Traced, part: str, index: int, row: int) -> bool:
        """Whether all cores carry on with the same bits."""
        arrays = (traced_step.traces[p.TraceRef(part, name).label][:, index, row] for name in self.parts.carried)
        return all(np.array_equal(array, np.broadcast_to(array[:1], array.shape)) for array in arrays)

    def _states(self, at: _At, after: dict[str, Array], wanted: Any) -> Iterator[tuple[str, str, int | None, Errors]]:
        """States after the step; of caches the new entry, and whether all others are as before."""
        for state, stores in self.parts.room.stores.items():
            part = self.program.instance.model.states[state].part or STEP
            for store in stores:
                kernel, reference = after[store.key], np.asarray(wanted[store.key])
                for i, layer in enumerate(store.layers or (None,)):
                    mine, other = kernel[i, 0], reference[i, 0]
                    if store.axis is None:
                        yield part, f"{state} after", layer, errors(mine, other)
                        continue
                    entry, new = (np.take(a, at.position, axis=store.axis) for a in (mine, other))
                    yield part, f"{state} entry", layer, errors(entry, new)
                    rest, last = (np.delete(a, at.position, axis=store.axis) for a in (mine, other))
                    if not np.array_equal(rest, last):
                        yield part, f"{state} untouched", layer, Errors(cosine=float("nan"))


def _only(buffer: Array, elements: set[int]) -> Array:
    """`[1, 1, elements, n]` with nothing but what was written."""
    keep = np.isin(np.arange(buffer.shape[2]), sorted(elements))[:, None]
    return np.where(keep, buffer, np.zeros((), buffer.dtype))
