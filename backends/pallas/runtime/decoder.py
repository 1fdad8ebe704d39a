"""The megakernel as a decoder: steps by the kernel, prompts by the reference over the same weights and states."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from ....dsl.decoder import PendingStep, Saved
from ....dsl.model.instance import Instance
from ....dsl.program.lower.lower import lower
from ....dsl.schedule.ir import Schedule
from ...reference.integers import integer, integers
from ...reference.pending import compile_fetch, fetch
from ...reference.saved_rows import RowStore, SavedRow
from ...reference.sequences import Sequences, lost, saved_row, vocabulary
from ..emit.shard_map import Operand, Step, build, empty, jitted, layouts, placed
from . import row_state as layout
from .device import Machine
from .multi_step import several
from .prefill import prefill

type Array = np.ndarray[Any, Any]
_IDLE = -1  # the position of a row that is not live


class PallasDecoder:
    """Implements `dsl.decoder.Decoder` on a schedule's cores. Not safe for calls from several threads at a time.

    `schedule` says context and mesh, `operand(name, core)` gives what packing made; each is asked for once, and copied
    to the core's device; `plain` weights as in `lower`. `machine` has the schedule's mesh. `chunk` and `span` are those
    of the reference's decoder. `step` is one that was loaded, for the same Program, in the place of the one that
    `step` would compile. Raises `MksError` where kernels cannot do what the schedule says.
    """

    # A Program of several tokens a row reads one sequence, and there is no decoder of it.
    tokens_per_row, rewinds = 1, False

    def __init__(
        self,
        schedule: Schedule,
        instance: Instance,
        operand: Operand,
        machine: Machine,
        *,
        plain: frozenset[str] = frozenset(),
        rows: int = 1,
        chunk: int = 128,
        span: int | None = None,
        step: Step | None = None,
    ) -> None:
        self.program = lower(schedule, instance, rows, plain)
        self.instance, self.rows, self.context = instance, rows, schedule.context
        self._sequences = Sequences(rows, self.context, chunk, span, vocab=self.vocab)
        self.chunk, self.spans = self._sequences.chunk, self._sequences.spans
        self._mesh, self._interpreted = machine.mesh, machine.interpreted
        self._weights = placed(self.program, self._mesh, operand)
        self._as_read, whole = layouts(self.program, self._mesh), NamedSharding(self._mesh, P())
        self._decode: Any = jitted(self.program, machine.build_mode, self._mesh) if step is None else step
        built = build(self.program, machine.build_mode, self._mesh)
        self._several = jax.jit(
            partial(several, built, self.context),
            static_argnums=0,
            donate_argnums=6,
            out_shardings=(whole, self._as_read),
        )
        self._layout = layout.rows(self.program, self.chunk)
        self._row_store = RowStore(self._layout.room, self.context)
        self._prefill = jax.jit(
            partial(prefill, self.program, self._layout),
            static_argnums=0,
            donate_argnums=2,
            out_shardings=(self._as_read, whole),
        )
        self._read = jax.jit(self._layout.read, out_shardings=whole)
        self._write = jax.jit(self._layout.write, donate_argnums=0, out_shardings=self._as_read)
        self._held = empty(self.program, self._mesh)

    @property
    def vocab(self) -> int:
        """How many token ids there are."""
        return vocabulary(self.instance)

    @property
    def cuts(self) -> bool:
        """Whether less of a row can be restored than was saved."""
        return self._row_store.cuts

    def compile(self) -> None:
        """Run all that `step`, `prefill` with `last_only`, `save` and `restore` can need once, on empty rows."""
        for span in self.spans:
            self._reads(0, True, np.zeros((1, span), np.int32), 0, span)
        self.step([[]] * self.rows, [0] * self.rows).wait()
        compile_fetch(jnp.zeros((self.rows, 1, self.vocab), jnp.float32), with_ids=True)
        if len(self.spans) == 1:
            self._row_store.compile(self._read(self._held, np.int32(0)))
            self._held = self._write(self._held, np.int32(0), self._layout.room.empty(), self._weights)
        self._empty()

    def _empty(self) -> None:
        self._held = empty(self.program, self._mesh)
        self._sequences.clear()

    def prefill(self, row: int, ids: Sequence[int], start: int, last_only: bool = False) -> Array:
        """Read `ids` (1..chunk of them) into `row` at positions `start ..`; f32 logits `[len(ids), vocab]`.

        With `last_only` only the last id's, `[1, vocab]`.
        """
        return self._sequences.prefill(row, ids, start, last_only, partial(self._reads, row, last_only))

    def _reads(self, row: int, last_only: bool, tokens: Array, start: int, real: int) -> Array:
        """One pass, of ids int32 `[1, span]`."""
        at = np.asarray([[start], [real]], np.int32)
        # For one token the two are the same.
        last = last_only and tokens.shape[1] > 1
        self._held, logits = self._prefill(last, self._weights, self._held, tokens, *at, np.int32(row))
        return np.asarray(logits)

    def step(
        self, tokens: Sequence[Sequence[int]], positions: Sequence[int], logits: Collection[int] = ()
    ) -> PendingStep:
        """Begin to read a token of each row that is given one; `logits` are the rows asked for."""
        given = self._sequences.step(tokens, positions, _IDLE, logits)
        best, found, self._held = self._decode(given.ids[:, 0], given.start, self._weights, self._held)
        if self._interpreted:
            # An interpreted kernel calls Python back, and must not wait for what it is itself waited for.
            jax.block_until_ready(found)
        return fetch(self.rows, 0, given.counts, found[:, None], given.logits, best[:, None])

    def steps(
        self, tokens: Sequence[int], positions: Sequence[int], live: Sequence[bool], count: int, ends: Sequence[int]
    ) -> Array:
        """Up to `count` greedy steps in one call: the ids, int32 `[count, rows]`, -1 where a row was not live.

        A row goes on with its own id until that is one of `ends`, or the context is full; of equal logits the lowest
        id is taken. The last id of a row has not been read into it.
        """
        ends = [token for token in integers(ends, "ends") if 0 <= token < self.vocab]
        if integer(count, "count") < 1:
            raise ValueError(f"count must be 1 or more, not {count}")
        # Few compiled sizes.
        room = 1 << (count - 1).bit_length()
        stops = np.full(1 << len(ends).bit_length(), -2, np.int32)
        stops[: len(ends)] = ends
        given = self._sequences.step(
            [[token] if alive else [] for token, alive in zip(tokens, live, strict=True)], positions, _IDLE
        )
        first, limit = given.ids[:, 0], np.int32(count)
        ids, self._held = self._several(room, first, given.start, limit, stops, self._weights, self._held)
        found = np.asarray(ids)[:count]
        for row, taken in enumerate((found >= 0).sum(axis=0)):
            if taken:
                self._sequences.stepped(row, int(given.start[row]), int(taken))
        return found

    def save(self, row: int) -> SavedRow | None:
        """What `row` holds after prefills with `last_only`, if all of their passes ran the same program."""
        length = self._sequences.length(row)
        return None if length is None else self._row_store.take(self._read(self._held, np.int32(row)), 0, length)

    def restore(self, row: int, saved: Saved, length: int) -> None:
        """Make `row` hold the first `length` tokens of what was saved, all of them unless `cuts`."""
        row, saved = self._sequences.row(row), saved_row(saved, length, self._row_store)
        states = self._row_store.put(self._layout.room.empty(), 0, saved)
        self._held = self._write(self._held, np.int32(row), states, self._weights)
        self._sequences.restored(row, length)

    def reset(self) -> bool:
        """Make the decoder usable after a call that failed; false if all rows are empty now."""
        if not lost(self._held):
            return True
        self._empty()
        return False
