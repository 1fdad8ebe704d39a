"""Declarations of a model: sizes, lists, weights and states."""

from __future__ import annotations

import re

from attrs import evolve

from ..diagnostics import Label, did_you_mean
from ..text import syntax as s
from . import ir as m
from .expressions import static
from .ir import Type
from .scope import Scope, Stop, World
from .shapes import Shape, show
from .static import names, polynomial

# Plain dtypes, and codecs with their group where it is fixed.
PLAIN = ("bf16", "f32")
FIXED_GROUPS = {"mxfp4": 32, "nvfp4": 16}
_GROUPED = {"int4": "group", "fp8": "block", "int8": "by column"}


def size(declared: s.Size, world: World) -> None:
    """`size` or `const`."""
    if world.declare(declared.name, declared.kind):
        keys = tuple(k.text for k in declared.keys)
        name = declared.name.text
        world.sizes[name] = m.Size(name, declared.kind, declared.value, keys, declared.span)


def layer_list(declared: s.ListDecl, world: World) -> None:
    """`list`."""
    if world.declare(declared.name, "list"):
        keys = tuple(k.text for k in declared.keys)
        where = None if declared.where is None else declared.where.value
        name = declared.name.text
        world.lists[name] = m.LayerList(name, declared.items, keys, where, declared.span)


def parameters(function: s.Function, world: World) -> None:
    """A function's parameters, each once."""
    first: dict[str, s.Name] = {}
    for name in function.parameters:
        if name.text in first:
            world.sink.report(
                "E102",
                f"parameter `{name.text}` is named twice",
                name.span,
                others=(Label(first[name.text].span, "first here"),),
            )
        first.setdefault(name.text, name)


def check_values(world: World) -> None:
    """Names that sizes, constants and lists read exist, once all are declared."""
    known = {*world.sizes, *world.lists, "true", "false"}
    exprs = [size.default for size in world.sizes.values()]
    exprs += [item for listed in world.lists.values() for item in listed.items]
    for expr in exprs:
        for name in names(expr):
            if name.text not in known and name.text not in world.damaged:
                world.sink.report(
                    "E101", f"unknown size `{name.text}`", name.span, helps=did_you_mean(name.text, known)
                )
            world.used.add(name.text)


def ignores(model: s.Model, world: World) -> tuple[m.Ignore, ...]:
    """The patterns of all `ignore` lines, whose `{words}` are sizes or constants."""
    patterns = [
        m.Ignore(text.value, text.span) for item in model.items if isinstance(item, s.Ignore) for text in item.patterns
    ]
    for ignore in patterns:
        for word in re.findall(r"\{([^{}]*)\}", ignore.pattern):
            if word not in world.sizes and word not in world.damaged:
                world.sink.report(
                    "E121",
                    f"`{{{word}}}` is not a known placeholder",
                    ignore.span,
                    notes=("a placeholder is the name of a size or constant; `*` matches any text",),
                    helps=did_you_mean(word, world.sizes),
                )
    return tuple(patterns)


def _shape(axes: tuple[s.Expr, ...], scope: Scope) -> Shape:
    shape = []
    for axis in axes:
        length = static(axis, scope, "an axis")
        if length.depends:
            raise scope.report("E110", "an axis cannot depend on the layer", axis.span)
        shape.append(polynomial(axis))
    return tuple(shape)


def codec(declared: s.Codec, scope: Scope) -> m.Codec:
    """A known codec, with its group."""
    name, how = declared.name.text, declared.grouping
    if name in PLAIN or name in FIXED_GROUPS:
        if how is None:
            return m.Codec(name, FIXED_GROUPS.get(name))
        raise scope.report("E117", f"`{name}` has no `{how}`", declared.span)
    if name in _GROUPED:
        if how == _GROUPED[name] and declared.size != 0:
            return m.Codec(name, declared.size or 0)
        example = {"int4": "int4 group 128", "fp8": "fp8 block 256", "int8": "int8 by column"}[name]
        raise scope.report("E117", f"`{name}` needs its grouping", declared.span, helps=(f"write `{example}`",))
    raise scope.report(
        "E117",
        f"unknown type `{name}`",
        declared.name.span,
        helps=did_you_mean(name, (*PLAIN, *FIXED_GROUPS, *_GROUPED)),
    )


def weights(block: s.Weights, scope: Scope) -> None:
    """A block of weights; prefixes and `{name}` are filled in."""
    prefix = "" if block.prefix is None else block.prefix.value
    for declared in block.declarations:
        fresh = [n for n in declared.names if scope.world.declare(n, "weight", scope.part)]
        try:
            kind, shape = codec(declared.codec, scope), _shape(declared.shape, scope)
        except Stop:
            scope.world.damaged |= {n.text for n in declared.names}
            continue
        for name in fresh:
            tensors = tuple(_tensor(p, prefix, name, shape, scope) for p in declared.tensors)
            qualified = _qualified(name, scope)
            valid = tuple(p for p in tensors if p is not None)
            scope.world.weights[qualified] = m.Weight(qualified, scope.part, kind, shape, valid, name.span)


def _qualified(name: s.Name, scope: Scope) -> str:
    return name.text if scope.part is None else f"{scope.part}.{name.text}"


def _tensor(
    declared: s.CheckpointTensor, prefix: str, name: s.Name, shape: Shape, scope: Scope
) -> m.CheckpointTensor | m.Alias | None:
    if isinstance(declared.target, s.Name):
        return m.Alias(declared.target.text, declared.span)
    axes = {str(axis) for axis in shape}

    def full(text: s.String | None) -> str | None:
        if text is None:
            return None
        filled = (prefix + text.value).replace("{name}", name.text)
        for word in re.findall(r"\{([^{}]*)\}", filled):
            if word == "layer" and scope.part is not None:
                continue
            if word not in axes:
                known = sorted(axes | {"name"} | ({"layer"} if scope.part else set()))
                scope.report(
                    "E121",
                    f"`{{{word}}}` is not a known placeholder",
                    text.span,
                    notes=(f"known: {', '.join(f'{{{k}}}' for k in known)}",),
                    helps=did_you_mean(word, known),
                )
        if scope.part is not None and "{layer}" not in filled:
            scope.report(
                "E121",
                f"all layers would read the same tensor `{filled}`",
                text.span,
                helps=("put `{layer}` in the name or in the block's prefix",),
            )
        return filled

    rows = None
    if declared.rows is not None:
        try:
            rows = static(declared.rows, scope, "the first row")
        except Stop:
            return None
    tensor = full(declared.target)
    assert tensor is not None
    return m.CheckpointTensor(
        tensor, rows, full(declared.scale), full(declared.global_scale), declared.rounded, declared.span
    )


def check_aliases(world: World) -> None:
    """A weight used in place of another exists and has its shape."""
    for weight in world.weights.values():
        for alias in weight.tensors:
            if not isinstance(alias, m.Alias):
                continue
            other = world.weights.get(alias.weight)
            if other is None:
                if alias.weight not in world.damaged:
                    world.sink.report(
                        "E101",
                        f"unknown weight `{alias.weight}`",
                        alias.span,
                        helps=did_you_mean(alias.weight, world.weights),
                    )
            elif other.shape != weight.shape or other.codec != weight.codec:
                parties = tuple(Label(w.span, f"{w.codec}{show(w.shape)}") for w in (other, weight))
                world.sink.report(
                    "E107",
                    f"`{other.name}` cannot replace `{weight.name}`: their types differ",
                    alias.span,
                    others=parties,
                )
        if weight.tensors and not _has_tensor(weight, world, set()):
            world.sink.report("E121", f"`{weight.name}` is an alias of itself and has no tensor", weight.span)
        if not weight.tensors:
            world.sink.report("E121", f"`{weight.name}` has no name in a checkpoint", weight.span)


def _has_tensor(weight: m.Weight, world: World, seen: set[str]) -> bool:
    """Whether one of a weight's places, or of those that it stands for, is a tensor (or in doubt)."""
    if weight.name in seen:
        return False
    seen.add(weight.name)
    others = [world.weights.get(p.weight) for p in weight.tensors if isinstance(p, m.Alias)]
    return (
        len(others) < len(weight.tensors)
        or None in others
        or any(_has_tensor(other, world, seen) for other in others if other is not None)
    )


def states(block: s.States, scope: Scope) -> None:
    """A block of states, caches or buffers."""
    last = None
    if block.last is not None:
        inner = evolve(scope, inputs=scope.inputs | {"layer"}) if scope.part else scope
        try:
            last = static(block.last, inner, "the length of a cache")
        except Stop:
            return
    for declared in block.declarations:
        fresh = [n for n in declared.names if scope.world.declare(n, block.kind, scope.part)]
        try:
            kind, shape = codec(declared.codec, scope), _shape(declared.shape, scope)
            if kind.name not in PLAIN:
                raise scope.report("E117", f"a {block.kind} is bf16 or f32, not {kind}", declared.codec.span)
        except Stop:
            scope.world.damaged |= {n.text for n in declared.names}
            continue
        for name in fresh:
            qualified = _qualified(name, scope)
            type_ = Type(kind.name, shape)
            scope.world.states[qualified] = m.State(qualified, scope.part, block.kind, type_, last, name.span)


def unused(world: World) -> None:
    """Warn of weights and states that nothing reads."""
    aliases = {p.weight for w in world.weights.values() for p in w.tensors if isinstance(p, m.Alias)}
    stored: dict[str, m.Weight | m.State] = {**world.weights, **world.states}
    for name, declared in stored.items():
        if name not in world.used and name not in aliases:
            what = "weight" if isinstance(declared, m.Weight) else declared.kind
            world.sink.report("W101", f"the {what} `{name}` is never used", declared.span)
