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


def output(place: str, value: str) -> str:
    """The output that holds a value, `[runs, …]` as its buffer, or of the step `…`, before the layers."""
    return f"trace {place}.{value}"


def trace(build: Build, parts: dict[str, Ops], first: Ops) -> None:
    """Add the ops to parts' bodies, and to what comes before the layers."""
    carries = build.carried
    carried = [name for name in build.buffers if name in carries]
    for name in carried:
        held = build.buffers[name]
        build.outputs[output(STEP, name)] = p.Array(output(STEP, name), held.shape, held.dtype, "trace")
        first.append(p.Emit(name, output(STEP, name)))
    kept = [s.name for s in build.schedule.model.states.values() if s.kind == "buffer" and s.name in build.buffers]
    for part, ops in parts.items():
        span = build.schedule.model.parts[part].span
        for name in (*carried, *kept):
            ops += _saved(build, part, name, name, span)
        for statement in build.schedule.model.parts[part].body:
            for name in statement.names if isinstance(statement, m.Assign) else ():
                own = f"{part}.{name}"
                if own in build.buffers and output(part, name) not in build.outputs:
                    ops += _saved(build, part, name, own, span)


def _saved(build: Build, part: str, value: str, buffer: str, span: Span) -> list[p.Op]:
    """A copy of a buffer, which leaves while the kernel goes on."""
    held, name = build.buffers[buffer], output(part, value)
    build.buffer(name, (_SLOTS, *held.shape), held.dtype, "", span)
    build.views.setdefault(f"whole {buffer}", p.View(buffer, 0, held.shape[1:]))
    build.copies[name] = p.Copy(name, part, name, name, _SLOTS)
    layers = len(build.layers_of(part))
    build.outputs[name] = p.Array(name, (layers, *held.shape), held.dtype, "trace", part)
    read = m.Local(f"whole {buffer}", m.Type(held.dtype, ()), span)
    return [p.StoreWait(name, ahead=False), p.Compute((name,), read, None, span), p.StoreStart(name)]
