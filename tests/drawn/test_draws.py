"""What is drawn: the same for a seed, of every construct, and hardly anything that the checker refuses."""

from __future__ import annotations

from collections import Counter

import pytest
from helpers.drawing import TINY, WIDE, Profile, draw

# Every word that a draw may hold; what is new to the language belongs here and into the drawing.
CONSTRUCTS = {
    "attention", "grouped queries", "values of another width", "odd head counts", "split heads", "bias", "rope",
    "rms_norm of all heads", "l2_norm of all heads", "softmax of all heads", "choice by layer", "option by layer",
    "latents", "expanded latents", "positions shared out", "concat", "gated delta", "KDA", "convolution of 2",
    "convolution of 3", "convolution of 4", "dense", "rms_norm within a feed-forward part", "experts bf16",
    "experts f32", "experts mxfp4", "experts fp8", "experts nvfp4", "experts mxfp4 kept as fp8", "shared experts",
    "norm within experts", "scores by sigmoid", "scores by softmax", "scores of both signs", "residual banks",
    "two halves in a part", "more than two parts a layer", "parts by layer", "norm after a sum", "sum with a name",
    "f32 stream", "tied embeddings", "capped logits", "masked logits", "awkward names", "unstreamed", "one stream",
    "two streams", "fetched experts", "prefetched cache", "prefetched state", "prefetched weight",
    "prefetched vectors", "split rows", "gathered together", "overlapped gather", "left scattered", "sum by direct",
    "sum by scatter_gather", "sum by two_level", "f32 on the wire", "bf16 on the wire", "mesh of 1 axis",
    "mesh of 2 axes", "a subset of the axes", "axes in another order", "shares with padding", "heads that repeat",
    "1 core", "2 cores", "4 cores", "8 cores", "1 row", "2 rows", "3 rows", "4 rows", "5 rows", "7 rows", "8 rows",
    "span", "f32", "bf16", "mesh of 3 axes", "an id beyond the table",
}  # fmt: skip


def test_a_seed_gives_the_same() -> None:
    """Twice, and another one gives something else."""
    assert draw(7) == draw(7)
    assert draw(7).text != draw(8).text
    assert draw(7, WIDE).text != draw(7, TINY).text


@pytest.mark.parametrize(("profile", "count"), [(TINY, 120), pytest.param(WIDE, 300, marks=pytest.mark.slow)])
def test_few_are_refused(profile: Profile, count: int) -> None:
    """By the checker; every construct comes in draws that it takes."""
    seen: Counter[str] = Counter()
    refused = 0
    for seed in range(count):
        drawn = draw(seed, profile)
        if isinstance(drawn.open(), tuple):
            refused += 1
        else:
            seen.update(drawn.constructs)
    assert refused < count / 10
    assert seen.keys() >= CONSTRUCTS, CONSTRUCTS - seen.keys()
