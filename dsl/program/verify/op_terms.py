"""What ops of expressions mean, those of the registry and those that lowering puts in: the terms that they make.

An op of the registry means itself. What lowering puts in means something that a definition could say: `MEANING` has a
row for each, and a Program with any other is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model import ir as m
from ..ir.spec_access import Wrong
from .expression_terms import Flow
from .held import Cut, Held, complete, joined, words
from .terms import Term, Terms


def _two(flow: Flow, node: m.Call) -> tuple[Held, Held]:
    a, b = (flow.evaluate(arg) for arg in node.args)
    return a, b


def _cut(node: m.Call, a: Held, b: Held) -> Any:
    return joined(((a, not node.args[0].type.shape), (b, not node.args[1].type.shape)), f"`{node.op}`")


def _add(flow: Flow, node: m.Call) -> Held:
    a, b = _two(flow, node)
    if a.over != b.over:
        raise Wrong(f"`{node.op}` joins a share of a sum over {words(a.over | b.over)} with what is none")
    sign = -1 if node.op == "sub" else 1
    return Held(flow.terms.add(a.term, b.term, sign), a.over, _cut(node, a, b))


def _neg(flow: Flow, node: m.Call) -> Held:
    a = flow.evaluate(node.args[0])
    return a._replace(term=flow.terms.neg(a.term))


def _mul(flow: Flow, node: m.Call) -> Held:
    a, b = _two(flow, node)
    if a.over and b.over:
        raise Wrong(f"two shares of sums over {words(a.over | b.over)} are multiplied")
    return Held(flow.terms.mul(a.term, b.term), a.over | b.over, _cut(node, a, b))


def _div(flow: Flow, node: m.Call) -> Held:
    a, b = _two(flow, node)
    if b.over:
        raise Wrong(f"a share of a sum over {words(b.over)} divides")
    return Held(flow.terms.div(a.term, b.term), a.over, _cut(node, a, b))


def _same(flow: Flow, node: m.Call) -> Held:
    """Names its value without rounding, or lays it out in another way."""
    return flow.evaluate(node.args[0])


def _matmul(flow: Flow, node: m.Call) -> Held:
    weight, x = node.args
    if isinstance(weight, m.Call) and weight.op == "index" and isinstance(weight.args[0], m.WeightRef):
        matrix = flow.terms.atom("expert", weight.args[0].name)
    else:
        matrix = flow.evaluate(weight).term
    return Held(product(flow.terms, matrix, complete(flow.evaluate(x), "`@`").term))


def product(terms: Terms, matrix: Term, operand: Term) -> Term:
    """A matrix times an operand, which is rounded to the matrix's type anyway."""
    return terms.atom("matmul", matrix, unrounded(terms, operand))


def unrounded(terms: Terms, term: Term) -> Term:
    """A term without a rounding that its user does anyway."""
    key = terms.made[term]
    return key[1] if key[0] == "bf16" else term  # type: ignore[return-value]


def rounded(terms: Terms, term: Term, dtype: str) -> Term:
    """A term in a buffer of a type; named values have been rounded to theirs."""
    key = terms.made[term]
    if dtype != "bf16" or key[0] == "bf16" or (key[0] in ("value", "before") and key[-1] == "bf16"):
        return term
    return terms.atom("bf16", term, ())


def _squares(flow: Flow, node: m.Call) -> Held:
    """The sum of a value's squares: of its columns on a core, that core's share."""
    x = flow.evaluate(node.args[0])
    if x.over:
        raise Wrong(f"squares are taken of a share of a sum over {words(x.over)}")
    axis, shares = node.args[0].type.shape[-1], flow.program.shares
    # Of an axis that is shared out by its size, so many cores may hold the same entries.
    over = frozenset(shares.over_values(axis)) if x.cut is None else x.cut.axes
    repeats = shares.repeats(axis) if x.cut is None else 1
    return Held(flow.terms.atom("squares", x.term, (flow.program.instance.length(axis), repeats)), over)


def _squared(flow: Flow, squares: Held, node: m.Call) -> tuple[Term, str]:
    """The value whose squares were summed, and which norm their count makes of it."""
    count = next(float(str(flow.number(static))) for name, static in node.options if name == "count")
    key: Any = flow.terms.made[complete(squares, f"`{node.op}`").term]
    if key[0] == "squares" and count == key[2][0] * key[2][1]:
        return key[1], "rms_norm"
    if key[0] == "squares" and count == key[2][1]:
        return key[1], "l2_norm"
    raise Wrong(f"`{node.op}` divides by what is no sum of {count:g} squares")


def _over_root_mean(flow: Flow, node: m.Call) -> Held:
    """Products with a norm whose division was put off: those with the norm itself."""
    (value, squares), terms = _two(flow, node), flow.terms
    (y, norm), found = _squared(flow, squares, node), []
    if norm != "rms_norm":
        raise Wrong(f"`{node.op}` divides by a root of another mean")
    for sign, factors in terms.parts(value.term):
        other = next(filter(None, (_normed(flow, factors, i, y, node) for i in range(len(factors)))), None)
        if other is None:
            raise Wrong("what is divided by a norm's root was not made of the value whose squares were summed")
        found.append((sign, other))
    if value.over:
        raise Wrong(f"a share of a sum over {words(value.over)} is normalised")
    return value._replace(term=terms.total(found))


def _normed(flow: Flow, factors: tuple[Term, ...], at: int, y: Term, node: m.Call) -> tuple[Term, ...] | None:
    terms = flow.terms
    kind, *rest = terms.made[factors[at]]
    gain = terms.without(rest[1], y) if kind == "matmul" else None  # type: ignore[arg-type]
    if gain is None:
        return None
    norm = flow.made("rms_norm", (y, gain), flow.options(node, "count"))
    return tuple(sorted((*factors[:at], product(terms, rest[0], norm), *factors[at + 1 :])))  # type: ignore[arg-type]


def _norm_of_share(flow: Flow, node: m.Call) -> Held:
    """A norm of a value of which this core has some columns, by the squares of all."""
    x, total, gain = (flow.evaluate(arg) for arg in node.args)
    y, norm = _squared(flow, total, node)
    if y != x.term:
        raise Wrong("a norm divides by the squares of another value")
    if norm == "l2_norm" and gain.term != flow.terms.number(1):
        norm = "rms_norm" if x.cut is None else "no norm"
    cut = joined(((x, False), (gain, not node.args[2].type.shape)), "a norm")
    args = (x.term,) if norm == "l2_norm" else (x.term, gain.term)
    return Held(flow.made(norm, args, flow.options(node, "count")), cut=cut)


def _softmax_sums(flow: Flow, node: m.Call) -> Held:
    """A core's largest, and the sum of what it makes of its own; those of all cores make a softmax."""
    x, axis, shares = (
        complete(flow.evaluate(node.args[0]), "a softmax"),
        node.args[0].type.shape[-1],
        flow.program.shares,
    )
    over = frozenset(shares.over_values(axis))
    lanes = flow.program.schedule.ways(tuple(over)) * shares.length(node.type.shape[-1])
    return Held(flow.terms.atom("softmax sums", x.term, (shares.repeats(axis),)), cut=Cut(over, lanes))


def _softmax_of_share(flow: Flow, node: m.Call) -> Held:
    x, sums = (complete(flow.evaluate(arg), "a softmax").term for arg in node.args)
    repeats = dict(flow.options(node))["repeats"]
    if flow.terms.made[sums] != ("softmax sums", x, (repeats,)):
        raise Wrong("a softmax is scaled by the sums of another value")
    return Held(flow.made("softmax", (x,), ()))


def _mask_of_share(flow: Flow, node: m.Call) -> Held:
    """A mask of a core's own columns; where it masks nothing but padding, the value itself."""
    x, said = flow.evaluate(node.args[0]), dict(flow.options(node))
    if said["used"] == flow.program.instance.length(node.type.shape[-1]):
        return x
    if said["fill"] != float("-inf"):
        raise Wrong(f"what is masked is {said['fill']}")
    return Held(flow.made("mask", (complete(x, "`mask`").term,), (("used", said["used"]),)))


def _view(flow: Flow, node: m.Call) -> Held:
    """Another layout; who reads it knows which."""
    args = [complete(flow.evaluate(arg), f"`{node.op}`").term for arg in node.args]
    found = flow.terms.atom(node.op, *args, flow.options(node))
    return Held(_of_latents(flow.terms, found) if node.op == "view_by_row" else found)


def _of_latents(terms: Terms, term: Term) -> Term:
    """What was attended to as latents, after its heads' part of the weight: latent attention."""

    def key(at: Any) -> Any:
        return terms.made[at]

    _, expanded, said = key(term)
    if key(expanded)[0] != "expand":
        return term
    _, weight, by_head = key(expanded)
    if key(by_head)[0] != "view_by_head" or key(key(by_head)[1])[0] != "latent":
        return term
    _, *attended, (rank, value) = key(key(by_head)[1])
    if attended[3] != weight or (key(by_head)[2], said) != ((("width", float(rank)),), (("width", float(value)),)):
        return term
    return terms.atom("attend_latent", *attended)


def _attended(flow: Flow, node: m.Call) -> Held:
    """Over what a cache has, and the row's own entry in it."""
    flow.along(node)
    query, *caches = node.args
    q = unrounded(flow.terms, complete(flow.evaluate(query), f"`{node.op}`").term)
    rest = [flow.evaluate(each).term for each in caches]
    return Held(flow.terms.atom(node.op, q, *rest, flow.options(node)))


def _block(flow: Flow, node: m.Call) -> Held:
    """The rows of a block over what a cache has, and over each other."""
    flow.along(node)
    *own, keys, values = (flow.evaluate(arg) for arg in node.args)
    each = [unrounded(flow.terms, complete(held, f"`{node.op}`").term) for held in own]
    return Held(flow.terms.atom(node.op, *each, keys.term, values.term, flow.options(node)))


type Rule = Callable[[Flow, m.Call], Held]


MEANING: dict[str, Rule] = {
    "softmax_sums": _softmax_sums,
    "softmax_of_share": _softmax_of_share,
    "mask_of_share": _mask_of_share,
    "add": _add,
    "sub": _add,
    "neg": _neg,
    "mul": _mul,
    "div": _div,
    "f32": _same,
    "matmul": _matmul,
    "attend": _attended,
    "attend_latent": _attended,
    "attend_block": _block,
    "squares_in_lanes": _squares,
    "sum_squares": _squares,
    "over_root_mean": _over_root_mean,
    "rms_norm_of_share": _norm_of_share,
    "view_one_head": _same,
    "view_of_one_head": _same,
    "view_by_head": _view,
    "view_by_row": _view,
    "view_last": _view,
    "view_in_lanes": _view,
    "view_keys_values": _view,
}
