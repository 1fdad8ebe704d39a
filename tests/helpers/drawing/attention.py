"""Parts that attend: grouped queries, and latents."""

from __future__ import annotations

from .parts import Part, Rows, Sketch, Together


def attention(sketch: Sketch, part: Part | None = None) -> Part:
    """Grouped-query attention."""
    part = sketch.part("attention") if part is None else part
    kv = sketch.one(sketch.profile.kv_heads)
    width = sketch.one(sketch.profile.head)
    kv_heads, q_heads = sketch.size("kv_heads", kv), sketch.size("q_heads", kv * sketch.one((1, 1, 2, 3)))
    head = sketch.size("head", width)
    value = head
    if sketch.maybe(0.2):
        value = sketch.size("value", sketch.one([w for w in sketch.profile.head if w != width]))
        sketch.constructs.add("values of another width")
    sketch.constructs |= {"attention"} | ({"grouped queries"} if sketch.sizes[q_heads] > kv else set())
    if sketch.sizes[q_heads] % 2 and sketch.sizes[q_heads] > 1:
        sketch.constructs.add("odd head counts")
    gate = sketch.one(("", "", "in the query", "apart"))
    each = f"{q_heads} * {'2 * ' if gate == 'in the query' else ''}{head}"
    part.weights += [
        f'wq : bf16[{each}, d] "wq"',
        f'wk : bf16[{kv_heads} * {head}, d] "wk"',
        f'wv : bf16[{kv_heads} * {value}, d] "wv"',
        f'wo : bf16[d, {q_heads} * {value}] "wo"',
    ]
    if gate == "in the query":
        value_gate = value == head
        gate = gate if value_gate else "none after all"
    q, k = _queries(sketch, part, each, q_heads, head, gate), _keys(sketch, part, kv_heads, head)
    q, k = _rotated(sketch, q, k, head)
    part.body += [f"qr = {q}", f"keys[position] = {k}", f"values[position] = heads(wv @ {sketch.read}, {kv_heads})"]
    part.kept += ["cache {", f"  keys   : bf16[{kv_heads}, {head}]", f"  values : bf16[{kv_heads}, {value}]", "}"]
    scale = sketch.by_layer(f"{head} ** -0.5", "0.5")
    part.body.append(f"o = attend(qr, keys, values, scale = {scale})")
    found = "o"
    if gate == "in the query":
        found = "o * sigmoid(qg)"
        sketch.constructs.add("split heads")
    elif gate == "apart":
        part.weights.append(f'wg : bf16[{q_heads} * {value}, d] "wg"')
        found = f"o * sigmoid(heads(wg @ {sketch.read}, {q_heads}))"
    own = ("wq", "wk", "wv", *(("wg",) if gate == "apart" else ()))
    part.groups += [own, ("wo",)]
    part.shared.append(Together((q_heads, kv_heads), frozenset({kv_heads}), ((q_heads, kv_heads),)))
    part.has |= {"cache", "heads"}
    sketch.adds(part, f"wo @ flat({found})", (q_heads,), mixer=True)
    return part


def _queries(sketch: Sketch, part: Part, each: str, heads: str, head: str, gate: str) -> str:
    """Queries `[heads, head]`; where a gate is beside each, both are cut apart first."""
    found = f"wq @ {sketch.read}"
    if sketch.maybe(0.2):
        part.weights.append(f'bq : f32[{each}] "bq"')
        found = f"{found} + bq"
        sketch.constructs.add("bias")
    if gate in ("in the query", "none after all"):
        part.body.append(f"q, qg = split(heads({found}, {heads}), {head}, {head})")
        return _by_head(sketch, part, "q", "q_norm", head)
    how = sketch.one(("", "", "", "rms_norm", "l2_norm", "softmax"))
    if how == "rms_norm":
        part.weights.append(f'all_norm : bf16[{each}] "all_norm"')
        found = f"rms_norm({found}, all_norm, {sketch.by_layer('1e-5', '1e-1', 0.2)})"
    elif how:
        found = f"l2_norm({found}, 1e-5) * 8" if how == "l2_norm" else f"softmax({found}) * 50"
    if how:
        sketch.constructs.add(f"{how} of all heads")
    return _by_head(sketch, part, f"heads({found}, {heads})", "q_norm", head)


def _keys(sketch: Sketch, part: Part, heads: str, head: str) -> str:
    return _by_head(sketch, part, f"heads(wk @ {sketch.read}, {heads})", "k_norm", head)


def _by_head(sketch: Sketch, part: Part, value: str, gain: str, head: str) -> str:
    if not sketch.maybe(0.3):
        return value
    part.weights.append(f'{gain} : bf16[{head}] "{gain}"')
    return f"rms_norm({value}, {gain}, 1e-5)"


def _rotated(sketch: Sketch, q: str, k: str, head: str) -> tuple[str, str]:
    kind = sketch.one(("none", "whole", "whole", "part", "pairs", "in some layers"))
    if kind == "none":
        return q, k
    theta = sketch.by_layer("1e4", "1e6")
    more = {"part": f", width = {head} / 2", "pairs": ", pairs = 1"}.get(kind, "")
    rotated = [f"rope({x}, position, theta = {theta}{more})" for x in (q, k)]
    sketch.constructs.add("rope")
    if kind == "in some layers":
        sketch.constructs.add("choice by layer")
        return f"{q} when layer in some else {rotated[0]}", f"{k} when layer in some else {rotated[1]}"
    return rotated[0], rotated[1]


def mla(sketch: Sketch) -> Part:
    """Attention over latents."""
    part, ranks = sketch.part("mla"), sketch.profile.rank
    heads = sketch.size("heads", sketch.one((2, 3, 4, 8)))
    q_lora, kv_lora = sketch.size("q_lora", sketch.one(ranks)), sketch.size("kv_lora", sketch.one(ranks))
    widths = sketch.profile.head
    nope, common, value = (sketch.size(name, sketch.one(widths)) for name in ("nope", "common", "vdim"))
    sketch.constructs.add("latents")
    if sketch.sizes[heads] % 2:
        sketch.constructs.add("odd head counts")
    part.weights += [
        f'q_a : bf16[{q_lora}, d] "q_a"',
        f'q_b : bf16[{heads} * ({nope} + {common}), {q_lora}] "q_b"',
        f'kv_a : bf16[{kv_lora} + {common}, d] "kv_a"',
        f'kv_b : bf16[{heads} * ({nope} + {value}), {kv_lora}] "kv_b"',
        f'wo : bf16[d, {heads} * {value}] "wo"',
    ]
    part.kept += ["cache {", f"  lat : bf16[{kv_lora}]", f"  com : bf16[{common}]", "}"]
    lora, latent = "qa", "c"
    if sketch.maybe(0.5):
        part.weights += [f'q_norm : bf16[{q_lora}] "q_norm"', f'kv_norm : bf16[{kv_lora}] "kv_norm"']
        lora, latent = "rms_norm(qa, q_norm, 1e-5)", "rms_norm(c, kv_norm, 1e-5)"
    part.body += [f"qa = q_a @ {sketch.read}", f"c, s = split(kv_a @ {sketch.read}, {kv_lora}, {common})"]
    query, key = f"heads(q_b @ {lora}, {heads})", "s"
    if sketch.maybe(0.4):
        part.body.append(f"qn, qp = split({query}, {nope}, {common})")
        query, key = "concat(qn, rope(qp, position, theta = 1e4))", "rope(s, position, theta = 1e4)"
        sketch.constructs |= {"rope", "split heads", "concat"}
    part.body += [
        f"q = {query}",
        f"lat[position] = {latent}",
        f"com[position] = {key}",
        f"o = attend_latent(q, lat, com, kv_b, scale = ({nope} + {common}) ** -0.5)",
    ]
    found, gates = "o", ()
    if sketch.maybe(0.4):
        part.weights.append(f'wg : bf16[{heads} * {value}, d] "wg"')
        found, gates = f"o * sigmoid(heads(wg @ {sketch.read}, {heads}))", (("wg",),)
    part.groups += [("q_a", "kv_a"), *gates, ("q_b",), ("kv_b",), ("wo",)]
    part.shared.append(Together((heads,)))
    part.rows += [Rows("q_a", ("qa",)), Rows("kv_a", ("c", "s"))]
    part.has |= {"cache", "latents"}
    sketch.adds(part, f"wo @ flat({found})", (heads,), mixer=True)
    return part
