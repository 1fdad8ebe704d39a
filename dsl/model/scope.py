"""What names mean while a model is resolved."""

from __future__ import annotations

from typing import Any

from attrs import evolve, field, fields

from ..diagnostics import Label, Sink, did_you_mean
from ..records import define
from ..source import Span
from ..text import syntax as s
from . import ir as m
from .ir import Node, Type

# Words with a meaning of their own; no declaration may take them.
RESERVED = frozenset({"token", "position", "layer", "row", "true", "false", "all"})


class Stop(Exception):
    """The statement at hand has been reported, or depends on one that was."""


@define
class World:
    """What a whole model declares, filled from top to bottom."""

    sink: Sink
    damaged: frozenset[str]
    declared: s.Model | None = None
    sizes: dict[str, m.Size] = field(factory=dict)
    lists: dict[str, m.LayerList] = field(factory=dict)
    functions: dict[str, s.Function] = field(factory=dict)
    weights: dict[str, m.Weight] = field(factory=dict)
    states: dict[str, m.State] = field(factory=dict)
    taps: dict[str, m.Taps] = field(factory=dict)
    declared_at: dict[str, Span] = field(factory=dict)
    used: set[str] = field(factory=set)
    reported: set[str] = field(factory=set)
    fresh: int = 0
    expanded: int = 0

    def uses(self, function: str) -> list[Span]:
        """All calls of a function in the model's text."""
        spans: list[Span] = []
        pending: list[Any] = [self.declared]
        while pending:
            item = pending.pop()
            if isinstance(item, tuple):
                pending += reversed(item)
            elif hasattr(type(item), "__attrs_attrs__") and not isinstance(item, Span):
                if isinstance(item, s.Call) and item.function.text == function:
                    spans.append(item.span)
                pending += [getattr(item, each.name) for each in reversed(fields(type(item)))]
        return spans

    def declare(self, name: s.Name, kind: str, scope: str | None = None) -> bool:
        """Note a declaration; a second one of the same name is an error."""
        key = name.text if scope is None else f"{scope}.{name.text}"
        if name.text in RESERVED:
            self.sink.report("E102", f"`{name.text}` is a reserved name and cannot be declared", name.span)
            return False
        for other in dict.fromkeys((key, name.text)):
            if other in self.declared_at:
                self.sink.report(
                    "E102",
                    f"`{name.text}` is declared twice",
                    name.span,
                    kind,
                    others=(Label(self.declared_at[other], "first here"),),
                )
                return False
        self.declared_at[key] = name.span
        return True


@define
class Scope:
    """What a statement of one part or step sees. In `known`, `None` marks a value whose error is reported already."""

    world: World
    part: str | None
    known: dict[str, Node | None] = field(factory=dict)
    later: dict[str, Span] = field(factory=dict)
    inputs: frozenset[str] = frozenset()
    calls: tuple[tuple[str, Span], ...] = ()
    values_visible: bool = True

    def inner(self, **bound: Node | None) -> Scope:
        """The same with parameters bound."""
        return evolve(self, known={**self.known, **bound})

    def for_function(self, function: s.Function, call: Span, bound: dict[str, Node | None]) -> Scope:
        """What a function's body sees: its parameters, sizes, lists and functions."""
        calls = (*self.calls, (function.name.text, call))
        return evolve(self, known=bound, calls=calls, values_visible=False, later={})

    def report(
        self,
        code: str,
        message: str,
        at: Span,
        label: str = "",
        *,
        others: tuple[Label, ...] = (),
        notes: tuple[str, ...] = (),
        helps: tuple[str, ...] = (),
    ) -> Stop:
        """Add a diagnostic, with the calls that led here; the caller raises what is returned."""
        others += tuple(Label(span, f"`{name}` is expanded here") for name, span in reversed(self.calls))
        self.world.sink.report(code, message, at, label, others=others, notes=notes, helps=helps)
        return Stop()

    def look_up(self, name: s.Name) -> Node:
        """What a name stands for; raises `Stop`."""
        text, span = name.text, name.span
        if text in self.known:
            value = self.known[text]
            if value is None:
                raise Stop
            if isinstance(value, m.Local):
                return evolve(value, span=span)
            return value
        if text in ("layer", "row"):
            return self._runtime(text, name)
        if text in self.world.sizes or text in self.world.lists or text in ("true", "false", "all"):
            self.world.used.add(text)
            return m.Static(name, frozenset(), span)
        if self.values_visible:
            if text in ("token", "position"):
                return self._runtime(text, name)
            for qualified in (f"{self.part}.{text}", text):
                if (found := self._stored(qualified, span)) is not None:
                    return found
        raise self._unknown(name)

    def _runtime(self, text: str, name: s.Name) -> Node:
        if text not in self.inputs:
            where = {
                "layer": "inside parts and conditions of layers",
                "row": "in a step `on` a block",
                "token": "in steps",
                "position": "in steps and parts",
            }[text]
            raise self.report("E101", f"`{text}` has no value here", name.span, notes=(f"it is defined {where}",))
        if text in ("token", "position"):
            return m.Input(text, Type("int32"), name.span)
        return m.Static(name, frozenset({text}), name.span)

    def _stored(self, qualified: str, span: Span) -> Node | None:
        world = self.world
        if qualified in world.weights:
            world.used.add(qualified)
            return m.WeightRef(qualified, world.weights[qualified].type, span)
        if qualified in world.states:
            world.used.add(qualified)
            return m.StateRef(qualified, world.states[qualified].type, span)
        if qualified in world.taps:
            world.used.add(qualified)
            return m.Local(qualified, world.taps[qualified].type, span)
        return None

    def _unknown(self, name: s.Name) -> Stop:
        if self.world.damaged.intersection((name.text, *name.parts)):
            return Stop()
        if name.text in self.world.reported:
            return Stop()
        if name.text in self.later:
            return self.report(
                "E104",
                f"`{name.text}` is used before it is assigned",
                name.span,
                others=(Label(self.later[name.text], "assigned here"),),
            )
        world = self.world
        candidates = {*self.known, *world.sizes, *world.lists}
        if self.values_visible:
            own = f"{self.part}."
            stored = (*world.weights, *world.states, *world.taps)
            candidates |= {q.removeprefix(own) for q in stored if "." not in q or q.startswith(own)}
            candidates |= {q for q in stored if "." in name.text and "." in q} | self.inputs
        help_lines = did_you_mean(name.text, {c for c in candidates if "@" not in c})
        if name.text in world.functions:
            help_lines = (f"`{name.text}` is a function: call it with its arguments",)
        self.world.reported.add(name.text)  # one cause, one error
        if self.calls:  # whatever the arguments are, so that every use of the function has it
            return evolve(self, calls=self._all_calls()).report(
                "E101", f"unknown name `{name.text}`", name.span, helps=help_lines
            )
        return self.report("E101", f"unknown name `{name.text}`", name.span, helps=help_lines)

    def _all_calls(self) -> tuple[tuple[str, Span], ...]:
        """Of each function that led here every call, outermost first."""
        names = dict.fromkeys(name for name, _ in self.calls)
        return tuple((name, span) for name in names for span in reversed(self.world.uses(name)))

    def fresh(self, name: str) -> str:
        """A name that no text can contain."""
        self.world.fresh += 1
        return f"{name}@{self.world.fresh}"
