"""Parts without a memory: dense and routed."""

from __future__ import annotations

from .parts import Part, Rows, Sketch, Sum, Together

_ACTS = ("silu({g}) * ({u})", "sigmoid({g}) * ({u})", "max({g}, 0) * ({u})", "situ({g}, {u})", "silu({u})")


def mlp(sketch: Sketch, part: Part | None = None) -> Part:
    """A gated product between two."""
    part = sketch.part("mlp") if part is None else part
    ffn = sketch.size("ffn", sketch.one(sketch.profile.ffn))
    sketch.constructs.add("dense")
    act = sketch.one(_ACTS)
    both = "{g}" in act
    part.weights += ([f'gate : bf16[{ffn}, d] "gate"'] if both else []) + [
        f'up : bf16[{ffn}, d] "up"',
        f'down : bf16[d, {ffn}] "down"',
    ]
    up = f"up @ {sketch.read}"
    if sketch.maybe(0.15):
        part.weights.append(f'b_up : f32[{ffn}] "b_up"')
        up = f"{up} + b_up"
        sketch.constructs.add("bias")
    found = act.format(g=f"gate @ {sketch.read}", u=up)
    if sketch.maybe(0.2):
        part.weights.append(f'inner : bf16[{ffn}] "inner"')
        found = f"rms_norm({found}, inner, {sketch.by_layer('1e-5', '1e-1', 0.2)})"
        sketch.constructs.add("rms_norm within a feed-forward part")
    if sketch.maybe(0.5):
        part.body.append(f"y = {found}")
        found = "y"
    part.groups += [("gate", "up") if both else ("up",), ("down",)]
    part.shared.append(Together((ffn,)))
    sketch.adds(part, f"down @ {found}" if found == "y" else f"down @ ({found})", (ffn,), mixer=False)
    return part


def moe(sketch: Sketch) -> Part:
    """Routed experts, perhaps with a latent in front and behind, and shared ones."""
    part, pick = sketch.part("moe"), sketch.one
    experts = sketch.size("experts", pick((4, 6, 8)))
    inner = sketch.size("moe", pick(sketch.profile.experts))
    part.codec = pick(("bf16", "bf16", "f32", "mxfp4", "mxfp4", "fp8 block 32", "nvfp4"))
    direct = part.codec in ("bf16", "f32") and sketch.maybe(0.3)
    latent = "d" if direct else sketch.size("latent", pick(sketch.profile.experts))
    sketch.constructs.add(f"experts {part.codec.split()[0]}")
    score, bias = _router(sketch, part, experts)
    top = pick((1, 2, 3))
    more = ", scale = 1.5" if sketch.maybe(0.3) else ""
    part.body += [f"score = {score}", f"picked = route(score, {bias}, {top}{more})"]
    part.rows.append(Rows("router", ("score",)))
    if direct:
        part.groups.append(("router",))
    else:
        part.weights += [f'z_down : bf16[{latent}, d] "z_down"', f'z_up : bf16[d, {latent}] "z_up"']
        part.body.append(f"z = z_down @ {sketch.read}")
        part.groups.append(("router", "z_down"))
        part.rows.append(Rows("z_down", ("z",)))
    shared, sizes = _shared(sketch, part) if sketch.maybe(0.5) else ("", ())
    z = sketch.read if direct else "z"
    part.body.append(f"y = experts({z}, picked) {{ e -> {_body(sketch, part, experts, inner, latent, z)} }}")
    part.shared += [Together((experts,)), Together((inner,))]
    part.has.add("experts")
    part.sums.append(Sum(f"{part.name}.y", (experts, inner), alone=not direct))
    found = "y" if direct else "z_up @ y"
    if not direct:
        part.groups.append(("z_up",))
    if sketch.maybe(0.4):
        part.weights.append(f'z_norm : bf16[{latent}] "z_norm"')
        found = found.replace("y", "rms_norm(y, z_norm, 1e-5)")
    name = sketch.name("b") if sketch.banks else sketch.stream
    found = f"{name} + {found}{f' + {shared}' if shared else ''}"
    part.body.append(f"{name} = {found}" if sketch.banks else sketch.adds_up(found))
    # Partial where the shared experts are a part of it, or where it is made of what is left scattered.
    part.sums.append(Sum(f"{part.name}.{name}", sizes, of_scattered=not direct))
    return part


def _router(sketch: Sketch, part: Part, experts: str) -> tuple[str, str]:
    part.weights.append(f'router : {sketch.one(("bf16", "f32"))}[{experts}, d] "router"')
    form = sketch.one(("sigmoid", "sigmoid", "raw", "softmax"))
    sketch.constructs.add({"raw": "scores of both signs"}.get(form, f"scores by {form}"))
    made = f"router @ {sketch.read}"
    # Moved down, so that among the largest are negative ones.
    score = f"f32({made} - 0.7)" if form == "raw" else f"f32({form}({made}))"
    if sketch.maybe(0.3):
        return score, "0"
    part.weights.append(f'bias : f32[{experts}] "bias"')
    return score, "bias"


def _shared(sketch: Sketch, part: Part) -> tuple[str, tuple[str, ...]]:
    """Experts that all tokens go through; their sum has a name, or is part of the last statement, which is partial."""
    shared = sketch.size("shared", sketch.one(sketch.profile.ffn))
    part.weights += [f'{name} : bf16[{shared}, d] "{name}"' for name in ("s_gate", "s_up")]
    part.weights.append(f's_down : bf16[d, {shared}] "s_down"')
    part.groups += [("s_gate", "s_up"), ("s_down",)]
    part.shared.append(Together((shared,)))
    found = f"s_down @ (silu(s_gate @ {sketch.read}) * (s_up @ {sketch.read}))"
    sketch.constructs.add("shared experts")
    if sketch.maybe(0.5):
        return found, (shared,)
    part.body.append(f"s = f32({found})")
    part.sums.append(Sum(f"{part.name}.s", (shared,), alone=True))
    return "s", ()


def _body(sketch: Sketch, part: Part, experts: str, inner: str, latent: str, z: str) -> str:
    gated = sketch.maybe(0.8)
    names = ("gate", "up") if gated else ("up",)
    part.weights += [f'{name} : {part.codec}[{experts}, {inner}, {latent}] "{name}"' for name in names]
    part.weights.append(f'down : {part.codec}[{experts}, {latent}, {inner}] "down"')
    part.experts = (*names, "down")
    up = f"up[e] @ {z}"
    act = sketch.one(_ACTS[:-1]).format(g=f"gate[e] @ {z}", u=up) if gated else f"silu({up})"
    found = f"down[e] @ ({act})"
    if sketch.maybe(0.2):
        part.weights.append(f'each : bf16[{latent}] "each"')
        found = f"rms_norm({found}, each, 1e-5)"
        sketch.constructs.add("norm within experts")
    return found
