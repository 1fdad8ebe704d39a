"""What XLA makes of a model without kernels: the reference's decode step, sharded as a schedule says, compiled ahead.

It is there to compare times of compilation with. As a program: compile a pickled Program in one way, and print JSON.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ....dsl.program import ir as p
from ...reference import step as steps
from ...reference.loading import layout
from ...reference.ops.matmul import matrix_products
from ...reference.rounding import DTYPES
from ...reference.states import Arrays, Room, plan
from ...reference.weights import Weights
from ..layout.resharding import Cut, of_state, of_weight
from .compiler import Compiled, compile_ahead, meshed
from .measure import compile_step


def compile_ordinary(program: p.Program, unrolled: bool) -> Compiled:
    """A step of as many rows over as many positions, for the same devices; states are donated. Nothing is allocated."""
    schedule, instance = program.schedule, program.instance
    here, mesh = meshed(schedule)
    slices, shapes = layout(instance)
    room = plan(instance, program.rows, schedule.context, 1)
    model = instance.model
    weights = {
        name: _shaped(shape, dtype, mesh, of_weight(program.shares, model.weights[name]).cuts)
        for name, (shape, dtype) in shapes.items()
    }
    held = _states(program, room, mesh)
    scalars = jax.ShapeDtypeStruct((program.rows,), jnp.int32, sharding=NamedSharding(mesh, P()))

    def step(arrays: Arrays, held: Arrays, tokens: jax.Array, positions: jax.Array) -> tuple[Arrays, jax.Array]:
        lengths = jnp.ones_like(positions)
        at = steps.decode_pass(instance, Weights(arrays, slices), room, tokens[:, None], positions, lengths, 0)
        with matrix_products():
            names, after = steps.run(at, model.decode, held, unrolled=unrolled)
        return after, jnp.argmax(names["logits"][:, 0], axis=-1)

    out = ({name: array.sharding for name, array in held.items()}, None)
    jitted = jax.jit(step, donate_argnums=1, out_shardings=out)
    return compile_ahead(jitted, (weights, held, scalars, scalars), here, schedule.axes)


def _states(program: p.Program, room: Room, mesh: Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    result = {}
    for state, stores in room.stores.items():
        cuts = of_state(program.shares, program.instance.model.states[state]).cuts
        for store in stores:
            cut = cuts if store.axis is None else (*cuts[: store.axis], None, *cuts[store.axis :])
            result[store.key] = _shaped(store.shape, DTYPES[store.dtype], mesh, cut)
    return result


def _shaped(shape: Sequence[int], dtype: Any, mesh: Mesh, cuts: Sequence[Cut | None]) -> jax.ShapeDtypeStruct:
    """An array whose last axes are cut as the kernels' are; whole where the shares would not be equal."""
    names, lengths = mesh.axis_names, mesh.devices.shape
    even = [cut is not None and cut.repeat == 1 and cut.share * cut.ways(lengths) == cut.length for cut in cuts]
    last = [
        tuple(names[i] for i in cut.places) if cut is not None and fits else None
        for cut, fits in zip(cuts, even, strict=True)
    ]
    spec = P(*[None] * (len(shape) - len(cuts)), *last)
    return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=NamedSharding(mesh, spec))


def times(program: p.Program, way: str) -> dict[str, float]:
    """Seconds of wall time to lower and to compile it as `kernels`, `unrolled` layers or `scanned` ones, and of all
    cores for both.
    """
    begun = time.process_time()
    compiled = compile_step(program).compiled if way == "kernels" else compile_ordinary(program, way == "unrolled")
    spent = time.process_time() - begun
    return {"lower_s": round(compiled.lower_s, 3), "compile_s": round(compiled.compile_s, 3), "cpu_s": round(spent, 3)}


if __name__ == "__main__":
    print(json.dumps(times(pickle.loads(Path(sys.argv[1]).read_bytes()), sys.argv[2])))
