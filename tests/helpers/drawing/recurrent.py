"""Parts with a recurrent state: gated delta nets and Kimi delta attention."""

from __future__ import annotations

from .parts import Part, Sketch, Together


def recurrent(sketch: Sketch, by_channel: bool) -> Part:
    """A delta rule whose state decays by head, or, as in KDA, by channel of the key."""
    part, pick = sketch.part("kda" if by_channel else "delta"), sketch.one
    k = pick((1, 2, 3))
    k_heads = sketch.size("k_heads", k)
    v_heads = k_heads if by_channel else sketch.size("v_heads", k * pick((1, 2, 3)))
    key, value = sketch.size("key", pick(sketch.profile.head)), sketch.size("val", pick(sketch.profile.head))
    taps = sketch.size("taps", pick((2, 2, 3, 4)))
    sketch.constructs |= {"KDA" if by_channel else "gated delta"}
    if sketch.sizes[v_heads] % 2 and sketch.sizes[v_heads] > 1:
        sketch.constructs.add("odd head counts")
    dtype = pick(("bf16", "f32"))
    lines = {"q": (k_heads, key), "k": (k_heads, key), "v": (v_heads, value)}
    part.kept += ["state {"]
    convolved = [name for name in lines if sketch.maybe(0.7)]
    for name, (heads, width) in lines.items():
        part.weights.append(f'w{name} : bf16[{heads} * {width}, d] "w{name}"')
        found = f"w{name} @ {sketch.read}"
        if name in convolved:
            sketch.constructs.add(f"convolution of {sketch.sizes[taps]}")
            part.weights.append(f'c{name} : {dtype}[{heads} * {width}, {taps}] "c{name}"')
            part.kept.append(f"  p{name} : bf16[{taps} - 1, {heads} * {width}]")
            found = f"silu(causal_conv({found}, c{name}, p{name}))"
        part.body.append(f"{name} = {found}")
    part.kept += [f"  S : f32[{v_heads}, {key}, {value}]", "}"]
    part.body += [
        f"qn = l2_norm(heads(q, {k_heads}), 1e-6) * {key} ** -0.5",
        f"kn = l2_norm(heads(k, {k_heads}), 1e-6)",
    ]
    groups = _decay(sketch, part, by_channel, v_heads, key)
    part.weights += [
        f'wb : bf16[{v_heads}, d] "wb"',
        f'gain : bf16[{value}] "gain"',
        f'wo : bf16[d, {v_heads} * {value}] "wo"',
    ]
    part.body += [f"rate = sigmoid(wb @ {sketch.read})", f"o = delta_rule(qn, kn, heads(v, {v_heads}), decay, rate, S)"]
    found, first = "rms_norm(o, gain, 1e-6)", ["wq", "wk", "wv"]
    if sketch.maybe(0.6):
        part.weights.append(f'wz : bf16[{v_heads} * {value}, d] "wz"')
        found, first = f"{found} * silu(heads(wz @ {sketch.read}, {v_heads}))", [*first, "wz"]
    part.groups += [(*first, "wb", *groups[0]), *groups[1:], ("wo",)]
    same = (k_heads,) if k_heads == v_heads else (k_heads, v_heads)
    part.shared.append(Together(same, pairs=((v_heads, k_heads),)))
    part.has.add("state")
    sketch.adds(part, f"wo @ flat({found})", (v_heads,), mixer=True)
    return part


def _decay(sketch: Sketch, part: Part, by_channel: bool, heads: str, key: str) -> list[tuple[str, ...]]:
    """How much of the state stays; what is multiplied for it, first with what the other products read."""
    part.weights.append(f'a_log : f32[{heads}] "a_log"')
    if not by_channel:
        part.weights += [f'wa : bf16[{heads}, d] "wa"', f'dt_bias : f32[{heads}] "dt_bias"']
        part.body.append(f"decay = f32(-exp(a_log) * softplus(wa @ {sketch.read} + dt_bias))")
        return [("wa",)]
    part.weights.append(f'dt_bias : f32[{heads} * {key}] "dt_bias"')
    if sketch.maybe(0.5):
        low = sketch.size("low", sketch.one(sketch.profile.head))
        part.weights += [f'f_a : bf16[{low}, d] "f_a"', f'f_b : bf16[{heads} * {key}, {low}] "f_b"']
        part.body.append(f"f = f_a @ {sketch.read}")
        found, groups = "f_b @ f", [("f_a",), ("f_b",)]
    else:
        part.weights.append(f'wf : bf16[{heads} * {key}, d] "wf"')
        found, groups = f"wf @ {sketch.read}", [("wf",)]
    part.body.append(f"decay = f32(-5.0 * sigmoid(exp(a_log) * heads({found} + dt_bias, {heads})))")
    return groups
