"""`store`: routed experts that kernels keep in another codec, without loss."""

from __future__ import annotations

from ..model import ir as m
from ..model.declarations import FIXED_GROUPS
from ..model.declarations import codec as resolve_codec
from ..model.scope import Scope, Stop, World
from ..text import syntax as s
from .context import Draft
from .ir import Store

_GROUP = FIXED_GROUPS["mxfp4"]


def store(item: s.Store, draft: Draft) -> list[Store]:
    """Experts' `mxfp4` matrices as e4m3 numbers in blocks of whole groups; whatever else could lose bits (E217)."""
    try:
        codec = resolve_codec(item.codec, Scope(World(draft.sink, frozenset()), None))
    except Stop:
        return []
    stored = []
    for name in item.weights:
        weight = draft.weight(name)
        if weight is None:
            continue
        declared = draft.model.weights[weight].codec
        if declared == codec:
            draft.sink.report(
                "E207", f"`{weight}` is {codec} already", name.span, notes=("a line without an effect is an error",)
            )
        elif (why := _why_not(weight, declared, codec, draft)) is not None:
            reason, helps = why
            draft.sink.report(
                "E217",
                f"`{weight}` cannot be kept as {codec}: {reason}",
                name.span,
                helps=helps,
                notes=(
                    f"experts that are mxfp4 can be fp8 in blocks of {_GROUP} inputs or a multiple: "
                    "that can be proven exact",
                ),
            )
        else:
            stored.append(Store(weight, codec, name.span))
    return stored


def _why_not(weight: str, declared: m.Codec, codec: m.Codec, draft: Draft) -> tuple[str, tuple[str, ...]] | None:
    """What stands against it, and what would do."""
    if not any(weight in weights for weights in draft.facts.experts.values()):
        return "it does not belong to routed experts", ()
    if declared.name != "mxfp4":
        return f"{declared} has more bits than that holds", ()
    if codec.name != "fp8":
        return "kernels have no other form of mxfp4 than fp8", ("write `as fp8 block 256`",)
    block = codec.group or 0
    if block % _GROUP:
        near = [size for size in (block // _GROUP * _GROUP, -(-block // _GROUP) * _GROUP) if size]
        return f"a block of {block} inputs cuts groups of {_GROUP}", tuple(f"write `as fp8 block {n}`" for n in near)
    return None
