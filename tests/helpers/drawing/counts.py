"""Every construct that a draw may hold, by kind, and how many draws with each were compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

# What is new to the language belongs here and into the drawing.
KINDS: dict[str, tuple[str, ...]] = {
    "attention": (
        "attention",
        "grouped queries",
        "values of another width",
        "odd head counts",
        "split heads",
        "bias",
        "rope",
        "rms_norm of all heads",
        "l2_norm of all heads",
        "softmax of all heads",
    ),
    "latents": ("latents", "expanded latents", "positions shared out", "concat"),
    "recurrent parts": ("gated delta", "KDA", "convolution of 2", "convolution of 3", "convolution of 4"),
    "dense parts": ("dense", "rms_norm within a feed-forward part", "norm after a sum", "sum with a name"),
    "experts": (
        "shared experts",
        "norm within experts",
        "scores by sigmoid",
        "scores by softmax",
        "scores of both signs",
    ),
    "codecs of experts": (
        "experts bf16",
        "experts f32",
        "experts mxfp4",
        "experts fp8",
        "experts nvfp4",
        "experts mxfp4 kept as fp8",
    ),
    "models": (
        "residual banks",
        "two halves in a part",
        "more than two parts a layer",
        "parts by layer",
        "choice by layer",
        "option by layer",
        "tied embeddings",
        "capped logits",
        "masked logits",
        "awkward names",
        "an id beyond the table",
    ),
    "types": ("f32", "bf16", "f32 stream"),
    "movement": (
        "unstreamed",
        "one stream",
        "two streams",
        "fetched experts",
        "prefetched cache",
        "prefetched state",
        "prefetched weight",
        "prefetched vectors",
    ),
    "cores and meshes": (
        "1 core",
        "2 cores",
        "4 cores",
        "8 cores",
        "mesh of 1 axis",
        "mesh of 2 axes",
        "mesh of 3 axes",
    ),
    "shards": (
        "a subset of the axes",
        "axes in another order",
        "shares with padding",
        "heads that repeat",
        "split rows",
    ),
    "collectives": (
        "sum by direct",
        "sum by scatter_gather",
        "sum by two_level",
        "left scattered",
        "gathered together",
        "overlapped gather",
        "f32 on the wire",
        "bf16 on the wire",
    ),
    "rows and spans": ("1 row", "2 rows", "3 rows", "4 rows", "5 rows", "7 rows", "8 rows", "span"),
}
CONSTRUCTS = frozenset(word for words in KINDS.values() for word in words)


def counts(compared: Iterable[frozenset[str]], refused: Iterable[frozenset[str]]) -> dict[str, tuple[int, int]]:
    """Of each construct, in how many draws that were compared it is, and in how many that were refused."""
    one, other = (Counter(word for words in draws for word in words) for draws in (compared, refused))
    return {word: (one[word], other[word]) for word in sorted(CONSTRUCTS | one.keys() | other.keys())}


def table(by_word: dict[str, tuple[int, int]]) -> str:
    """A line for each kind of construct, as Markdown: draws that were compared, and refused ones behind a +."""

    def said(word: str) -> str:
        compared, refused = by_word[word]
        return f"{word} {compared}{f' + {refused}' if refused else ''}"

    lines = [f"| {kind} | {', '.join(map(said, words))} |" for kind, words in KINDS.items()]
    return "\n".join(["| constructs | draws compared + refused, interpreted on CPU |", "|---|---|", *lines])
