"""The Program computes what the definition says: the same values, states and caches, of the same weights and inputs.

Each part is compared by itself, from whatever the layers carry; so it holds for any number of layers. What a value is
made of is compared, not how ops compute: that `silu` is a silu, and how many bits a sum over cores has on its way, the
backend's tests show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...model import ir as m
from ...model.facts import STEP
from .. import ir as p
from ..ir.spec_access import Wrong
from .computed import Computed
from .computed_ops import MAKES
from .defined import Defined, before, earlier
from .held import Content, Held, Region
from .op_terms import MEANING, unrounded
from .paths import Fault
from .terms import Term, Terms

CODE = "E229"


def meaning_faults(program: p.Program) -> Iterator[Fault]:
    """Where a part, or a step around its layers, is something else than the definition; one a place."""
    terms, statics = Terms(), {}  # type: ignore[var-annotated]
    for phase in program.phases:
        yield from _phase_faults(phase, program, terms, statics)


def _phase_faults(phase: p.Phase, program: p.Program, terms: Terms, statics: dict[Any, Any]) -> Iterator[Fault]:
    step, layers = phase.step, phase.loop
    # Where no layer runs, all of the step is one place and carries nothing on.
    carried = frozenset[str]() if layers is None else phase.carried
    head, tail = phase.around
    loops = [i for i, s in enumerate(step.body) if isinstance(s, m.Loop) and s.variable == "layer"]
    cut = loops[0] if loops and layers is not None else 0
    first, last = step.body[:cut], tuple(s for i, s in enumerate(step.body[cut:], cut) if i not in loops)
    said = Defined(program, terms, statics, MEANING, phase.place, carried)
    begun = _kept(program, terms) | _entries(program, phase, terms, now=False)
    made = Computed(program, terms, statics, MEANING, phase.place, said, dict(begun), MAKES)
    names = map(said.full, sorted(carried))
    carry: dict[p.BufferRef, Content] = {n: _whole(program, n, earlier(said, n)) for n in names if n in program.buffers}
    yield from _followed(made, first, head, _carried_on)
    begun |= {
        name: content
        for turns in program.turns.values()
        for name in (turns.cos, turns.sin)
        if (content := made.content.get(name)) is not None
    }
    for choice in layers.choices if layers is not None else ():
        for part, body in choice.bodies:
            inner = Defined(program, terms, statics, MEANING, part, carried)
            of_part = Computed(program, terms, statics, MEANING, part, inner, begun | carry, MAKES)
            yield from _followed(of_part, program.instance.model.parts[part].body, body, _part_over)
    if layers is not None:
        said.over(tuple(bank.state for bank in _buffers(program)))
        made.content |= _kept(program, terms) | carry | _entries(program, phase, terms, now=True)
        made.reached |= dict.fromkeys(map(said.full, carried), 1)
    yield from _followed(made, last, tail, _step_over)


def _entries(program: p.Program, phase: p.Phase, terms: Terms, *, now: bool) -> dict[p.BufferRef, Content]:
    """The entries that earlier phases kept of caches, and those of a phase whose layers are over."""
    upto = program.phases[: program.phases.index(phase) + now]
    return {
        array.name: _whole(program, array.name, terms.atom("entries", _cache_of(array)))
        for array in _kept_entries(program)
        if program.phase_of(array.part or "") in upto
    }


def _cache_of(array: p.Array) -> str:
    assert isinstance(array.name, p.EntryRef)
    return str(array.name.cache)


def _kept_entries(program: p.Program) -> list[p.Array]:
    """The entries of caches that stay to the end of the call."""
    found = program.outputs.values()
    return [array for array in found if array.kind == "entry" and array.name not in program.copies]


def _followed(
    made: Computed,
    statements: tuple[m.Statement, ...],
    ops: tuple[p.Op, ...],
    over: Callable[[Computed], Iterator[tuple[m.Ref, str]]],
) -> Iterator[Fault]:
    """The first fault of a place, at its op, or the first that shows when its ops are done."""
    made.at = None
    found: tuple[m.Ref | None, str] | None
    try:
        made.said.run(statements)
        made.run(ops)
        made.at = None
        found = next((wrong for rule in (Computed.unfinished, over) for wrong in rule(made)), None)
    except Wrong as wrong:
        found = None, str(wrong)
    except LookupError as e:
        found = None, f"`{made.place}` names what is not there: {e}"
    if found is not None:
        fault = Fault(CODE, found[1], made.at, found[0])
        fault.place = made.place
        yield fault


def _buffers(program: p.Program) -> list[p.ModelBufferRef]:
    """The model's buffers that the Program has."""
    banks = (p.ModelBufferRef(s.name) for s in program.instance.model.states.values() if s.kind == "buffer")
    return [bank for bank in banks if bank in program.buffers]


def _kept(program: p.Program, terms: Terms) -> dict[p.BufferRef, Content]:
    return {bank: _whole(program, bank, before(terms, bank.state, "buffer")) for bank in _buffers(program)}


def _whole(program: p.Program, name: p.BufferRef, term: Term) -> Content:
    return (Region(0, program.buffers[name].shape[-1], Held(term)),)


def _carried_on(made: Computed) -> Iterator[tuple[m.Ref, str]]:
    """What a place leaves for others: carried values and buffers; and nothing is under way."""
    said, terms = made.said, made.terms
    for name in map(said.full, said.carried):
        wanted = said.values[name][-1] if name in said.values else earlier(said, name)
        held = made.content[name][0].held if name in made.content else None
        if held is None or held.term != wanted or not held.whole:
            yield name, f"`{name}` leaves `{made.place}` as something else than the definition says"
    for bank in _buffers(made.program):
        held = made.content[bank][0].held
        wanted = said.states.get(bank.state, before(terms, bank.state, "buffer"))
        if held.term != wanted:
            yield bank, made.differs(bank, held.term, wanted) + ", element by element"
    for sent in made.sent:
        yield sent, f"`{sent}` is sent and not received"
    for array in made.program.outputs.values():
        if isinstance(array.name, p.TraceRef) and array.part is None and made.place == STEP:
            yield from _traced(made, array.name, made.emitted.get(array.name))


def _part_over(made: Computed) -> Iterator[tuple[m.Ref, str]]:
    """What leaves a part is what the definition has written: states, and caches' entries; each once and last."""
    yield from _carried_on(made)
    wanted: dict[p.ArrayRef, Term] = {
        p.StateRef(name): term for name, term in made.said.states.items() if name in _states(made)
    }
    wanted |= {p.EntryRef(p.ModelCacheRef(name)): term for name, term in made.said.entries.items()}
    for name, term in wanted.items():
        if name not in made.program.outputs or name not in made.saved:
            yield name, f"`{name}` is never saved"
        elif made.saved[name].term != term:
            yield name, made.differs(name, made.saved[name].term, term)
    kept = {array.name for array in _kept_entries(made.program)}
    for array in made.program.outputs.values():
        if array.part != made.place:
            continue
        saved, copy = made.saved.get(array.name), made.program.copies.get(array.name)
        if saved is not None and array.name in kept:
            continue
        if saved is None or copy is None:
            yield array.name, f"the output `{array.name}` is never written"
        elif saved != made.content[copy.buffer][0].held:
            yield array.name, f"`{array.name}` changes after it was saved"
        elif isinstance(array.name, p.TraceRef):
            yield from _traced(made, array.name, saved)
        elif array.kind == "state" and array.name not in wanted:
            yield array.name, f"`{array.name}` is saved, and the definition does not change it"


def _states(made: Computed) -> set[str]:
    states = made.program.instance.model.states.values()
    return {s.name for s in states if s.kind == "state" and s.part == made.place}


def _traced(made: Computed, output: p.TraceRef, held: Held | None) -> Iterator[tuple[m.Ref, str]]:
    """What a trace shows is the value that it is called after."""
    name = output.value
    full, terms = made.said.full(name), made.terms
    values = made.said.values.get(full)
    if p.ModelBufferRef(name) in _buffers(made.program):
        held = held and Held(unrounded(terms, held.term))
        wanted = made.said.states.get(name, before(terms, name, "buffer"))
    else:
        wanted = values[-1] if values else earlier(made.said, full)
    if held is None or held.term != wanted:
        yield output, f"`{output}` is something else than `{full}`"


def _step_over(made: Computed) -> Iterator[tuple[m.Ref, str]]:
    """What the step gives leaves: of a decode step, the ids are chosen by the logits, and the logits leave."""
    phase = made.program.phase_of(made.place)
    if not phase.step.name:
        yield from _logits_over(made)
    for name in phase.step.outputs if phase.step.name else ():
        full = made.said.full(name)
        held, wanted = made.emitted.get(p.StepOutputRef(full)), made.said.values[full][-1]
        if held is None or held.term not in (wanted, made.inner(wanted)):
            yield full, f"`{full}` never leaves for its output"
    for array in _kept_entries(made.program):
        entries = made.terms.atom("entries", _cache_of(array))
        held = made.emitted.get(array.name)
        if array.part in phase.layers and (held is None or held.term != entries):
            yield array.name, f"the output `{array.name}` is never written"
    for array in made.program.outputs.values():
        if (array.part is None or array.part == phase.place) and array.name not in made.emitted:
            yield array.name, f"the output `{array.name}` is never written"


def _logits_over(made: Computed) -> Iterator[tuple[m.Ref, str]]:
    wanted = made.said.values[p.LOGITS][-1]
    if not made.greedy or any(term != wanted for term in made.greedy):
        yield p.LOGITS, "no ids are chosen by `logits`"
    held = made.emitted.get(p.LogitsRef())
    if held is None or held.term not in (wanted, made.inner(wanted)):
        yield p.LOGITS, "`logits` never leave for their output"
