"""The reference backend as a decoder: several sequences, prefill in chunks, one token a row and step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...dsl.decoder import Saved
from ...dsl.model.instance import Instance
from . import step as steps
from .compilation import compiled
from .keeping import Keeper, KeptRow
from .loading import Values, load
from .passes import passes, spans
from .states import Arrays, plan
from .step import Taps
from .weights import Weights

type _Compiled = Callable[..., tuple[Arrays, tuple[jax.Array, dict[str, jax.Array]]]]


class ReferenceDecoder:
    """Implements `dsl.decoder.Decoder` on JAX's default device. Not safe for calls from several threads at a time.

    `weights` are names, layers and values, in any order; `same` names weights that are another. With `taps` (by
    name, a carried value and the layers before which it is wanted) the last call's are in `tapped`, f32 or bf16
    `[rows, tokens, count, ...]`. With `span` every pass of a prefill runs the one program for so many tokens: then a
    sequence's bits do not depend on where it was cut, and rows can be saved.
    """

    def __init__(
        self, instance: Instance, weights: Values | Weights, *, rows: int = 1, context: int = 2048, chunk: int = 128,
        same: Mapping[str, str] | None = None, taps: Taps | None = None, span: int | None = None,
    ) -> None:  # fmt: skip
        self.instance, self.rows, self.context = instance, rows, context
        self.chunk = min(chunk, context)
        self.spans = spans(self.chunk, span)
        self.room = plan(instance, rows, context, self.chunk)
        self.weights = weights if isinstance(weights, Weights) else load(instance, weights, same)
        self.taps = taps or {}
        self.tapped: dict[str, np.ndarray[Any, Any]] = {}
        self._programs: dict[tuple[int, int, bool], _Compiled] = {}
        self._states = self.room.empty()
        self._keeper = Keeper(self.room, context)
        # For each row, how many tokens it holds if only the one program of `span` has written them.
        self._held: list[int | None] = [None] * rows

    @property
    def cuts(self) -> bool:
        """Whether less of a row can be restored than was saved."""
        return self._keeper.cuts

    @property
    def vocab(self) -> int:
        """How many token ids there are."""
        return self.instance.length(self.instance.model.steps[""].types["logits"].shape[0])

    def compile(self) -> None:
        """Compile all that `decode` and `prefill` with `last_only` can need, so that no later call waits for it."""
        self._program(self.rows, 1, False)
        for span in self.spans:
            self._program(1, span, True)
        if len(self.spans) == 1:
            self._states = self._keeper.compile(self._states)

    def save(self, row: int) -> KeptRow | None:
        """What `row` holds after prefills with `last_only`, if all of their passes ran the same program."""
        held = self._held[row]
        return None if held is None else self._keeper.take(self._states, row, held)

    def restore(self, row: int, saved: Saved, length: int) -> None:
        """Make `row` hold the first `length` tokens of what was saved, all of them unless `cuts`."""
        part = length < saved.length
        if not isinstance(saved, KeptRow) or not 0 < length <= saved.length or (part and not self.cuts):
            raise ValueError(f"cannot restore {length} tokens of {saved.length}")
        self._states = self._keeper.put(self._states, row, saved)
        self._held[row] = length

    def reset(self) -> bool:
        """Make the decoder usable after a call that failed; false if all rows are empty now.

        A call gives its rows' memory away, and has it back only where it ends well or fails before it begins.
        """
        if not any(array.is_deleted() for array in self._states.values()):
            return True
        self._states = self.room.empty()
        self._held = [None] * self.rows
        return False

    def prefill(self, row: int, ids: Sequence[int], start: int, last_only: bool = False) -> np.ndarray[Any, Any]:
        """Read `ids` (1..chunk of them) into `row` at positions `start ..`; f32 logits `[len(ids), vocab]`.

        With `last_only` only the last id's, `[1, vocab]`, which saves most of a short prefill's time.
        """
        count = len(ids)
        if not 1 <= count <= self.chunk or not 0 <= start <= self.context - count or not 0 <= row < self.rows:
            raise ValueError(f"cannot read {count} ids at {start} into row {row}")
        same = last_only and len(self.spans) == 1 and (start == 0 or self._held[row] == start)
        self._held[row] = None
        logits, tapped, at = [], [], 0
        for span, real in passes(count, self.spans):
            tokens = np.zeros((1, span), np.int32)
            tokens[0, :real] = ids[at : at + real]
            found = self._run(self._program(1, span, last_only), tokens, [start + at], [real], row)[0]
            logits.append(found if last_only else found[:real])
            tapped.append({name: value[:, :real] for name, value in self.tapped.items()})
            at += real
        self.tapped = {name: np.concatenate([each[name] for each in tapped], axis=1) for name in self.taps}
        self._held[row] = start + count if same else None
        return logits[-1] if last_only or len(logits) == 1 else np.concatenate(logits)

    def decode(self, tokens: Sequence[int], positions: Sequence[int], live: Sequence[bool]) -> np.ndarray[Any, Any]:
        """One token for each live row (lists of `rows`); f32 logits `[rows, vocab]`, undefined where not live."""
        chosen = np.asarray(live, bool)
        start = np.where(chosen, np.asarray(positions, np.int32), 0)
        if len(chosen) != self.rows or (start < 0).any() or (start >= self.context).any():
            raise ValueError(f"positions {list(positions)} for {self.rows} rows of {self.context}")
        ids = np.where(chosen, np.asarray(tokens, np.int32), 0)
        self._held = [None if alive else held for alive, held in zip(chosen, self._held, strict=True)]
        return self._run(self._program(self.rows, 1, False), ids[:, None], start, chosen, 0)[:, 0]

    def _run(self, program: _Compiled, tokens: np.ndarray[Any, Any], start: Any, lengths: Any, row: int) -> (
            np.ndarray[Any, Any]):  # fmt: skip
        found = program(self.weights.arrays, self._states, tokens, np.asarray(start, np.int32),
                        np.asarray(lengths, np.int32), np.int32(row))  # fmt: skip
        self._states, (logits, tapped) = found
        self.tapped = {name: np.asarray(value) for name, value in tapped.items()}
        return np.asarray(logits)

    def _program(self, rows: int, span: int, last_only: bool) -> _Compiled:
        # For one token the two are the same.
        key = (rows, span, last_only and span > 1)
        if key not in self._programs:
            self._programs[key] = compiled(self.lower(*key), rows * span)
        return self._programs[key]

    def lower(self, rows: int, span: int, last_only: bool = False) -> Any:
        """The program for a pass of `span` tokens in each of `rows` rows, before XLA compiles it."""

        def program(arrays: Arrays, states: Arrays, tokens: jax.Array, start: jax.Array, lengths: jax.Array,
                    row: jax.Array) -> tuple[Arrays, tuple[jax.Array, dict[str, jax.Array]]]:  # fmt: skip
            weights = Weights(arrays, self.weights.places)
            first = 0 if rows == self.rows else row
            at = steps.decode_pass(self.instance, weights, self.room, tokens, start, lengths, first)
            names, after = steps.run(at, self.instance.model.steps[""], states, taps=self.taps, last_only=last_only)
            return after, (names["logits"], {name: names[name] for name in self.taps})

        number = jax.ShapeDtypeStruct((), jnp.int32)
        by_row, tokens = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((rows,), (rows, span)))
        like = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (self.weights.arrays, self._states))
        return jax.jit(program, donate_argnums=1).lower(*like, tokens, by_row, by_row, number)


def forward(instance: Instance, weights: Weights, ids: jax.Array) -> jax.Array:
    """Logits f32 `[len(ids), vocab]` of a sequence, in one pass from its beginning; can be traced."""
    room = plan(instance, 1, len(ids), len(ids))
    at = steps.decode_pass(instance, weights, room, ids[None], jnp.zeros(1, jnp.int32), jnp.full(1, len(ids)), 0)
    names, _ = steps.run(at, instance.model.steps[""], room.empty())
    return names["logits"][0]
