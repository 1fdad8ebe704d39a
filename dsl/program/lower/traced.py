"""What a traced Program gives beside its results: carried values and a part's own, as each run of it leaves them."""

from __future__ import annotations

from ...model import ir as m
from ...model.facts import STEP
from ...source import Span
from .. import ir as p
from .build import Build
from .frame import Ops

# No slots: the next run waits for what the last one saved.
_SLOTS = 1


def trace(build: Build, parts: dict[str, Ops], first: Ops) -> None:
    """Add the ops to parts' bodies, and to what comes before the layers."""
    carries = build.carried
    carried = [ref for ref in build.buffers if isinstance(ref, p.ValueRef) and not ref.place and ref.name in carries]
    for ref in carried:
        held = build.buffers[ref]
        output = p.TraceRef(STEP, ref.name)
        build.outputs[output] = p.Array(output, held.shape, held.dtype, "trace")
        first.append(p.Emit(ref, output))
    banks = (p.ModelBufferRef(s.name) for s in build.schedule.model.states.values() if s.kind == "buffer")
    kept = [bank for bank in banks if bank in build.buffers]
    for part, ops in parts.items():
        span = build.schedule.model.parts[part].span
        for ref in carried:
            ops += _saved(build, part, ref.name, ref, span)
        for bank in kept:
            ops += _saved(build, part, bank.state, bank, span)
        for statement in build.schedule.model.parts[part].body:
            for name in statement.names if isinstance(statement, m.Assign) else ():
                own = p.ValueRef(part, name)
                if own in build.buffers and p.TraceRef(part, name) not in build.outputs:
                    ops += _saved(build, part, name, own, span)


def _saved(build: Build, part: str, value: str, buffer: p.BufferRef, span: Span) -> list[p.Op]:
    """A copy of a buffer, which leaves while the kernel goes on."""
    held, name = build.buffers[buffer], p.TraceRef(part, value)
    build.buffer(name, (_SLOTS, *held.shape), held.dtype, "", span)
    whole = p.PartRef(p.Role.WHOLE, buffer)
    build.views.setdefault(whole, p.View(buffer, 0, held.shape[1:]))
    build.copies[name] = p.Copy(name, part, name, name, _SLOTS)
    layers = len(build.layers_of(part))
    build.outputs[name] = p.Array(name, (layers, *held.shape), held.dtype, "trace", part)
    read = m.Read(whole, m.Type(held.dtype, ()), span)
    return [p.StoreWait(name, ahead=False), p.Compute((name,), read, None, span), p.StoreStart(name)]
