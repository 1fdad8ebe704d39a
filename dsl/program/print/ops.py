"""Ops in words, one a line: what sets out, what is waited for, what is computed, with the line of the text."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import wrap
from typing import Any

from ...records import frozen
from .. import ir as p
from ..ir.walk import children
from ..layout.tiling import ROW_BYTES
from .json import kind, line, plain, source

_GUTTER, _VERB, _NAME = 6, 9, 26


@frozen
class _Said:
    """A verb, what it is about, and more; `at` is a line of the text."""

    verb: str
    name: str
    more: str = ""
    at: int | None = None


def happens(ops: tuple[p.Op, ...], width: int) -> list[str]:
    """All ops in order, the bodies of parts and repetitions further in; at most `width` columns."""
    return _ops(ops, 0, width)


def _ops(ops: tuple[p.Op, ...], depth: int, width: int) -> list[str]:
    found: list[str] = []
    for op in ops:
        said = [] if isinstance(op, p.LayerSwitch) else [_SAY.get(type(op), _any)(op)]
        found += [line for each in said for line in _line(each, depth, width)]
        for body in children(op):
            if isinstance(op, p.LayerSwitch) and body.place is not None:
                found += _line(_Said("part", body.place, _where(op, body.place)), depth, width)
            found += _ops(body.ops, depth + 1, width)
    return found


def _where(choice: p.LayerSwitch, part: str) -> str:
    others = [name for name, _ in choice.bodies if name != part]
    return f"or {', '.join(others)}, as the layer says" if others else ""


def _line(said: _Said, depth: int, width: int) -> list[str]:
    gutter = "" if said.at is None else f"{said.at}|"
    head = f"{gutter:>{_GUTTER - 1}} {'  ' * depth}{said.verb:{_VERB}}"
    if not said.more:
        return [f"{head}{said.name}".rstrip()]
    if len(said.name) > _NAME:
        return [f"{head}{said.name}", *_under(said.more, " " * (_GUTTER + 2 * depth + _VERB + 2), width)]
    first, *rest = _under(said.more, " " * (len(head) + _NAME + 2), width)
    return [f"{head}{said.name:{_NAME}}  {first.lstrip()}", *rest]


def _under(text: str, indent: str, width: int) -> list[str]:
    return [f"{indent}{each}" for each in wrap(text, width - len(indent), break_long_words=False)]


def _compute(op: p.Compute) -> _Said:
    guard = f"  when {source(op.guard.span)}" if op.guard is not None else ""
    return _Said("compute", ", ".join(map(str, op.outputs)), source(op.span) + guard, line(op.span))


def _wait(op: p.Wait) -> _Said:
    many = f"{len(op.rows)} transfers" if len(op.rows) > 1 else "a transfer"
    return _Said(
        "wait", op.ring.label, f"{many}, {' + '.join(f'{rows * ROW_BYTES // 1024:,}' for rows in op.rows)} KiB"
    )


def _saved(op: p.StoreWait) -> _Said:
    which = "every slot" if op.all_ else "the slot of the next layer" if op.ahead else "this layer's slot"
    return _Said("saved", op.copy.label, f"{which} is free" if not op.all_ else f"{which} has left")


def _greedy(op: p.Argmax) -> _Said:
    over = f", over all cores by `{op.exchange}`" if op.exchange is not None else ""
    return _Said("choose", op.logits.label, f"the largest of {op.share:,}, the lowest id on ties{over}")


def _lookup(op: p.Lookup) -> _Said:
    share = f", if it is among this core's {op.share:,}" if op.share is not None else ""
    return _Said("look up", op.buffer.label, f"entry `{source(op.index.span)}`{share}", line(op.index.span))


def _carried(op: p.RowLoop) -> str:
    """What goes from row to row."""
    return "one after the other" + "".join(f", {one} from {whole} on" for whole, one in op.carried)


def _any(op: Any) -> _Said:
    """An op that has no words of its own: its fields."""
    said = {key: value for key, value in plain(op).items() if key not in ("op", "line", "body")}
    name = str(said.pop(next(iter(said)))) if said else ""
    at = line(op.span) if hasattr(op, "span") else None
    return _Said(kind(op).replace("_", " "), name, ", ".join(f"{key} = {value}" for key, value in said.items()), at)


_SAY: dict[type, Callable[[Any], _Said]] = {
    p.Barrier: lambda op: _Said("barrier", "all cores have entered the call"),
    p.Start: lambda op: _Said(
        "start", op.ring.label, f"the next {op.count} transfers" if op.count > 1 else "the next transfer"
    ),
    p.Wait: _wait,
    p.Dot: lambda op: _Said("dot", op.product.label, f"cut {op.run + 1}"),
    p.CopyStart: lambda op: _Said("load", op.copy.label, "for the next layer" if op.ahead else ""),
    p.CopyWait: lambda op: _Said("loaded", op.copy.label),
    p.StoreStart: lambda op: _Said("save", op.copy.label),
    p.StoreWait: _saved,
    p.Lookup: _lookup,
    p.Compute: _compute,
    p.Send: lambda op: _Said("send", op.exchange.label),
    p.Receive: lambda op: _Said("receive", op.exchange.label),
    p.StartTiles: lambda op: _Said("start", op.ring.label, "its first tiles"),
    p.Attend: lambda op: _Said("attend", op.result.label, source(op.call.span), line(op.call.span)),
    p.AttendBlock: lambda op: _Said("attend", op.result.label, source(op.call.span), line(op.call.span)),
    p.ArgmaxValue: lambda op: _Said(
        "choose",
        op.result.label,
        f"the largest of {op.value}, the lowest id on ties"
        + (f", over all cores by `{op.exchange}`" if op.exchange is not None else ""),
        line(op.call.span),
    ),
    p.Keep: lambda op: _Said("keep", op.buffer.label, source(op.node.span), line(op.span)),
    p.RowLoop: lambda op: _Said("rows", f"{op.start} .. {op.stop}", _carried(op)),
    p.RopeTables: lambda op: _Said(
        "rotate", f"{op.cos}, {op.sin}", f"{op.channels} channels by {source(op.call.span)}", line(op.call.span)
    ),
    p.Fetch: lambda op: _Said("fetch", op.bank.label, f"of the chosen, from {op.first + 1} to {op.stop}"),
    p.Emit: lambda op: _Said(
        "emit", op.output.label, f"from {op.buffer}" if op.buffer.label != op.output.label else ""
    ),
    p.Argmax: _greedy,
    p.Repeat: lambda op: _Said("repeat", f"{op.count} times"),
    p.LayerLoop: lambda op: _Said("layers", f"{op.start} .. {op.stop}"),
}
