"""A whole model: its sizes, its parts and its step."""

from __future__ import annotations

from random import Random

from . import attention, feed, recurrent
from .parts import Part, Sketch, Together
from .profile import Profile


def model(pick: Random, profile: Profile) -> Sketch:
    """A model's parts, with the sizes that they need."""
    sketch = Sketch(pick, profile)
    sketch.sizes |= {
        "d": sketch.one(profile.d),
        "layers": sketch.one(range(1, profile.most_layers + 1)),
        "vocab": sketch.one(profile.vocab),
    }
    sketch.banks, sketch.tied = sketch.maybe(0.2), sketch.maybe(0.2)
    sketch.wide = not sketch.banks and sketch.maybe(0.25)
    sketch.constructs |= {"tied embeddings"} if sketch.tied else set()
    sketch.constructs |= {"f32 stream"} if sketch.wide else set()
    if sketch.banks:
        sketch.constructs.add("residual banks")
        sketch.sizes["block"] = sketch.one((1, 2, 3))
        _enter(sketch)
    if not sketch.banks and sketch.maybe(0.15):
        _merged(sketch)
        return sketch
    mixers = [_mixer(sketch) for _ in range(sketch.one((1, 1, 2)))]
    if sketch.banks:
        _leave(sketch)
    feeds = [_feed(sketch) for _ in range(sketch.one((1, 1, 2)))]
    sketch.runs = [("enter", "")] * sketch.banks + [_either(mixers)] + [("leave", "")] * sketch.banks + [_either(feeds)]
    if not sketch.banks and sketch.maybe(0.15):
        sketch.constructs.add("more than two parts a layer")
        sketch.runs.append((_feed(sketch).name, ""))
    if any(other for _, other in sketch.runs):
        sketch.constructs.add("parts by layer")
    return sketch


def _either(parts: list[Part]) -> tuple[str, str]:
    return parts[0].name, parts[1].name if len(parts) > 1 else ""


def _mixer(sketch: Sketch) -> Part:
    kind = sketch.one(("attention", "attention", "mla", "delta", "kda"))
    if kind in ("delta", "kda"):
        return recurrent.recurrent(sketch, kind == "kda")
    return attention.mla(sketch) if kind == "mla" else attention.attention(sketch)


def _feed(sketch: Sketch) -> Part:
    return feed.moe(sketch) if sketch.maybe(0.5) else feed.mlp(sketch)


def _merged(sketch: Sketch) -> None:
    """Attention and what follows in one part, with two norms."""
    part = attention.attention(sketch, sketch.part("both"))
    sketch.halves = True
    part.weights.append('norm2 : bf16[d] "norm2"')
    part.body.append(f"{sketch.read} = rms_norm({sketch.stream}, norm2, 1e-5)")
    feed.mlp(sketch, part)
    sketch.constructs.add("two halves in a part")
    sketch.runs = [("both", "")]


def _enter(sketch: Sketch) -> None:
    part = sketch.parts["enter"] = Part("enter")
    part.weights += ['norm : bf16[d] "norm"', 'res_norm : bf16[d] "res_norm"', 'res_proj : bf16[d] "res_proj"']
    x, h = sketch.name("b"), sketch.stream
    part.body += [
        f"m = mix(banks[0 .. (layer + block - 1) // block], {x}, res_norm * res_proj, 1e-5)",
        f"{h} = rms_norm(m, norm, 1e-5)",
    ]


def _leave(sketch: Sketch) -> None:
    part = sketch.parts["leave"] = Part("leave")
    part.weights += ['norm : bf16[d] "norm"', 'res_norm : bf16[d] "res_norm"', 'res_proj : bf16[d] "res_proj"']
    x, h, a = sketch.name("b"), sketch.stream, sketch.name("a")
    part.body += [
        f"banks[layer // block] = {x} when layer % block == 0",
        f"{x} = {a} when layer % block == 0 else {x} + {a}",
        f"m = mix(banks[0 .. layer // block + 1], {x}, res_norm * res_proj, 1e-5)",
        f"{h} = rms_norm(m, norm, 1e-5)",
    ]


def written(sketch: Sketch, name: str) -> str:
    """The model's text."""
    top = [
        "mks 1",
        "",
        f"model {name} {{",
        *(f"  size {size} = {length}" for size, length in sketch.sizes.items()),
        f"  list some = {sketch.one(('0', '1 .. layers by 2', '0 .. layers by 2'))}",
        "  function situ(g, u) = 4 * tanh(g / 4) * sigmoid(g) * 25 * tanh(u / 25)",
    ]
    own = ['embed : bf16[vocab, d] "embed"', 'final_norm : bf16[d] "final_norm"']
    own += [] if sketch.tied else ['out : bf16[vocab, d] "out"']
    own += ['end_norm : bf16[d] "end_norm"', 'end_proj : bf16[d] "end_proj"'] if sketch.banks else []
    top += ["  weights {", *(f"    {line}" for line in own), "  }"]
    if sketch.banks:
        top.append("  buffer { banks : bf16[(layers + block - 1) // block, d] }")
    parts = [part.text() for part in sketch.parts.values()]
    return "\n".join([*top, *parts, *_step(sketch), "}", ""])


def _step(sketch: Sketch) -> list[str]:
    stream = sketch.name("b") if sketch.banks else sketch.stream
    out = "embed" if sketch.tied else "out"
    first = sketch.one(("embed[token]", "embed[token]", "rms_norm(embed[token], 1, 1e-5) * 2"))
    found = ["  step {", f"    {stream} = {first}" if sketch.banks else f"    {sketch.adds_up(first)}"]
    if sketch.banks:
        found += [f"    {sketch.stream} = {stream}", f"    {sketch.name('a')} = {stream}"]
    found.append("    for layer in 0 .. layers {")
    condition = sketch.one(("layer in some", "layer == 0", "layer % 2 == 1"))
    for part, other in sketch.runs:
        found.append(f"      {part}" + (f" when {condition} else {other}" if other else ""))
    found.append("    }")
    last = stream
    if sketch.banks:
        found.append(f"    m = mix(banks, {stream}, end_norm * end_proj, 1e-5)")
        last = "m"
    logits = f"{out} @ rms_norm({last}, final_norm, 1e-5)"
    kind = sketch.one(("plain", "plain", "plain", "capped", "masked"))
    if kind == "capped":
        logits = f"20 * tanh({logits} / 20)"
    elif kind == "masked":
        logits = f"mask({logits}, {sketch.sizes['vocab'] - 7})"
    sketch.constructs |= {f"{kind} logits"} - {"plain logits"}
    return [*found, f"    logits = f32({logits})", "  }"]


def shared_by_all(sketch: Sketch) -> list[Together]:
    """What may be sharded: of every part, and the vocabulary."""
    return [*(each for part in sketch.parts.values() for each in part.shared), Together(("vocab",))]
