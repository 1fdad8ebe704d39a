"""A schedule while it is read: what its earlier lines said, and what names stand for."""

from __future__ import annotations

from attrs import field

from ..diagnostics import Label, Sink, did_you_mean
from ..model import ir as m
from ..model.facts import Facts
from ..records import define
from ..source import Span
from ..text import syntax as s
from .ir import Shard, Split


@define
class Draft:
    """A schedule while it is read; `facts` of its model answer what names stand for."""

    sink: Sink
    model: m.Model
    facts: Facts
    mesh: dict[str, int] = field(factory=dict)
    shards: dict[str, Shard] = field(factory=dict)
    splits: dict[str, Split] = field(factory=dict)
    seen: dict[str, Span] = field(factory=dict)

    def once(self, key: str, span: Span) -> bool:
        """Whether a statement of its kind is the first; a second is an error."""
        if key in self.seen:
            self.sink.report("E202", f"`{key}` is given twice", span, others=(Label(self.seen[key], "first here"),))
            return False
        self.seen[key] = span
        return True

    def axes(self, names: tuple[s.Name, ...]) -> tuple[str, ...]:
        """Mesh axes by name, each once."""
        known = []
        for name in names:
            if name.text not in self.mesh:
                self.sink.report(
                    "E203", f"the mesh has no axis `{name.text}`", name.span, helps=did_you_mean(name.text, self.mesh)
                )
            elif name.text in known:
                self.sink.report("E203", f"axis `{name.text}` is named twice", name.span)
            else:
                known.append(name.text)
        return tuple(known)

    def weight(self, name: s.Name, scope: str | None = None) -> str | None:
        """A weight's qualified name: `part.w`, `step.w`, or, on a line of `scope`, just `w`."""
        text = name.text
        candidates = [text] if scope is None else [f"{scope}.{text}", text]
        head, _, tail = text.partition(".")
        if head in self.facts.bodies and head not in self.model.parts:
            candidates.append(tail)
        for candidate in candidates:
            if candidate in self.model.weights:
                return candidate
        known = {w.removeprefix(f"{scope}.") for w in self.model.weights}
        self.sink.report("E204", f"unknown weight `{text}`", name.span, helps=did_you_mean(text, known))
        return None

    def value(self, name: s.Name) -> str | None:
        """A named value `scope.name` that exists."""
        if name.text in self.facts.values:
            return name.text
        self.sink.report(
            "E204",
            f"unknown value `{name.text}`",
            name.span,
            notes=("values are named by the part or step that sets them, `attention.h`",),
            helps=did_you_mean(name.text, self.facts.values),
        )
        return None
