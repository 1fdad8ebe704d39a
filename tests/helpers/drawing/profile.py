"""How large what is drawn may be."""

from __future__ import annotations

from attrs import evolve, frozen

# Of each target: cores, and the topologies that have as many.
TOPOLOGIES = {
    "v5e": {1: "1x1", 2: "1x2", 4: "2x2", 8: "2x4"},
    "v6e": {1: "1x1", 2: "1x2", 4: "2x2", 8: "2x4"},
    "v5p": {1: "1x1x1", 2: "1x2x1", 4: "2x2x1", 8: "2x2x2"},
    "tpu7x": {2: "1x1x1", 4: "2x1x1", 8: "2x2x1"},
}
# Those that the TPU compiler has descriptions of.
COMPILED = {
    "v5e": {1: "1x1", 4: "2x2", 8: "2x4"},
    "v6e": {1: "1x1", 4: "2x2", 8: "2x4"},
    "v5p": {1: "1x1x1", 4: "2x2x1", 8: "2x2x2"},
    "tpu7x": {2: "1x1x1", 8: "2x2x1"},
}


@frozen
class Profile:
    """Lengths to draw sizes from; `experts` are inputs and outputs of an expert's matrices, in whole groups of 32.

    `most_layers` is that of a model, `slots` those of a stream. `topologies` are those of targets by cores.
    """

    d: tuple[int, ...]
    head: tuple[int, ...]
    ffn: tuple[int, ...]
    vocab: tuple[int, ...]
    rank: tuple[int, ...]
    experts: tuple[int, ...]
    contexts: tuple[int, ...]
    tiles: tuple[int, ...]
    slots: tuple[int, ...]
    kv_heads: tuple[int, ...]
    most_layers: int
    topologies: dict[str, dict[int, str]]


TINY = Profile(
    d=(40, 72, 130),
    head=(8, 16, 24),
    ffn=(40, 72, 136),
    vocab=(70, 130, 300),
    rank=(24, 40, 64),
    experts=(64, 96),
    contexts=(256, 300, 512),
    tiles=(128, 256),
    slots=(4, 6, 8),
    kv_heads=(1, 2, 3),
    most_layers=3,
    topologies=TOPOLOGIES,
)
WIDE = Profile(
    d=(128, 256, 384, 512, 768, 1024),
    head=(64, 128, 256),
    ffn=(256, 384, 1024, 2048),
    vocab=(512, 2048, 5000),
    rank=(128, 256, 512),
    experts=(128, 256, 512),
    contexts=(256, 1000, 2048, 4096),
    tiles=(128, 256, 512),
    slots=(4, 6, 8, 12, 20),
    kv_heads=(1, 2, 3, 4),
    most_layers=4,
    topologies=COMPILED,
)
# Wide ones whose streams take up to all of a core's memory.
FULL = evolve(WIDE, d=(128, 256, 512, 1024, 2048, 4096), ffn=(256, 384, 1024, 2048, 4096), slots=(4, 10, 16, 20, 22))
