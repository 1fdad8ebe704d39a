"""Which names stand where in a file, and what each of them is: by the tree alone, so that half a text has some too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import define, field

from ..records import frozen
from ..source import Source, Span
from ..text import syntax as s
from .names import Key, Mention, ModelNames, words
from .scheduled import mentions


@frozen
class MentionIndex:
    """All mentions of some files."""

    mentions: tuple[Mention, ...]
    models: dict[str, ModelNames]

    def at(self, source: Source, offset: int) -> Mention | None:
        """The name that a character belongs to, or the one that ends there."""
        near = [m for m in self.mentions if m.span.source is source and m.span.start <= offset <= m.span.end]
        return min(near, key=lambda m: (m.span.end == offset, m.span.end - m.span.start), default=None)

    def declarations(self, mention: Mention) -> tuple[Mention, ...]:
        """Where a name is declared: of a value that is set again and again, the last time before."""
        declaring = [m for m in self.mentions if m.declares and m.key == mention.key]
        if mention.key.kind != "value":
            return tuple(declaring)
        own = [m for m in declaring if m.owner == mention.owner]
        same = mention.span.source
        start = 0 if mention.declares else mention.span.start
        before = [m for m in own if m.until <= start or (start and m.span.source is not same)]
        names = self.models.get(mention.key.model)
        first = [m for m in declaring if names is not None and m.owner in names.steps]
        return tuple(before[-1:] or first[:1] or own[:1] or declaring[:1])

    def references(self, mention: Mention) -> tuple[Mention, ...]:
        """Every mention of the same thing."""
        return tuple(m for m in self.mentions if m.key == mention.key)


def index_mentions(files: Sequence[s.File]) -> MentionIndex:
    """The mentions in all files, used ones first."""
    models = {item.name.text: ModelNames.of(item) for file in files for item in file.items if isinstance(item, s.Model)}
    finder = _Finder(models)
    for file in files:
        for item in file.items:
            finder.top(item)
    return MentionIndex(tuple(dict.fromkeys(finder.mentions)), models)


@define
class _Finder:
    models: dict[str, ModelNames]
    mentions: list[Mention] = field(factory=list)

    def note(self, span: Span, key: Key | None, owner: str = "", until: int | None = None) -> None:
        """Add one; those with `until` declare."""
        if key is not None:
            self.mentions.append(Mention(span, key, until is not None, owner, until or 0))

    def top(self, item: s.TopLevel) -> None:
        match item:
            case s.Use():
                self.note(item.path.span, Key("", "file", item.path.value))
            case s.Model():
                self.note(item.name.span, Key("", "model", item.name.text), until=item.span.end)
                _ModelFinder(self, self.models[item.name.text]).model(item)
            case s.Schedule():
                self.note(item.name.span, Key(item.model.text, "schedule", item.name.text), until=item.span.end)
                self.note(item.model.span, Key("", "model", item.model.text))
                names = self.models.get(item.model.text)
                if names is not None:
                    self.mentions += mentions(item, names)
            case s.Speculate():
                self.note(item.name.span, Key("", "speculate", item.name.text), until=item.span.end)
                for pairing in item.items:
                    if isinstance(pairing, s.Pairing):
                        self.note(pairing.model.span, Key("", "model", pairing.model.text))
                        self.note(pairing.schedule.span, Key(pairing.model.text, "schedule", pairing.schedule.text))


@define
class _ModelFinder:
    out: _Finder
    names: ModelNames

    def model(self, model: s.Model) -> None:
        if model.drafts is not None:
            self.out.note(model.drafts.span, Key("", "model", model.drafts.text))
        for item in model.items:
            match item:
                case s.Size() | s.ListDecl():
                    self.declare(item.name, "", item.span)
                    for value in (item.value,) if isinstance(item, s.Size) else item.items:
                        self.expression(value, "")
                case s.Taps():
                    self.declare(item.name, "", item.span)
                    self.names_of(item.before, "")
                    drafted = self.out.models.get(item.value.parts[0])
                    pieces = words(item.value)
                    self.out.note(pieces[0], Key("", "model", item.value.parts[0]))
                    if drafted is not None and len(pieces) > 1:
                        self.out.note(pieces[-1], drafted.look_up(item.value.parts[-1], "step"), "step")
                case s.Function():
                    self.declare(item.name, "", item.span)
                    bound = {
                        p.text: Key(self.names.model, "parameter", f"{item.name.text}.{p.text}")
                        for p in item.parameters
                    }
                    for parameter in item.parameters:
                        self.out.note(parameter.span, bound[parameter.text], until=item.span.end)
                    self.expression(item.body, "", bound)
                case s.Part():
                    self.out.note(item.name.span, Key(self.names.model, "part", item.name.text), until=item.span.end)
                    self.body(item.items, item.name.text)
                case s.Step():
                    scope = "step" if item.name is None else item.name.text
                    self.out.note(item.head, Key(self.names.model, "step", scope), until=item.span.end)
                    for name in (*(() if item.block is None else (item.block,)), *item.outputs):
                        self.names_of(name, scope)
                    self.body(item.body, scope)
                case s.Weights() | s.States():
                    self.body((item,), "")

    def declare(self, name: s.Name, scope: str, statement: Span) -> None:
        self.out.note(name.span, self.names.look_up(name.text, scope), scope, statement.end)

    def body(self, items: Iterable[object], scope: str) -> None:
        """What stands in a part, a step or a loop."""
        for item in items:
            match item:
                case s.Weights() | s.States():
                    if isinstance(item, s.States) and item.last is not None:
                        self.expression(item.last, scope)
                    for declaration in item.declarations:
                        self.declaration(declaration, scope)
                case s.Assign():
                    for target in item.targets:
                        if isinstance(target, s.Index):
                            self.expression(target, scope)
                        elif len(target.parts) == 1 and (key := self.names.look_up(target.text, scope)) is not None:
                            self.out.note(target.span, key, scope, item.span.end if key.kind == "value" else None)
                        else:
                            self.names_of(target, scope)
                    self.expression(item.value, scope)
                case s.Run():
                    for name in (item.part, item.other):
                        if name is not None:
                            self.out.note(name.span, Key(self.names.model, "part", name.text))
                    if item.condition is not None:
                        self.expression(item.condition, scope)
                case s.For():
                    self.expression(item.range, scope)
                    self.body(item.body, scope)

    def declaration(self, declaration: s.Declaration, scope: str) -> None:
        for name in declaration.names:
            key = self.names.look_up(f"{scope}.{name.text}" if scope else name.text, "")
            self.out.note(name.span, key, scope, declaration.span.end)
        for axis in declaration.shape:
            self.expression(axis, "")
        for where in declaration.tensors:
            if isinstance(where.target, s.Name):
                self.names_of(where.target, scope)
            if where.rows is not None:
                self.expression(where.rows, "")

    def names_of(self, name: s.Name, scope: str, bound: dict[str, Key] | None = None) -> None:
        """A name that is used, dotted or not."""
        if bound and name.text in bound:
            self.out.note(name.span, bound[name.text], scope)
            return
        pieces = words(name)
        key = self.names.look_up(name.text, scope)
        if len(pieces) > 1 and name.parts[0] in self.names.parts:
            self.out.note(pieces[0], Key(self.names.model, "part", name.parts[0]))
        self.out.note(pieces[-1], key, scope)

    def expression(self, node: object, scope: str, bound: dict[str, Key] | None = None) -> None:
        match node:
            case s.Name():
                self.names_of(node, scope, bound)
            case s.Keyword():
                self.expression(node.value, scope, bound)
            case s.Lambda():
                key = Key(self.names.model, "parameter", f"{scope}.{node.parameter.text}@{node.span.start}")
                self.out.note(node.parameter.span, key, scope, node.span.end)
                self.expression(node.body, scope, {**(bound or {}), node.parameter.text: key})
            case s.Call():
                kind = "function" if node.function.text in self.names.functions else "op"
                model = self.names.model if kind == "function" else ""
                self.out.note(node.function.span, Key(model, kind, node.function.text))
                for child in (*node.arguments, *node.keywords, node.body):
                    self.expression(child, scope, bound)
            case _:
                for inner in _children(node):
                    self.expression(inner, scope, bound)


def _children(node: object) -> Iterator[object]:
    match node:
        case s.Unary():
            yield node.operand
        case s.Binary():
            yield from (node.left, node.right)
        case s.When():
            yield from (node.value, node.condition, node.other)
        case s.Index():
            yield from (node.base, node.index)
        case s.Range():
            yield from (node.start, node.stop, node.step)
        case s.Paren():
            yield node.inner
