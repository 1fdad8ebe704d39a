"""The public megakernels of TPU v7 as lists of actions, for predictions of what their authors measured.

Bytes, orders, slots and rounds are those of the published kernels; how long each thing takes is not said here.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field, frozen

from mks.backends.timeline.actions import Action, Await, Collect, Issue, Post, Run, Where
from mks.backends.timeline.links import round_seconds
from mks.dsl.collectives.collective import Round
from mks.dsl.targets.target import TILE, Target

MIB = 1 << 20
HOST, ALL, HOSTS = (2, 2, 1), (2, 2, 4), (1, 1, 4)
# A product's bundles for 2.5 MiB of bf16 where each tile is waited for by itself: the compiler's, in [1024, 1024].
ALONE = 458 / 377


@frozen
class Sizes:
    """Of Muse Spark: MiB a layer by family, in the order of use, an expert's MiB, and how weights are held."""

    bits: int
    expert: float
    codes: str


MUSE = {
    "int4": Sizes(16, 3.19, "int4"),
    "nvfp4": Sizes(16, 3.38, "nvfp4"),
    "nvfp4 int8": Sizes(8, 3.38, "nvfp4"),
}
# Seconds of an expert from four rows on: its phase takes 42 us at four and 57 us at eight distinct rows, where int4's,
# which HBM bounds at the 3.0 TB/s of slots, takes 21.6 and 28.9.
NVFP4_EXPERT = (42 / 21.6 + 57 / 28.9) / 2 * 3.19 * MIB / 3.0e12
# Families before attention, after it, before experts and after them: 2 MiB loads in bf16, of which int8 has half.
LOADS = {"qkv": 18, "o": 8, "pre": 4, "router": 4, "post": 4}


@define
class Writer:
    """Writes actions; a ring's transfers are named by numbers."""

    target: Target
    scope: str = ""
    layer: int | None = None
    count: int = 0
    issued: int = 0
    used: int = 0
    held: list[int] = field(factory=list)

    def where(self, what: str) -> Where:
        return Where(self.scope, self.layer, what)

    def run(self, bundles: float, what: str, unit: str = "vpu") -> Run:
        return Run(self.where(what), bundles / self.target.compute.clock.value, unit)

    def dot(self, size: float, what: str, bits: int = 16, factor: float = 1.0) -> Run:
        return self.run(size / TILE * self.target.compute.tile[bits].value * factor, what, "mxu")

    def exchange(
        self, what: str, *rounds: Round, group: tuple[int, ...] = HOST, between: float = 120
    ) -> Iterator[Action]:
        yield from self.post(what, *rounds, group=group)
        yield self.collect(what)

    def post(self, what: str, *rounds: Round, group: tuple[int, ...] = HOST) -> Iterator[Action]:
        yield self.run(40 + 12 * rounds[0].peers, f"send {what}")
        yield Post(self.where(what), what, tuple(round_seconds(x, group, self.target) for x in rounds))

    def collect(self, what: str, between: float = 120) -> Collect:
        return Collect(self.where(what), what, between / self.target.compute.clock.value)

    def load(self, what: str, size: float) -> Issue:
        return Issue(self.where(what), (what, self.layer), int(size), what)

    def loaded(self, what: str, layer: int | None = None) -> Await:
        return Await(self.where(what), (what, self.layer if layer is None else layer), "copy")


def ring_only(target: Target, loads: int, bits: int, wide: int = 0, slots: int = 12) -> Iterator[Action]:
    """Loads of 2 MiB through a ring, a product each; `wide` of them are bf16 whatever `bits`."""
    w = Writer(target, "ring")
    for i in range(min(slots, loads)):
        yield Issue(w.where("tile"), i, 2 * MIB, f"ring {i % slots}")
    for i in range(loads):
        yield Await(w.where("tile"), i, "tape")
        yield from _tile(w, 16 if i < wide else bits)
        if i + slots < loads:
            yield Issue(w.where("tile"), i + slots, 2 * MIB, f"ring {i % slots}")


def _tile(w: Writer, bits: int) -> Iterator[Action]:
    """A load's product; int8 has twice the numbers, made bf16 on the way."""
    yield w.dot(2 * MIB, "dot", bits, ALONE if bits == 16 else 1.0)


class _MuseTape:
    """The tape of Muse Spark: tiles of a ring in the order in which products use them."""

    def __init__(self, w: Writer, sizes: Sizes, layers: int) -> None:
        half = 16 // sizes.bits
        self.w, self.sizes, self.slots = w, sizes, 12
        self.tiles = {name: n if name == "router" else n // half for name, n in LOADS.items()}
        self.per_layer = sum(self.tiles.values())
        self.logits = 25600 * 8192 * sizes.bits // 8 // (2 * MIB)
        self.total = layers * self.per_layer + self.logits

    def issue(self, i: int) -> Iterator[Action]:
        """Start the copy of tile `i`, if there is one."""
        if i < self.total:
            yield Issue(self.w.where("tile"), ("tile", i), 2 * MIB, f"ring {i % self.slots}")

    def gemv(self, name: str, hold: bool) -> Iterator[Action]:
        """A product: all of its tiles; with `hold`, tiles of the next layer are issued later."""
        w = self.w
        for _ in range(self.tiles[name]):
            at = w.used
            w.used += 1
            yield Await(w.where(name), ("tile", at), "tape")
            yield from _tile(w, 16 if name == "router" else self.sizes.bits)
            following = at + self.slots
            if hold and following // self.per_layer > at // self.per_layer:
                w.held.append(following)
            else:
                yield from self.issue(following)

    def lm_head(self) -> Iterator[Action]:
        """The logits."""
        for _ in range(self.logits):
            at = self.w.used
            self.w.used += 1
            yield Await(self.w.where("out"), ("tile", at), "tape")
            yield from _tile(self.w, self.sizes.bits)
            yield from self.issue(at + self.slots)


def muse(target: Target, sizes: Sizes, rows: int, layers: int = 62) -> Iterator[Action]:
    """A step of Muse Spark over eight cores, all rows alike, so that eight experts are read."""
    w = Writer(target)
    tape = _MuseTape(w, sizes, layers)
    w.scope = "step"
    for i in range(tape.slots):
        yield from tape.issue(i)
    # What comes first and last besides the logits: 195 us are fixed, of which 126 are theirs.
    yield w.run(69e-6 * target.compute.clock.value, "embedding")
    for layer in range(layers):
        w.layer, w.scope = layer, "attention"
        for row in range(rows):
            yield w.load(f"keys {row}", 256 * 128 * 2 * 2)
        yield w.run(200 + 64 * 2, "norm")
        yield from tape.gemv("qkv", False)
        for row in range(rows):
            yield w.loaded(f"keys {row}")
            yield w.run(1.5e-6 * target.compute.clock.value, "attend", "mxu")
        yield from tape.gemv("o", False)
        yield from _all_reduce(w, "o", rows, 8192)
        w.scope = "moe"
        yield from _muse_moe(tape, rows)
    w.layer, w.scope = None, "step"
    yield from tape.lm_head()
    yield from w.exchange("argmax", Round(7, rows * 1024))


def _muse_moe(tape: _MuseTape, rows: int) -> Iterator[Action]:
    w, sizes = tape.w, tape.sizes
    defer = rows <= 4
    yield w.run(500 + 64 * 4, "boundary")
    yield from tape.gemv("pre", defer)
    yield from tape.gemv("router", defer)
    yield w.run(0.7e-6 * w.target.compute.clock.value + 150 * (rows - 1), "route")
    yield from _wave(w, 0, sizes)
    yield from w.exchange("pre", Round(7, rows * 512 * 2))
    yield w.run(250 + 32 * 2, "norm")
    for expert in range(8):
        yield w.loaded(f"expert {expert}")
        yield from _expert(w, sizes, rows)
        if expert + 4 < 8:
            yield w.load(f"expert {expert + 4}", sizes.expert * MIB)
        if expert == 3:
            held, w.held = w.held, []
            for i in held:
                yield from tape.issue(i)
    yield from _all_reduce(w, "experts", rows, 4096)
    yield w.run(300, "finalize")
    yield from tape.gemv("post", False)
    yield from w.exchange("post", Round(7, rows * 1024 * 2))
    yield w.run(500 + 64 * 4, "boundary")


def _wave(w: Writer, first: int, sizes: Sizes) -> Iterator[Action]:
    for i in range(4):
        yield w.load(f"expert {first + i}", sizes.expert * MIB)


def _expert(w: Writer, sizes: Sizes, rows: int) -> Iterator[Action]:
    """Of 6.3 million numbers: int4 is pushed as bf16, NVFP4 as fp8 at twice the rate, with 32 rows for each of four."""
    pushed = w.dot(2 * 3 * 512 * 4096, "expert", 16)
    if sizes.codes == "nvfp4":
        fastest = pushed.seconds / 2
        yield Run(pushed.where, fastest + (NVFP4_EXPERT - fastest) * min(rows, 4) / 4, "mxu")
    else:
        yield pushed
    yield w.run(150 + 40 * rows, "expert")


def _all_reduce(w: Writer, what: str, rows: int, width: int) -> Iterator[Action]:
    """Scatter and gather in bf16; experts' sums of eight rows over siblings and chips apart."""
    if rows < 8 or what != "experts":
        yield from w.exchange(what, *[Round(7, rows * width // 8 * 2)] * 2)
        return
    half, piece = Round(1, rows * width, True), Round(3, rows * width // 4)
    yield from w.exchange(what, half, piece, piece, half)


KIMI_EXPERTS = {1: 4.18, 2: 6.9, 4: 11.8, 8: 20.3}
KIMI_FULL = {*range(3, 93, 4), 92}


def kimi(target: Target, rows: int, layers: int = 93) -> Iterator[Action]:
    """A step of Kimi K3 over 32 cores at a short context; matrices in a pool that attention and experts share."""
    w = Writer(target)
    w.layer = 0
    yield from _kimi_loads(w, 0)
    owed = 0.5
    for layer in range(layers):
        w.layer = layer
        yield from _kimi_attention(w, rows, layer in KIMI_FULL)
        owed += KIMI_EXPERTS[rows]
        count = int(owed)
        owed -= count
        yield from _kimi_moe(w, rows, count, layer, layers)
    w.scope, w.layer = "step", None
    # Mixing, norm, logits and the choice of ids are left to XLA: 73.4 MB in five pieces.
    yield w.load("out", 73.4e6)
    yield w.loaded("out")
    yield from w.exchange("argmax", Round(31, rows * 1024), group=ALL)


def _kimi_loads(w: Writer, layer: int) -> Iterator[Action]:
    """All that a layer's start needs."""
    w.scope = "attention"
    sizes = (
        {"q_down": 22.0e6, "kv_down": 9.2e6}
        if layer in KIMI_FULL
        else {"f_a": 1.84e6, "f_b": 0.1e6, "proj": 23.85e6, "k_o": 5.5e6, "state": 0.25e6}
    )
    for name, size in {"vectors": 60e3, **sizes, "router": 7.34e6}.items():
        yield Issue(Where("attention", layer, name), (name, layer), int(size), name)


def _kimi_attention(w: Writer, rows: int, full: bool) -> Iterator[Action]:
    w.scope = "attention"
    own = 2 if rows == 8 else rows
    yield w.loaded("vectors")
    yield w.run(500 + 350 * own, "mix")
    if full:
        for name, size in (("q_up", 2.36e6), ("kv_up", 0.79e6), ("gate", 5.5e6), ("o", 5.5e6)):
            yield w.load(name, size)
        for name, size in (("q_down", 22.0e6), ("kv_down", 9.2e6)):
            yield w.loaded(name)
            yield w.dot(size, name)
        for name, size in (("q_up", 2.36e6), ("kv_up", 0.79e6)):
            yield w.run(200, "norm")
            yield w.loaded(name)
            yield w.dot(size, name)
        yield w.run(700 * rows, "attend")
        yield w.loaded("gate")
        yield w.dot(5.5e6, "gate")
        yield w.loaded("o")
    else:
        for name, size in (("f_a", 1.84e6), ("f_b", 0.1e6), ("proj", 23.85e6)):
            yield w.loaded(name)
            yield w.dot(size, name)
        yield w.loaded("state")
        yield w.run(800 + 330 * rows, "recurrence")
        yield w.load("saved", 0.25e6 * rows)
        yield w.loaded("k_o")
    yield from w.post("features", Round(1, rows * 768, True))
    yield w.dot(2.75e6, "o")
    yield w.collect("features")
    yield w.dot(2.75e6, "o")
    if rows == 8:
        yield from w.exchange("tokens", Round(3, 2 * 3584 * 2), group=HOST)
        yield from w.exchange("hosts", Round(3, 2 * 3584 * 4), Round(1, 2 * 3584 * 2, True), group=HOSTS)
    else:
        yield from w.exchange("o", Round(15, rows * 3584 * 2), group=ALL)
        yield from w.exchange("halves", Round(1, rows * 3584 * 2, True))
    yield w.run(500 + 350 * own, "mix")
    if rows == 8:
        yield from w.exchange("rows", Round(3, 2 * 7168 * 2), group=HOST)


def _kimi_moe(w: Writer, rows: int, count: int, layer: int, layers: int) -> Iterator[Action]:
    w.scope = "moe"
    for name, size in (("latent_down", 1.84e6), ("shared_gu", 5.5e6), ("shared_down", 2.75e6)):
        yield w.load(name, size)
    yield w.loaded("router")
    yield w.dot(7.34e6, "router")
    yield from w.exchange("scores", Round(1, rows * 512 * 4, True))
    # Sixteen rounds; an expert sets out as soon as a round has chosen it, the first after a few.
    round_ = 2.7e-6 / 8 * w.target.compute.clock.value
    started = 0
    for i in range(16):
        yield w.run(round_, "round")
        if i == 3:
            yield w.loaded("latent_down")
            yield w.dot(1.84e6, "latent_down")
            yield from w.post("latent", Round(31, rows * 256), group=ALL)
        while started < min(4, count) and (i + 1) * count >= (started + 1) * 16 and (rows == 1 or i == 15):
            yield w.load(f"expert {started}", 7.01e6)
            started += 1
    yield w.loaded("shared_gu")
    yield w.dot(5.5e6, "shared_gu")
    yield w.run(100, "situ")
    yield w.loaded("shared_down")
    yield w.dot(2.75e6, "shared_down")
    shared = rows * 1024 * 2 if rows == 8 else rows * 7168 * 2
    yield from w.post("shared", Round(7, shared))
    yield w.collect("latent")
    for i in range(count):
        yield w.loaded(f"expert {i}")
        yield w.dot(5.55e6, "gate_up", 8, 392 / w.target.compute.tile[8].value)
        yield w.run(545 * 1.3 + 300 * (rows > 1) + 150, "down", "mxu")
        if i + 4 < count:
            yield w.load(f"expert {i + 4}", 7.01e6)
    yield w.load("latent_up", 7.34e6)
    routed = rows * 3584 * 2 if rows < 8 else 3584 * 2
    yield from w.post("experts", Round(7, routed))
    if layer + 1 < layers:
        yield from _kimi_loads(w, layer + 1)
        w.scope = "moe"
    yield w.collect("shared")
    yield from w.post("shared hosts", Round(3, shared), group=HOSTS)
    yield w.collect("experts")
    yield from w.exchange("experts hosts", Round(3, routed), group=HOSTS)
    yield w.collect("shared hosts")
    yield w.run(250, "norm")
    yield w.loaded("latent_up")
    yield w.dot(7.34e6, "latent_up")
    yield from w.exchange("gather", Round(7, rows * 1024 * 2))
    if layer not in KIMI_FULL:
        yield w.loaded("saved")
