"""Room that rings take, ops for themselves while they run, and collectives together: by shape alone.

The Pallas backend allocates buffers of exactly these shapes, so a bill that lists them lists what the kernel holds.
"""

from __future__ import annotations

from ...collectives.collective import BufferNeed, CollectivePlan, Exchanged
from ...model import ir as m
from ...model.expressions import walk
from ...model.ir import Node
from ...schedule.shares import Shares
from .. import ir as p
from ..layout.tiling import ROW_BYTES

SUBLANES = 8


def ring_bytes(ring: p.Ring) -> int:
    """What a ring takes of VMEM."""
    return ring.slots * ring.rows * ROW_BYTES


def exchange_set(program: p.Program, exchange: p.Collective) -> str:
    """Exchanges of one shape share a set of buffers, whose parity alternates."""
    width = f"{exchange.width}{' and more' if exchange.beside else ''}"
    rows = exchange_rows(program, exchange)
    those = "" if rows == program.rows else f" of {rows} rows"
    return f"{exchange.kind.name} {exchange.wire} {width}{those} over {' '.join(exchange.axes)}"


def exchange_rows(program: p.Program, exchange: p.Collective) -> int:
    """The rows of an exchange's value."""
    view = program.views.get(exchange.value)
    return program.buffers[exchange.value if view is None else view.buffer].shape[0]


def collective(program: p.Program, exchange: p.Collective) -> CollectivePlan:
    """Its buffers and phases."""
    cores = program.schedule.ways(exchange.axes)
    beside = program.buffers[exchange.beside].shape[-1] if exchange.beside else 0
    given = Exchanged(cores, exchange_rows(program, exchange), exchange.width + beside, exchange.wire, beside)
    return exchange.kind.plan(given)


def delta_rule(rows: int, k_heads: int, heads: int, key: int, val: int, by_key: bool) -> tuple[BufferNeed, ...]:
    """Queries, keys and, where decays are `[B, heads, key]`, decays; values and results; gates."""
    vectors = 2 * k_heads + by_key * heads
    return (
        BufferNeed("vectors", (rows, vectors + -vectors % SUBLANES, key), "f32"),
        BufferNeed("values", (rows, heads, val), "f32"),
        BufferNeed("gates", (rows, 2 * heads), "f32"),
    )


def rooms(node: Node, shares: Shares, rows: int) -> list[tuple[m.Call, tuple[BufferNeed, ...]]]:
    """What each op of an expression takes while it runs; it is given back before the next."""
    found = []
    for call in walk(node):
        if isinstance(call, m.Call) and call.op == "delta_rule":
            (k_heads, key), (heads, val) = (shares.shape(call.args[i].type.shape) for i in (0, 2))
            by_key = len(call.args[3].type.shape) == 2
            found.append((call, delta_rule(rows, k_heads, heads, key, val, by_key)))
    return found
