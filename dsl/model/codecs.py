"""How many bytes a codec takes. What the bytes mean is `mks.models.checkpoint.codecs`."""

from __future__ import annotations

from math import prod

from .ir import Codec


def stored_bytes(codec: Codec, shape: tuple[int, ...]) -> int:
    """Bytes of a weight with its scales, nothing padded; a last group may be short.

    `mxfp4`: a byte a group of 32. `nvfp4`: a byte a group of 16 and an f32 a matrix. `int4`: a bf16 a group. `int8 by
    column`: an f32 for each output. `fp8`: an f32 a block. All others: 4 bytes an element for `f32`, otherwise 2.
    """
    count = prod(shape)
    if not shape or not count:
        return count * (4 if codec.name == "f32" else 2)
    width, size = shape[-1], codec.group
    rows = count // width
    if codec.name == "int8":
        return count + 4 * rows
    if codec.name not in ("mxfp4", "nvfp4", "int4", "fp8") or not size:
        return count * (4 if codec.name == "f32" else 2)
    groups = -(-width // size)
    if codec.name == "fp8":
        high = shape[-2] if len(shape) > 1 else 1
        return count + 4 * (rows // high) * -(-high // size) * groups
    half = rows * -(-width // 2)
    if codec.name == "int4":
        return half + 2 * rows * groups
    matrices = 4 * prod(shape[:-2]) if codec.name == "nvfp4" else 0
    return half + rows * groups + matrices


def kept_bytes(codec: Codec, shape: tuple[int, ...]) -> int:
    """Bytes of a weight that a schedule stores as `fp8` in blocks: a byte an element, and one an output and block."""
    return prod(shape) + prod(shape[:-1]) * -(-shape[-1] // (codec.group or 1))
