"""Shape rules and costs of the ops: from the types of operands to those of results."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field

from ..records import frozen
from .ir import Type
from .shapes import Poly, Shape, product, show


class RuleError(Exception):
    """Operands do not fit an op; `operands` are the parameters at fault, by name."""

    def __init__(self, message: str, *operands: str, notes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message, self.operands, self.notes = message, operands, notes


@frozen
class Operands:
    """What a rule sees: types by parameter, axis lengths by scalar name (several where it repeats)."""

    types: Mapping[str, Type]
    scalars: Mapping[str, tuple[Poly, ...]] = field(factory=dict)
    results: tuple[Type, ...] = ()

    def shape(self, parameter: str) -> Shape:
        """An operand's shape."""
        return self.types[parameter].shape


def _f32(*axes: Poly) -> tuple[Type, ...]:
    return (Type("f32", axes),)


def _real(o: Operands, *parameters: str) -> None:
    for p in parameters:
        if o.types[p].dtype not in ("f32", "bf16"):
            raise RuleError(f"`{p}` must be a number, not {o.types[p].dtype}", p)


def _rank(o: Operands, parameter: str, rank: int, wanted: str) -> Shape:
    shape = o.shape(parameter)
    if len(shape) != rank:
        raise RuleError(f"`{parameter}` must be {wanted}, not {show(shape)}", parameter)
    return shape


def _equal(a: Poly, b: Poly, what: str, *parameters: str) -> None:
    if a != b:
        raise RuleError(f"{what}: {a} and {b}", *parameters)


def align(a: Shape, b: Shape) -> Shape | None:
    """The longer of two shapes where the other's axes stand in it, in order, each in only one way."""
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    if len(long) == len(short):
        return long if long == short else None
    positions = [[i for i, axis in enumerate(long) if axis == wanted] for wanted in short]
    if any(len(p) != 1 for p in positions):
        return None
    first = [p[0] for p in positions]
    return long if first == sorted(first) else None


def elementwise(o: Operands) -> tuple[Type, ...]:
    """Operands align by axis name."""
    _real(o, *o.types)
    (first, *others) = o.types
    shape = o.shape(first)
    for other in others:
        both = align(shape, o.shape(other))
        if both is None:
            notes = ("axes align by name: equal numbers under different names do not match",)
            raise RuleError(
                f"the axes {show(shape)} and {show(o.shape(other))} do not align", first, other, notes=notes
            )
        shape = both
    return _f32(*shape)


def same(o: Operands) -> tuple[Type, ...]:
    """One operand, its shape kept."""
    _real(o, "x")
    return _f32(*o.shape("x"))


kept = same


def rounded(o: Operands) -> tuple[Type, ...]:
    """As `same`, in the working type."""
    _real(o, "x")
    return (Type("bf16", o.shape("x")),)


def index(o: Operands) -> tuple[Type, ...]:
    """One row of a table."""
    if not o.shape("table"):
        raise RuleError("a scalar has no rows to choose from", "table")
    if o.types["i"].dtype != "int32" or o.shape("i"):
        raise RuleError(f"a row is chosen by an integer, not by {o.types['i']}", "i")
    return (Type(o.types["table"].dtype, o.shape("table")[1:]),)


def matmul(o: Operands) -> tuple[Type, ...]:
    """`[out, in] @ [..., in] -> [..., out]`."""
    _real(o, "w", "x")
    w = _rank(o, "w", 2, "a matrix [out, in]")
    x = o.shape("x")
    if not x or x[-1] != w[1]:
        got = show(x) if x else "a scalar"
        raise RuleError(
            f"the matrix {show(w)} does not take {got}",
            "w",
            "x",
            notes=(f"its second axis is {w[1]}; the vector's last axis must be the same",),
        )
    return _f32(*x[:-1], w[0])


def matmul_flops(o: Operands) -> Poly:
    """A multiplication and an addition for each weight and leading element."""
    return Poly.of(2) * product(o.shape("w")) * product(o.shape("x")[:-1])


def heads(o: Operands) -> tuple[Type, ...]:
    """The last axis in `n` equal pieces."""
    _real(o, "x")
    x, n = o.shape("x"), o.scalars["n"][0]
    width = x[-1].divided_by(n) if x else None
    if width is None:
        raise RuleError(
            f"{show(x)} does not fall into {n} heads", "x", notes=(f"the last axis must be a multiple of {n}, by name",)
        )
    return _f32(*x[:-1], n, width)


def flat(o: Operands) -> tuple[Type, ...]:
    """All axes merged."""
    _real(o, "x")
    return _f32(product(o.shape("x")))


def split(o: Operands) -> tuple[Type, ...]:
    """The last axis cut at the given widths."""
    _real(o, "x")
    x, widths = o.shape("x"), o.scalars["width"]
    total = sum(widths, Poly())
    if not x or x[-1] != total:
        raise RuleError(f"the pieces make {total}, but the value is {show(x)}", "x")
    return tuple(Type("f32", (*x[:-1], width)) for width in widths)


def concat(o: Operands) -> tuple[Type, ...]:
    """Joined along the last axis."""
    _real(o, "a", "b")
    a, b = o.shape("a"), o.shape("b")
    if not a or not b or a[:-1] != b[:-1]:
        raise RuleError(f"{show(a)} and {show(b)} cannot be joined along their last axis", "a", "b")
    return _f32(*a[:-1], a[-1] + b[-1])


def norm(o: Operands) -> tuple[Type, ...]:
    """`gain` is a vector along the last axis, or a number."""
    _real(o, "x", "gain")
    x, gain = o.shape("x"), o.shape("gain")
    if not x:
        raise RuleError("a scalar cannot be normalised", "x")
    if gain and gain != x[-1:]:
        raise RuleError(f"the gain {show(gain)} does not fit the last axis of {show(x)}", "gain", "x")
    return _f32(*x)


def rope(o: Operands) -> tuple[Type, ...]:
    """Shape kept."""
    _real(o, "x")
    if o.types["position"].dtype != "int32" or o.shape("position"):
        raise RuleError("`position` must be an integer", "position")
    if not o.shape("x"):
        raise RuleError("a scalar cannot be rotated", "x")
    return _f32(*o.shape("x"))


def causal_conv(o: Operands) -> tuple[Type, ...]:
    """`x [c]`, `taps [c, t]`, `state [t - 1, c]`."""
    x = _rank(o, "x", 1, "a vector [channels]")
    taps = _rank(o, "taps", 2, "a matrix [channels, taps]")
    state = _rank(o, "state", 2, "a state [taps - 1, channels]")
    _equal(x[0], taps[0], "the channels of `x` and `taps` differ", "x", "taps")
    _equal(state[1], x[0], "the channels of `state` and `x` differ", "state", "x")
    _equal(state[0], taps[1] - Poly.of(1), "the state must keep taps - 1 inputs", "state", "taps")
    return _f32(*x)


def conv_flops(o: Operands) -> Poly:
    """Two for each tap."""
    return Poly.of(2) * product(o.shape("taps"))


def delta_rule(o: Operands) -> tuple[Type, ...]:
    """`q, k [kh, key]`, `v [h, val]`, `decay [h]` or `[h, key]`, `rate [h]`, `S [h, key, val]`."""
    q, k = (_rank(o, p, 2, "[heads, key]") for p in "qk")
    v, state = _rank(o, "v", 2, "[heads, value]"), _rank(o, "S", 3, "a state [heads, key, value]")
    if q != k:
        raise RuleError(f"`q` {show(q)} and `k` {show(k)} differ", "q", "k")
    if state != (v[0], k[1], v[1]):
        raise RuleError(f"`S` is {show(state)}; `v` and `k` need {show((v[0], k[1], v[1]))}", "S", "v", "k")
    if o.shape("decay") not in ((v[0],), (v[0], k[1])):
        both = f"{show(v[:1])} or {show((v[0], k[1]))}"
        raise RuleError(f"`decay` is {show(o.shape('decay'))}; it must be {both}", "decay")
    if o.shape("rate") != v[:1]:
        raise RuleError(f"`rate` is {show(o.shape('rate'))}; it must be {show(v[:1])}", "rate")
    return _f32(*v)


def delta_flops(o: Operands) -> Poly:
    """Decay, prediction, update and read-out of the state."""
    return Poly.of(7) * product(o.shape("S"))


def attend(o: Operands) -> tuple[Type, ...]:
    """`q [heads, w]`, `keys [kv, w]`, `values [kv, v]` each position."""
    q = _rank(o, "q", 2, "[heads, width]")
    keys, values = _rank(o, "keys", 2, "a cache [kv heads, width]"), _rank(o, "values", 2, "a cache [kv heads, width]")
    _equal(q[1], keys[1], "queries and keys have different widths", "q", "keys")
    _equal(keys[0], values[0], "keys and values have different heads", "keys", "values")
    return _f32(q[0], values[1])


def attend_latent(o: Operands) -> tuple[Type, ...]:
    """`q [h, nope + common]`, `latent [r]`, `common [common]`, `kv_b [h * (nope + v), r]`."""
    q, latent = _rank(o, "q", 2, "[heads, width]"), _rank(o, "latent", 1, "a cache [rank]")
    common = _rank(o, "common", 1, "a cache [width]")
    kv_b = _rank(o, "kv_b", 2, "a matrix [heads * (key + value), rank]")
    _equal(kv_b[1], latent[0], "`kv_b` does not read the latent", "kv_b", "latent")
    both = kv_b[0].divided_by(q[0])
    if both is None:
        raise RuleError(f"`kv_b` {show(kv_b)} does not fall into {q[0]} heads", "kv_b", "q")
    value = both - (q[1] - common[0])
    if len(value.terms) != 1 or value.terms[0][1] < 0:
        raise RuleError(
            f"a head of `kv_b` has {both} rows; its key part {q[1] - common[0]} must be among them",
            "kv_b",
            "q",
            "common",
        )
    return _f32(q[0], value)


def latent_flops(o: Operands) -> Poly:
    """Absorbing the two halves of `kv_b`."""
    return Poly.of(2) * product(o.shape("kv_b"))


def attend_block(o: Operands) -> tuple[Type, ...]:
    """As `attend`, with the block's own `k [kv, w]`, `v [kv, v]`."""
    k, v = _rank(o, "k", 2, "[kv heads, width]"), _rank(o, "v", 2, "[kv heads, width]")
    if o.shape("keys") != k:
        raise RuleError(f"`k` is {show(k)}, the cache `keys` {show(o.shape('keys'))}", "k", "keys")
    if o.shape("values") != v:
        raise RuleError(f"`v` is {show(v)}, the cache `values` {show(o.shape('values'))}", "v", "values")
    return attend(o)


def route(o: Operands) -> tuple[Type, ...]:
    """`score` and `bias` are `[experts]`; the routes are `[experts, top]`."""
    score = _rank(o, "score", 1, "a vector [experts]")
    if o.shape("bias") not in ((), score):
        raise RuleError(f"`bias` is {show(o.shape('bias'))}, `score` {show(score)}", "bias", "score")
    return (Type("routes", (score[0], o.scalars["top"][0])),)


def mix(o: Operands) -> tuple[Type, ...]:
    """`banks [n, d]`, `x [d]`, `folded [d]`."""
    banks, x = _rank(o, "banks", 2, "a buffer [n, width]"), _rank(o, "x", 1, "a vector [width]")
    _equal(banks[1], x[0], "banks and `x` have different widths", "banks", "x")
    if o.shape("folded") != x:
        raise RuleError(f"`folded` is {show(o.shape('folded'))}, `x` {show(x)}", "folded", "x")
    return _f32(*x)


def mix_flops(o: Operands) -> Poly:
    """Score, norm and sum, for each bank and `x`."""
    return Poly.of(6) * (product(o.shape("banks")) + product(o.shape("x")))


def argmax(o: Operands) -> tuple[Type, ...]:
    """An index along the only axis."""
    _real(o, "x")
    _rank(o, "x", 1, "a vector")
    return (Type("int32"),)
