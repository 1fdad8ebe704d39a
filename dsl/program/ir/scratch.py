"""Room that rings take, ops for themselves while they run, and collectives together: by shape alone.

The Pallas backend allocates buffers of exactly these shapes, so a bill that lists them lists what the kernel holds.
"""

from __future__ import annotations

from ...collectives.collective import BufferNeed, CollectivePlan, Exchanged, Wire
from ...model import ir as m
from ...model.expressions import walk
from ...model.ir import Node
from ...records import frozen
from ...schedule.shares import Shares
from ...targets.lanes import SUBLANES
from .. import ir as p
from ..layout.tiling import ROW_BYTES


def ring_bytes(ring: p.Ring) -> int:
    """What a ring takes of VMEM."""
    return ring.slots * ring.rows * ROW_BYTES


@frozen(cache_hash=True)
class ExchangeSet(m.Ref):
    """The buffers that collectives of one shape share; `more`: something goes beside the columns.

    `rows` are those of the value, where they are not the call's.
    """

    kind: str
    wire: Wire
    width: int
    more: bool
    axes: tuple[str, ...]
    rows: int | None

    @property
    def label(self) -> str:
        """For people."""
        width = f"{self.width}{' and more' if self.more else ''}"
        those = "" if self.rows is None else f" of {self.rows} rows"
        return f"{self.kind} {self.wire} {width}{those} over {' '.join(self.axes)}"


def exchange_set(program: p.Program, exchange: p.Collective) -> ExchangeSet:
    """Exchanges of one shape share a set of buffers, whose parity alternates."""
    more, rows = exchange.beside is not None, exchange_rows(program, exchange)
    others = None if rows == program.rows else rows
    return ExchangeSet(exchange.kind.name, exchange.wire, exchange.width, more, exchange.axes, others)


def exchange_rows(program: p.Program, exchange: p.Collective) -> int:
    """The rows of an exchange's value."""
    view = program.views.get(exchange.value)
    return program.buffers[exchange.value if view is None else view.buffer].shape[0]


def collective(program: p.Program, exchange: p.Collective) -> CollectivePlan:
    """Its buffers and phases."""
    cores = program.schedule.ways(exchange.axes)
    beside = program.buffers[exchange.beside].shape[-1] if exchange.beside is not None else 0
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
