"""What a model declares, by its tree: what each name means where."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..model.scope import RESERVED
from ..records import frozen
from ..source import Span
from ..text import syntax as s

_WORD = re.compile(r"\w+")


@frozen
class Key:
    """A thing with a name: `kind` is the word that declares it, or `value`, `parameter`, `input`, `op`, `file`.

    Names of weights and states are qualified, `attention.wq`, and so are those of a part's or step's own values. Values
    that are carried through the layers are not.
    """

    model: str
    kind: str
    name: str


@frozen
class Mention:
    """A name at a place. `owner` is the part or step whose value it is, `until` where a declaring statement ends."""

    span: Span
    key: Key
    declares: bool = False
    owner: str = ""
    until: int = 0


@frozen
class ModelNames:
    """The names of one model. `own` are a part's or step's values, `carried` those that it shares with others."""

    model: str
    top: dict[str, str]
    stored: dict[str, str]
    functions: frozenset[str]
    parts: frozenset[str]
    steps: frozenset[str]
    own: dict[str, frozenset[str]]
    carried: dict[str, frozenset[str]]

    @staticmethod
    def of(model: s.Model) -> ModelNames:
        """From the tree."""
        top: dict[str, str] = {}
        stored: dict[str, str] = {}
        steps: dict[str, s.Step] = {}
        parts: dict[str, s.Part] = {}
        for item in model.items:
            match item:
                case s.Size():
                    top[item.name.text] = item.kind
                case s.ListDecl():
                    top[item.name.text] = "list"
                case s.Function():
                    top[item.name.text] = "function"
                case s.Taps():
                    stored[item.name.text] = "taps"
                case s.Part():
                    parts[item.name.text] = item
                    _store(item.items, f"{item.name.text}.", stored)
                case s.Step():
                    steps["step" if item.name is None else item.name.text] = item
        _store(model.items, "", stored)
        carried: dict[str, frozenset[str]] = {name: frozenset(_before_layers(step)) for name, step in steps.items()}
        runs = {name: frozenset(_runs(step.body)) for name, step in steps.items()}
        everything = frozenset().union(*carried.values())
        for part in parts:
            shared = [carried[name] for name in steps if part in runs[name]]
            carried[part] = frozenset().union(*shared) if shared else everything
        own = {name: frozenset(_set(part.items)) for name, part in parts.items()}
        own |= {name: frozenset(_set(step.body)) for name, step in steps.items()}
        functions = frozenset(name for name, kind in top.items() if kind == "function")
        return ModelNames(model.name.text, top, stored, functions, frozenset(parts), frozenset(steps), own, carried)

    def look_up(self, name: str, scope: str) -> Key | None:
        """What a name means in a part or step (`""`: outside of both)."""
        if name in self.carried.get(scope, ()):
            return Key(self.model, "value", name)
        if name in self.own.get(scope, ()):
            return Key(self.model, "value", f"{scope}.{name}")
        if name in self.top:
            return Key(self.model, self.top[name], name)
        if name in RESERVED:
            return Key("", "input", name)
        for qualified in (f"{scope}.{name}", name):
            if qualified in self.stored:
                return Key(self.model, self.stored[qualified], qualified)
        return Key(self.model, "part", name) if name in self.parts else None

    def seen_from(self, scope: str) -> dict[str, str]:
        """Weights and states by the names that a part or step has for them, with their kinds."""
        inside = f"{scope}."
        return {
            name.removeprefix(inside): kind
            for name, kind in self.stored.items()
            if "." not in name or name.startswith(inside)
        }

    def scheduled(self, scope: str, name: str) -> Key | None:
        """What a schedule means by `scope.name`."""
        key = self.look_up(name, scope)
        return key if key is not None and key.kind in ("value", "weight", "state", "cache", "buffer") else None


def _store(items: Iterable[object], prefix: str, stored: dict[str, str]) -> None:
    for item in items:
        if isinstance(item, s.Weights | s.States):
            kind = "weight" if isinstance(item, s.Weights) else item.kind
            stored.update({prefix + name.text: kind for each in item.declarations for name in each.names})


def _set(items: Iterable[object]) -> Iterable[str]:
    """Values that are assigned; what has an index or a point is a state."""
    for item in items:
        if isinstance(item, s.Assign):
            yield from (t.text for t in item.targets if isinstance(t, s.Name) and len(t.parts) == 1)
        elif isinstance(item, s.For):
            yield from _set(item.body)


def _before_layers(step: s.Step) -> Iterable[str]:
    """What a step sets before its loop over the layers; nothing is carried where there is none."""
    names: list[str] = []
    for item in step.body:
        if isinstance(item, s.For) and item.variable.text == "layer":
            return names
        names += _set((item,))
    return ()


def _runs(items: Iterable[s.Statement]) -> Iterable[str]:
    for item in items:
        if isinstance(item, s.For):
            yield from _runs(item.body)
        elif isinstance(item, s.Run):
            yield from (name.text for name in (item.part, item.other) if name is not None)


def words(name: s.Name) -> list[Span]:
    """The places of a dotted name's words."""
    start = name.span.start
    return [Span(name.span.source, start + m.start(), start + m.end()) for m in _WORD.finditer(name.span.text)] or [
        name.span
    ]
