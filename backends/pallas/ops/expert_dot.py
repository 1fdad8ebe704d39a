"""A product with one routed expert's matrix, multiplied as it is stored, or as it was re-blocked.

What is stored are codes of four bits, scales of 32 inputs. The matrix unit takes codes as eight-bit floats, exactly. A
scale is of a group of inputs and one output, so that it can multiply neither operand: instead each row of the operand
is spread over eight rows, of which each keeps one group of an octet and is zero elsewhere. Their partial sums are
multiplied by the octet's scales, element by element, and added up over all octets before the eight rows become one.

Re-blocked, a matrix is eight-bit floats, and scales of so many inputs that each block is a product of its own, whose
sums are multiplied by them. Where the matrix unit has no such floats the compiler widens them to bf16, which is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from ....dsl.program.layout.expert_layout import OCTET, Block, ExpertLayout, ExpertProduct
from ....dsl.targets.lanes import LANES
from ...reference.rounding import DTYPES
from .dot import dot

# A reference to int32 `[rows, 512]` in VMEM.
type Ref = Any
# Words to what the matrix unit takes, and what a code's value was divided by.
type _Codes = tuple[Callable[[jax.Array], jax.Array], float]

_KEPT = -0x71717172  # 0x8E in each byte: a sign, the two low bits of an exponent and the high bit of a fraction
_EXPONENT = 0x7F800000
_E4M3 = jnp.float8_e4m3fn


def expert_dot(
    x: jax.Array,
    ref: Ref,
    layout: ExpertLayout,
    which: str,
    float4: bool = True,
    alone: jax.Array | int | None = None,
    scopes: tuple[str, str] = ("alone", "together"),
) -> jax.Array:
    """`x` `[B, inputs]` times a product's matrix in `ref`: f32 `[B, outputs]`, the outputs as the tiling pads them.

    `x` has the product's inputs, or is padded with any finite numbers. For f32 all is done in f32; for bf16, products
    are exact and sums are f32. `float4` says whether the target has that type, as TPU7x has.

    `alone` is the only row whose product is wanted, which takes less time where rows are spread: other rows of the
    result are zero then, and the wanted one has the same bits. If it is negative all rows are wanted. `scopes` name
    the two.
    """
    if alone is None or x.shape[0] == 1 or layout[which].codec.name != "mxfp4":
        return _every(x, ref, layout, which, float4)

    def one() -> jax.Array:
        row = lax.broadcasted_iota(jnp.int32, (x.shape[0], 1), 0) == alone
        # A sum of one number and zeros; where a register holds halves of words there is no choosing a row.
        only = jnp.sum(jnp.where(row, x.astype(jnp.float32), 0.0), axis=0, keepdims=True).astype(x.dtype)
        return jnp.where(row, _every(only, ref, layout, which, float4), 0.0)

    def every() -> jax.Array:
        return _every(x, ref, layout, which, float4)

    return lax.cond(alone >= 0, *(jax.named_scope(name)(way) for name, way in zip(scopes, (one, every), strict=True)))


def _every(x: jax.Array, ref: Ref, layout: ExpertLayout, which: str, float4: bool) -> jax.Array:
    product = layout[which]
    if missing := product.tiling.inputs - x.shape[1]:
        x = jnp.concatenate([x, jnp.zeros((x.shape[0], missing), x.dtype)], axis=1)
    if not product.group:
        columns = [_plain(x, ref, product, block, DTYPES[product.codec.name]) for block in product.blocks]
    elif x.dtype == jnp.float32:
        columns = [_decoded(x, ref, product, block) for block in product.blocks]
    elif product.codec.name == "fp8":
        columns = [_blocked(x, ref, product, block) for block in product.blocks]
    else:
        operand, codes = _Spread(x, product.group), _NATIVE if float4 else _SHIFTED
        partial = [_partial(operand, ref, product, block, codes) for block in product.blocks]
        columns = _one_row(partial) if x.shape[0] == 1 else [_summed_rows(sums) for sums in partial]
        columns = columns if codes[1] == 1 else [each * (1 / codes[1]) for each in columns]
    return columns[0] if len(columns) == 1 else jnp.concatenate(columns, axis=1)


def _pieces(block: Block, inputs: int) -> list[tuple[int, slice]]:
    """Of a block's pieces side by side: the first of their inputs, and their columns."""
    each = inputs // block.fold
    return [(i * each, slice(i * block.columns, (i + 1) * block.columns)) for i in range(block.fold)]


def _plain(x: jax.Array, ref: Ref, product: ExpertProduct, block: Block, dtype: Any) -> jax.Array:
    """A block of plain numbers, `[B, columns]`."""
    w = pltpu.bitcast(ref[block.row : block.row + block.rows], dtype)
    x = x.astype(dtype)
    return sum(dot(x[:, at : at + w.shape[0]], w[:, own]) for at, own in _pieces(block, product.tiling.inputs))  # type: ignore[return-value]


def _decoded(x: jax.Array, ref: Ref, product: ExpertProduct, block: Block) -> jax.Array:
    """A block in f32, its weights decoded first."""
    words, width = ref[block.row : block.row + block.rows], OCTET * product.group
    values = _values(words) if product.codec.name == "mxfp4" else pltpu.bitcast(words, _E4M3).astype(jnp.float32)
    parts = []
    for octet in range(product.octets(block.fold)):
        part, scales = values[octet * width : (octet + 1) * width], _scales(ref, product, block.octet + octet)
        groups = -(-part.shape[0] // product.group)
        scales = jnp.broadcast_to(scales[:groups, None], (groups, product.group, scales.shape[1]))
        parts.append(part * scales.reshape(-1, scales.shape[2])[: part.shape[0]])
    w = jnp.concatenate(parts, axis=0)
    return sum(dot(x[:, at : at + w.shape[0]], w[:, own]) for at, own in _pieces(block, product.tiling.inputs))  # type: ignore[return-value]


def _values(words: jax.Array) -> jax.Array:
    """Codes as f32, `[8 * rows, 512]`."""
    code = pltpu.bitcast(words, jnp.int4).astype(jnp.int32)
    kept = code & 7
    twice = jnp.where(kept < 4, kept, jnp.where(kept < 6, 2 * kept - 4, 4 * kept - 16))
    return jnp.where(code < 0, -twice, twice).astype(jnp.float32) * 0.5


def _scales(ref: Ref, product: ExpertProduct, octet: int) -> jax.Array:
    """An octet's scales, f32 `[8, 512]`: a scale's byte is the exponent of one."""
    row, byte = product.place(octet)
    words = ref[row : row + OCTET]
    moved = words >> 1 if byte == 3 else words << (23 - 8 * byte)
    return lax.bitcast_convert_type(moved & _EXPONENT, jnp.float32)


class _Spread:
    """An operand bf16 `[B, inputs]`, spread for octets of groups; each part is made once."""

    def __init__(self, x: jax.Array, group: int) -> None:
        self.rows, self.group = x.shape[0], group
        self._x, self._made = x, dict[tuple[int, int], jax.Array]()

    def part(self, first: int, count: int) -> jax.Array:
        """Of up to eight groups of inputs from `first` on, bf16 `[8 * B, count]`: eight rows for each row."""
        if (first, count) not in self._made:
            shape = (OCTET, count)
            groups = lax.broadcasted_iota(jnp.int32, shape, 1) // self.group
            own = lax.broadcasted_iota(jnp.int32, shape, 0) == groups
            # In f32, whose rows fill a register's eight: selecting halves of words costs more.
            x = self._x[:, first : first + count].astype(jnp.float32)
            rows = [jnp.where(own, jnp.broadcast_to(x[b : b + 1], shape), 0.0) for b in range(self.rows)]
            self._made[first, count] = jnp.concatenate(rows, axis=0).astype(jnp.bfloat16)
        return self._made[first, count]


def _partial(operand: _Spread, ref: Ref, product: ExpertProduct, block: Block, codes: _Codes) -> list[jax.Array]:
    """A block with scales applied to partial sums: for each row f32 `[8, columns]`, whose sum over its rows it is."""
    convert, _ = codes
    width, per_word = OCTET * product.group, product.tiling.per_word
    each = product.tiling.inputs // block.fold
    sums: list[jax.Array] = []
    for octet in range(product.octets(block.fold)):
        at, count = octet * width, min(width, each - octet * width)
        row = block.row + at // per_word
        w = convert(ref[row : row + count // per_word])
        scales = _scales(ref, product, block.octet + octet)
        for first, own in _pieces(block, product.tiling.inputs):
            partial = dot(operand.part(first + at, count), w[:, own])
            parts = [partial[b * OCTET : (b + 1) * OCTET] * scales[:, own] for b in range(operand.rows)]
            sums = [a + b for a, b in zip(sums, parts, strict=True)] if sums else parts
    return sums


def _summed_rows(sums: list[jax.Array]) -> jax.Array:
    """The sums of a block's rows, f32 `[B, columns]`."""
    return jnp.concatenate([_summed(sums[i : i + OCTET]) for i in range(0, len(sums), OCTET)], axis=0)


def _one_row(blocks: list[list[jax.Array]]) -> list[jax.Array]:
    """Those of a row alone, f32 `[1, n]`: eight registers of columns at once, as eight rows are."""
    lanes = [sums[:, at : at + LANES] for (sums,) in blocks for at in range(0, sums.shape[1], LANES)]
    parts = [_summed(lanes[i : i + OCTET]) for i in range(0, len(lanes), OCTET)]
    return [part[i : i + 1] for part in parts for i in range(part.shape[0])]


def _blocked(x: jax.Array, ref: Ref, product: ExpertProduct, block: Block) -> jax.Array:
    """Columns of eight-bit floats with scales applied to the sums of each block of inputs, f32 `[B, columns]`."""
    each, per_word = product.tiling.inputs // block.fold, product.tiling.per_word
    total: jax.Array | None = None
    for octet in range(product.octets(block.fold)):
        scales = _scales(ref, product, block.octet + octet)
        for i, at in enumerate(range(octet * OCTET * product.group, each, product.group)[:OCTET]):
            row, count = block.row + at // per_word, min(product.group, each - at)
            w = pltpu.bitcast(ref[row : row + count // per_word], _E4M3)
            for first, own in _pieces(block, product.tiling.inputs):
                partial = dot(x[:, first + at : first + at + count], w[:, own]) * scales[i : i + 1, own]
                total = partial if total is None else total + partial
    assert total is not None
    return total


def _summed(sums: list[jax.Array]) -> jax.Array:
    """Of up to eight arrays f32 `[8, n]`, the sums over their rows, f32 `[B, n]`.

    All are added up at once: halves of two are put together, then quarters of four, then eighths. The order is the same
    for every row, so that its result does not depend on the others.
    """
    count = len(sums)
    index = lax.broadcasted_iota(jnp.int32, sums[0].shape, 0)
    for step in (4, 2, 1):
        first = (index & step) == 0

        def other(part: jax.Array, step: int = step, first: jax.Array = first) -> jax.Array:
            """Each row's partner: the one whose index differs in one bit."""
            below = pltpu.roll(part, step, 0)
            return below if count <= 2 * step else jnp.where(first, pltpu.roll(part, OCTET - step, 0), below)

        after = []
        for b, one in enumerate(sums[:step]):
            if b + step < len(sums):
                two = sums[b + step]
                after.append(jnp.where(first, one, two) + other(jnp.where(first, two, one)))
            else:
                after.append(one + other(one))
        sums = after
    return sums[0][:count]


def _native(words: jax.Array) -> jax.Array:
    return pltpu.bitcast(words, jnp.float4_e2m1fn).astype(jnp.float8_e4m3fn)


def _shifted(words: jax.Array) -> jax.Array:
    """By integers: with zeros between, the bits of an e2m1 number are those of an e5m2 one, 2 ** -14 times as large."""
    bytes_ = pltpu.bitcast(pltpu.bitcast(words, jnp.int4).astype(jnp.int8), jnp.int32)
    return pltpu.bitcast((bytes_ << 1) & _KEPT, jnp.float8_e5m2)


_NATIVE: _Codes = (_native, 1)
_SHIFTED: _Codes = (_shifted, 2**-14)
