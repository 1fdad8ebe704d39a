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
from .sequences import Sequences, kept_row, lost, vocabulary
from .states import Arrays, plan
from .step import Taps
from .weights import Weights
from .widths import narrow, window

# So many steps of each width are compared before it is used.
_TRIED = 3

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
        self._sequences = Sequences(rows, context, chunk, span)
        self.chunk, self.spans = self._sequences.chunk, self._sequences.spans
        self.room = plan(instance, rows, context, self.chunk)
        self.weights = weights if isinstance(weights, Weights) else load(instance, weights, same)
        self.taps = taps or {}
        self.tapped: dict[str, np.ndarray[Any, Any]] = {}
        self._programs: dict[tuple[int, int, bool], _Compiled] = {}
        self._widths: tuple[int, ...] = (rows,)
        self._states = self.room.empty()
        self._keeper = Keeper(self.room, context)

    @property
    def cuts(self) -> bool:
        """Whether less of a row can be restored than was saved."""
        return self._keeper.cuts

    @property
    def vocab(self) -> int:
        """How many token ids there are."""
        return vocabulary(self.instance)

    def compile(self) -> None:
        """Compile all that `decode` and `prefill` with `last_only` can need, so that no later call waits for it.

        Empties all rows. From then on a step takes no more rows than it must, where that changes no bit.
        """
        self._program(self.rows, 1, False)
        for span in self.spans:
            self._program(1, span, True)
        self._widths = self._agreeing()
        if len(self.spans) == 1:
            self._states = self._keeper.compile(self._states)

    def save(self, row: int) -> KeptRow | None:
        """What `row` holds after prefills with `last_only`, if all of their passes ran the same program."""
        length = self._sequences.length(row)
        return None if length is None else self._keeper.take(self._states, row, length)

    def restore(self, row: int, saved: Saved, length: int) -> None:
        """Make `row` hold the first `length` tokens of what was saved, all of them unless `cuts`."""
        self._states = self._keeper.put(self._states, row, kept_row(saved, length, self.cuts))
        self._sequences.restored(row, length)

    def reset(self) -> bool:
        """Make the decoder usable after a call that failed; false if all rows are empty now."""
        if not lost(self._states):
            return True
        self._states = self.room.empty()
        self._sequences.clear()
        return False

    def prefill(self, row: int, ids: Sequence[int], start: int, last_only: bool = False) -> np.ndarray[Any, Any]:
        """Read `ids` (1..chunk of them) into `row` at positions `start ..`; f32 logits `[len(ids), vocab]`.

        With `last_only` only the last id's, `[1, vocab]`, which saves most of a short prefill's time.
        """
        tapped: list[dict[str, np.ndarray[Any, Any]]] = []

        def read(tokens: np.ndarray[Any, Any], at: int, real: int) -> np.ndarray[Any, Any]:
            found = self._run(self._program(1, tokens.shape[1], last_only), tokens, [at], [real], row)
            tapped.append({name: value[:, :real] for name, value in self.tapped.items()})
            return found[0]

        logits = self._sequences.prefill(row, ids, start, last_only, read)
        self.tapped = {name: np.concatenate([each[name] for each in tapped], axis=1) for name in self.taps}
        return logits

    def decode(self, tokens: Sequence[int], positions: Sequence[int], live: Sequence[bool]) -> np.ndarray[Any, Any]:
        """One token for each live row (lists of `rows`); f32 logits `[rows, vocab]`, undefined where not live."""
        ids, start = self._sequences.step(tokens, positions, live, idle=0)
        rows = window(live, self._widths)
        logits = self._step(ids, start, np.asarray(live, bool), rows)
        if logits.shape[0] == self.rows:
            return logits
        found = np.empty((self.rows, logits.shape[1]), logits.dtype)
        found[rows] = logits
        return found

    def _step(self, ids: np.ndarray, start: np.ndarray, live: np.ndarray, rows: slice) -> np.ndarray[Any, Any]:
        """Logits `[len(rows), vocab]` of a step of some rows that are neighbours."""
        program = self._program(rows.stop - rows.start, 1, False)
        return self._run(program, ids[rows, None], start[rows], live[rows], rows.start)[:, 0]

    def _agreeing(self) -> tuple[int, ...]:
        """The numbers of rows whose steps give the bits that a step of all rows gives; empties all rows.

        How many rows are worked on together may change the order of sums: compilers for other machines may choose
        otherwise than those that this was written on. So it is tried out, on random tokens and full caches: sums of few
        numbers that are not zero would hide their order.
        """
        widths = () if self.taps else narrow(self.rows)
        if not widths:
            return (self.rows,)
        wanted = self._tried(self.rows)
        alike = [width for width in widths if np.array_equal(wanted[:, -width:], self._tried(width))]
        self._states = self.room.empty()
        self._sequences.clear()
        return (*alike, self.rows)

    def _tried(self, width: int) -> np.ndarray[Any, Any]:
        """Logits `[steps, width, vocab]` of the last rows on random tokens at random positions, all states random."""
        random = np.random.default_rng(0)
        self._states.clear()
        self._states = self.room.random(random)
        shape = (_TRIED, self.rows)
        ids = random.integers(self.vocab, size=shape, dtype=np.int32)
        at = random.integers(self.context // 2, self.context, size=shape, dtype=np.int32)
        rows, live = slice(self.rows - width, self.rows), np.ones(self.rows, bool)
        return np.stack([self._step(ids[i], at[i], live, rows) for i in range(_TRIED)])

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
            weights = Weights(arrays, self.weights.slices)
            first = 0 if rows == self.rows else row
            at = steps.decode_pass(self.instance, weights, self.room, tokens, start, lengths, first)
            names, after = steps.run(at, self.instance.model.decode, states, taps=self.taps, last_only=last_only)
            return after, (names["logits"], {name: names[name] for name in self.taps})

        number = jax.ShapeDtypeStruct((), jnp.int32)
        by_row, tokens = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((rows,), (rows, span)))
        like = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (self.weights.arrays, self._states))
        return jax.jit(program, donate_argnums=1).lower(*like, tokens, by_row, by_row, number)


def forward(instance: Instance, weights: Weights, ids: jax.Array) -> jax.Array:
    """Logits f32 `[len(ids), vocab]` of a sequence, in one pass from its beginning; can be traced."""
    room = plan(instance, 1, len(ids), len(ids))
    at = steps.decode_pass(instance, weights, room, ids[None], jnp.zeros(1, jnp.int32), jnp.full(1, len(ids)), 0)
    names, _ = steps.run(at, instance.model.decode, room.empty())
    return names["logits"][0]
