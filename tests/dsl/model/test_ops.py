"""The op registry: signatures, shape rules and costs."""

import pytest
from attrs import evolve

from mks.dsl.model import ops
from mks.dsl.model.ir import Type
from mks.dsl.model.rules import Operands, RuleError, align
from mks.dsl.model.shapes import Poly

P = {
    name: Poly.of(name)
    for name in ("d", "out", "heads", "kv", "head", "key", "val", "rank", "common", "experts", "top")
}


def shape(text: str) -> Type:
    """`heads*head d` as a type of two axes; `int` is an integer."""
    if text == "int":
        return Type("int32")
    axes = []
    for word in text.split():
        axis = Poly.of(1)
        for factor in word.split("*"):
            total = Poly()
            for term in factor.split("+"):
                total = total + (Poly.of(int(term)) if term.isdigit() else P[term])
            axis = axis * total
        axes.append(axis)
    return Type("f32", tuple(axes))


def apply(name: str, *types: str, **scalars: tuple[Poly, ...]) -> tuple[Type, ...]:
    """The types that an op makes."""
    op = ops.find(name)
    assert op is not None
    return op.rule(Operands(dict(zip(op.parameters, map(shape, types), strict=True)), scalars))


@pytest.mark.parametrize(
    ("name", "types", "result"),
    [
        ("add", ("heads key", "heads"), "heads key"),
        ("mul", ("key", "heads key"), "heads key"),
        ("add", ("", "d"), "d"),
        ("matmul", ("out d", "d"), "out"),
        ("matmul", ("out d", "heads d"), "heads out"),
        ("index", ("experts out d", "int"), "out d"),
        ("flat", ("heads key",), "heads*key"),
        ("concat", ("d", "rank"), "d+rank"),
        ("rms_norm", ("heads head", "head"), "heads head"),
        ("rms_norm", ("heads head", ""), "heads head"),
        ("attend", ("heads head", "kv head", "kv val"), "heads val"),
        ("attend_latent", ("heads key+common", "rank", "common", "heads*key+val rank"), "heads val"),
        ("mix", ("top d", "d", "d"), "d"),
    ],
)
def test_rules_accept(name: str, types: tuple[str, ...], result: str) -> None:
    """Operands that fit give the shape that the mathematics gives."""
    assert apply(name, *types)[0].shape == shape(result).shape


@pytest.mark.parametrize(
    ("name", "types", "words"),
    [
        ("add", ("heads", "kv"), "do not align"),
        ("add", ("heads heads", "heads"), "do not align"),
        ("add", ("heads key", "key heads"), "do not align"),
        ("add", ("int", "d"), "must be a number"),
        ("matmul", ("out d", "out"), "does not take"),
        ("matmul", ("d", "d"), "must be a matrix"),
        ("index", ("experts d", "d"), "chosen by an integer"),
        ("rms_norm", ("heads head", "key"), "does not fit"),
        ("rms_norm", ("", ""), "scalar"),
        ("attend", ("heads head", "kv key", "kv val"), "different widths"),
        ("attend", ("heads head", "kv head", "heads val"), "different heads"),
        ("causal_conv", ("d", "d top", "top d"), "taps - 1"),
        ("mix", ("top d", "d", "rank"), "`folded`"),
        ("rope", ("d", "d"), "`position`"),
        ("argmax", ("heads key",), "must be a vector"),
    ],
)
def test_rules_refuse(name: str, types: tuple[str, ...], words: str) -> None:
    """Operands that do not fit are named, with why."""
    with pytest.raises(RuleError) as caught:
        apply(name, *types)
    assert words in caught.value.message
    assert caught.value.operands


def test_delta_rule_takes_both_decays() -> None:
    """A decay for each head, or for each head and channel; nothing else."""
    common = ("kv key", "kv key", "heads val")
    for decay in ("heads", "heads key"):
        assert apply("delta_rule", *common, decay, "heads", "heads key val")[0].shape == shape("heads val").shape
    for wrong in ("kv", "heads val", "key"):
        with pytest.raises(RuleError, match="decay"):
            apply("delta_rule", *common, wrong, "heads", "heads key val")
    with pytest.raises(RuleError, match="`S`"):
        apply("delta_rule", *common, "heads", "heads", "heads val key")


def test_heads_and_split_follow_names() -> None:
    """`heads` divides by name; `split` needs widths that add up."""
    assert apply("heads", "heads*head", n=(P["heads"],))[0].shape == shape("heads head").shape
    with pytest.raises(RuleError, match="does not fall into"):
        apply("heads", "heads*head", n=(P["kv"],))
    pieces = apply("split", "heads d+rank", width=(P["d"], P["rank"]))
    assert [t.shape for t in pieces] == [shape("heads d").shape, shape("heads rank").shape]
    with pytest.raises(RuleError, match="the pieces make"):
        apply("split", "heads d", width=(P["d"], P["rank"]))


def test_routes_carry_experts_and_count() -> None:
    """A route's type says among how many, and how many."""
    (found,) = apply("route", "experts", "experts", top=(P["top"],))
    assert found == Type("routes", (P["experts"], P["top"]))
    with pytest.raises(RuleError, match="`bias`"):
        apply("route", "experts", "d", top=(P["top"],))


def test_align_needs_one_way_only() -> None:
    """A shape with an axis twice cannot be aligned by name."""
    h, k = P["heads"], P["key"]
    assert align((h, k), (k,)) == (h, k)
    assert align((h, h), (h,)) is None
    assert align((h, k), (k, h)) is None


def test_products_cost_two_operations_a_weight() -> None:
    """Costs come from the same shapes as the rules."""
    op = ops.find("matmul")
    assert op is not None
    operands = Operands({"w": shape("out d"), "x": shape("heads d")})
    assert op.flops(evolve(operands, results=op.rule(operands))) == Poly.of(2) * P["out"] * P["d"] * P["heads"]


@pytest.mark.parametrize("op", ops.table.values(), ids=lambda op: op.name)
def test_every_row_is_whole(op: ops.Op) -> None:
    """Names that a row mentions are its parameters; every op says what it does."""
    assert op.matrix | op.updates | op.caches <= set(op.parameters)
    assert set(op.defaults) <= set(op.scalars)
    assert op.summary
    assert op.signature.startswith(f"{op.name}(")
