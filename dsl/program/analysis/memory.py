"""What a Program takes of a core's memories: a line for each buffer, by its name, as the compiler charges it."""

from __future__ import annotations

from attrs import field

from ...model import ir as m
from ...records import frozen
from ...schedule.ir import Pass
from ...source import Span
from ...targets.targets import padded_bytes
from .. import ir as p
from ..ir.scratch import ExchangeSet, collective, exchange_set, ring_bytes, rooms
from ..ir.walk import walk
from ..layout.tiling import ROW_BYTES, up
from .spills import temporaries
from .traffic import tape_rows, tapes

TEMPORARIES = "compiler temporaries"
# The bill is never below what the compiler uses, and at most so much above it.
BAND = 0.05
_LINE, _WORD = 128, 4  # words of a line of SMEM, bytes of a word
# What a compiled step takes of HBM, at most: the program, with the kernel's code for each op, and XLA's temporaries.
_STEP, _OP = 2 << 20, {"bf16": 32 << 10, "f32": 64 << 10}


@frozen
class Line:
    """Padded bytes of one thing. `place` is the part or step for which it is there, `""` the whole call.

    `of` are the buffers, rings or collectives that it is of, if they have names.
    """

    name: str
    bytes: int
    why: str = ""
    place: str = ""
    span: Span | None = field(default=None, repr=False, eq=False)
    of: tuple[m.Ref, ...] = ()


@frozen
class Bill:
    """Lines of each memory, largest first. `limit`s are what a kernel on this target can use.

    Everything in VMEM is there through the whole call, but for what ops take while they run: `passing`, of which only
    one is there at a time. `estimated` says that there is no Program to count, only what the statements ask for.
    """

    rows: int
    vmem: tuple[Line, ...]
    passing: tuple[Line, ...]
    smem: tuple[Line, ...]
    semaphores: tuple[Line, ...]
    hbm: tuple[Line, ...]
    limit: int
    smem_limit: int
    hbm_limit: int
    estimated: bool = False
    consecutive: bool = False

    @property
    def of(self) -> Pass:
        """The pass that it is of."""
        return Pass(self.rows, self.consecutive)

    @property
    def total(self) -> int:
        """VMEM at its peak."""
        return sum(line.bytes for line in self.vmem) + max((line.bytes for line in self.passing), default=0)

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines of VMEM at its peak, largest first."""
        return _sorted([*self.vmem, *self.passing[:1]])

    @property
    def peak(self) -> str:
        """Where VMEM is at its peak: a place, `""` if it is the same everywhere."""
        return self.passing[0].place if self.passing else ""

    @property
    def in_band(self) -> bool:
        """Whether only the compiler can tell if it fits."""
        return not self.estimated and self.limit < self.total <= self.limit * (1 + BAND)

    @property
    def held(self) -> int:
        """HBM."""
        return sum(line.bytes for line in self.hbm)

    @property
    def scalars(self) -> int:
        """SMEM."""
        return sum(line.bytes for line in self.smem)


def bill(program: p.Program) -> Bill:
    """What one core's step holds."""
    has = program.schedule.target.memory
    spilled = Line(TEMPORARIES, temporaries(program), "registers that do not hold all values: an upper estimate")
    vmem = [*_buffers(program), *_rings(program), *_exchanges(program), _columns(program), spilled]
    return Bill(
        program.rows,
        _sorted(vmem),
        _sorted(_passing(program)),
        _sorted(_smem(program)),
        tuple(_semaphores(program)),
        _sorted(_hbm(program)),
        int(has.vmem.value),
        int(has.smem.value),
        int(has.hbm.value),
        consecutive=program.consecutive,
    )


def _sorted(lines: list[Line]) -> tuple[Line, ...]:
    return tuple(sorted((line for line in lines if line.bytes), key=lambda line: -line.bytes))


def _buffers(program: p.Program) -> list[Line]:
    """The line of the schedule that asks for a buffer is shown, or else that of the model which it is for."""
    slots = {bank.name: bank for bank in program.banks.values()}
    said = {(x.kind, x.what): x.span for x in program.schedule.prefetches}
    asked = {name: said.get(("cache", ring.part)) for ring in program.caches.values() for name in ring.buffers}
    for copy in program.copies.values():
        array = program.arrays.get(copy.name)
        kind = "" if array is None else array.kind
        asked[copy.buffer] = said.get((kind, kind if kind == "vectors" else copy.part or ""))
    found = []
    for b in program.buffers.values():
        size, why, span = padded_bytes(b.shape, b.dtype), f"{b.dtype} {list(b.shape)}", asked.get(b.name) or b.span
        if b.name in slots:
            bank = slots[b.name]
            why, span = f"{bank.slots} slots x {mib(size // bank.slots)}", bank.span
        found.append(Line(b.name.label, size, why, b.place, span, (b.name,)))
    return found


def _rings(program: p.Program) -> list[Line]:
    found = []
    for ring in program.rings.values():
        name, size = f"stream {ring.name}" if ring.ahead else f"ring {ring.name}", ring_bytes(ring)
        found.append(Line(name, size, f"{ring.slots} slots x {mib(size // ring.slots)}", "", ring.span, (ring.name,)))
    return found


def _exchanges(program: p.Program) -> list[Line]:
    """Collectives of one shape share a set of buffers."""
    shared: dict[ExchangeSet, list[p.Collective]] = {}
    for exchange in program.exchanges.values():
        shared.setdefault(exchange_set(program, exchange), []).append(exchange)
    found = []
    for users in shared.values():
        needs = collective(program, users[0])
        size = sum(padded_bytes(need.shape, need.dtype) for need in needs.buffers)
        how = f"{needs.kind}, {needs.exchanged.wire}: {', '.join(need.name for need in needs.buffers)}"
        names = tuple(x.name for x in users)
        found.append(Line(f"messages of {', '.join(map(str, names))}", size, how, "", users[0].span, names))
    return found


def _columns(program: p.Program) -> Line:
    rows = _tokens(program)
    each = padded_bytes((rows, 1), "int32")
    return Line("tokens, positions, ids", 3 * each, f"3 x int32 [{rows}, 1]")


def _tokens(program: p.Program) -> int:
    """Those of all phases."""
    return sum(phase.rows for phase in program.phases)


def _passing(program: p.Program) -> list[Line]:
    found = []
    for at in walk(program):
        if isinstance(op := at.op, p.Compute):
            for call, needs in rooms(op.node, program.shares, program.rows_at(at.place)):
                size = sum(padded_bytes(need.shape, need.dtype) for need in needs)
                words = ", ".join(need.name for need in needs)
                found.append(Line(f"room of {call.op}", size, words, program.buffers[op.outputs[0]].place, call.span))
    return found


def _smem(program: p.Program) -> list[Line]:
    """Tables of scalars; lines of 128 words, and eight lines of a matrix."""
    loops = [phase.loop for phase in program.phases]
    sizes = [(2, 1) if loop is None else (loop.stop - loop.start + 2, len(loop.choices)) for loop in loops]
    tables = sum(up(count, 8) * _list(2 * places) for count, places in sizes)
    shapes, count = ", ".join(f"[{count}, {2 * places}]" for count, places in sizes), max(count for count, _ in sizes)
    found = [
        Line("tokens, positions", 2 * _list(_tokens(program)), f"2 x [{_tokens(program)}]"),
        Line("table of layers", tables, shapes),
    ]
    for name, some in (("numbers by layer", program.whole_scalars), ("fractions by layer", program.real_scalars)):
        if some:
            found.append(Line(name, up(count, 8) * _list(len(some)), f"[{count}, {len(some)}]"))
    for bank in program.banks.values():
        found.append(Line(f"list of {bank.name}", _list(bank.most + 1), f"[{bank.most + 1}]", bank.part))
    read = tapes(program)
    for ring in program.rings.values():
        entries = ring.slots + read[ring.name].transfers
        found.append(Line(f"table of {ring.name}", _list(entries), f"[{entries}] transfers", "", ring.span))
    said = {x.what: x.span for x in program.schedule.prefetches if x.kind == "cache"}
    for tile, cache in {cache.tile: cache for cache in program.caches.values()}.items():
        entries = 2 + program.phase_of(cache.part).rows * cache.tiles
        found.append(Line(f"tiles of {tile} positions", _list(entries), f"[{entries}]", "", said.get(cache.part)))
    return found


def _list(entries: int) -> int:
    return up(entries, _LINE) * _WORD


def _semaphores(program: p.Program) -> list[Line]:
    """DMA semaphores, four bytes each of a memory of their own."""
    found = [Line(ring.name.label, ring.slots * _WORD, f"{ring.slots}: one a slot") for ring in program.rings.values()]
    for copy in program.copies.values():
        ways = (copy.name in program.arrays) + (copy.name in program.outputs)
        found.append(Line(copy.name.label, ways * copy.slots * _WORD, f"{ways * copy.slots}: one a slot and direction"))
    for cache in program.caches.values():
        count = cache.slots * len(cache.buffers)
        found.append(Line(cache.name.label, count * _WORD, f"{count}: one a slot and cache"))
    for bank in program.banks.values():
        found.append(Line(bank.name.label, bank.slots * _WORD, f"{bank.slots}: one a slot"))
    found.append(Line("lookups", _WORD, "1"))
    for exchange in {exchange_set(program, x): x for x in program.exchanges.values()}.values():
        rounds, ways, parities = collective(program, exchange).semaphores
        count = rounds * ways * parities
        found.append(Line(exchange.name.label, count * _WORD, f"{count}: {rounds} rounds, both ways, two parities"))
    return found


def _hbm(program: p.Program) -> list[Line]:
    """Tapes are read as they lie; arrays are padded as XLA lays them out. New states have room until they are moved."""
    found = []
    for ring in program.rings:
        rows = tape_rows(program, ring)
        found.append(Line(f"tape of {ring}", rows * ROW_BYTES, f"{rows} rows x {ROW_BYTES} B"))
    for array in program.arrays.values():
        found.append(
            Line(array.name.label, padded_bytes(array.shape, array.dtype), f"{array.dtype} {list(array.shape)}")
        )
    for array in program.outputs.values():
        size = padded_bytes(array.shape, array.dtype)
        found.append(Line(f"output {array.name}", size, f"{array.dtype} {list(array.shape)}"))
    for phase in program.phases:
        for name in phase.step.outputs:
            type_ = phase.step.types[name]
            size = padded_bytes((phase.rows, *program.instance.shape(type_.shape)), "f32")
            found.append(Line(f"{name} of all cores", 2 * size, "as they are put together"))
    ops = sum(1 for each in walk(program) if not isinstance(each.op, p.LayerSwitch))  # which is a branch
    code = ops * _OP[program.instance.working]
    found.append(Line("the compiled step", _STEP + code, f"{ops} ops, and XLA's temporaries: an upper estimate"))
    return found


def mib(size: int) -> str:
    """`2.50 MiB`."""
    return f"{size / (1 << 20):.2f} MiB"


def gib(size: int) -> str:
    """`94.7 GiB`; less than one in MiB."""
    if size < 1 << 30:
        return f"{size / (1 << 20):.1f} MiB"
    return f"{size / (1 << 30):.1f} GiB"
