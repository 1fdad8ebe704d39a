"""Packed weights to f32: one function a codec. The last axis is the input's, the one before it the output's.

All products are exact in f32 but those by `nvfp4`'s global scale and by the scales of `int8`, `int4` and `fp8`, which
round once, to f32.
"""

from __future__ import annotations

import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)

# A byte is two codes, the low nibble first.
_BYTE = np.stack([E2M1[np.arange(256) & 15], E2M1[np.arange(256) >> 4]], axis=-1)

# A larger global scale could make the largest code under the largest scale, 6 * 448, infinite.
_MOST = float(np.finfo(np.float32).max) / (6 * 448)


class BadScale(ValueError):
    """A scale that the format reserves, or that makes a weight infinite; the text says which."""


def mxfp4(packed: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """`packed` u8 `[…, n / 2]`, `scale` u8 or e8m0 `[…, n / 32]` (byte b means 2 ** (b - 127)) -> f32 `[…, n]`."""
    exponent = scale.view(np.uint8)
    for reserved in (0, 255):
        if (exponent == reserved).any():
            raise BadScale(f"{int((exponent == reserved).sum())} scale bytes are {reserved}, which mxfp4 reserves")
    values = _BYTE[packed].reshape(*scale.shape, -1)
    with np.errstate(over="ignore"):
        values *= np.ldexp(np.float32(1), exponent.astype(np.int32) - 127)[..., None]
    if (exponent >= 253).any() and not np.isfinite(values).all():
        raise BadScale(f"a scale byte of {int(exponent.max())} makes weights infinite")
    return values.reshape(*packed.shape[:-1], -1)


def nvfp4(packed: np.ndarray, scale: np.ndarray, global_scale: np.ndarray) -> np.ndarray:
    """`packed` u8 `[…, n / 2]`, `scale` e4m3 `[…, n / 16]`, `global_scale` (multiplies) broadcast to `[…, 1]`."""
    if (scale.view(np.uint8) & 0x7F == 0x7F).any():
        raise BadScale("a scale is not a number")
    if not (np.abs(global_scale.astype(np.float64)) < _MOST).all():
        raise BadScale("a global scale is not a finite number, or so large that weights are not")
    values = _BYTE[packed].reshape(*scale.shape, -1)
    values *= scale.astype(np.float32)[..., None]
    values = values.reshape(*packed.shape[:-1], -1)
    values *= global_scale.astype(np.float32)
    return values


def int8(codes: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """`codes` i8 `[…, out, in]`, `scale` `[…, out]`: one for each output, a column of the product `x @ w.T`."""
    return codes * _finite(scale)[..., None]


def int4(packed: np.ndarray, scale: np.ndarray, group: int) -> np.ndarray:
    """`packed` `[…, n / 8]` i32 or `[…, n / 2]` u8, lowest nibble first, a nibble meaning itself minus 8."""
    codes = np.ascontiguousarray(packed).view(np.uint8)
    nibbles = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
    values = nibbles.astype(np.float32) - np.float32(8)
    values.reshape(*scale.shape, group)[...] *= _finite(scale)[..., None]
    return values


def fp8(codes: np.ndarray, scale: np.ndarray, block: int, skip: int = 0) -> np.ndarray:
    """`codes` e4m3 `[…, out, in]`, `scale` `[…, ceil(out / block), ceil(in / block)]`, multiplied.

    `skip` is how many rows of the first block come before `codes`.
    """
    values, scale = codes.astype(np.float32), _finite(scale)
    rows, width = codes.shape[-2:]
    for i in range(scale.shape[-2]):
        at = slice(max(0, i * block - skip), max(0, min(rows, (i + 1) * block - skip)))
        values[..., at, :] *= np.repeat(scale[..., i, :], block, axis=-1)[..., None, :width]
    return values


def _finite(scale: np.ndarray) -> np.ndarray:
    scale = scale.astype(np.float32)
    if not np.isfinite(scale).all():
        raise BadScale("a scale is not a finite number")
    return scale
