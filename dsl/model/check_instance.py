"""What holds only for given sizes: scalars are what ops take, buffers are written before they are read."""

from __future__ import annotations

import math
from collections.abc import Iterator

from attrs import field

from ..diagnostics import Label, Sink
from ..records import define
from ..source import Span
from . import ir as m
from .domains import faults, is_number
from .expressions import children, walk
from .facts import Facts
from .instance import Instance
from .ir import Node
from .ops import find, table
from .shapes import Poly
from .static import StaticError

MOST_LAYERS = 4096
MOST_ROWS = 1024  # of a block
LONGEST = 1 << 40


def check_instance(instance: Instance, sink: Sink) -> bool:
    """Report what fails at these sizes; whether nothing did."""
    before = len(sink.diagnostics)
    try:
        loops = instance.layer_loop.values()
        if not all(_countable(instance, loop, MOST_LAYERS, sink) for loop in loops):
            return False
        if not all(_blocks(instance, step, sink) for step in instance.model.steps.values()):
            return False
        if not _lengths(instance, sink) or not _caches(instance, sink):
            return False
        for name, step in instance.model.steps.items():
            _Pass(instance, sink).step(name, step)
        _heads(instance, sink)
    except StaticError as e:
        sink.report("E111", e.message, e.span)
    return len(sink.diagnostics) == before


def check_taps(drafter: Instance, target: Instance, sink: Sink) -> None:
    """What a drafter reads of its target is there: layers that the target runs, each once."""
    run = target.layer_parts()
    for taps in drafter.model.taps.values():
        layers = drafter.values[taps.layers]
        assert isinstance(layers, tuple)
        absent = [layer for layer in layers if layer not in run]
        if absent:
            runs = f"runs {min(run)} to {max(run)}" if run else "has none"
            sink.report(
                "E212", f"`{taps.name}` is read before layer {absent[0]}; `{target.model.name}` {runs}", taps.span
            )
        elif len(set(layers)) < len(layers):
            sink.report("E212", f"`{taps.name}` is read before a layer twice", taps.span)


def _lengths(instance: Instance, sink: Sink) -> bool:
    """Every axis of a weight, state or value is a positive whole number."""
    model = instance.model
    shapes = [(state.type.shape, state.span) for state in model.states.values()]
    shapes += [(weight.shape, weight.span) for weight in model.weights.values()]
    for body in instance.facts.bodies.values():
        for statement in body:
            nodes = [n for n in walk(statement.value) if isinstance(n, m.Call)]
            shapes += [(type_.shape, node.span) for node in nodes for type_ in node.types]
    good: dict[Poly, bool] = {}
    for shape, span in shapes:
        for axis in shape:
            if axis not in good:
                good[axis] = _whole(instance, axis, span, sink)
    return all(good.values())


def _whole(instance: Instance, axis: Poly, span: Span, sink: Sink) -> bool:
    values = {atom.name: instance.values.get(atom.name) for atom in axis.atoms if atom.expr is None}
    parts = [name for name, value in values.items() if isinstance(value, bool) or not isinstance(value, int)]
    length = None if parts else axis.evaluate(instance.atom)
    if length is not None and length.denominator == 1 and 0 < length < LONGEST:
        return True
    shown = f"`{parts[0]}` is {values[parts[0]]}" if parts else f"`{axis}` is {length}"
    sink.report("E113", f"an axis must be a positive whole number; {shown}", span)
    return False


def _kept(instance: Instance, state: m.State, layer: int | None) -> float:
    return math.inf if state.last is None else instance.number(state.last, layer)


def _caches(instance: Instance, sink: Sink) -> bool:
    """Every `cache last N` keeps a positive whole number of positions, or `all`."""
    before = len(sink.diagnostics)
    for last, state in {s.last: s for s in reversed(instance.model.states.values()) if s.last is not None}.items():
        for layer in instance.owner_layers(state.part) or (None,):
            value = instance.value(last, layer)
            if value != math.inf and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                sink.report(
                    "E113",
                    f"a cache keeps a positive whole number of positions; here it is {value}",
                    last.span,
                    others=(Label(state.span, f"`{state.name}`"),),
                )
                break
    return len(sink.diagnostics) == before


def _countable(instance: Instance, loop: m.Loop, most: int, sink: Sink) -> bool:
    start, stop = instance.value(loop.start), instance.value(loop.stop)
    if type(start) is int and type(stop) is int and 0 <= start < stop <= most:
        return True
    sink.report(
        "E124",
        f"a loop over {loop.variable}s runs from {start} to {stop}",
        loop.span,
        notes=(f"its bounds are whole numbers, 0 <= start < stop <= {most}",),
    )
    return False


def _blocks(instance: Instance, step: m.Step, sink: Sink) -> bool:
    """A step's block is short enough to be followed row by row, and loops over rows stay inside of it."""
    if step.block is None:
        return True
    most = instance.values[step.block]
    if type(most) is not int or not 0 < most <= MOST_ROWS:
        sink.report("E113", f"a block has 1 to {MOST_ROWS} rows; `{step.block}` is {most}", step.span)
        return False
    parts = dict.fromkeys(part for parts in instance.layer_parts(step.name).values() for part in parts)
    bodies = (step.body, *(instance.model.parts[part].body for part in parts))
    loops = [s for body in bodies for s in body if isinstance(s, m.Loop) and s.variable == "row"]
    return all(_countable(instance, loop, most, sink) for loop in loops)


# Conditions on the way to a node, and what they must be.
type Choices = tuple[tuple[m.Static, bool], ...]


def _under(node: Node, choices: Choices) -> Iterator[tuple[Node, Choices]]:
    yield node, choices
    if isinstance(node, m.Select):
        yield from _under(node.then, (*choices, (node.condition, True)))
        yield from _under(node.other, (*choices, (node.condition, False)))
        return
    for child in children(node):
        yield from _under(child, choices)


def _may_fail(node: Node) -> bool:
    if isinstance(node, m.Call):
        return bool(node.options) or node.op == "index" or any(isinstance(a, m.StateRef) for a in node.args)
    return isinstance(node, m.Static | m.Select | m.Slice)


@define
class _Pass:
    """One pass of a step, layer by layer: which elements of each buffer are written so far."""

    instance: Instance
    sink: Sink
    written: dict[str, set[int]] = field(factory=dict)
    reported: set[int] = field(factory=set)
    nodes: dict[int, list[tuple[Node, Choices]]] = field(factory=dict)
    checked: set[tuple[int, int]] = field(factory=set)
    rows: int = 1

    def step(self, name: str, step: m.Step) -> None:
        """Every statement in order, for every layer."""
        layers = self.instance.layer_parts(name)
        self.rows = 1 if step.block is None else int(str(self.instance.values[step.block]))
        for statement in step.body:
            if isinstance(statement, m.Loop) and statement.variable == "layer":
                for layer, parts in layers.items():
                    for part in parts:
                        for inner in self.instance.model.parts[part].body:
                            self._each_row(inner, layer)
            else:
                self._each_row(statement, None)

    def _each_row(self, statement: m.Statement, layer: int | None) -> None:
        """A statement for each row of a block, or those of a loop over rows."""
        if not isinstance(statement, m.Loop):
            for row in range(self.rows):
                self.statement(statement, layer, row)
            return
        for row in range(int(self.instance.number(statement.start)), int(self.instance.number(statement.stop))):
            for inner in statement.body:
                self.statement(inner, layer, row)

    def statement(self, statement: m.Statement, layer: int | None, row: int | None = 0) -> None:
        """Reads first, then the write."""
        if not isinstance(statement, m.Assign | m.Write):
            return
        taken = statement.guard is None or bool(self.instance.value(statement.guard, layer, row))
        for node, choices in self._interesting(statement) if taken else ():
            if all(bool(self.instance.value(condition, layer, row)) == wanted for condition, wanted in choices):
                self.read(node, layer, row)
        if isinstance(statement, m.Write) and taken and isinstance(statement.index, m.Static):
            at = self.instance.value(statement.index, layer, row)
            length = self._length(statement.state)
            if not isinstance(at, int) or not 0 <= at < length:
                self._tell(statement.index.span, f"`{statement.state}` has {length} elements, not one at {at}", layer)
            else:
                self.written.setdefault(statement.state, set()).add(at)

    def _interesting(self, statement: m.Assign | m.Write) -> list[tuple[Node, Choices]]:
        """What may fail: scalars, choices, and reads of buffers, each with the choices that lead to it."""
        if id(statement) not in self.nodes:
            self.nodes[id(statement)] = [(n, choices) for n, choices in _under(statement.value, ()) if _may_fail(n)]
        return self.nodes[id(statement)]

    def read(self, node: Node, layer: int | None, row: int | None) -> None:
        """A buffer's elements must be there; a scalar must have a value."""
        match node:
            case m.Static():
                if not is_number(value := self.instance.value(node, layer, row)) or value in (math.inf, -math.inf):
                    self._tell(node.span, f"a number is needed here, not {value!r}", layer, code="E112")
            case m.Call():
                self._scalars(node, layer, row)
                self._windows(node, layer)
                if node.op == "index" and isinstance(node.args[0], m.StateRef) and isinstance(node.args[1], m.Static):
                    at = int(self.instance.number(node.args[1], layer, row))
                    self._need(node.args[0], range(at, at + 1), node.span, layer)
                elif node.op != "index":
                    for arg in node.args:
                        if isinstance(arg, m.StateRef) and self._kind(arg) == "buffer":
                            self._need(arg, range(self._length(arg.name)), arg.span, layer)
            case m.Select():
                self.instance.value(node.condition, layer, row)
            case m.Slice():
                start = int(self.instance.number(node.start, layer, row))
                stop = int(self.instance.number(node.stop, layer, row))
                self._need(node.base, range(start, stop), node.span, layer)

    def _chosen(self, node: Node, layer: int | None, row: int | None) -> Node:
        """What choices by what is known come to."""
        while isinstance(node, m.Select):
            node = node.then if self.instance.value(node.condition, layer, row) else node.other
        return node

    def _scalars(self, call: m.Call, layer: int | None, row: int | None) -> None:
        """What a call is given beside its operands is what its op takes."""
        op = find(call.op)
        assert op is not None
        given = dict(call.options)
        chosen = self._chosen(call.args[1], layer, row) if call.op == "index" else None
        if isinstance(chosen, m.Static) and not isinstance(call.args[0], m.StateRef):
            given["i"] = chosen
        key = (id(call), id(chosen))
        if key in self.checked and not any(option.depends for option in given.values()):
            return
        self.checked.add(key)
        scalars = {name: self.instance.value(option, layer, row) for name, option in given.items()}
        lengths = {p: self.instance.shape(a.type.shape) for p, a in zip(op.parameters, call.args, strict=True)}
        for message in faults(call.op, lengths, scalars) if call.op in table else ():
            self._tell(call.span, message, layer if any(o.depends for o in given.values()) else None, code="E127")

    def _windows(self, call: m.Call, layer: int | None) -> None:
        """Caches that one op reads keep the same positions."""
        states = [self.instance.model.states[a.name] for a in call.args if isinstance(a, m.StateRef)]
        windows = [(state, _kept(self.instance, state, layer)) for state in states if state.kind == "cache"]
        for state, last in windows[1:]:
            if last != windows[0][1]:
                lengths = (
                    f"`{s.name}` keeps {'all positions' if n == math.inf else f'{n:g} positions'}"
                    for s, n in (windows[0], (state, last))
                )
                self._tell(call.span, ", ".join(lengths), layer, state.span, code="E116")

    def _kind(self, ref: m.StateRef) -> str:
        return self.instance.model.states[ref.name].kind

    def _length(self, state: str) -> int:
        return self.instance.length(self.instance.model.states[state].type.shape[0])

    def _need(self, ref: m.StateRef, wanted: range, span: Span, layer: int | None) -> None:
        missing = [i for i in wanted if i not in self.written.get(ref.name, set())]
        if missing and self._kind(ref) == "buffer":
            self._tell(
                span,
                f"element {missing[0]} of `{ref.name}` is read before it is written",
                layer,
                self.instance.model.states[ref.name].span,
            )

    def _tell(
        self, span: Span, message: str, layer: int | None, declared: Span | None = None, code: str = "E125"
    ) -> None:
        if id(span) not in self.reported:
            self.reported.add(id(span))
            where = () if layer is None else (f"first in layer {layer}",)
            others = () if declared is None else (Label(declared, "declared here"),)
            self.sink.report(code, message, span, others=others, notes=where)


def shared_heads(facts: Facts) -> list[tuple[m.Call, int, int]]:
    """Ops that share heads: the operand with many, the one with few."""
    groups = []
    for body in facts.bodies.values():
        for statement in body:
            for node in walk(statement.value):
                if isinstance(node, m.Call) and node.op in ("attend", "attend_block"):
                    groups.append((node, 0, 1 if node.op == "attend" else 3))
                elif isinstance(node, m.Call) and node.op == "delta_rule":
                    groups.append((node, 2, 1))
    return groups


def _heads(instance: Instance, sink: Sink) -> None:
    for call, many, few in shared_heads(instance.facts):
        a, b = (call.args[i].type.shape[0] for i in (many, few))
        if instance.length(a) % instance.length(b):
            sink.report(
                "E126", f"{instance.length(a)} heads ({a}) do not share {instance.length(b)} ({b}) evenly", call.span
            )
