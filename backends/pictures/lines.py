"""What each line of the text costs in a step: time on the core, and bytes between HBM and VMEM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from attrs import define

from ...dsl.model import ir as m
from ...dsl.model.facts import STEP
from ...dsl.model.ir import Ref
from ...dsl.program import ir as p
from ...dsl.program.ir.walk import walk
from ...dsl.source import Source, Span
from ..timeline.actions import ExpertsRef, Where, Work
from ..timeline.summary import Prediction


@define
class Cost:
    """Seconds that the core computes and waits, bytes that move."""

    computing: float = 0.0
    waiting: float = 0.0
    bytes: int = 0

    @property
    def seconds(self) -> float:
        """Together."""
        return self.computing + self.waiting


type Costs = dict[tuple[Source, int] | None, Cost]


def costs(prediction: Prediction) -> Costs:
    """By source and line, counted from 1; under `None` what is of no line. Their sum is the step."""
    spans = Spans(prediction.program)
    by_line: Costs = defaultdict(Cost)
    for span in prediction.trace.spans:
        cost = by_line[_line(spans.of(span.where, span.kind))]
        if span.kind in ("mxu", "vpu"):
            cost.computing += span.seconds
        else:
            cost.waiting += span.seconds
    for transfer in prediction.trace.transfers:
        by_line[_line(spans.of(transfer.where, "transfer"))].bytes += transfer.bytes
    return dict(by_line)


def _line(span: Span | None) -> tuple[Source, int] | None:
    return None if span is None else (span.source, span.source.position(span.start)[0])


type Found = dict[Ref, Span | None]


class Spans:
    """Where in the text stands what a trace names."""

    def __init__(self, program: p.Program) -> None:
        self._computed = dict(_computed(program))
        self._moved = _moved(program)
        self._exchanges: Found = {exchange.name: exchange.span for exchange in program.exchanges.values()}
        self._buffers: Found = {buffer.name: buffer.span for buffer in program.buffers.values()}
        self._parts = program.instance.model.parts

    def of(self, where: Where, kind: str) -> Span | None:
        """The statement, or the line of the schedule, that asks for it."""
        of = p.CacheRingRef(where.scope) if where.of is Work.CACHE else where.of
        plain = kind in ("mxu", "vpu") and where.verb is None
        span = self._computed.get((where.scope, of)) if plain and of is not None else None
        if span is None and isinstance(of, Ref):
            tables = (self._exchanges, self._moved) if kind == "link" else (self._moved, self._exchanges, self._buffers)
            span = next((t[of] for t in tables if t.get(of) is not None), None)
        if span is None and where.scope in self._parts:
            # The layer's choice of a part.
            return self._parts[where.scope].span
        return span


def _computed(program: p.Program) -> Iterator[tuple[tuple[str, Ref | Work], Span]]:
    """Statements by place and what they compute."""
    for at in walk(program):
        scope = at.place
        match op := at.op:
            case p.Compute():
                yield (scope, op.outputs[0]), op.span
            case p.Put():
                yield (scope, op.buffer), op.span
            case p.Attend():
                yield (scope, Work.ATTEND), op.call.span
            case p.Route():
                yield (scope, Work.ROUTE), op.call.span
            case p.RopeTables():
                yield (scope, Work.ROPE_TABLES), op.call.span
            case p.Argmax():
                span = program.buffers[program.views[op.logits].buffer].span
                if span is not None:
                    yield (scope, Work.ARGMAX), span


def _moved(program: p.Program) -> Found:
    """What moves: matrices at their products; states, caches and vectors where they are declared or prefetched."""
    model = program.instance.model
    asked = {(x.kind, x.what): x.span for x in program.schedule.prefetches}
    spans: Found = {product.name: product.span for product in program.products.values()}
    spans |= {p.ModelCacheRef(state.name): state.span for state in model.states.values()}
    vectors = next((x.span for x in program.schedule.prefetches if x.kind == "vectors"), None)
    for copy in program.copies.values():
        cache = copy.name.cache if isinstance(copy.name, p.EntryRef) else copy.name
        state = model.states[cache.state] if isinstance(cache, p.StateRef | p.ModelCacheRef) else None
        of = model.parts.get(copy.part or "") or program.phase_of(copy.part or STEP).step
        spans[copy.name] = state.span if state is not None else vectors or of.span
    for ring in program.caches.values():
        declared = program.buffers[ring.buffers[0]].span
        spans[ring.name] = asked.get(("cache", ring.part)) or declared
    spans |= {ExpertsRef(bank.part): bank.span for bank in program.banks.values()}
    spans |= {ring.name: ring.span for ring in program.rings.values()}
    for op in (at.op for at in walk(program)):
        if isinstance(op, p.Lookup) and isinstance(op.index, m.Input):
            spans[op.table] = op.index.span
        elif isinstance(op, p.Emit):
            spans[op.output] = program.buffers[op.buffer].span
    return spans
