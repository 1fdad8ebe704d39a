"""Named scopes: how an op of a Program is known in the compiler's messages and schedules, and where its text stands."""

from __future__ import annotations

import re
import traceback
from collections import defaultdict
from collections.abc import Iterator

from attrs import frozen

from ....dsl.model import ir as m
from ....dsl.model.expressions import walk as nodes
from ....dsl.program import ir as p
from ....dsl.program.analysis.traffic import chosen_once, fetched
from ....dsl.program.ir.op_labels import span, subject
from ....dsl.program.ir.walk import walk
from ....dsl.source import Span
from ..layout.tape import IDLE, starting

LAYERS, BEGINS = "layers", "a row begins"
# The compiler's location, which begins with an operation's scopes.
_LOCATION = re.compile(r'loc\("[^"]*"\("([^"]*)"')


class _Mark(str):
    """A note in an error: in which op's scope it was raised."""

    __slots__ = ("scope",)

    def __new__(cls, scope: str) -> _Mark:
        found = super().__new__(cls, f"while emitting: {scope}")
        found.scope = scope
        return found

    scope: str


@frozen
class Place:
    """A statement or line of the definition; `part` is the part or step that it belongs to, `""` if none is known."""

    span: Span | None
    part: str = ""


def scope(op: p.Op, place: str) -> str:
    """The scope of an op in a part or step: `dot mlp.down`."""
    word, ref = type(op).__name__.lower(), subject(op)
    if ref is None:
        return f"{word} "
    return f"{word} {ref}" if f"{place}." in ref.label else f"{word} {place}.{ref}"


def part_scope(part: str) -> str:
    """The scope of a part's body."""
    return f"part {part}"


def tiles_scope(op: p.Attend) -> str:
    """The scope of the loop over a cache's tiles."""
    return f"tiles of {op.result}"


def next_scope(name: m.Ref) -> str:
    """Where a cache's tile or a bank's expert is started while another is at hand; the result's or the bank's name."""
    return f"next of {name}"


def last_scope(op: p.Attend) -> str:
    """Where a row is done."""
    return f"last tile of {op.result}"


def bank_scope(place: str) -> str:
    """The beginning of the scopes of loops over the banks that a place mixes."""
    return f"bank of {place}"


def listed_scope(bank: m.Ref) -> str:
    """The scope of the loops that list the chosen experts."""
    return f"listed of {bank}"


def expert_scope(bank: m.Ref) -> str:
    """The scope of the loop over the chosen experts."""
    return f"each of {bank}"


def ways_scopes(bank: m.Ref) -> tuple[str, str]:
    """The scopes of a product with an expert that a single row chose, and with one of several."""
    return f"one row with {bank}", f"rows with {bank}"


def trips(program: p.Program) -> dict[str, float]:
    """How often loops and parts run in a step that the schedule of a kernel says nothing of, by scope.

    Caches are full: each row attends to `context` positions.
    """
    found: dict[str, float] = {}
    for at in walk(program):
        match op := at.op:
            case p.LayerLoop():
                found[LAYERS] = op.stop - op.start
            case p.LayerSwitch() if not program.unconditional(op):
                found |= {part_scope(name): program.times(name) for name, _ in op.bodies}
            case p.Attend():
                found[tiles_scope(op)] = at.trips * _tiles(op, program)
    return found


def small(program: p.Program) -> dict[str, float]:
    """The same of loops and branches of which the compiler may have made something else; in all that have the scope.

    Routing is uniform, on the core with most experts.
    """
    found: dict[str, float] = defaultdict(float, {BEGINS: 0.0})
    for at in walk(program):
        place, times = at.place, program.times(at.place)
        match op := at.op:
            case p.Attend():
                later = max(0, _tiles(op, program) - program.caches[op.ring].slots)
                found[next_scope(op.result)] += times * later
                found[last_scope(op)] += times * program.rows
            case p.Route() | p.Experts():
                bank = program.banks[op.bank]
                chosen = fetched(program, bank)
                if isinstance(op, p.Route):
                    found[listed_scope(bank.name)] += times * chosen
                else:
                    found[expert_scope(bank.name)] += times * chosen
                    found[next_scope(bank.name)] += times * max(0.0, chosen - bank.slots)
            case p.ExpertDot():
                bank = program.banks[op.bank]
                share = chosen_once(program, bank)
                for name, part in zip(ways_scopes(bank.name), (share, 1 - share), strict=True):
                    found[name] += times * fetched(program, bank) * part
            case p.Compute() | p.Put():
                for node in nodes(op.node):
                    if isinstance(node, m.Call) and node.op == "mix":
                        for name in ("score", "sum"):
                            found[f"{bank_scope(place)}, {name}"] += _mixed(node, place, program)
    for starts in starting(program).values():
        for i, counts in enumerate(starts.counts):
            if len(counts) > 1:
                found |= {starts.scope(i, rows): times for rows, times in counts.items() if rows != IDLE}
    return dict(found)


def _tiles(op: p.Attend, program: p.Program) -> int:
    """All rows' tiles in one layer; consecutive rows have one sequence."""
    return (1 if program.consecutive else program.rows) * program.caches[op.ring].tiles


def _mixed(node: m.Call, place: str, program: p.Program) -> float:
    """Banks that are mixed in a step, all layers together."""
    banks = node.args[0]
    if not isinstance(banks, m.Slice):
        return 0.0  # all of them: a loop between constants
    layers = program.layers_of(place) if place in program.instance.model.parts else (None,)
    return sum(float(program.instance.number(banks.stop, layer)) for layer in layers)


def mark(error: Exception, name: str) -> None:
    """Say in an error in which op's scope it was raised; the innermost stands first."""
    error.add_note(_Mark(name))


def place_of(error: BaseException, program: p.Program) -> Place:
    """Where in the definition what was raised for a kernel belongs: the schedule, if nothing tells.

    Emitters' errors are marked; what JAX cannot lower has scopes, which its frames know; the compiler names scopes.
    """
    known = _places(program)
    for name in _scopes(error):
        for part in reversed(name.split("/")):
            if part in known:
                return known[part]
    return Place(program.schedule.span)


def _scopes(error: BaseException) -> Iterator[str]:
    seen: BaseException | None = error
    while seen is not None:
        for note in getattr(seen, "__notes__", ()):
            if isinstance(note, _Mark):
                yield note.scope
        frames = [frame.f_locals.get("eqn") for frame, _ in traceback.walk_tb(seen.__traceback__)]
        for equation in reversed([eqn for eqn in frames if eqn is not None]):
            yield str(getattr(getattr(equation, "source_info", None), "name_stack", ""))
        yield from _LOCATION.findall(str(seen))
        seen = seen.__cause__ or seen.__context__


def _places(program: p.Program) -> dict[str, Place]:
    """By scope. Of ops that have no text of their own, it is that of what they are for."""
    found, parts = {}, program.instance.model.parts
    for at in walk(program):
        said = span(at.op, at.place, program) or (parts[at.place].span if at.place in parts else None)
        found[scope(at.op, at.place)] = Place(said, at.place)
    return found
