"""The op registry: one row an op, with its signature, shape rule and cost. A backend has one file for each name.

An installed package adds rows through the entry-point group `mks.ops` (value: an `Op`), and what computes them through
`mks.reference` and `mks.pallas` (value: a function). Both backends compute an elementwise op by the first alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from attrs import evolve

from ..installed import Installed, installed, points
from . import along, rules
from .brought import faults, guarded
from .op import PLAIN, Bundles, Count, Op
from .rules import Operands, RuleError
from .shapes import Poly, product

GROUP, REFERENCE, PALLAS = "mks.ops", "mks.reference", "mks.pallas"

__all__ = ["Bundles", "Op", "Operands", "RuleError", "elementwise", "find", "known", "table"]


def _elements(each: int) -> Count:
    return lambda o: Poly.of(each) * product(o.results[0].shape)


def elementwise(
    name: str,
    parameters: tuple[str, ...],
    summary: str,
    *,
    bundles: Bundles = PLAIN,
    flops: int = 1,
    scalars: tuple[str, ...] = (),
    defaults: Mapping[str, float | None] | None = None,
) -> Op:
    """The row of an elementwise op; `flops` are those of one element."""
    return Op(
        name, parameters, rules.elementwise, scalars=scalars, defaults=defaults or {}, along=along.nothing,
        flops=_elements(flops), summary=summary, elementwise=True, bundles=bundles,
    )  # fmt: skip


_ROWS = (
    elementwise("add", ("a", "b"), "a + b"),
    elementwise("sub", ("a", "b"), "a - b"),
    elementwise("mul", ("a", "b"), "a * b"),
    elementwise("div", ("a", "b"), "a / b", bundles=Bundles(8, 1.5)),
    elementwise("pow", ("a", "b"), "a ** b", bundles=Bundles(8, 1.0)),
    elementwise("max", ("a", "b"), "the larger of two, elementwise"),
    elementwise("min", ("a", "b"), "the smaller of two, elementwise"),
    elementwise("neg", ("x",), "-x"),
    elementwise("exp", ("x",), "e to the x", bundles=Bundles(8, 1.0)),
    elementwise("tanh", ("x",), "hyperbolic tangent", bundles=Bundles(12, 2.5)),
    elementwise("sigmoid", ("x",), "1 / (1 + exp(-x))", bundles=Bundles(12, 2.0), flops=3),
    elementwise("silu", ("x",), "x * sigmoid(x)", bundles=Bundles(12, 2.5), flops=4),
    elementwise("softplus", ("x",), "log(1 + exp(x))", bundles=Bundles(20, 4.0), flops=3),
    elementwise("sqrt", ("x",), "square root", bundles=Bundles(8, 1.0)),
    Op("softmax", ("x",), rules.same, along=along.last("x"), flops=_elements(4),
       bundles=Bundles(120, 3.0), summary="exp(x) over its sum, along the last axis"),
    Op("f32", ("x",), rules.kept, along=along.nothing, elementwise=True, summary="names its value without rounding"),
    Op("bf16", ("x",), rules.rounded, along=along.nothing, elementwise=True, summary="rounds to the working type"),
    Op("index", ("table", "i"), rules.index, summary="table[i]"),
    Op("matmul", ("w", "x"), rules.matmul, matrix=frozenset({"w", "x"}), along=along.last("x"),
       flops=rules.matmul_flops, summary="w @ x"),
    Op("heads", ("x",), rules.heads, scalars=("n",), along=along.heads,
       bundles=Bundles(10, 1.0), summary="[n * w] to [n, w]"),
    Op("flat", ("x",), rules.flat, along=along.but_first("x"), bundles=Bundles(10, 1.0), summary="all axes as one"),
    Op("split", ("x",), rules.split, scalars=("width",), repeats=True, along=along.last("x"),
       bundles=Bundles(10, 0.5), summary="pieces of the last axis"),
    Op("concat", ("a", "b"), rules.concat, along=along.last("a", "b"),
       bundles=Bundles(10, 0.5), summary="two values joined along the last axis"),
    Op("rms_norm", ("x", "gain"), rules.norm, scalars=("eps",), along=along.last("x"), flops=_elements(4),
       bundles=Bundles(40, 0.4), summary="x / sqrt(mean(x * x) + eps) * gain, along the last axis"),
    Op("l2_norm", ("x",), rules.same, scalars=("eps",), along=along.last("x"), flops=_elements(3),
       bundles=Bundles(70, 1.0), summary="x / sqrt(sum(x * x) + eps), along the last axis"),
    Op("rope", ("x", "position"), rules.rope, scalars=("theta", "width", "pairs", "scaling"),
       defaults={"width": None, "pairs": 0, "scaling": 1}, along=along.last("x"), flops=_elements(6),
       bundles=Bundles(40, 3.0),
       summary="rotates the first `width` channels, halves against each other (pairs = 1: neighbours)"),
    Op("causal_conv", ("x", "taps", "state"), rules.causal_conv, updates=frozenset({"state"}),
       along=along.last("taps"), flops=rules.conv_flops, bundles=Bundles(30, 4.0),
       summary="depthwise convolution over the last inputs"),
    Op("delta_rule", ("q", "k", "v", "decay", "rate", "S"), rules.delta_rule, matrix=frozenset({"q", "k", "v"}),
       updates=frozenset({"S"}), along=along.last("q", "k"), flops=rules.delta_flops,
       summary="S = exp(decay) S; S += k (rate (v - S^T k))^T; the value is S^T q"),
    Op("attend", ("q", "keys", "values"), rules.attend, scalars=("scale",), matrix=frozenset({"q"}),
       caches=frozenset({"keys", "values"}), along=along.but_first("q", "keys", "values"),
       summary="grouped-query attention over a cache"),
    Op("attend_latent", ("q", "latent", "common", "kv_b"), rules.attend_latent, scalars=("scale",),
       matrix=frozenset({"q", "kv_b"}), caches=frozenset({"latent", "common"}), along=along.latent,
       flops=rules.latent_flops,
       summary="multi-head attention over a latent cache"),
    Op("attend_block", ("q", "k", "v", "keys", "values"), rules.attend_block, scalars=("scale", "causal"),
       matrix=frozenset({"q", "k", "v"}), caches=frozenset({"keys", "values"}),
       along=along.but_first("q", "k", "v", "keys", "values"),
       summary="attention over a cache of earlier positions and the rows of a block"),
    Op("route", ("score", "bias"), rules.route, scalars=("top", "eps", "scale", "groups", "keep"),
       defaults={"eps": 1e-20, "scale": 1, "groups": 1, "keep": 1}, along=along.last("score"), flops=_elements(4),
       summary="the `top` largest of score + bias, weighted by score / (sum + eps) * scale"),
    Op("mix", ("banks", "x", "folded"), rules.mix, scalars=("eps",), flops=rules.mix_flops,
       summary="softmax mixture of the banks and x, scored by rms_norm(v) . folded"),
    Op("argmax", ("x",), rules.argmax, along=along.last("x"), flops=_elements(1),
       summary="index of the largest; the lowest on ties"),
    Op("mask", ("x",), rules.same, scalars=("used",), along=along.last("x"), summary="-inf from index `used` on"),
)  # fmt: skip

table: dict[str, Op] = {row.name: row for row in _ROWS}

# Written as operators, not called.
OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "**": "pow", "@": "matmul"}
HIDDEN = frozenset({*OPERATORS.values(), "neg", "index"})


@cache
def _brought() -> Installed[Op]:
    found = installed(GROUP, Op, faults)
    return evolve(found, good={name: guarded(row) for name, row in found.good.items()})


def find(name: str) -> Op | None:
    """A row by name; installed packages are asked only for what is not built in."""
    return table.get(name) or _brought().good.get(name)


def fault(name: str) -> str | None:
    """Why an installed package's op cannot be used."""
    return _brought().bad.get(name)


def is_elementwise(name: str) -> bool:
    """Whether an op of this name makes each number of those in the same place."""
    row = find(name)
    return row is not None and row.elementwise


def is_computed(name: str) -> bool:
    """Whether there is a function that computes an op; of what another package brings, it is not loaded."""
    return name in table or name in points(REFERENCE)


def has_kernel(name: str) -> bool:
    """Whether a kernel has a function for an op; of what another package brings, it is not loaded."""
    return name in table or name in points(PALLAS) or (is_elementwise(name) and is_computed(name))


def known() -> tuple[str, ...]:
    """All names that a definition can call."""
    return tuple(sorted((set(table) | set(_brought().good)) - HIDDEN))
