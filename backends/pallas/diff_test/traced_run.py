"""The megakernel step by step, with what every run of a part leaves behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from attrs import frozen
from jax.sharding import PartitionSpec as P

from ....dsl.program import ir as p
from ...reference.states import Arrays
from ..emit.call import traced
from ..emit.shard_map import Operand, arguments, empty, layouts, placed
from ..layout.resharding import of_value
from ..runtime import row_state as layout
from ..runtime.device import Machine

type Array = np.ndarray[Any, Any]


@frozen
class Traced:
    """A step's ids int32 `[rows]`, logits f32 `[rows, vocab]`, and its traces by name, `[cores, …]` each."""

    chosen: Array
    logits: Array
    traces: dict[str, Array]


class Tracer:
    """Runs a traced Program. `operand` gives what each core reads, as for `PallasDecoder`."""

    def __init__(self, program: p.Program, operand: Operand, machine: Machine) -> None:
        self.program = program
        self.rows = layout.rows(program, 1)
        mesh = machine.mesh
        self._weights, self._held = placed(program, mesh, operand), empty(program, mesh)
        held = layouts(program, mesh)
        self._read = jax.jit(self.rows.read)
        self._write = jax.jit(self.rows.write, donate_argnums=0, out_shardings=held)
        cut = P(tuple(program.schedule.axes))

        def on_core(tokens: jax.Array, positions: jax.Array, weights: Arrays, held: Arrays) -> Any:
            mine, own = ({name: a[0] for name, a in arrays.items()} for arrays in (weights, held))
            next_ids, logits, after, traces = traced(program, machine.build_mode, tokens, positions, mine, own)
            return jax.tree.map(lambda a: a[None], (next_ids, logits, after, traces))

        mapped = jax.shard_map(on_core, mesh=mesh, in_specs=(P(), P(), cut, cut), out_specs=cut, check_vma=False)
        given = jax.tree.map(lambda array: array.sharding, arguments(program, mesh)[:3])
        self._step = jax.jit(
            mapped, donate_argnums=3, in_shardings=(*given, held), out_shardings=(None, None, held, None)
        )

    def held(self, row: int) -> dict[str, Array]:
        """A row's states and caches, as the reference has them."""
        return {name: np.asarray(a) for name, a in self._read(self._held, np.int32(row)).items()}

    def hold(self, row: int, states: dict[str, Array]) -> None:
        """Make a row's states and caches these."""
        self._held = self._write(self._held, np.int32(row), states, self._weights)

    def step(self, tokens: Sequence[int], positions: Sequence[int]) -> Traced:
        """One token of each row."""
        given = (np.asarray(tokens, np.int32), np.asarray(positions, np.int32))
        next_ids, logits, self._held, traces = self._step(*given, self._weights, self._held)
        types = self.program.phase.step.types
        share = self.program.shares.length(types["logits"].shape[0])
        whole = of_value(self.program.shares, types["logits"].shape).joined(logits[:, :, :share])
        return Traced(np.asarray(next_ids)[0], np.asarray(whole), {name: np.asarray(a) for name, a in traces.items()})
