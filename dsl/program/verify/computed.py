"""What a Program's ops make of what they read: the term in each buffer, and what a core has of it.

A part is followed once, from any values that the layers carry: what holds of one run holds of each. Its ops must give
each name what the definition says, in its order, and leave states, caches and carried values as the definition does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import field

from ...model import ir as m
from ...model import ops as registry
from ...model.calls import operands_of
from ...records import define
from .. import ir as p
from ..ir.spec_access import Wrong
from ..ir.spec_compute import width_of
from .defined import Defined, earlier, guard_of, named
from .expression_terms import Flow
from .held import Content, Cut, Held, Region, words
from .terms import Term


@define
class Computed(Flow):
    """Ops in order, `at` the one at hand. `said` is the definition.

    `content` is what buffers hold, `saved` and `emitted` what has left, by output.
    """

    said: Defined
    content: dict[p.BufferRef, Content]
    makes: Mapping[type, Callable[[Computed, Any], None]]
    at: p.Op | None = None
    saved: dict[p.ArrayRef, Held] = field(factory=dict)
    emitted: dict[p.ArrayRef, Held] = field(factory=dict)
    sent: dict[p.CollectiveRef, tuple[Content, Content]] = field(factory=dict)
    operands: dict[p.ProductRef, Held] = field(factory=dict)
    routed: dict[p.ExpertPoolRef, Term] = field(factory=dict)
    reached: dict[p.ValueRef, int] = field(factory=dict)
    greedy: list[Term] = field(factory=list)

    def run(self, ops: tuple[p.Op, ...]) -> None:
        """Op after op. Raises `Wrong`."""
        for op in ops:
            self.at = op
            rule = self.makes.get(type(op))
            if rule is None:
                raise Wrong(f"no meaning is known of the op {type(op).__name__}: it has no row in `computed_ops.MAKES`")
            rule(self, op)

    def region(self, buffer: p.BufferRef, start: int, width: int | None, what: object) -> Held:
        """What lies in some columns of a buffer; all of it without a width."""
        found = self.content.get(buffer)
        if found is None:
            raise Wrong(f"`{what}` is read from `{buffer}`, which holds nothing yet")
        if width is None and len(found) == 1:
            return found[0].held
        held = next((each.held for each in found if (each.start, each.width) == (start, width)), None)
        if held is None:
            lie = ", ".join(f"{each.start} .. {each.start + each.width}" for each in found)
            raise Wrong(
                f"`{what}` reads the columns {start} .. {start + (width or 0)} of `{buffer}`; values lie in {lie}"
            )
        return held

    def seen(self, view: p.View, what: object) -> Held:
        """What a view shows."""
        held = self.program.buffers.get(view.buffer)
        if held is None:
            raise Wrong(f"`{what}` lies in `{view.buffer}`, which is no buffer")
        return self.region(view.buffer, view.start, width_of(view, held), what)

    def local(self, node: m.Local) -> Held:
        """What lies where the name says."""
        return self._at(self.program.ref_of(node, self.place), node.name)

    def read(self, node: m.Read) -> Held:
        """What lies there."""
        return self._at(node.ref, node.ref)

    def _at(self, ref: m.Ref | None, what: object) -> Held:
        view = None if ref is None else self.program.views.get(ref)
        if view is None:
            raise Wrong(f"`{what}` lies nowhere")
        held = self.seen(view, what)
        own = isinstance(ref, p.ValueRef) and ref in self.said.values and view.buffer != ref
        return self.renamed(ref, held) if own and isinstance(ref, p.ValueRef) else held

    def renamed(self, full: p.ValueRef, held: Held) -> Held:
        """A value that is a product as it is, by its own name."""
        term, wanted = self.terms.atom("value", full, held.term, "f32"), self.said.values[full]
        if held.over or wanted != [term]:
            raise Wrong(self.differs(full, held.term, wanted[-1]))
        self.reached[full] = 1
        return held._replace(term=term)

    def weight(self, name: str) -> Held:
        """A weight of the layer's vectors."""
        view, shares = self.program.views.get(self.program.weight_at(self.place, name)), self.program.shares
        if view is None:
            raise Wrong(f"the weight `{name}` lies nowhere")
        lies: Any = self.terms.made[self.region(view.buffer, 0, None, name).term]
        if lies != ("array", view.buffer):
            raise Wrong(f"the weight `{name}` is read from `{view.buffer}`, which holds {lies[0]} `{lies[-1]}`")
        shape = self.program.instance.model.weights[name].shape
        cut = None
        if name in shares.of_scattered:
            cut = Cut(frozenset(self.program.schedule.over_all), self.program.instance.length(shape[-1]))
        return Held(self.terms.atom("weight", name), cut=cut)

    def state(self, name: str) -> Held:
        """A buffer of the model, or the layer's entry of a state."""
        kept = self.program.instance.model.states[name].kind == "state"
        return self.region(p.StateRef(name) if kept else p.ModelBufferRef(name), 0, None, name)

    def update(self, name: str, term: Term) -> None:
        """In place."""
        self.hold(p.StateRef(name), Held(term))

    def turned(self, node: m.Call) -> None:
        """By what the rows' positions turn every channel by."""
        channels, step = self.program.shares.length(node.args[0].type.shape[-1]), self.program.phase_of(self.place).step
        key = p.rope_key(node, channels, self.program.instance, step.name)
        found = self.program.turns.get(key)
        held = None if found is None else [self.content.get(name) for name in (found.cos, found.sin)]
        wanted = [self.terms.atom(what, (key,)) for what in ("cosines", "sines")]
        if held is None or any(h is None or h[0].held.term != w for h, w in zip(held, wanted, strict=True)):
            raise Wrong(f"`rope` turns by what was not made for {key}")

    def along(self, node: m.Call) -> None:
        """A share of an axis is not enough."""
        row = registry.find(node.op)
        assert row is not None
        for axis in row.along(operands_of(node, row)):
            if over := self.program.shares.over_values(axis):
                raise Wrong(f"`{node.op}` reads along {axis}, of which cores over {words(over)} have a share each")

    def hold(self, buffer: p.BufferRef, held: Held, width: int | None = None) -> None:
        """One value in a buffer, in its first `width` columns or all."""
        made = self.program.buffers.get(buffer)
        if made is None:
            raise Wrong(f"there is no buffer `{buffer}`")
        columns = made.shape[-1] if width is None else width
        view = self.program.views.get(buffer)
        if view is not None and (view.start, width_of(view, made)) != (0, columns):
            raise Wrong(f"`{buffer}` has {columns} columns, of which its view shows {view.start} .. {view.shape[-1:]}")
        self.content[buffer] = (Region(0, columns, held),)

    def write(self, full: p.ValueRef, held: Held, guard: m.Static | None = None) -> None:
        """A named value: what the definition's next statement gives it, or again what it has."""
        if held.over:
            raise Wrong(f"`{full}` is given a share of a sum over {words(held.over)} that is not completed")
        if held.cut is not None and full in map(self.said.full, self.said.carried):
            raise Wrong(f"`{full}` is carried through the layers, and given only some of its columns")
        buffer, old = self.program.buffers[full], self.content.get(full)
        shape = self.program.shares.shape(self.said.shapes[full])
        if held.cut is not None:
            shape = (self.program.shares.scattered(held.cut.length),)
        view = self.program.views.get(full)
        if view is None or (view.buffer, view.start, view.shape) != (full, 0, shape):
            raise Wrong(f"`{full}` is {list(shape)}, and lies elsewhere than in all of its own buffer")
        # A loop over rows gives its own values one, and writes its row of all others.
        place = self.place if buffer.place == self.place else self.program.home(self.place)
        rows = self.program.rows_at(place)
        if buffer.shape != (rows, *shape):
            raise Wrong(f"`{full}` is {[rows, *shape]}, its buffer {list(buffer.shape)}")
        before = old[0].held.term if old is not None else earlier(self, full)
        term = named(self.terms, full, held.term, before, guard_of(self, guard), buffer.dtype)
        wanted, at = self.said.values[full], self.reached.get(full, 0)
        if at < len(wanted) and wanted[at] == term:
            self.reached[full] = at + 1
        elif not at or wanted[at - 1] != term:
            raise Wrong(self.differs(full, term, wanted[min(at, len(wanted) - 1)]))
        self.hold(full, Held(term, cut=held.cut))

    def differs(self, name: m.Ref, term: Term, wanted: Term) -> str:
        """How a value is made of other things than the definition says."""
        has, should = (self.terms.names(self.inner(each)) for each in (term, wanted))
        more, less = ([each for each in a if each not in b] for a, b in ((has, should), (should, has)))
        said = [f"made of {', '.join(more)}"] * bool(more) + [f"not made of {', '.join(less)}"] * bool(less)
        return f"`{name}` is not what the definition says: {' and '.join(said) or 'it is put together in another way'}"

    def inner(self, term: Term) -> Term:
        """What a named value was made of."""
        key: Any = self.terms.made[term]
        return key[2] if key[0] == "value" else term

    def unfinished(self) -> Iterator[tuple[m.Ref, str]]:
        """The names that were not given all of their values, and what is wrong with each."""
        for full, wanted in self.said.values.items():
            view, at = self.program.views.get(full), self.reached.get(full, 0)
            if at < len(wanted) and view is not None and view.buffer != full:
                self.renamed(full, self.seen(view, full))
            elif at < len(wanted):
                yield full, f"`{full}` keeps an earlier value" if at else f"`{full}` is never computed"
