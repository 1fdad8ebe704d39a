"""Kernels whose bundles are counted. As a program: compile those that are named, for a target that comes first."""

from __future__ import annotations

import sys
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import NamedSharding, PartitionSpec

from mks.backends.pallas.aot.compiler import compile_ahead

from .ahead import HBM, SMEM, VMEM, described, fetch, pinned

LAYERS, SLOTS, ROWS, COLUMNS, BLOCKS, HEADS = 64, 8, 1024, 512, 4, 6
OUT = jax.ShapeDtypeStruct((8, 1024), jnp.float32)
TAPE = ((LAYERS * BLOCKS + SLOTS) * ROWS, COLUMNS)


def halve(out):
    """A body that cannot be left out."""
    out[...] = out[...] * 0.5 + 1


def straight(kinds, counts, x, tape, out):
    """No loop."""
    out[...] = x[...]
    halve(out)


def loop(trips, kinds, counts, x, tape, out):
    """A loop between constants."""
    out[...] = x[...]

    def body(i, carry):
        with jax.named_scope("body"):
            halve(out)
        return carry

    lax.fori_loop(0, trips, body, 0)


def nested(kinds, counts, x, tape, out):
    """A loop of 5 in which one of 7 runs, that one from 3 to 10."""
    out[...] = x[...]

    def inner(i, carry):
        with jax.named_scope("inner"):
            out[:, :256] = jnp.sin(out[:, :256])
        return carry

    def outer(i, carry):
        with jax.named_scope("outer"):
            halve(out)
            return lax.fori_loop(3, 10, inner, carry)

    lax.fori_loop(0, 5, outer, 0)


def choice(kinds, counts, x, tape, out):
    """Three ways, a `when`, and a loop until something is found."""
    out[...] = x[...]

    def way(name, function):
        def body():
            with jax.named_scope(name):
                for _ in range(4):
                    out[...] = function(out[...])

        return body

    def body(i, carry):
        with jax.named_scope("items"):
            lax.switch(kinds[i], [way("sines", jnp.sin), way("roots", jnp.sqrt), way("logs", jnp.log)])
        return carry

    lax.fori_loop(0, 16, body, 0)

    @pl.when(counts[0] > 3)
    def _():
        with jax.named_scope("rarely"):
            for _ in range(4):
                out[...] = jnp.exp(out[...])

    def search(at):
        with jax.named_scope("search"):
            halve(out)
            return at + counts[at]

    lax.while_loop(lambda at: counts[at] > 0, search, 0)


def twice(kinds, counts, x, tape, out):
    """Two loops of one scope, as often as numbers say, and one between constants of the same scope."""
    out[...] = x[...]

    def piece(i, carry):
        with jax.named_scope("piece"):
            halve(out)
        return carry

    for i in range(2):
        lax.fori_loop(0, counts[i], piece, 0)
    lax.fori_loop(0, 3, piece, 0)


def ring(kinds, counts, x, tape, out, tiles, held, sums, cached, sems, cache_sem):
    """Layers of two kinds that read weights through a ring, and a cache tile by tile."""

    def tile(g):
        rows = tape.at[pl.ds(pl.multiple_of(g * ROWS, ROWS), ROWS)]
        return pltpu.make_async_copy(rows, tiles.at[g & (SLOTS - 1)], sems.at[g & (SLOTS - 1)])

    def block(n, g):
        with jax.named_scope("columns"):
            tile(g).wait()
            at = pl.ds(pl.multiple_of(n * COLUMNS, COLUMNS), COLUMNS)
            weight = tiles[g & (SLOTS - 1)]
            sums[:, at] = jnp.dot(held[...].astype(jnp.bfloat16), weight, preferred_element_type=jnp.float32)
            tile(g + SLOTS).start()
        return g + 1

    def full():
        def part(t, total):
            with jax.named_scope("cache"):
                fetch(tape.at[pl.ds(pl.multiple_of(t * 256, 256), 256)], cached, cache_sem)
                part = sums[:, :256].astype(jnp.bfloat16)
                return total + jnp.dot(part, cached[:, :256], preferred_element_type=jnp.float32)

        with jax.named_scope("full"):
            sums[:, :256] = lax.fori_loop(0, counts[0], part, jnp.zeros((8, 256), jnp.float32))

    def linear():
        def head(h, carry):
            with jax.named_scope("heads"):
                at = pl.ds(pl.multiple_of(h * 256, 256), 256)
                sums[:, at] = sums[:, at] * jax.nn.sigmoid(sums[:, at])
            return carry

        with jax.named_scope("linear"):
            lax.fori_loop(0, HEADS, head, 0)

    def layer(index, g):
        with jax.named_scope("layer"):
            g = lax.fori_loop(0, BLOCKS, block, g)
            lax.cond(kinds[index] == 1, full, linear)
            mean = jnp.mean(sums[:, :1024] * sums[:, :1024], -1, keepdims=True)
            held[...] = sums[:, :1024] * lax.rsqrt(mean + 1e-6)
        return g

    def last(_, g):
        tile(g).wait()
        halve(held)
        return g + 1

    for g in range(SLOTS):
        tile(g).start()
    held[...] = x[...]
    lax.fori_loop(0, SLOTS, last, lax.fori_loop(0, LAYERS, layer, 0))
    out[...] = held[...]


SCRATCH = [
    pltpu.VMEM((SLOTS, ROWS, COLUMNS), jnp.bfloat16),
    pltpu.VMEM((8, 1024), jnp.float32),
    pltpu.VMEM((8, 2048), jnp.float32),
    pltpu.VMEM((256, COLUMNS), jnp.bfloat16),
    pltpu.SemaphoreType.DMA((SLOTS,)),
    pltpu.SemaphoreType.DMA,
]
KERNELS = {
    "straight": straight,
    "ten": partial(loop, 10),
    "thousand": partial(loop, 1000),
    "nested": nested,
    "choice": choice,
    "twice": twice,
    "ring": ring,
}
TOPOLOGIES = {"v5e": (1, 1), "v6e": (1, 1), "v5p": (1, 1, 1), "tpu7x": (1, 1, 1)}


def main(target: str, *names: str) -> None:
    """Compile kernels, each in a program of its own."""
    machine = described(target, TOPOLOGIES[target])
    whole = NamedSharding(machine.mesh({"x": 1}), PartitionSpec())
    shapes = (((LAYERS,), jnp.int32), ((8,), jnp.int32), (OUT.shape, OUT.dtype), (TAPE, jnp.bfloat16))
    arguments = [jax.ShapeDtypeStruct(shape, dtype, sharding=whole) for shape, dtype in shapes]
    for name in names:
        kernel = KERNELS[name]

        def function(kinds, counts, x, tape, name=name, kernel=kernel):
            return pl.pallas_call(
                lambda *refs: kernel(*refs),
                out_shape=OUT,
                in_specs=[SMEM, SMEM, VMEM, HBM],
                out_specs=VMEM,
                scratch_shapes=SCRATCH if name == "ring" else [],
                name=name,
                compiler_params=pltpu.CompilerParams(vmem_limit_bytes=15 << 20),
            )(kinds, counts, x, pinned(tape))

        compile_ahead(function, arguments, machine, {"x": 1})


if __name__ == "__main__":
    main(*sys.argv[1:])
