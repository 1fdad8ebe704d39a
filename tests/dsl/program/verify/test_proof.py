"""The proof of Programs: shipped ones hold, at once; each property that does not is said with its steps and lines."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from attrs import evolve
from helpers.definitions import FOLDER, NAMES
from helpers.mutants import mutants, placed
from helpers.rewrite import replaced, with_body
from helpers.simulate import outcome
from helpers.small import CASES, Case, program
from helpers.wrong import wrong

from mks.dsl.collectives.softmax_merge import SOFTMAX_MERGE
from mks.dsl.diagnostics import Diagnostic, MksError
from mks.dsl.frontend import load_definition
from mks.dsl.program import ir as p
from mks.dsl.program.lower.lower import lower
from mks.dsl.program.verify.collectives import barrier_machine
from mks.dsl.program.verify.paths import check, layers, track
from mks.dsl.program.verify.prove import _bones, prove, prove_all

DENSE = p.StreamRef("dense")

RINGED, GATED, EXPERTS, MERGED = CASES[1], CASES[6], CASES[7], CASES[9]


def lowered() -> list[p.Program]:
    """Every shipped Program that kernels can do, with few and with many rows."""
    found = []
    for name in NAMES:
        definition = load_definition(FOLDER / f"{name}.mks")
        for (model, _), schedule in definition.schedules.items():
            for rows in {min(schedule.rows), max(schedule.rows)} if schedule is not None else ():
                try:
                    found.append(lower(schedule, definition.instances[model], rows))
                except MksError:
                    continue
    return found


def mutant(case: Case, words: str) -> p.Program:
    """The first mutant that begins so."""
    return next(changed for said, changed in mutants(program(case)) if said.startswith(words))


def said(case: Case, words: str, code: str) -> Diagnostic:
    """The diagnostic of a code for a mutant."""
    return next(d for d in prove(mutant(case, words)) if d.code == code)


def test_shipped_programs_hold() -> None:
    """Of every shipped definition that kernels can do nothing is refused."""
    found = lowered()

    assert {program.schedule.model.name for program in found} >= {"smollm2", "qwen3", "qwen38", "kimi_k3"}
    assert [d for program in found for d in prove(program)] == []


@pytest.mark.parametrize("model", ["qwen3", "qwen38", "kimi_k3"])
def test_tokens_of_one_sequence_hold(model: str) -> None:
    """A pass over several of them; one whose states have no room for what they were before is refused."""
    definition = load_definition(FOLDER / f"{model}.mks")
    schedule = definition.schedules[definition.own_schedules[0]]
    assert schedule is not None
    whole = lower(schedule, definition.instances[model], 8, consecutive=True)
    assert prove(whole) == []

    for name in [array.name for array in whole.arrays.values() if array.kind == "state"]:
        slots, kept, *shape = whole.buffers[name].shape
        short = evolve(whole.buffers[name], shape=(slots, kept - 1, *shape))
        assert {d.code for d in prove(evolve(whole, buffers=whole.buffers | {name: short}))} == {"E228"}


def test_the_proof_is_quick() -> None:
    """Qwen3.8's takes less than 50 ms of one core."""
    whole = next(program for program in lowered() if program.schedule.model.name == "qwen38")
    taken = []
    for _ in range(5):
        start = time.process_time()
        prove(whole)
        taken.append(time.process_time() - start)

    assert min(taken) < 0.05


def test_a_slot_read_before_its_wait() -> None:
    """E220: a product without its wait."""
    found = said(GATED, "without CopyWait state delta.S", "E220")

    assert found.message == "the read of slot 0 of `state delta.S` does not wait for its load"
    assert found.primary is not None
    assert "delta_rule" in found.primary.span.text
    assert found.notes[:2] == (
        "step 1: step: the load of `state delta.S` into slot 0 starts",
        "step 2: layer 0, delta: here, on every core",
    )


def test_a_slot_overwritten() -> None:
    """E221: a load while the slot is still being saved, with the line that prefetches it and both steps."""
    found = said(GATED, "without StoreWait state delta.S", "E221")

    assert found.message == "`state delta.S` is loaded into slot 0 while it is still being saved"
    assert found.primary is not None
    assert found.primary.span.text.startswith("prefetch delta.state")
    assert any("the save of `state delta.S` from slot 0 starts" in note for note in found.notes)


def test_a_transfer_without_a_wait() -> None:
    """E222: what was saved last is not waited for."""
    whole = program(GATED)
    body = tuple(
        op for op in whole.phase.body if not (isinstance(op, p.StoreWait) and op.copy == p.StateRef("delta.pq"))
    )
    found = prove(with_body(whole, body))

    assert [d.code for d in found] == ["E222"]
    assert found[0].message.startswith("a save of `state delta.pq` from slot")


def test_a_wait_for_other_bytes() -> None:
    """E223: the rows of a wait are those of the tape."""
    found = said(RINGED, "fewer bytes in Wait", "E223")

    assert "rows of the tape" in found.message
    assert found.primary is not None
    assert found.primary.span.text == "slots = 1"
    assert [label.text for label in found.others] == ["for `attention.wq+wk+wv`"]


def test_heads_that_do_not_come_home() -> None:
    """E228: the softmaxes that a core sends to another are those of the other's heads."""
    whole = program(MERGED)
    made = next(each for each in whole.exchanges.values() if each.kind is SOFTMAX_MERGE)
    heads = whole.buffers[made.result]
    fewer = evolve(heads, shape=(heads.shape[0], heads.shape[1] - 1, heads.shape[2]))
    for changed in (
        evolve(whole, exchanges=whole.exchanges | {made.name: evolve(made, width=made.width - 128)}),
        evolve(whole, buffers=whole.buffers | {made.result: fewer}),
    ):
        assert {d.code for d in prove(changed)} == {"E228"}


def test_a_wait_that_never_ends() -> None:
    """E224: a ring that nobody started."""
    assert said(RINGED, "without Start dense at 0", "E224").message.endswith("that never starts")
    assert said(CASES[0], "without StartTiles", "E224").message.endswith("waits for tiles that never start")
    assert said(EXPERTS, "without Fetch", "E224").message.endswith("waits for experts that never start")


def test_experts_come_into_their_slots() -> None:
    """E221 where one starts in a slot that is not there or not free, E224 where one of the slots gets none."""
    whole = program(EXPERTS)
    ((name, bank),) = whole.banks.items()
    held = whole.buffers[name]
    more_room = whole.buffers | {name: evolve(held, shape=(held.shape[0] + 1, *held.shape[1:]))}
    fewer = prove(evolve(whole, banks={name: evolve(bank, slots=bank.slots - 1)}))
    more = prove(evolve(whole, banks={name: evolve(bank, slots=bank.slots + 1)}, buffers=more_room))

    assert [d.code for d in fewer] == ["E221"]
    assert "beyond the 3 that there are" in fewer[0].message
    assert [d.code for d in more] == ["E224"]
    assert "slots that others fill" in said(EXPERTS, "twice Fetch", "E221").message


def test_buffers_of_a_collective_used_twice() -> None:
    """E225: a second collective on the same buffers before the first is received."""
    whole = program(GATED)
    path, send = next(
        (path, op) for path, op in placed(whole) if isinstance(op, p.Send) and op.exchange == p.SumRef("mlp", "h")
    )
    twice = mutant(GATED, f"twice Send mlp.h at {'.'.join(map(str, path))}")

    assert send.exchange == p.SumRef("mlp", "h")
    assert "E225" in {d.code for d in prove(twice)}


def test_no_barrier() -> None:
    """E226: messages to cores that may not be there, or a last collective that is not over all of them."""
    assert (
        said(GATED, "without Barrier", "E226").message == "`step.h` is sent to cores that may not have entered the call"
    )
    whole = program(EXPERTS)
    fewer = evolve(whole, exchanges={name: evolve(e, axes=e.axes[:1]) for name, e in whole.exchanges.items()})
    meets = track(fewer, lambda at: isinstance(at.op, p.Barrier | p.Send | p.Receive | p.Argmax))
    found = check(barrier_machine(fewer), meets, layers(fewer))

    assert found is not None
    assert found.code == "E226"
    assert "the last collective" in found.message


def test_a_value_that_is_not_there() -> None:
    """E227: read before it is computed, or in a buffer that holds another."""
    assert "E227" in {d.code for d in prove(mutant(GATED, "without Receive delta.h"))}
    both = prove(mutant(GATED, "entry attention.values in entry attention.keys"))
    assert any("holds two things" in d.message for d in both)


def test_a_stream_that_is_called_like_a_value() -> None:
    """Rings have names of their own: a stream may be called like a value."""
    lines = "target v5e 1x1\nrows 1\ncontext 512\nstream h {\nslots = 3\nslot = 2560 KiB\nmlp : (gate, up), down\n}"

    assert prove(program(Case("qwen3", 2, lines, 1, CASES[3].sizes))) == []


def test_what_no_layer_owns() -> None:
    """E220: the step's own entries move outside of the layers, where they have one slot."""
    whole = program(RINGED)
    own, mlp = p.SmallWeightsRef("step"), p.SmallWeightsRef("mlp")
    path = next(path for path, op in placed(whole) if isinstance(op, p.CopyWait) and op.copy == mlp)
    inside = replaced(whole, path, (p.CopyStart(own, False), p.CopyWait(own), p.CopyWait(mlp)))

    assert "`mlp` uses `vectors step`, of which it has no entry" in {d.message for d in prove(inside)}


def test_other_layers_count_too() -> None:
    """What two layers allow and three do not is refused, and said to be so."""
    two = CASES[3]
    found = said(two, "without StoreWait entry attention.keys", "E221")

    assert two.layers == 2
    assert "not with the model's own layers, but with others of the same kinds, numbered from 0" in found.notes


@pytest.mark.parametrize(
    "change",
    [
        lambda layers: evolve(layers, stop=layers.stop - 1),
        lambda layers: evolve(layers, choices=layers.choices[:-1]),
        lambda layers: evolve(layers, choices=layers.choices[::-1]),
    ],
)
def test_layers_are_those_of_the_table(change: Callable[[p.LayerLoop], p.LayerLoop]) -> None:
    """E223: a tape has the order of the layer table, which is what must run."""
    whole = program(RINGED)
    body = tuple(change(op) if isinstance(op, p.LayerLoop) else op for op in whole.phase.body)

    assert [d.code for d in prove(with_body(whole, body))] == ["E223"]


def test_experts_move_nothing() -> None:
    """E223: how many experts a core has differs from core to core, so nothing that all do stands there."""
    whole = program(EXPERTS)
    path, op = next((path, op) for path, op in placed(whole) if isinstance(op, p.Experts))
    changed = evolve(op, body=(p.Send(p.IdsRef()), *op.body))
    assert [d.code for d in prove(replaced(whole, path, (changed,)))] == ["E223"]


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("trips", [1, 2, 3, 4, 5])
def test_depths_and_trips(slots: int, trips: int) -> None:
    """Rings of every depth hold for every number of trips, and with a slot less than they start they do not."""
    lines = f"target v5e 1x1\nrows 1\ncontext 512\nstream dense {{\nslots = {slots}\nslot = 2560 KiB\nstep : out\n}}"
    sizes = {"d": 2560, "ffn": 1024, "vocab": 512 * trips, "q_heads": 8, "kv_heads": 4, "head": 128}
    whole = program(Case("qwen3", 1, lines, 1, tuple(sizes.items())))
    less = evolve(whole, rings=whole.rings | {DENSE: evolve(whole.rings[DENSE], slots=slots - 1)})

    assert sum(run.count for run in whole.products[p.ProductRef("step", ("out",))].tiling.runs) == trips
    assert prove(whole) == []
    assert not outcome(whole, 1).wrong
    if slots > 1:
        assert (prove(less) == []) == (outcome(less, 1) == outcome(whole, 1))


def test_no_trips() -> None:
    """What is repeated no times does nothing, whatever it is."""
    whole = program(RINGED)
    idle = p.Repeat("block", 0, (p.Wait(DENSE, (8,)), p.Start(DENSE, 3), p.CopyWait(p.SmallWeightsRef("mlp"))))

    assert prove(with_body(whole, (idle, *whole.phase.body))) == []
    assert "E224" in {d.code for d in prove(with_body(whole, (evolve(idle, count=1), *whole.phase.body)))}


def test_all_passes_are_proven_together() -> None:
    """Walks over Programs that differ in shapes only are made once, and nothing that is wrong with one is lost."""
    case = GATED
    made = program(case)
    rows = [lower(made.schedule, made.instance, n) for n in (1, 2, 4)]
    assert prove_all(rows) == []
    assert all(_bones(rows[0]) == _bones(other) for other in rows[1:])
    for changed in (mutant(case, words) for words in ("without Wait dense", "without CopyStart state", "-1 slot in")):
        assert prove_all([*rows, changed]) == prove(changed) != []


def test_what_fails_before_its_walk_stands_for_none() -> None:
    """One of another shape is refused for that, and its like is walked nevertheless."""
    changed = mutant(GATED, "without CopyStart state")
    wider = lower(changed.schedule, changed.instance, changed.rows + 1)
    name, array = next((name, each) for name, each in wider.arrays.items() if each.kind == "state")
    other = evolve(array, shape=(*array.shape[:-1], array.shape[-1] + 1))
    short = evolve(wider, phases=changed.phases, arrays=wider.arrays | {name: other})
    assert _bones(short) == _bones(changed)
    assert {d.code for d in prove(short)} == {"E228"}

    assert {d.code for d in prove_all([short, changed])} == {"E228", *(d.code for d in prove(changed))}


def _kind(words: str) -> tuple[str, ...]:
    """What is changed in a mutant, whatever its name, place or number."""
    thing, _, change = words.partition(": ")
    return (thing.split()[0], *re.sub(r"\d+", "", change).split()[:1])


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(GATED, id="gated"),
        pytest.param(EXPERTS, id="experts", marks=pytest.mark.slow),
        pytest.param(MERGED, id="merged", marks=pytest.mark.slow),
    ],
)
def test_the_last_pass_is_proven_too(case: Case) -> None:
    """A mutant of each kind is refused after four passes that hold, and that it differs from in rows only."""
    made = program(case)
    passes = [lower(made.schedule, made.instance, n) for n in (1, 2, 4, 8)]
    last = lower(made.schedule, made.instance, 3)
    assert prove_all([*passes, last]) == []
    walked = passes[:1]
    seen: set[tuple[str, ...]] = set()
    for words, changed in (*mutants(last), *wrong(last)):
        if _kind(words) not in seen and prove(changed):
            seen.add(_kind(words))
            assert prove_all([*(walked if len(seen) > 1 else passes), changed]) == prove(changed), words
    assert len(seen) > 60
