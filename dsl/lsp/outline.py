"""What a file holds, as a tree for an editor's outline."""

from __future__ import annotations

from ..records import frozen
from ..source import Span
from ..text import syntax as s


@frozen
class Symbol:
    """A thing with a name: all of it, its name, and what it holds. `kind` is the word that declares it."""

    kind: str
    name: str
    span: Span
    selection: Span
    children: tuple[Symbol, ...] = ()


def outline(file: s.File) -> list[Symbol]:
    """Models with their parts, sizes, weights and states; schedules with their streams."""
    symbols = []
    for item in file.items:
        match item:
            case s.Model():
                inside = tuple(symbol for each in item.items for symbol in _of_model(each))
                symbols.append(Symbol("model", item.name.text, item.span, item.name.span, inside))
            case s.Schedule():
                streams = tuple(_named("stream", x.name, x.span) for x in item.items if isinstance(x, s.Stream))
                name = f"{item.name.text} for {item.model.text}"
                symbols.append(Symbol("schedule", name, item.span, item.name.span, streams))
            case s.Speculate():
                symbols.append(_named("speculate", item.name, item.span))
    return symbols


def _of_model(item: object) -> list[Symbol]:
    match item:
        case s.Size() | s.ListDecl() | s.Taps() | s.Function():
            kinds = {s.ListDecl: "list", s.Taps: "taps", s.Function: "function"}
            return [_named(item.kind if isinstance(item, s.Size) else kinds[type(item)], item.name, item.span)]
        case s.Weights() | s.States():
            kind = "weight" if isinstance(item, s.Weights) else item.kind
            return [_named(kind, name, name.span) for each in item.declarations for name in each.names]
        case s.Part():
            inside = tuple(symbol for each in item.items for symbol in _of_model(each))
            return [Symbol("part", item.name.text, item.span, item.name.span, inside)]
        case s.Step():
            return [Symbol("step", "step" if item.name is None else item.name.text, item.span, item.head)]
    return []


def _named(kind: str, name: s.Name, span: Span) -> Symbol:
    return Symbol(kind, name.text, span, name.span)
