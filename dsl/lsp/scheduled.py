"""The names in a schedule."""

from __future__ import annotations

from collections.abc import Iterator

from ..source import Span
from ..text import syntax as s
from .names import Key, Mention, ModelNames, words


def mentions(schedule: s.Schedule, names: ModelNames) -> list[Mention]:
    """Sizes, axes, parts, weights, states and values that it speaks of."""
    axes = f"{schedule.model.text}.{schedule.name.text}"
    result: list[Mention] = []
    for item in schedule.items:
        match item:
            case s.Mesh():
                result += [
                    Mention(a.name.span, Key(axes, "axis", a.name.text), True, "", item.span.end) for a in item.axes
                ]
            case s.Shard():
                result += _axes(item.axes, axes)
                for each in item.items:
                    key = names.look_up(each.size.text, "")
                    result += [Mention(each.size.span, key)] if key is not None else []
            case s.Split():
                result += _axes(item.axes, axes)
                result += _all(item.weights, names)
            case s.Stream():
                result.append(Mention(item.name.span, Key(axes, "stream", item.name.text), True, "", item.span.end))
                for line in item.items:
                    if isinstance(line, s.StreamLine):
                        result += _scope_mention(line.part.span, line.part.text, names)
                        weights = (name for group in line.groups for name in group.weights)
                        result += [m for name in weights for m in _in(name, line.part.text, names)]
            case s.Fetch() | s.Form():
                result += _dotted(item.what, names)
            case s.Prefetch():
                result += _dotted(item.what, names)
                result += _all(tuple(point.name for point in item.points), names)
            case s.Gather() | s.Reduce():
                result += _all(item.values, names)
            case s.Overlap():
                result += _all(item.values, names)
                result += [m for group in item.groups for m in _all(group.weights, names)]
            case s.Store():
                result += _all(item.weights, names)
    return result


def _axes(given: tuple[s.Name, ...], schedule: str) -> Iterator[Mention]:
    return (Mention(name.span, Key(schedule, "axis", name.text)) for name in given)


def _all(given: tuple[s.Name, ...], names: ModelNames) -> list[Mention]:
    return [m for name in given for m in _dotted(name, names)]


def _scope_mention(span: Span, name: str, names: ModelNames) -> list[Mention]:
    if name in names.parts:
        return [Mention(span, Key(names.model, "part", name))]
    return [Mention(span, Key(names.model, "step", name))] if name in names.steps else []


def _in(name: s.Name, scope: str, names: ModelNames) -> list[Mention]:
    """A weight as a stream's line names it."""
    key = names.scheduled(scope, name.text)
    if key is None or len(name.parts) > 1:
        return _dotted(name, names)
    return [Mention(name.span, key, owner=scope)]


def _dotted(name: s.Name, names: ModelNames) -> list[Mention]:
    """`attention.wq`, `moe.y`, `mla.cache`, `mlp`, `out`."""
    pieces, parts = words(name), name.parts
    on_scope = _scope_mention(pieces[0], parts[0], names)
    if len(pieces) == 1:
        key = names.look_up(parts[0], "")
        return on_scope or ([Mention(pieces[0], key)] if key is not None else [])
    key = names.scheduled(parts[0], ".".join(parts[1:]))
    return [*on_scope, Mention(pieces[-1], key, owner=parts[0])] if key is not None else on_scope
