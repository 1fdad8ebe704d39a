"""What the definition says of a part or of the step: the values that it names, what becomes of states and caches."""

from __future__ import annotations

from attrs import field

from ...model import ir as m
from ...model.shapes import Shape
from ...records import define
from .. import ir as p
from ..ir.spec_access import Wrong
from .expression_terms import Flow
from .held import Held
from .op_terms import rounded
from .terms import Term, Terms

type Guard = float | tuple[float, ...] | None


@define
class Defined(Flow):
    """Statements in order. `values` gives each name's terms, one for each statement that sets it; `entries` caches'."""

    carried: frozenset[str]
    values: dict[p.ValueRef, list[Term]] = field(factory=dict)
    shapes: dict[p.ValueRef, Shape] = field(factory=dict)
    states: dict[str, Term] = field(factory=dict)
    entries: dict[str, Term] = field(factory=dict)
    # What goes from row to row: what it is before the first, and what it is called before any.
    begun: dict[p.ValueRef, tuple[Term, Term]] = field(factory=dict)
    inside: dict[str, p.ValueRef] = field(factory=dict)

    def full(self, name: str) -> p.ValueRef:
        """A name as all places know it."""
        if name in self.inside:
            return self.inside[name]
        phase = self.program.phase_of(self.place)
        if name in self.carried or self.place == phase.place:
            return p.ValueRef(phase.step.name, name)
        return p.ValueRef(self.place, name)

    def local(self, node: m.Local) -> Held:
        """As it was set last; what is carried, by whoever ran before."""
        full = self.full(node.name)
        found = self.values.get(full)
        if found is None and full in self.begun:
            return Held(self.begun[full][1])
        if found is None and node.name in self.program.instance.model.taps:
            return Held(self.terms.atom("input", node.name))
        return Held(found[-1] if found else earlier(self, full))

    def weight(self, name: str) -> Held:
        """Itself."""
        return Held(self.terms.atom("weight", name))

    def state(self, name: str) -> Held:
        """As it lies in HBM, or as a statement left it; of a cache, with the row's own entry."""
        kind = self.program.instance.model.states[name].kind
        if kind == "cache":
            own: object = self.entries.get(name, ())
            if own == () and written_before(self.program, self.place, name):
                own = self.terms.atom("entries", name)
            return Held(self.terms.atom("cache", name, own))
        return Held(self.states.get(name, before(self.terms, name, kind)))

    def update(self, name: str, term: Term) -> None:
        """By an op."""
        self.states[name] = term

    def experts(self, node: m.Experts) -> Held:
        """By the routes, whichever experts they are."""
        routes = self.evaluate(node.routes)
        outer, self.bound = self.bound, self.bound | {node.parameter: Held(self.terms.atom("which expert"))}
        body = self.evaluate(node.body)
        self.bound = outer
        return Held(self.terms.atom("experts", routes.term, body.term))

    def run(self, statements: tuple[m.Statement, ...]) -> None:
        """Statement after statement."""
        for statement in statements:
            if isinstance(statement, m.Assign):
                self._assign(statement)
            elif isinstance(statement, m.Write):
                self._write(statement)
            elif isinstance(statement, m.Loop):
                self._rows(statement)

    def _rows(self, loop: m.Loop) -> None:
        """A row of a loop, from whatever the row before has left."""
        phase, number = self.program.phase_of(self.place), self.program.instance.number
        place = next((key for key, (home, _) in phase.row_loops.items() if home == self.place), None)
        if place is None or (made := phase.row_loops[place][1]) is None:
            raise Wrong(f"`{self.place}` has a loop over rows that is not run")
        if (made.start, made.stop) != (number(loop.start), number(loop.stop)):
            raise Wrong(f"`{self.place}` loops over the rows {made.start} .. {made.stop}")
        own = [name for s in loop.body if isinstance(s, m.Assign) for name in s.names]
        before = {name: self.values[self.full(name)][-1] for name in own if self.full(name) in self.values}
        one = {name: p.ValueRef(place, name) for name in own}
        self.inside = {name: one[name] for name in own if name in before or one[name] in self.program.buffers}
        for name, term in before.items():
            self.begun[one[name]] = term, self.terms.atom("before", one[name], self.terms.made[term][-1])
        self.run(loop.body)
        self.inside = {}

    def _assign(self, statement: m.Assign) -> None:
        term, guard = self.evaluate(statement.value).term, guard_of(self, statement.guard)
        for i, (name, type_) in enumerate(zip(statement.names, statement.types, strict=True)):
            full = self.full(name)
            own = term if len(statement.names) == 1 else self.terms.atom("item", term, (i,))
            old = self.local(m.Local(name, type_, statement.span)).term
            self.shapes[full] = type_.shape[:1] if type_.dtype == "routes" else type_.shape
            dtype = "f32" if type_.dtype == "routes" else self.program.instance.dtype(type_)
            self.values.setdefault(full, []).append(named(self.terms, full, own, old, guard, dtype))

    def _write(self, statement: m.Write) -> None:
        state, value = self.program.instance.model.states[statement.state], self.evaluate(statement.value).term
        if state.kind == "cache":
            self.entries[state.name] = rounded(self.terms, value, self.program.instance.dtype(state.type))
            return
        if not isinstance(statement.index, m.Static):
            raise Wrong(f"`{state.name}` is written where no layer tells")
        old, guard = self.state(state.name).term, guard_of(self, statement.guard)
        self.states[state.name] = put(self.terms, old, self.number(statement.index), value, guard)

    def over(self, buffers: tuple[str, ...]) -> None:
        """The layers have run: what they carry is theirs."""
        for ref in map(self.full, self.carried):
            self.values[ref] = [earlier(self, ref)]
        for name in buffers:
            self.states[name] = before(self.terms, name, "buffer")


def guard_of(flow: Flow, guard: m.Static | None) -> Guard:
    """Where a statement holds: `None` in every layer, or by layer."""
    found = None if guard is None else flow.number(guard)
    return None if not isinstance(found, tuple) and found else found


def named(terms: Terms, name: p.ValueRef, term: Term, old: Term, guard: Guard, dtype: str) -> Term:
    """A value by its name, rounded to its type; where the guard is false it stays as it was."""
    if guard is not None and not isinstance(guard, tuple):
        return old
    made = term if guard is None else terms.atom("when", guard, term, old)
    return terms.atom("value", name, made, dtype)


def earlier(flow: Flow, ref: p.ValueRef) -> Term:
    """What a value was before, in its type."""
    step = flow.program.phase_of(flow.place).step
    known = ref.place == step.name and ref.name in step.types
    return flow.terms.atom("before", ref, flow.program.instance.dtype(step.types[ref.name]) if known else "")


def written_before(program: p.Program, place: str, cache: str) -> bool:
    """Whether an earlier phase than a place's writes entries of a cache."""
    at = program.phases.index(program.phase_of(place))
    parts = [program.instance.model.parts[part] for phase in program.phases[:at] for part in phase.layers]
    return any(isinstance(s, m.Write) and s.state == cache for part in parts for s in part.body)


def put(terms: Terms, old: Term, index: float | tuple[float, ...], value: Term, guard: Guard) -> Term:
    """A buffer with another element."""
    return old if guard is not None and not isinstance(guard, tuple) else terms.atom("put", old, (index, guard), value)


def before(terms: Terms, name: str, kind: str) -> Term:
    """A state as it lies in HBM, or a buffer as it was."""
    return (
        terms.atom("array", p.StateRef(name)) if kind == "state" else terms.atom("before", p.ModelBufferRef(name), "")
    )
