"""Shipped models at random sizes on random schedules, small enough to be compiled in a second or two."""

from __future__ import annotations

import re
from random import Random

from attrs import evolve, frozen
from helpers.definitions import FOLDER, text

from mks.dsl.compile import check_source
from mks.dsl.model.instance import Instance
from mks.dsl.program.bill import bill
from mks.dsl.program.lower import lower
from mks.dsl.schedule.ir import Schedule
from mks.dsl.source import Source

_TOPOLOGIES = {
    "v5e": {1: "1x1", 4: "2x2", 8: "2x4"},
    "v6e": {1: "1x1", 4: "2x2", 8: "2x4"},
    "v5p": {1: "1x1x1", 4: "2x2x1", 8: "2x2x2"},
    "tpu7x": {2: "1x1x1", 8: "2x2x1"},
}
_MODELS = ("smollm2", "qwen3", "qwen38")
_DEEPEST = 200


@frozen
class Drawn:
    """A model and a schedule of it, at `rows` rows; `words` says what was drawn, `definition` is the text."""

    words: str
    definition: str
    schedule: Schedule
    instance: Instance
    rows: int


def draw(seed: int, least: float = 0.2, most: float = 0.95) -> Drawn:
    """The case of a seed, one without errors.

    A stream's slots fill `least` to `most` of the target's memory, more than all of it too; some cases have no stream.
    """
    pick = Random(seed)
    while True:
        found = _attempt(pick, pick.uniform(least, most))
        if found is not None:
            return found


def _attempt(pick: Random, share: float) -> Drawn | None:
    name, target = pick.choice(_MODELS), pick.choice(list(_TOPOLOGIES))
    cores = pick.choice(list(_TOPOLOGIES[target]))
    sizes = _sizes(name, cores, pick)
    source = re.sub(r"\nschedule .*", "", text(name), flags=re.S)
    for size, length in sizes.items():
        source, edits = re.subn(rf"(size {size} +=) [^ ]+( / q_heads)?", rf"\1 {length}", source)
        assert edits == 1, size
    rows, working = pick.choice((1, 1, 2, 3, 4, 6, 8, 8)), pick.choice(("bf16", "bf16", "f32"))
    source += _schedule(name, target, cores, rows, pick)
    words = f"{name} {target} x{cores} rows {rows} {working} {sizes}"
    found = _made(words, source, name, rows, working)
    if found is None or not found.schedule.streams:
        return found if share <= 1 else None
    made = lower(found.schedule, found.instance, rows)
    room = share * found.schedule.target.vmem.value - bill(made).total
    more = int(room // (made.rings["dense"].rows * 2048))
    if not 0 <= more <= _DEEPEST:
        return None
    return _made(words, source.replace("slots = 2\n", f"slots = {2 + more}\n"), name, rows, working)


def _made(words: str, source: str, name: str, rows: int, working: str) -> Drawn | None:
    definition = check_source(Source("drawn.mks", source), FOLDER)
    schedule = definition.schedules.get((name, "drawn"))
    if schedule is None or definition.failed:
        return None
    return Drawn(words, source, schedule, evolve(definition.instances[name], working=working), rows)


def _sizes(name: str, cores: int, pick: Random) -> dict[str, int]:
    heads = cores if name == "qwen38" or pick.random() < 0.5 else 1
    kv = pick.choice((1, 2)) * heads
    found = {"d": pick.choice((128, 256, 384, 512, 768, 1024)), "ffn": pick.choice((256, 384, 512, 1024)) * cores,
             "vocab": pick.choice((512, 1024, 2048, 5000)) * cores, "kv_heads": kv,
             "q_heads": kv * pick.choice((1, 2, 3, 4)) * (cores // heads), "head": pick.choice((64, 128, 256)),
             "layers": pick.choice((2, 3))}  # fmt: skip
    if name == "qwen38":
        k_heads = pick.choice((1, 2)) * cores
        found |= {"k_heads": k_heads, "v_heads": k_heads * pick.choice((1, 2, 3)), "layers": pick.choice((4, 5))}
    return found


def _schedule(name: str, target: str, cores: int, rows: int, pick: Random) -> str:
    attention = {"smollm2": "(wq, wk, wv), wo", "qwen3": "(wq, wk, wv), wo", "qwen38": "(wq, wk, wv), wo"}[name]
    lines = [f"target {target} {_TOPOLOGIES[target][cores]}", f"rows {rows}",
             f"context {pick.choice((256, 1000, 2048, 4096))}"]  # fmt: skip
    if cores > 1:
        lines += [f"mesh tp = {cores}", "shard tp : q_heads, kv_heads (repeat), ffn, vocab"
                  + (", k_heads, v_heads" if name == "qwen38" else "")]  # fmt: skip
        sums = ["attention.h", "mlp.h", *(["delta.h"] if name == "qwen38" else [])]
        for value in sums:
            if pick.random() < 0.7:
                by = pick.choice(("direct", "scatter_gather", "two_level"))
                lines.append(f"reduce {value} (by = {by}, wire = {pick.choice(('f32', 'bf16'))})")
    if pick.random() < 0.9:
        parts = [f"attention : {attention}", "mlp : (gate, up), down"]
        parts += ["delta : (wq, wk, wv, wz, wb, wa), wo"] * (name == "qwen38") + ["step : out"] * (pick.random() < 0.7)
        lines += ["stream dense {", "slots = 2", "slot = 2560 KiB", *parts, "}"]
    if pick.random() < 0.7:
        tile, slots = pick.choice((128, 256, 512)), pick.choice((1, 2, 3, 4))
        lines.append(f"prefetch attention.cache at attention.start (tile = {tile} tokens, slots = {slots})")
    if name == "qwen38" and pick.random() < 0.6:
        lines.append("prefetch delta.state at previous mlp.h")
    if pick.random() < 0.5:
        lines.append("prefetch vectors at previous part")
    return f"\nschedule drawn for {name} {{\n" + "\n".join(lines) + "\n}\n"
