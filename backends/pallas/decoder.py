"""The megakernel as a decoder: steps by the kernel, prompts by the reference over the same weights and states."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from ...dsl.decoder import Saved
from ...dsl.model.instance import Instance
from ...dsl.program.lower import lower
from ...dsl.schedule.ir import Schedule
from ..reference.keeping import Keeper, KeptRow
from ..reference.passes import passes, spans
from . import rows as layout
from .machine import Machine
from .prefill import prefill
from .several import several
from .sharded import Operand, Step, build, empty, jitted, layouts, placed

type Array = np.ndarray[Any, Any]


class PallasDecoder:
    """Implements `dsl.decoder.Decoder` on a schedule's cores. Not safe for calls from several threads at a time.

    `schedule` says context and mesh, `operand(name, core)` gives what packing made; each is asked for once, and copied
    to the core's device; `plain` weights as in `lower`. `machine` has the schedule's mesh. `chunk` and `span` are those
    of the reference's decoder. `step` is one that was loaded, for the same Program, in the place of the one that
    `decode` would compile. Raises `MksError` where kernels cannot do what the schedule says.
    """

    def __init__(
        self, schedule: Schedule, instance: Instance, operand: Operand, machine: Machine, *,
        plain: frozenset[str] = frozenset(), rows: int = 1, chunk: int = 128, span: int | None = None,
        step: Step | None = None,
    ) -> None:  # fmt: skip
        self.program = lower(schedule, instance, rows, plain)
        self.instance, self.rows, self.context = instance, rows, schedule.context
        self.chunk = min(chunk, self.context)
        self.spans = spans(self.chunk, span)
        self._mesh = machine.mesh
        self._weights = placed(self.program, self._mesh, operand)
        self._as_read, whole = layouts(self.program, self._mesh), NamedSharding(self._mesh, P())
        self._decode: Any = jitted(self.program, machine.flavour, self._mesh) if step is None else step
        built = build(self.program, machine.flavour, self._mesh)
        self._several = jax.jit(
            partial(several, built, self.context), static_argnums=0, donate_argnums=6,
            out_shardings=(whole, self._as_read),
        )  # fmt: skip
        self._layout = layout.rows(self.program, self.chunk)
        self._keeper = Keeper(self._layout.room, self.context)
        self._prefill = jax.jit(
            partial(prefill, self.program, self._layout), static_argnums=0, donate_argnums=2,
            out_shardings=(self._as_read, whole),
        )  # fmt: skip
        self._read = jax.jit(self._layout.read, out_shardings=whole)
        self._write = jax.jit(self._layout.write, donate_argnums=0, out_shardings=self._as_read)
        self._held = empty(self.program, self._mesh)
        # For each row, how many tokens it holds if only the one program of `span` has written them.
        self._lengths: list[int | None] = [None] * rows

    @property
    def vocab(self) -> int:
        """How many token ids there are."""
        return self.instance.length(self.instance.model.steps[""].types["logits"].shape[0])

    @property
    def cuts(self) -> bool:
        """Whether less of a row can be restored than was saved."""
        return self._keeper.cuts

    def compile(self) -> None:
        """Run all that `decode`, `prefill` with `last_only`, `save` and `restore` can need once, on empty rows."""
        for span in self.spans:
            self._reads(0, [0] * span, 0, span, last_only=True)
        self.decode([0] * self.rows, [0] * self.rows, [False] * self.rows)
        if len(self.spans) == 1:
            self._keeper.compile(self._read(self._held, np.int32(0)))
            self._held = self._write(self._held, np.int32(0), self._layout.room.empty(), self._weights)
        self._held, self._lengths = empty(self.program, self._mesh), [None] * self.rows

    def prefill(self, row: int, ids: Sequence[int], start: int, last_only: bool = False) -> Array:
        """Read `ids` (1..chunk of them) into `row` at positions `start ..`; f32 logits `[len(ids), vocab]`.

        With `last_only` only the last id's, `[1, vocab]`.
        """
        count = len(ids)
        if not 1 <= count <= self.chunk or not 0 <= start <= self.context - count or not 0 <= row < self.rows:
            raise ValueError(f"cannot read {count} ids at {start} into row {row}")
        same = last_only and len(self.spans) == 1 and (start == 0 or self._lengths[row] == start)
        self._lengths[row] = None
        logits, at = [], 0
        for span, real in passes(count, self.spans):
            logits.append(self._reads(row, ids[at : at + real], start + at, span, last_only))
            at += real
        self._lengths[row] = start + count if same else None
        return logits[-1] if last_only or len(logits) == 1 else np.concatenate(logits)

    def _reads(self, row: int, ids: Sequence[int], start: int, span: int, last_only: bool) -> Array:
        """One pass."""
        tokens, real = np.zeros((1, span), np.int32), len(ids)
        tokens[0, :real] = ids
        at = np.asarray([[start], [real]], np.int32)
        # For one token the two are the same.
        self._held, logits = self._prefill(
            last_only and span > 1, self._weights, self._held, tokens, *at, np.int32(row)
        )
        found = np.asarray(logits)
        return found if last_only else found[:real]

    def decode(self, tokens: Sequence[int], positions: Sequence[int], live: Sequence[bool]) -> Array:
        """One token for each live row (lists of `rows`); f32 logits `[rows, vocab]`, undefined where not live."""
        _, logits, self._held = self._decode(*self._row_inputs(tokens, positions, live), self._weights, self._held)
        return np.asarray(logits)

    def steps(
        self, tokens: Sequence[int], positions: Sequence[int], live: Sequence[bool], count: int, ends: Sequence[int]
    ) -> Array:
        """Up to `count` greedy steps in one call: the ids, int32 `[count, rows]`, -1 where a row was not live.

        A row goes on with its own id until that is one of `ends`, or the context is full; of equal logits the lowest
        id is taken. The last id of a row has not been read into it.
        """
        # Few compiled sizes.
        room = 1 << max(count - 1, 0).bit_length()
        given = self._row_inputs(tokens, positions, live)
        stops = np.full(1 << len(ends).bit_length(), -2, np.int32)
        stops[: len(ends)] = ends
        ids, self._held = self._several(room, *given, np.int32(count), stops, self._weights, self._held)
        return np.asarray(ids)[:count]

    def _row_inputs(self, tokens: Sequence[int], positions: Sequence[int], live: Sequence[bool]) -> tuple[Array, Array]:
        """Ids and positions as the kernel takes them; of live rows, what was saved no longer holds."""
        chosen = np.asarray(live, bool)
        at = np.where(chosen, np.asarray(positions, np.int32), -1).astype(np.int32)
        wrong = (at[chosen] < 0).any() or (at >= self.context).any()
        if not len(chosen) == len(tokens) == len(positions) == self.rows or wrong:
            raise ValueError(f"positions {list(positions)} for {self.rows} rows of {self.context}")
        self._lengths = [None if alive else held for alive, held in zip(chosen, self._lengths, strict=True)]
        return np.where(chosen, np.asarray(tokens, np.int32), 0).astype(np.int32), at

    def save(self, row: int) -> KeptRow | None:
        """What `row` holds after prefills with `last_only`, if all of their passes ran the same program."""
        length = self._lengths[row]
        return None if length is None else self._keeper.take(self._read(self._held, np.int32(row)), 0, length)

    def restore(self, row: int, saved: Saved, length: int) -> None:
        """Make `row` hold the first `length` tokens of what was saved, all of them unless `cuts`."""
        part = length < saved.length
        if not isinstance(saved, KeptRow) or not 0 < length <= saved.length or (part and not self.cuts):
            raise ValueError(f"cannot restore {length} tokens of {saved.length}")
        states = self._keeper.put(self._layout.room.empty(), 0, saved)
        self._held = self._write(self._held, np.int32(row), states, self._weights)
        self._lengths[row] = length

    def reset(self) -> bool:
        """Make the decoder usable after a call that failed; false if all rows are empty now."""
        if not any(array.is_deleted() for array in self._held.values()):
            return True
        self._held, self._lengths = empty(self.program, self._mesh), [None] * self.rows
        return False
