"""The op registry: one row an op, with its signature, shape rule and cost. A backend has one file for each name.

An installed package adds rows through the entry-point group `mks.ops` (value: an `Op`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from attrs import field

from ..records import frozen
from . import along, rules
from .along import Along
from .ir import Type
from .rules import Operands, RuleError
from .shapes import Poly, product

__all__ = ["Op", "Operands", "RuleError", "find", "known", "table"]

type Rule = Callable[[Operands], tuple[Type, ...]]
type Count = Callable[[Operands], Poly]


def _elements(each: int) -> Count:
    return lambda o: Poly.of(each) * product(o.results[0].shape)


def _nothing(o: Operands) -> Poly:
    return Poly()


@frozen
class Op:
    """A row of the registry.

    `parameters` are values, in order; `scalars` are known before the model runs and follow the values, by position or
    name; those in `defaults` may be left out. `repeats` lets the last of them be given several times.
    `matrix` names the parameters rounded to the working type on entry; `updates` those that are states the op writes
    (once a pass); `caches` those read up to the current position. `sequential` ops run row after row in a span.
    `along` gives the axes that the op reads along, which must be whole on each core: all, unless it says which.
    `flops` counts for one token, without what depends on the position.
    """

    name: str
    parameters: tuple[str, ...]
    rule: Rule
    scalars: tuple[str, ...] = ()
    defaults: Mapping[str, float | None] = field(factory=dict)
    repeats: bool = False
    matrix: frozenset[str] = frozenset()
    updates: frozenset[str] = frozenset()
    caches: frozenset[str] = frozenset()
    sequential: bool = False
    along: Along = along.everything
    flops: Count = _nothing
    summary: str = ""

    @property
    def signature(self) -> str:
        """As people write it: `rms_norm(x, gain, eps)`."""
        parameters = list(self.parameters) + [
            f"{s} = {self.defaults[s]}" if self.defaults.get(s) is not None else s for s in self.scalars
        ]
        return f"{self.name}({', '.join(parameters)}{', …' if self.repeats else ''})"


def _unary(name: str, cost: int, summary: str) -> Op:
    return Op(name, ("x",), rules.same, along=along.nothing, flops=_elements(cost), summary=summary)


def _binary(name: str, summary: str) -> Op:
    return Op(name, ("a", "b"), rules.elementwise, along=along.nothing, flops=_elements(1), summary=summary)


_ROWS = (
    _binary("add", "a + b"),
    _binary("sub", "a - b"),
    _binary("mul", "a * b"),
    _binary("div", "a / b"),
    _binary("pow", "a ** b"),
    _binary("max", "the larger of two, elementwise"),
    _binary("min", "the smaller of two, elementwise"),
    _unary("neg", 1, "-x"),
    _unary("exp", 1, "e to the x"),
    _unary("tanh", 1, "hyperbolic tangent"),
    _unary("sigmoid", 3, "1 / (1 + exp(-x))"),
    _unary("silu", 4, "x * sigmoid(x)"),
    _unary("softplus", 3, "log(1 + exp(x))"),
    _unary("sqrt", 1, "square root"),
    Op("softmax", ("x",), rules.same, along=along.last("x"), flops=_elements(4),
       summary="exp(x) over its sum, along the last axis"),
    Op("f32", ("x",), rules.kept, along=along.nothing, summary="names its value without rounding"),
    Op("bf16", ("x",), rules.rounded, along=along.nothing, summary="rounds to the working type"),
    Op("index", ("table", "i"), rules.index, summary="table[i]"),
    Op("matmul", ("w", "x"), rules.matmul, matrix=frozenset({"w", "x"}), along=along.last("x"),
       flops=rules.matmul_flops, summary="w @ x"),
    Op("heads", ("x",), rules.heads, scalars=("n",), along=along.heads, summary="[n * w] to [n, w]"),
    Op("flat", ("x",), rules.flat, along=along.but_first("x"), summary="all axes as one"),
    Op("split", ("x",), rules.split, scalars=("width",), repeats=True, along=along.last("x"),
       summary="pieces of the last axis"),
    Op("concat", ("a", "b"), rules.concat, along=along.last("a", "b"),
       summary="two values joined along the last axis"),
    Op("rms_norm", ("x", "gain"), rules.norm, scalars=("eps",), along=along.last("x"), flops=_elements(4),
       summary="x / sqrt(mean(x * x) + eps) * gain, along the last axis"),
    Op("l2_norm", ("x",), rules.same, scalars=("eps",), along=along.last("x"), flops=_elements(3),
       summary="x / sqrt(sum(x * x) + eps), along the last axis"),
    Op("rope", ("x", "position"), rules.rope, scalars=("theta", "width", "pairs", "scaling"),
       defaults={"width": None, "pairs": 0, "scaling": 1}, along=along.last("x"), flops=_elements(6),
       summary="rotates the first `width` channels, halves against each other (pairs = 1: neighbours)"),
    Op("causal_conv", ("x", "taps", "state"), rules.causal_conv, updates=frozenset({"state"}), sequential=True,
       along=along.last("taps"), flops=rules.conv_flops, summary="depthwise convolution over the last inputs"),
    Op("delta_rule", ("q", "k", "v", "decay", "rate", "S"), rules.delta_rule, matrix=frozenset({"q", "k", "v"}),
       updates=frozenset({"S"}), sequential=True, along=along.last("q", "k"), flops=rules.delta_flops,
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
def _installed() -> tuple[Mapping[str, Op], Mapping[str, str]]:
    """What other packages bring, and what is wrong with those that fail."""
    from importlib.metadata import entry_points

    good: dict[str, Op] = {}
    bad: dict[str, str] = {}
    for point in entry_points(group="mks.ops"):
        try:
            row = point.load()
        except Exception as e:  # a package that is not ours: whatever it raises is its fault, and is said
            bad[point.name] = f"`{point.value}` fails: {type(e).__name__}: {e}"
            continue
        if isinstance(row, Op):
            good[point.name] = row
        else:
            bad[point.name] = f"`{point.value}` is no `Op`, but {type(row).__name__}"
    return good, bad


def find(name: str) -> Op | None:
    """A row by name; installed packages are asked only for what is not built in."""
    return table.get(name) or _installed()[0].get(name)


def fault(name: str) -> str | None:
    """Why an installed package's op cannot be used."""
    return _installed()[1].get(name)


def known() -> tuple[str, ...]:
    """All names that a definition can call."""
    return tuple(sorted((set(table) | set(_installed()[0])) - HIDDEN))
