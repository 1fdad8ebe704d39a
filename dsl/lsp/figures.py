"""What the lines of a schedule cost: bytes of one core, and the least time that these take of HBM."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import ir as m
from ..program import ir as p
from ..program.analysis.memory import gib, mib
from ..program.analysis.report import ScheduleReport
from ..program.analysis.traffic import array_bytes, fetched, tapes
from ..program.layout.tiling import ROW_BYTES
from ..program.print.json import collectives
from ..program.print.text import number
from ..schedule.blocks import BLOCK, most
from ..schedule.ir import Schedule
from ..schedule.shares import Shares
from ..source import Span
from ..text import syntax as s

_UNITS = ((1, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns"))


def took(size: float, schedule: Schedule) -> str:
    """`31,457,280 bytes, 9.83 µs at 3.2 TB/s`: what a core reads, and how long that takes at least."""
    rate = schedule.target.memory.hbm_rate.value
    seconds = size / rate
    time = next(f"{seconds * scale:.3g} {unit}" for scale, unit in _UNITS if seconds * scale >= 1 or unit == "ns")
    return f"{number(round(size))} bytes, {time} at {rate / 1e12:.3g} TB/s"


def line_figures(
    item: s.ScheduleItem | s.StreamLine,
    stream: str,
    shares: Shares,
    program: p.Program | None,
    report: ScheduleReport | None,
) -> list[str]:
    """What is known of a schedule's line, a sentence each; `stream` is the block that a stream's line stands in."""
    figures = list(_said(item, stream, shares, program))
    if report is not None:
        figures += _bill(item.span, report)
        if isinstance(item, s.Setting) and item.keyword in ("rows", "span"):
            for counts, charged in report.passes:
                if counts.of.consecutive != (item.keyword == "span"):
                    continue
                read = took(counts.read_bytes, shares.schedule)
                figures.append(f"{counts.of}: reads {read}; VMEM {mib(charged.total)} of {mib(charged.limit)}")
    return list(dict.fromkeys(figures))


def _bill(span: Span, report: ScheduleReport) -> Iterator[str]:
    """The lines of the largest VMEM bill that this line of the text asks for."""
    charged = report.largest
    about = "about " if charged.estimated else ""
    for line in charged.lines:
        if line.span is not None and line.span.source is span.source and span.start <= line.span.start < span.end:
            yield f"VMEM at {charged.of}: {line.name} {about}{mib(line.bytes)} ({line.why})"


def _said(item: s.ScheduleItem | s.StreamLine, stream: str, shares: Shares, program: p.Program | None) -> Iterator[str]:
    schedule, weights = shares.schedule, shares.schedule.model.weights
    match item:
        case s.Target():
            chip = schedule.target
            memory, rate = gib(int(chip.memory.hbm.value)), chip.memory.hbm_rate.value / 1e12
            yield f"a core has {memory} of HBM at {rate:.3g} TB/s, {mib(int(chip.memory.vmem.value))} of VMEM"
            yield f"it multiplies at {chip.compute.bf16_rate.value / 1e12:.4g} TFLOP/s in bf16"
            yield f"{schedule.cores} cores" if schedule.cores > 1 else "one core"
        case s.Setting(keyword="context"):
            yield f"caches have room for {number(schedule.context)} positions"
        case s.Mesh():
            yield f"{schedule.cores} cores: {' x '.join(f'{name} {length}' for name, length in schedule.mesh)}"
        case s.Shard():
            for each in item.items:
                yield from _shard(each.size.text, shares)
        case s.Split():
            for name in item.weights:
                if (key := weight_name(name, weights)) is not None:
                    whole, mine = shares.instance.shape(weights[key].shape), shares.weight_shape(weights[key])
                    yield f"{key}: {mine[0]} of {whole[0]} rows a core"
        case s.Stream():
            yield from _tape(item.name.text, program)
        case s.StreamLine():
            yield from _products(item, stream, shares, program)
        case s.Fetch():
            yield from _banks(item.what.parts[0], program)
        case s.Prefetch():
            yield from _arrays(item.what, shares, program)
        case s.Gather() | s.Reduce():
            yield from _sent({name.text for name in item.values}, program)
        case s.Overlap():
            yield from _sent({name.text for name in item.values}, program)
            for name in (name for group in item.groups for name in group.weights):
                if (key := weight_name(name, weights)) is not None:
                    yield f"{key}: reads {took(shares.weight_bytes(weights[key]), schedule)} meanwhile"
        case s.Store():
            for name in item.weights:
                if (key := weight_name(name, weights)) is not None:
                    size = shares.weight_bytes(weights[key])
                    yield f"{key} as {shares.codec(weights[key])}: {number(size)} bytes a core and layer"


def weight_name(name: s.Name, weights: dict[str, m.Weight], scope: str = "") -> str | None:
    """A weight as a schedule names it: `attention.wq`; of a step, `step.out`."""
    for key in (f"{scope}.{name.text}", name.text, name.text.partition(".")[2]):
        if key in weights:
            return key
    return None


def _shard(name: str, shares: Shares) -> Iterator[str]:
    shard = shares.schedule.shards.get(name)
    if shard is None:
        return
    ways = shares.schedule.ways(shard.axes)
    if name == "position":
        mine = number(most(shares.schedule.context, ways))
        yield f"positions over {ways} cores, in blocks of {BLOCK}: the first core has {mine}"
        return
    whole = shares.instance.values.get(name)
    yield f"{name} = {whole} over {ways} cores: {shares.size(name)} each"


def _tape(ring: str, program: p.Program | None) -> Iterator[str]:
    stream = p.StreamRef(ring)
    if program is not None and stream in program.rings:
        tape = tapes(program)[stream]
        yield (
            f"a step reads {took(tape.bytes, program.schedule)}, in {number(tape.transfers)} transfers; "
            f"of them padding {number(tape.padding)}"
        )


def _products(item: s.StreamLine, stream: str, shares: Shares, program: p.Program | None) -> Iterator[str]:
    scope = item.part.text
    layers = len(shares.instance.part_layers.get(scope, ())) or 1
    if program is not None:
        products = [x for x in program.products.values() if (x.ring, x.place) == (p.StreamRef(stream), scope)]
        size = sum(x.tiling.rows for x in products) * ROW_BYTES
        if not products:
            return
        for x in products if len(products) > 1 else ():
            yield f"{x.name}: {took(x.tiling.rows * ROW_BYTES, shares.schedule)}"
    else:
        weights = shares.schedule.model.weights
        keys = (weight_name(w, weights, scope) for group in item.groups for w in group.weights)
        size = sum(shares.weight_bytes(weights[key]) for key in keys if key is not None)
    each = "a layer" if scope in shares.instance.part_layers else "a step"
    yield f"{each} reads {took(size, shares.schedule)}" + (
        f"; all {layers} layers {took(size * layers, shares.schedule)}" if layers > 1 else ""
    )


def _banks(part: str, program: p.Program | None) -> Iterator[str]:
    for bank in program.banks.values() if program is not None else ():
        if program is not None and bank.part == part:
            size = bank.layout.nbytes
            yield f"an expert is {took(size, program.schedule)}; {bank.slots} slots"
            many = fetched(program, bank)
            yield (
                f"a layer at rows = {program.rows}: {many:.1f} experts on the core that has most, were routing "
                f"uniform: {took(many * size, program.schedule)}"
            )


def _arrays(what: s.Name, shares: Shares, program: p.Program | None) -> Iterator[str]:
    """What a prefetch moves."""
    kind = what.parts[-1]
    if program is None:
        return
    arrays = [a for a in program.arrays.values() if a.kind == kind]
    if kind == "vectors":
        size = sum(array_bytes(a) for a in arrays)
        yield f"vectors of a step: {took(size, shares.schedule)}"
    elif kind in ("state", "cache"):
        states = shares.schedule.model.states
        part = what.parts[0]
        mine = [a for a in arrays if part in (a.part, _part_of(a.name, states))]
        layers = len(shares.instance.part_layers.get(part, ())) or 1
        size = sum(array_bytes(a) for a in mine) // layers
        if mine:
            full = ", at a full context" if kind == "cache" else ""
            yield f"a layer at rows = {program.rows}{full}: {took(size, shares.schedule)}"


def _part_of(array: p.ArrayRef, states: dict[str, m.State]) -> str | None:
    """The part that a cache of the model was declared in."""
    return states[array.state].part if isinstance(array, p.ModelCacheRef) else None


def _sent(values: set[str], program: p.Program | None) -> Iterator[str]:
    if program is None:
        return
    for ref, each in zip(program.exchanges, collectives(program), strict=True):
        if values & _completes(ref, program):
            yield (
                f"{each['name']}: {each['kind']} by {each['by']}, {each['wire']}: a core sends "
                f"{number(each['sent_bytes'])} bytes, in {each['rounds']} round{'s' * (each['rounds'] != 1)}, "
                f"{each['runs']} times a step"
            )


def _completes(exchange: p.CollectiveRef, program: p.Program) -> set[str]:
    """The values that a collective is for; of one that gathers, those of the products whose shares it joins."""
    results = (piece.result for piece in program.exchanges[exchange].pieces)
    weights = (ref.weight for ref in results if isinstance(ref, p.GatheredRef))
    own = {exchange.qualified} if isinstance(exchange, p.SumRef) and not exchange.number else set()
    return {*own, *(v for w in weights for each in program.shares.facts.products_of(w) for v in each.values)}


def state_bytes(state: m.State, shares: Shares) -> str:
    """What a core keeps of a state for one row."""
    each = shares.held_bytes(state)
    unit = {"cache": "a position", "buffer": "a row", "state": "a row"}[state.kind]
    return f"{number(each)} bytes {unit} and layer" if state.part else f"{number(each)} bytes {unit}"
