"""Whatever is done to a definition, it is answered with diagnostics, each with a place that can be shown."""

import re
import sys
from random import Random

import pytest
from helpers.definitions import FOLDER, NAMES, text
from hypothesis import given, settings
from hypothesis import strategies as st

from mks.dsl.diagnostics import Sink
from mks.dsl.frontend import check_source
from mks.dsl.program.analysis.check_program import check_program
from mks.dsl.program.analysis.report import as_json, as_text, report
from mks.dsl.render import render_all, style_for
from mks.dsl.source import Source

WORD = re.compile(r'"[^"\n]*"|#[^\n]*|\w+|\*\*|//|\.\.|->|[^\w\s]|\n')
STRANGE = (
    "0",
    "-1",
    "1e99",
    "99999999999",
    "0.5",
    "layer",
    "row",
    "token",
    "position",
    "all",
    "true",
    "heads",
    "f32",
    "experts",
    "argmax",
    "x",
    "h",
    "d",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    "=",
    "@",
    "**",
    "when",
    "else",
    "..",
    "",
    "bf16",
    "mxfp4",
    "\n",
    '"{x}"',
    "é",
    "1.5",
    "not",
    "in",
    "full",
)


def kind(piece: str) -> str:
    """What a word may be replaced by."""
    return "name" if piece[:1].isalpha() else "number" if piece[:1].isdigit() else "other"


def mutated(name: str, random: Random, changes: int) -> str:
    """A definition with some of its words swapped, dropped, doubled or replaced."""
    pieces = re.split(f"({WORD.pattern})", text(name))
    words = [i for i, piece in enumerate(pieces) if piece.strip() and not piece.startswith("#")]
    for _ in range(changes):
        at, other = random.choice(words), random.choice(words)
        match random.randrange(14):
            case 0:
                pieces[at] = random.choice(STRANGE)
            case 1:
                pieces[at], pieces[other] = pieces[other], pieces[at]
            case 2:
                pieces[at] = ""
            case 3:
                pieces[at] = pieces[other]
            case 4:
                pieces[at] += " " + pieces[other]
            case _:  # one name or number for another, so that most still parse
                alike = [i for i in words if kind(pieces[i]) == kind(pieces[at]) != "other"]
                if alike:
                    pieces[at] = pieces[random.choice(alike)]
    return "".join(pieces)


def answered(name: str, seed: int, changes: int) -> None:
    """Check, report, lower and render; nothing may raise."""
    source = Source(f"{name}.mks", mutated(name, Random(seed), changes))
    found = check_source(source, FOLDER)
    sink = Sink(list(found.diagnostics))
    for key, schedule in found.schedules.items():
        if schedule is not None:
            made = report(schedule, found.instances[key[0]], sink)
            assert as_text(made)
            assert as_json(made)
            sink.diagnostics.extend(check_program(schedule, found.instances[key[0]], lines=True))
    assert sink.diagnostics == [] or render_all(sink.diagnostics, style_for(sys.stdout))
    for diagnostic in sink.diagnostics:
        assert diagnostic.primary is not None, diagnostic
        span = diagnostic.primary.span
        assert 0 <= span.start <= span.end <= len(span.source.text)


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NAMES), st.integers(0, 1 << 32), st.integers(1, 4))
def test_mutated_definitions_are_answered(name: str, seed: int, changes: int) -> None:
    """A few words changed."""
    answered(name, seed, changes)


@pytest.mark.slow
@settings(max_examples=4000, deadline=None)
@given(st.sampled_from(NAMES), st.integers(0, 1 << 32), st.integers(1, 12))
def test_many_mutated_definitions_are_answered(name: str, seed: int, changes: int) -> None:
    """The same, for longer and with more changes."""
    answered(name, seed, changes)
