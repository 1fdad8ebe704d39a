"""Routed experts in every form that kernels take them in."""

from __future__ import annotations

from collections.abc import Iterable

from mks.dsl.model.ir import Codec
from mks.dsl.program.layout.expert_layout import ExpertLayout, expert_layout

CODECS = {"mxfp4": Codec("mxfp4", 32), "fp8": Codec("fp8", 256), "bf16": Codec("bf16"), "f32": Codec("f32")}


def laid_out(products: Iterable[tuple[str, tuple[int, ...], int]], codec: str) -> ExpertLayout:
    """Products, each its name, the widths of its matrices and its inputs, all in one codec."""
    return expert_layout((*product, CODECS[codec]) for product in products)


def expert(width: int, latent: int, codec: str) -> ExpertLayout:
    """Three matrices: gate and up as one product, and down."""
    return laid_out([("gate+up", (width, width), latent), ("down", (latent,), width)], codec)
