"""Collectives and numerics statements of a schedule: gather, reduce, overlap and form."""

from __future__ import annotations

from ..collectives import kinds
from ..collectives.collective import CollectiveKind, Operation, Wire
from ..diagnostics import Label
from ..model import ir as m
from ..model.expressions import walk
from ..text import syntax as s
from .context import Draft
from .ir import Form, Gather, Group, Overlap, Reduce
from .options import options, word

WIRES = (Wire.BF16, Wire.F32)


def gather(item: s.Gather, draft: Draft) -> Gather | None:
    """Each value must be made of shares."""
    values = tuple(v for v in (draft.value(n) for n in item.values) if v is not None)
    if len(values) == len(item.values) and len(set(values)) < len(values):
        draft.sink.report("E202", "a value is named twice", item.span)
    for name in item.values:
        if name.text in values and not _is_shared(name.text, draft):
            draft.sink.report("E207", f"`{name.text}` is whole on every core: there is nothing to gather", name.span)
    return Gather(values, item.span) if values else None


def _is_shared(value: str, draft: Draft) -> bool:
    """Whether rows of a value are made on different cores and must come together where it is named."""
    return any(p.weight in draft.splits for p in draft.facts.products if value in p.values)


def _partial(value: str, reduces: list[Reduce], draft: Draft) -> bool:
    """Whether a product that sums over a sharded axis, or over a value left scattered, or experts, ends in a value."""
    scattered = {r.value for r in reduces if r.by.operation is Operation.REDUCE_SCATTER}
    for p in draft.facts.products:
        if value in p.values:
            axis = draft.model.weights[p.weight].shape[-1]
            reads = {f"{p.scope}.{n.name}" for n in walk(p.operand) if isinstance(n, m.Local)}
            if p.in_experts or reads & scattered or any(a.name in draft.shards for a in axis.atoms):
                return True
    return False


def reduce(item: s.Reduce, draft: Draft) -> list[Reduce]:
    """Each value, or a product inside the experts' body; `no_sums` says which are no partial sums."""
    given = options(item.options, ("by", "wire"), draft)
    by = _way(given.get("by"), draft)
    wire = Wire(word(given.get("wire"), WIRES, kinds.UNSAID[1], draft))
    reduces = []
    for name in item.values:
        if any(p.in_experts and p.weight == name.text for p in draft.facts.products):
            reduces.append(Reduce(name.text, by, wire, name.span))
            continue
        value = draft.value(name)
        if value is not None:
            reduces.append(Reduce(value, by, wire, name.span))
    return reduces


def _way(option: s.Option | None, draft: Draft) -> CollectiveKind:
    """How the sums are completed; packages are asked only for what is not built in."""
    text = option.value.text if option is not None and isinstance(option.value, s.Words) else ""
    said = kinds.way(text)
    if option is not None and said is None:
        fault = kinds.fault(text)
        word(option, kinds.ways(), "", draft, () if fault is None else (fault,))
    return said or kinds.UNSAID[0]


def no_sums(reduces: list[Reduce], draft: Draft) -> None:
    """Each value that is reduced must be a partial sum, the first of its statement; other lines may say which are."""
    inside = {p.weight for p in draft.facts.products if p.in_experts}
    for line in reduces:
        if line.value not in inside and not _partial(line.value, reduces, draft):
            draft.sink.report(
                "E207",
                f"`{line.value}` is not a partial sum: there is nothing to reduce",
                line.span,
                notes=("a product over a sharded axis leaves a partial sum on each core",),
            )
        firsts = [p.values[0] for p in draft.facts.products if line.value in p.values]
        if firsts and line.value not in firsts:
            draft.sink.report(
                "E207",
                f"`{line.value}` is the same sum as `{firsts[0]}`, the name that schedules use",
                line.span,
                helps=(f"write `reduce {firsts[0]}`",),
            )


def overlap(item: s.Overlap, gathers: list[Gather], reduces: list[Reduce], draft: Draft) -> Overlap | None:
    """The products must not depend on what they overlap."""
    values = tuple(v for v in (draft.value(n) for n in item.values) if v is not None)
    sent = {v for g in gathers for v in g.values} if item.verb == "gather" else {r.value for r in reduces}
    for name in item.values:
        if name.text in values and name.text not in sent:
            derived = _is_shared(name.text, draft) if item.verb == "gather" else _partial(name.text, reduces, draft)
            if not derived:
                draft.sink.report("E207", f"there is no {item.verb} of `{name.text}` to overlap", name.span)
    groups = tuple(g for g in (_overlapped(g, draft) for g in item.groups) if g is not None)
    for group in groups:
        for weight in group.weights:
            for p in draft.facts.products_of(weight):
                if any(_depends(p.operand, v, draft) for v in values if v.split(".")[0] == p.scope):
                    draft.sink.report(
                        "E211",
                        f"the product with `{weight}` depends on what it should overlap",
                        group.span,
                        others=(Label(p.operand.span, "its operand"),),
                    )
    if not values or not groups:
        return None
    if item.verb == "reduce":
        draft.sink.report(
            "E207",
            "kernels put no product under a sum",
            item.span,
            notes=("a line that changes nothing is an error", "products are put under what cores gather"),
            helps=("take the line away",),
        )
        return None
    return Overlap(item.verb, values, groups, item.span)


def _overlapped(item: s.Group, draft: Draft) -> Group | None:
    names = [w for w in (draft.weight(n) for n in item.weights) if w is not None]
    for name, weight in zip(item.weights, names, strict=False):
        if not draft.facts.products_of(weight):
            draft.sink.report("E208", f"there is no product with `{weight}`", name.span)
    return Group(tuple(names), item.span) if names else None


def _depends(operand: m.Node, value: str, draft: Draft) -> bool:
    """Whether an operand is made from a value of the same part."""
    scope, name = value.split(".", 1)
    pending, seen = [operand], set()
    while pending:
        for node in walk(pending.pop()):
            if isinstance(node, m.Local) and node.name not in seen:
                if node.name == name:
                    return True
                seen.add(node.name)
                if node.name not in _carried(draft):
                    pending.extend(draft.facts.values.get(f"{scope}.{node.name}", ()))
    return False


def _carried(draft: Draft) -> set[str]:
    return {name for step in draft.model.steps.values() for name in step.types}


def form(item: s.Form, draft: Draft) -> Form | None:
    """Only a latent cache has two forms."""
    part, _, what = item.what.text.partition(".")
    latent = part in draft.model.parts and draft.facts.latent_attention(part)
    if what != "cache" or not latent:
        draft.sink.report(
            "E204",
            f"`{item.what.text}` has only one form",
            item.what.span,
            notes=("`P.cache` of a part with `attend_latent` is `latent` or `expanded`",),
        )
        return None
    if item.value.text not in ("latent", "expanded"):
        draft.sink.report("E206", "the form of a latent cache is `latent` or `expanded`", item.value.span)
        return None
    if item.value.text == "latent":
        draft.sink.report(
            "E207", "`latent` is the form already", item.value.span, notes=("a line without an effect is an error",)
        )
    return Form(part, item.value.text, item.span)
