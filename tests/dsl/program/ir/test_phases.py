"""Programs of several phases over one set of rings: what is proven of them, billed, printed and predicted."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from attrs import evolve
from helpers.definitions import changed
from helpers.mutants import mutants, with_body

from mks.backends.pictures.page import page
from mks.backends.pictures.windows import windows
from mks.backends.timeline.summary import predict
from mks.dsl.diagnostics import MksError
from mks.dsl.frontend import Definition, check_source, load_definition
from mks.dsl.program import ir as p
from mks.dsl.program.analysis.check_program import check_program
from mks.dsl.program.analysis.fingerprint import digest
from mks.dsl.program.analysis.memory import bill
from mks.dsl.program.ir.walk import executed, walk
from mks.dsl.program.lower.lower import lower
from mks.dsl.program.verify.prove import prove
from mks.dsl.source import Source

DATA = Path(__file__).parents[3] / "data"


def lowered(found: Definition, name: str) -> p.Program:
    """The Program of one of a definition's schedules."""
    key = next(key for key in found.own_schedules if key[1] == name)
    schedule = found.schedules[key]
    assert schedule is not None
    return lower(schedule, found.instances[key[0]], 1)


@cache
def drafter(schedule: str = "alone") -> p.Program:
    """A drafter of two steps, on one core or on four."""
    return lowered(load_definition(DATA / "drafter.mks"), schedule)


@cache
def spark() -> p.Program:
    """The drafter of Kimi K3, as it is shipped."""
    return lowered(changed("dspark"), "spark16")


@pytest.mark.parametrize("program", [lambda: drafter("alone"), lambda: drafter("four"), spark])
def test_steps_are_phases(program: Callable[[], p.Program]) -> None:
    """Each step with its rows, in the definition's order, and nothing is wrong with the whole."""
    made = program()

    assert [phase.name for phase in made.phases] == ["context", "draft"]
    assert {phase.rows for phase in made.phases} == {made.instance.values["block"]}
    assert {phase.consecutive for phase in made.phases} == {True}
    assert prove(made) == []


def test_one_ring_runs_through_all_phases() -> None:
    """What the tape brings is taken in the order of the steps; a loop over rows takes its product for each row."""
    made = drafter()
    (ring,) = made.rings

    used = [at.op.product for at in executed(made) if isinstance(at.op, p.Dot) and not at.op.run]
    assert used == [name for name, _ in made.transfers(ring)]
    assert list(map(str, used)) == [
        "context.fc",
        *["remember.wk+wv"] * 3,
        *["attention.wq+wk+wv", "attention.wo"] * 3,
        "draft.out",
        *["draft.row.w2"] * 4,
    ]
    starts = [at for at in walk(made) if isinstance(at.op, p.Start) and at.op.count == made.rings[ring].slots]
    assert [at.path for at in starts] == [(0, 0)]


def _op(program: p.Program, phase: int, kind: type) -> int:
    """Where in a phase's body the last op of a kind is."""
    return max(i for i, op in enumerate(program.phases[phase].body) if isinstance(op, kind))


def swapped(program: p.Program) -> p.Program:
    """The block is drafted before its context is there."""
    return evolve(program, phases=program.phases[::-1])


def left_over(program: p.Program) -> p.Program:
    """The first phase leaves a transfer in the ring, and the next reads it in the place of its own."""
    body = program.phases[0].body
    at = _op(program, 0, p.Dot)
    return with_body(program, (*body[: at - 1], *body[at + 1 :]))


def drained_too_early(program: p.Program) -> p.Program:
    """The first phase takes from the ring what the second one brought it for."""
    first, second = (phase.body for phase in program.phases)
    at = next(i for i, op in enumerate(second) if isinstance(op, p.Dot))
    return with_body(with_body(program, (*first, *second[at - 1 : at + 1])), (*second[: at - 1], *second[at + 1 :]), 1)


def started_twice(program: p.Program) -> p.Program:
    """The second phase fills the ring anew, which the first has kept full."""
    (ring,) = program.rings.values()
    return with_body(program, (p.Start(ring.name, ring.slots), *program.phases[1].body), 1)


def unread(program: p.Program) -> p.Program:
    """An output of the first phase stays where it is."""
    at = _op(program, 0, p.Emit)
    body = program.phases[0].body
    return with_body(program, (*body[:at], *body[at + 1 :]))


def short_loop(program: p.Program) -> p.Program:
    """The last row is not drafted."""
    at = _op(program, 1, p.RowLoop)
    body, loop = program.phases[1].body, program.phases[1].body[at]
    assert isinstance(loop, p.RowLoop)
    return with_body(program, (*body[:at], evolve(loop, stop=loop.stop - 1), *body[at + 1 :]), 1)


def nothing_carried(program: p.Program) -> p.Program:
    """Every row is drafted from the anchor's token."""
    at = _op(program, 1, p.RowLoop)
    body, loop = program.phases[1].body, program.phases[1].body[at]
    assert isinstance(loop, p.RowLoop)
    return with_body(program, (*body[:at], evolve(loop, body=loop.body[:-1]), *body[at + 1 :]), 1)


def other_entries(program: p.Program) -> p.Program:
    """The block sees values of the context where it should see keys."""

    def change(op: p.Op) -> p.Op:
        if isinstance(op, p.LayerLoop):
            return evolve(
                op,
                choices=tuple(
                    evolve(choice, bodies=tuple((name, tuple(map(change, body))) for name, body in choice.bodies))
                    for choice in op.choices
                ),
            )
        return evolve(op, earlier=op.earlier[::-1]) if isinstance(op, p.AttendBlock) else op

    return with_body(program, tuple(map(change, program.phases[1].body)), 1)


WRONG = {
    swapped: "E223",
    left_over: "E222",
    drained_too_early: "E228",
    started_twice: "E221",
    unread: "E229",
    short_loop: "E229",
    nothing_carried: "E229",
    other_entries: "E228",
}


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_what_goes_wrong_between_phases_is_found(change: Callable[[p.Program], p.Program]) -> None:
    """Each with its code; the steps that lead there name the phases."""
    found = prove(change(drafter()))

    assert WRONG[change] in {each.code for each in found}, [each.message for each in found]


# Of the mutants that are as good as the Program: what sets out, is waited for or kept a little earlier or later.
HARMLESS = re.compile(
    r"to \d+ |.*(Start|Wait).* exchanged with |[+-]1 slot|(without|one less in) Start "
    r"|another layer in CopyStart (vectors context|taps) "
)


@pytest.mark.parametrize("schedule", ["alone", pytest.param("four", marks=pytest.mark.slow)])
def test_mutants_are_refused(schedule: str) -> None:
    """No op of a phase may be missing or be there twice, no value in another's buffer, no row or carry less."""
    passed = [words for words, mutant in mutants(drafter(schedule)) if not prove(mutant)]

    assert [words for words in passed if not HARMLESS.match(words)] == []


def test_the_bill_counts_all_phases_at_once() -> None:
    """Buffers of every phase are there through the whole call, the ring once; the tape holds a row loop's as often."""
    made = spark()
    charged = bill(made)
    names = {line.name for line in charged.vmem}

    assert {"stream drafter", "taps aux", "entry attention.keys", "draft.base", "context.c"} <= names
    assert charged.total < charged.limit
    assert sum(line.name.startswith("stream") for line in charged.vmem) == 1
    rows = sum(made.products[name].tiling.rows for name, _ in made.transfers(p.StreamRef("drafter")))
    assert {line.name: line.why for line in charged.hbm}["tape of drafter"].startswith(f"{rows} rows")


def test_time_is_predicted_of_all_phases() -> None:
    """Every place of every phase has its time, and they are all of the call's."""
    found = predict(spark(), savings=False)

    assert {share.name for share in found.parts} == {"context", "remember", "draft", "attention", "mlp"}
    assert sum(share.seconds for share in found.parts) == pytest.approx(found.step)
    assert {share.name: share.runs for share in found.layers} == {"remember": 5, "attention, mlp": 5}


def test_pictures_show_layers_of_all_phases() -> None:
    """A window for each kind of layer, whichever phase runs it."""
    found = predict(spark(), savings=False)

    assert [(window.name, window.runs) for window in windows(found)] == [
        ("layer 2: remember", 5),
        ("layer 2: attention, mlp", 5),
    ]
    said = page(found)
    assert [place for place in ("context", "remember", "draft") if place not in said] == []


def test_a_phase_is_a_part_of_what_a_program_is() -> None:
    """Programs whose phases differ have other fingerprints."""
    made = drafter()
    other = evolve(made, phases=(evolve(made.phases[0], rows=made.phases[0].rows + 1), made.phases[1]))

    assert len({digest(made), digest(other), digest(swapped(made))}) == 3


def test_no_kernel_yet() -> None:
    """What asks for the only phase of several is refused at the model; `mks check` says so in a note."""
    made = drafter()

    with pytest.raises(MksError) as refused:
        _ = made.phase
    assert [each.code for each in refused.value.diagnostics] == ["E901"]
    assert [each.code for each in check_program(made.schedule, made.instance, lines=False)] == ["N901"]


CHAIN = """  part chain {
    weights "layers.{layer}." { mixing : bf16[d, d]  "mixing" }
    last = h
    for row in 0 .. block {
      last = mixing @ (h + last)
      kept = last
    }
    h = h + kept
  }
"""


def edited(*edits: tuple[str, str]) -> Definition:
    """The drafter with other words in its text."""
    text = (DATA / "drafter.mks").read_text("utf-8")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return check_source(Source("drafter.mks", text))


def chained(*edits: tuple[str, str]) -> Definition:
    """The drafter with a loop over rows inside of a part, which its layers run."""
    runs = ("layers { attention }", "layers {\n attention\n chain\n }")
    return edited(("  part remember {", CHAIN + "  part remember {"), runs, *edits)


def test_a_part_loops_over_rows() -> None:
    """Its product comes from the tape for each row of each layer; what goes from row to row begins as the first's."""
    found = chained()
    assert [each.code for each in found.diagnostics] == []
    made = lowered(found, "alone")

    assert prove(made) == []
    assert made.times("chain.row") == 3 * 4
    assert [at.trips for at in walk(made) if at.place == "chain.row" and isinstance(at.op, p.Dot)] == [3 * 4]
    loop = next(at.op for at in walk(made) if isinstance(at.op, p.RowLoop) and at.op.place == "chain.row")
    assert loop.carried == ((p.ValueRef("chain", "last"), p.ValueRef("chain.row", "last")),)
    assert predict(made, savings=False).step > predict(drafter(), savings=False).step
    passed = [words for words, mutant in mutants(made) if not prove(mutant)]
    assert [words for words in passed if not HARMLESS.match(words)] == []


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("step draft on block -> proposed {", "step draft -> proposed {", "E115"),
        ("for row in 0 .. block {\n      last", "for layer in 0 .. block {\n      last", "E115"),
    ],
)
def test_where_a_part_may_loop(old: str, new: str, code: str) -> None:
    """Over the rows of a block only."""
    assert code in {each.code for each in chained((old, new)).diagnostics}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("for row in 0 .. block {\n      last", "for row in 1 .. block {\n      last"),
        ("    h = h + kept\n", "    h = h + kept + last\n"),
    ],
)
def test_loops_that_no_program_does_yet(old: str, new: str) -> None:
    """Over some rows; and of what goes from row to row all rows."""
    with pytest.raises(MksError, match="E901"):
        lowered(chained((old, new)), "alone")


def test_the_last_collective_is_over_all_cores() -> None:
    """Or else a core could leave while another has not entered: refused at what is summed last."""
    mesh = (
        (
            "  mesh tp = 4\n  shard tp : heads (repeat), vocab\n",
            "  mesh ep = 2, tp = 2\n  split context.fc over ep\n  shard tp : heads\n",
        ),
    )
    with pytest.raises(MksError, match="E901") as refused:
        lowered(edited(*mesh), "four")
    assert "over all cores" in refused.value.diagnostics[0].message


def test_a_part_of_two_steps_is_refused() -> None:
    """Its products would have to be those of both phases."""
    both = (
        (
            "  part remember {",
            '  part up {\n    weights "layers.{layer}." { u : bf16[d, d]  "u" }\n    h = h + u @ h\n  }\n'
            "  part remember {",
        ),
        ("    c = rms_norm(fc @ flat(aux), gain, 1e-5)\n", "    h = rms_norm(fc @ flat(aux), gain, 1e-5)\n    c = h\n"),
        ("{ remember }", "{\n      up\n      remember\n    }"),
        ("{ attention }", "{\n      attention\n      up\n    }"),
    )
    with pytest.raises(MksError, match="E901") as refused:
        lowered(edited(*both), "alone")
    assert "`up` in two steps, `context` and `draft`" in refused.value.diagnostics[0].message


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("for row in 0 .. block", "for row in 0 .. 1000000000", "E124", "over rows runs from 0 to 1000000000"),
        ("for row in 0 .. block", "for row in 0 .. 0", "E124", "over rows runs from 0 to 0"),
        ("for row in 0 .. block", "for row in -1 .. block", "E124", "over rows runs from -1 to 4"),
        ("for row in 0 .. block", "for row in 0 .. block + 1", "E124", "over rows runs from 0 to 5"),
        ("for row in 0 .. block", "for row in 0 .. block / 3", "E124", "over rows runs from 0 to"),
        ("for row in 0 .. block", "for row in 0 .. (block == 4)", "E124", "over rows runs from 0 to True"),
        ("size block = 4", "size block = 4000", "E113", "1 to 1024 rows; `block` is 4000"),
        ("-> proposed", "-> proposed, proposed", "E102", "gives `proposed` twice"),
        ("row == 0 else 7)", "row == 0 else 9999)", "E127", "`i` is 9999"),
        ("row == 0 else 7)", "row == 0 else -1)", "E127", "`i` is -1"),
        ("row == 0 else 7)", "row == 0 else 7.5)", "E127", "`i` is 7.5"),
        ("list tapped = 0, 1", "list tapped = 0, 5", "E212", "before layer 5; `big` runs 0 to 1"),
        ("list tapped = 0, 1", "list tapped = 0, 0", "E212", "before a layer twice"),
    ],
)
def test_what_no_drafter_may_say(old: str, new: str, code: str, said: str) -> None:
    """Each at once, and where it stands."""
    found = edited((old, new)).diagnostics
    assert [each.code for each in found] == [code]
    assert said in found[0].message


def test_what_goes_from_layer_to_layer_goes_from_row_to_row_in_no_kernel_yet() -> None:
    """Refused where it stands, by lowering."""
    with pytest.raises(MksError, match="E901") as refused:
        lowered(edited(("      m = w1[previous]\n", "      h = w1[previous]\n      m = h\n")), "alone")
    assert "assign `h`, which goes from layer to layer" in refused.value.diagnostics[0].message
