"""The reference backend as a decoder: several sequences, prefill in chunks, steps of one or more tokens a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...dsl.decoder import PendingStep, Saved
from ...dsl.model.instance import Instance
from . import step as steps
from .compilation import compiled
from .loading import Values, load
from .pending import compile_fetch, fetch
from .rewind import LastSteps
from .saved_rows import RowStore, SavedRow
from .sequences import Sequences, lost, saved_row, vocabulary
from .states import Arrays, plan
from .step import Taps
from .weights import Weights
from .widths import narrow, window

# So many steps of each width are compared before it is used.
_TRIED = 3

type Array = np.ndarray[Any, Any]
type _Compiled = Callable[..., tuple[Arrays, tuple[jax.Array, dict[str, jax.Array]]]]


class ReferenceDecoder:
    """Implements `dsl.decoder.Decoder` on JAX's default device. Not safe for calls from several threads at a time.

    `weights` are names, layers and values, in any order; `same` names weights that are another. With `taps` (by
    name, a carried value and the layers before which it is wanted) the last call's are in `tapped`, f32 or bf16
    `[rows, tokens, count, ...]`. Every step runs the one program for `tokens_per_row` tokens of a row, so that a row's
    bits do not depend on how many of them it is given. With `span` every pass of a prefill runs the one program for so
    many tokens: then a sequence's bits do not depend on where it was cut, and rows can be saved.
    """

    rewinds = True

    def __init__(
        self,
        instance: Instance,
        weights: Values | Weights,
        *,
        rows: int = 1,
        context: int = 2048,
        chunk: int = 128,
        same: Mapping[str, str] | None = None,
        taps: Taps | None = None,
        span: int | None = None,
        tokens_per_row: int = 1,
    ) -> None:
        self.instance, self.rows, self.context = instance, rows, context
        self.tokens_per_row = tokens_per_row
        self.chunk = min(chunk, context)
        self.room = plan(instance, rows, context, max(self.chunk, tokens_per_row))
        self._sequences = Sequences(
            rows,
            context,
            chunk,
            span,
            vocab=self.vocab,
            tokens_per_row=tokens_per_row,
            rewinds=self.rewinds,
        )
        self._last = LastSteps(self.room, rows, tokens_per_row)
        self.spans = self._sequences.spans
        self.weights = weights if isinstance(weights, Weights) else load(instance, weights, same)
        self.taps = taps or {}
        self.tapped: Mapping[str, Array | jax.Array] = {}
        self._programs: dict[tuple[int, int, bool], _Compiled] = {}
        self._widths: tuple[int, ...] = (rows,)
        self._states = self.room.empty()
        self._row_store = RowStore(self.room, context)

    @property
    def cuts(self) -> bool:
        """Whether less of a row can be restored than was saved."""
        return self._row_store.cuts

    @property
    def vocab(self) -> int:
        """How many token ids there are."""
        return vocabulary(self.instance)

    def compile(self) -> None:
        """Compile all that `step` and `prefill` with `last_only` can need, so that no later call waits for it.

        Empties all rows. From then on a step takes no more rows than it must, where that changes no bit.
        """
        self._program(self.rows, self.tokens_per_row, False)
        for span in self.spans:
            self._program(1, span, True)
        self._widths = self._agreeing()
        if self.tokens_per_row > 1:
            self._last.compile(self._states)
        for width in self._widths:
            compile_fetch(jnp.zeros((width, self.tokens_per_row, self.vocab), jnp.float32))
        if len(self.spans) == 1:
            self._states = self._row_store.compile(self._states)

    def save(self, row: int) -> SavedRow | None:
        """What `row` holds after prefills with `last_only`, if all of their passes ran the same program."""
        length = self._sequences.length(row)
        return None if length is None else self._row_store.take(self._states, row, length)

    def restore(self, row: int, saved: Saved, length: int) -> None:
        """Make `row` hold the first `length` tokens of what was saved, all of them unless `cuts`."""
        row, saved = self._sequences.row(row), saved_row(saved, length, self._row_store)
        self._states = self._row_store.put(self._states, row, saved)
        self._sequences.restored(row, length)

    def reset(self) -> bool:
        """Make the decoder usable after a call that failed; false if all rows are empty now."""
        if not lost(self._states):
            return True
        self._states = self.room.empty()
        self._sequences.clear()
        return False

    def prefill(self, row: int, ids: Sequence[int], start: int, last_only: bool = False) -> Array:
        """Read `ids` (1..chunk of them) into `row` at positions `start ..`; f32 logits `[len(ids), vocab]`.

        With `last_only` only the last id's, `[1, vocab]`, which saves most of a short prefill's time.
        """
        tapped: list[dict[str, Array]] = []

        def read(tokens: Array, at: int, real: int) -> Array:
            result = self._run(self._program(1, tokens.shape[1], last_only), tokens, [at], [real], row)
            tapped.append({name: np.asarray(value)[:, :real] for name, value in self.tapped.items()})
            return np.asarray(result)[0]

        logits = self._sequences.prefill(row, ids, start, last_only, read)
        self.tapped = {name: np.concatenate([each[name] for each in tapped], axis=1) for name in self.taps}
        return logits

    def step(
        self, tokens: Sequence[Sequence[int]], positions: Sequence[int], logits: Collection[int] = ()
    ) -> PendingStep:
        """Begin to read 1..tokens_per_row tokens of each row that is given some; `logits` are the rows asked for."""
        given = self._sequences.step(tokens, positions, 0, logits)
        if self.tokens_per_row > 1:
            self._rewind(given.kept)
            self._last.remember(self._states, given.ids, given.start, given.counts)
        rows = window([count > 0 for count in given.counts], self._widths)
        made = self._step(given.ids, given.start, given.counts, rows)
        return fetch(self.rows, rows.start, given.counts, made, given.logits)

    def _rewind(self, kept: Array) -> None:
        """Of rows' last steps only the first `kept` tokens `[rows]` were read, where that is not 0."""
        before = self._last.before(self._states, kept > 0)
        if before is not None:
            self._states = before
            self._step(self._last.ids, self._last.start, kept, slice(0, self.rows))

    def _step(self, ids: Array, start: Array, counts: Array, rows: slice) -> jax.Array:
        """Logits `[len(rows), tokens_per_row, vocab]` of a step of some rows that are neighbours."""
        program = self._program(rows.stop - rows.start, self.tokens_per_row, False)
        return self._run(program, ids[rows], start[rows], counts[rows], rows.start)

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

    def _tried(self, width: int) -> Array:
        """Logits `[steps, width, tokens_per_row, vocab]` of the last rows.

        Tokens, positions and all states are random.
        """
        random = np.random.default_rng(0)
        self._states.clear()
        self._states = self.room.random(random)
        shape = (_TRIED, self.rows)
        ids = random.integers(self.vocab, size=(*shape, self.tokens_per_row), dtype=np.int32)
        last = self.context - self.tokens_per_row + 1
        at = random.integers(last // 2, last, size=shape, dtype=np.int32)
        rows, counts = slice(self.rows - width, self.rows), np.full(self.rows, self.tokens_per_row, np.int32)
        return np.stack([self._step(ids[i], at[i], counts, rows) for i in range(_TRIED)])

    def _run(self, program: _Compiled, tokens: Array, start: Any, lengths: Any, row: int) -> jax.Array:
        """Logits of a pass; taps and the states after it are kept."""
        self._states, (logits, self.tapped) = program(
            self.weights.arrays,
            self._states,
            tokens,
            np.asarray(start, np.int32),
            np.asarray(lengths, np.int32),
            np.int32(row),
        )
        return logits

    def _program(self, rows: int, span: int, last_only: bool) -> _Compiled:
        # For one token the two are the same.
        key = (rows, span, last_only and span > 1)
        if key not in self._programs:
            self._programs[key] = compiled(self.lower(*key), rows * span)
        return self._programs[key]

    def lower(self, rows: int, span: int, last_only: bool = False) -> Any:
        """The program for a pass of `span` tokens in each of `rows` rows, before XLA compiles it."""

        def program(
            arrays: Arrays, states: Arrays, tokens: jax.Array, start: jax.Array, lengths: jax.Array, row: jax.Array
        ) -> tuple[Arrays, tuple[jax.Array, dict[str, jax.Array]]]:
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
