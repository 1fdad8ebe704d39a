"""A Program as plain data, for JSON: its schedule first, then all that it holds, then what happens."""

from __future__ import annotations

import re
from typing import Any, get_args

import attrs

from ...collectives.collective import BufferNeed, Operation
from ...model import ir as m
from ...model.facts import same_operand
from ...source import Span
from ...targets.targets import padded_bytes
from .. import ir as p
from ..analysis.traffic import Moved, own_bytes, reads, tapes, writes
from ..ir.scratch import collective, exchange_set, ring_bytes
from ..ir.walk import walk
from ..layout.tiling import ROW_BYTES
from ..lower.attention import ATTENDED

_OPS: tuple[Any, ...] = get_args(p.Op.__value__)
_NODES: tuple[Any, ...] = get_args(m.Node.__value__)
_SPACES, _COMMENT = re.compile(r"\s+"), re.compile(r"#[^\n]*")


def record(program: p.Program) -> dict[str, Any]:
    """Sizes in bytes, shapes of one core; `line` is one of the text (from 1), `text` an expression's own words."""
    schedule = program.schedule
    return {
        "name": schedule.name,
        "target": schedule.target.name,
        "rows": program.rows,
        "model": schedule.model.name,
        "topology": "x".join(map(str, schedule.topology)),
        "cores": schedule.cores,
        "mesh": dict(schedule.mesh),
        "context": schedule.context,
        "numerics": [{"kind": kind, "text": text} for kind, text in numerics(program)],
        "reads": _total(reads(program)),
        "writes": _total(writes(program)),
        "buffers": [_room(buffer) | {"place": buffer.place} for buffer in program.buffers.values()],
        "rings": [_ring(program, ring) for ring in program.rings.values()],
        "products": [_product(program, product) for product in program.products.values()],
        "transfers": {
            ring.label: [{"product": name.label, "layer": layer} for name, layer in program.transfers(ring)]
            for ring in program.rings
        },
        "copies": plain(tuple(program.copies.values())),
        "caches": plain(tuple(program.caches.values())),
        "collectives": collectives(program),
        "arrays": plain(tuple(program.arrays.values())),
        "outputs": plain(tuple(program.outputs.values())),
        "phases": [
            {"name": phase.name, "rows": phase.rows, "consecutive": phase.consecutive, "ops": plain(phase.body)}
            for phase in program.phases
        ],
    }


def numerics(program: p.Program) -> list[tuple[str, str]]:
    """The statements that choose among evaluations which are equal in exact arithmetic: kind, and what it says."""
    schedule = program.schedule
    found: dict[tuple[str, str], None] = {}
    over: dict[tuple[str, ...], list[str]] = {}
    for shard in schedule.shards.values():
        over.setdefault(shard.axes, []).append(shard.size + " (repeat)" * shard.repeat)
    found |= {("shard", f"{', '.join(axes)} : {', '.join(sizes)}"): None for axes, sizes in over.items()}
    found |= {("split", f"{x.weight} over {', '.join(x.axes)}"): None for x in schedule.splits.values()}
    found |= {("reduce", f"{x.value} (by = {x.by}, wire = {x.wire})"): None for x in schedule.reduces}
    found |= {("stream", text): None for text in _apart(program)}
    odd = [x for x in schedule.prefetches if x.tile is not None and x.tile % ATTENDED and x.tile < schedule.context]
    found |= {("prefetch", f"{x.what}.cache (tile = {x.tile} tokens)"): None for x in odd}
    found |= {("form", f"{x.part}.cache = {x.value}"): None for x in schedule.forms}
    found |= {("store", f"{x.weight} as {x.codec}"): None for x in schedule.stores}
    return list(found)


def _apart(program: p.Program) -> list[str]:
    """Weights of one operand that a stream does not fuse: other blocks of columns may sum in another order."""
    found = []
    operands = {(made.scope, made.weight): made.operand for made in program.shares.facts.products}
    for stream in program.schedule.streams:
        for place, groups in stream.lines:
            for i, one in enumerate(groups):
                for other in groups[i + 1 :]:
                    mine, theirs = (operands.get((place, group.weights[0])) for group in (one, other))
                    if mine is not None and theirs is not None and same_operand(mine, theirs):
                        names = ["+".join(w.split(".")[-1] for w in group.weights) for group in (one, other)]
                        found.append(f"{place} : {names[0]} apart from {names[1]}")
    return found


def collectives(program: p.Program) -> list[dict[str, Any]]:
    """What each sends, and how often a step does; `buffers` are shared by all of one shape, listed with the first."""
    ends = ((at.op, at.trips) for at in walk(program))
    times = {op.exchange: trips for op, trips in ends if isinstance(op, p.Receive | p.Argmax) and op.exchange}
    listed: set[m.Ref] = set()
    found = []
    for exchange in program.exchanges.values():
        needs, shared = collective(program, exchange), exchange_set(program, exchange)
        made = exchange.name if exchange.kind.operation is Operation.ARGMAX else exchange.result
        found.append(
            {
                "name": exchange.name.label,
                "kind": needs.kind.operation,
                "by": needs.kind.by,
                "wire": needs.exchanged.wire,
                "axes": list(exchange.axes),
                "width": exchange.width,
                "value": exchange.value.label,
                "result": "" if made is None else made.label,
                "runs": times.get(exchange.name, 0),
                "rounds": needs.serial,
                "sent_bytes": needs.sent,
                "buffers": [_room(need) for need in needs.buffers if shared not in listed],
                "line": line(exchange.span),
            }
        )
        listed.add(shared)
    return found


def source(span: Span) -> str:
    """The text that stands there, on one line."""
    return _SPACES.sub(" ", _COMMENT.sub("", span.text)).strip()


def line(span: Span) -> int:
    """The line on which it begins, from 1."""
    return span.source.position(span.start)[0]


def plain(value: Any) -> Any:
    """Whatever a Program holds as dicts, lists and scalars; an op's dict begins with its kind."""
    if isinstance(value, Span):
        return line(value)
    if isinstance(value, _NODES):
        return source(value.span)
    if isinstance(value, m.Ref):
        return value.label
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if not attrs.has(type(value)):
        return value
    named = {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}
    found = {"line" if name == "span" else name.rstrip("_"): plain(each) for name, each in named.items()}
    if isinstance(value, p.Compute):
        found["text"] = source(value.span)
        del found["node"]
    return {"op": kind(value), **found} if isinstance(value, _OPS) else found


def kind(op: object) -> str:
    """An op's word: `start_tiles`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(op).__name__).lower()


def _total(lines: tuple[Moved, ...]) -> dict[str, int]:
    return {x.name: x.bytes for x in lines} | {"total": sum(x.bytes for x in lines)}


def _room(need: p.Buffer | BufferNeed) -> dict[str, Any]:
    size = padded_bytes(need.shape, need.dtype)
    return {"name": str(need.name), "shape": list(need.shape), "dtype": need.dtype, "padded_bytes": size}


def _ring(program: p.Program, ring: p.Ring) -> dict[str, Any]:
    tape = tapes(program)[ring.name]
    return {
        "name": ring.name.label,
        "slots": ring.slots,
        "slot_bytes": ring.rows * ROW_BYTES,
        "bytes": ring_bytes(ring),
        "ahead": ring.ahead,
        "tape": {"transfers": tape.transfers, "bytes": tape.bytes, "padding_bytes": tape.padding},
    }


def _product(program: p.Program, product: p.Product) -> dict[str, Any]:
    tape = product.tiling.rows * ROW_BYTES
    found: dict[str, Any] = plain(product)
    return found | {"tape_bytes": tape, "padding_bytes": tape - own_bytes(program, product)}
