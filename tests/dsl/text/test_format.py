"""The formatter's five laws, and its layout."""

from __future__ import annotations

from random import Random

import pytest
from helpers.programs import program, programs
from helpers.trees import TEXTS, edited, shape
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mks.dsl.render import render_all
from mks.dsl.source import Source
from mks.dsl.text.format import format_source
from mks.dsl.text.layout import words
from mks.dsl.text.parse import parse

each_file = pytest.mark.parametrize("name", sorted(TEXTS))


def formatted(text: str) -> str:
    """The canonical layout of a text without errors."""
    found = format_source(Source("a.mks", text))
    assert isinstance(found, str), render_all(found)
    return found


def spelled(text: str) -> list[str]:
    """All words and comments in order: what a formatter must not touch."""
    return [word.text for word in words(Source("a.mks", text)) if word.kind != "_NL"]


def beside(text: str) -> list[tuple[str, bool]]:
    """Each comment, and whether it has its line for itself."""
    file, _ = parse(Source("a.mks", text))
    return [(comment.text, comment.own_line) for comment in file.comments]


def holds(text: str) -> None:
    """All laws but the refusal."""
    before, found = parse(Source("a.mks", text))
    assert found == []
    printed = formatted(text)
    after, found = parse(Source("a.mks", printed))

    assert found == []
    assert shape(after) == shape(before)
    assert formatted(printed) == printed
    assert spelled(printed) == spelled(text)
    assert beside(printed) == beside(text)
    first = text.find("\n")
    end = "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"
    assert printed.endswith(end)
    assert not printed.endswith(end * 2)
    assert printed.count("\r\n") == (printed.count("\n") if end == "\r\n" else 0)
    assert not any(line != line.rstrip(" \t") for line in printed.replace("\r\n", "\n").split("\n"))


slowly = [HealthCheck.too_slow, HealthCheck.data_too_large]
few = settings(max_examples=80, deadline=None, suppress_health_check=slowly)
many = settings(max_examples=1000, deadline=None, suppress_health_check=slowly)
SPACES = st.sampled_from([" ", "\n", "\t", "\r\n", "# why\n", "  # a\n\n\n # b\n", "\n\n\n"])


@each_file
def test_shipped_definitions_are_in_canonical_layout(name: str) -> None:
    """Formatting a shipped definition changes nothing."""
    assert formatted(TEXTS[name]) == TEXTS[name]


@each_file
def test_shipped_definitions_squeezed(name: str) -> None:
    """The layout does not depend on how the text was spaced: without any alignment the same text comes out."""
    lines = (" ".join(line.split()) for line in TEXTS[name].split("\n"))

    assert formatted("\n".join(lines)) == TEXTS[name]


@few
@given(programs)
def test_laws_on_generated_programs(text: str) -> None:
    """Same tree, idempotent, all comments kept in order and place, stable line ends."""
    holds(text)


@pytest.mark.slow
@many
@given(programs)
def test_laws_on_many_generated_programs(text: str) -> None:
    """The same for many more programs."""
    holds(text)


def laws_or_refusal(text: str) -> None:
    """A text is formatted by the laws, or refused exactly when it has errors."""
    _, found = parse(Source("a.mks", text))
    if found:
        refused = format_source(Source("a.mks", text))
        assert isinstance(refused, list)
        assert [(d.code, d.message) for d in refused] == [(d.code, d.message) for d in found]
    else:
        holds(text)


@few
@given(st.one_of(edited(SPACES), edited()))
def test_laws_on_edited_definitions(text: str) -> None:
    """Real files with line ends, comments and other text put anywhere are formatted by the laws, or refused."""
    laws_or_refusal(text)


@pytest.mark.slow
@many
@given(st.one_of(edited(SPACES), edited()))
def test_laws_on_many_edited_definitions(text: str) -> None:
    """The same for many more edits."""
    laws_or_refusal(text)


def test_generated_programs_cover_the_grammar() -> None:
    """The generator uses every terminal of the grammar, and comments inside brackets."""
    from mks.dsl.text.parser import grammar

    texts = [program(Random(seed)) for seed in range(400)]
    kinds = {word.kind for text in texts for word in words(Source("a.mks", text))}

    assert {t.name for t in grammar().terminals} - kinds == {"__IGNORE_0"}
    assert any("(" in text and "# " in text.partition("(")[2].partition(")")[0] for text in texts)


def laid_out(text: str, expected: str) -> None:
    """A program's inside, `text`, comes out as `expected`."""
    assert formatted(f"mks 1\n{text}") == f"mks 1\n{expected}"


def test_columns_of_sizes() -> None:
    """Names and keys are aligned over consecutive declarations; a long value stands apart."""
    laid_out(
        'model m {\nsize d=3 from a\nconst theta = 1e5 from b or c\nlist l = 1 .. d by 4, 9, 10 from k where "x"\n'
        "size q_heads=12\n\nsize e=1 from f\n}",
        "model m {\n  size d       = 3    from a\n  const theta  = 1e5  from b or c\n"
        '  list l       = 1 .. d by 4, 9, 10  from k where "x"\n  size q_heads = 12\n\n  size e = 1  from f\n}\n',
    )


def test_columns_of_weights() -> None:
    """Types, names and options of weights have columns of their own; further places stay on the line."""
    laid_out(
        'model m {\nweights "p" {\na,b:bf16[d] "x" rows 0 ..\nc:int4 group 128[d,e] "long" scale "s" or a\n'
        'd : int8 by column[e] "z" rows 1 .. scale "t" # why\n}}',
        'model m {\n  weights "p" {\n    a, b : bf16[d]                "x"  rows 0 ..\n'
        '    c    : int4 group 128 [d, e]  "long"          scale "s" or a\n'
        '    d    : int8 by column [e]     "z"  rows 1 ..  scale "t"  # why\n  }\n}\n',
    )


def test_places_that_do_not_fit_a_line() -> None:
    """A weight whose places are too long for a line has one place a line, below its type."""
    long = f'"{"n" * 50}"'
    laid_out(
        f"model m {{\nweights {{\nab : f32[d] {long} or {long} or a\n}}\n}}",
        f"model m {{\n  weights {{\n    ab : f32[d]  {long} or\n         {long} or\n         a\n  }}\n}}\n",
    )


def test_columns_of_assignments() -> None:
    """Consecutive targets of about the same width share a column; a much wider one does not move the others."""
    laid_out(
        "model m {\npart p {\nx=1\nqn=2\ndecay=3\nrate=-4\nx=a[- 1 ..]\n}\n}",
        "model m {\n  part p {\n    x  = 1\n    qn = 2\n    decay = 3\n    rate  = -4\n    x = a[-1 ..]\n  }\n}\n",
    )


def test_columns_of_schedules() -> None:
    """Clauses of consecutive statements of a kind are aligned."""
    laid_out(
        "schedule s for m {\nprefetch a.b at c (tile=2 MiB)\nprefetch vectors at previous layer\nreduce a,b (by=x)\n"
        "reduce c (by=x)\nshard ep:a\nshard ep,tp:b (repeat),c\nstream t {\nslots=2\nslot=2 MiB\na:(x,y),z\nbb:w\n}\n}",
        "schedule s for m {\n  prefetch a.b      at c  (tile = 2 MiB)\n  prefetch vectors  at previous layer\n"
        "  reduce a, b  (by = x)\n  reduce c     (by = x)\n  shard ep     : a\n  shard ep, tp : b (repeat), c\n"
        "  stream t {\n    slots = 2\n    slot  = 2 MiB\n    a  : (x, y), z\n    bb : w\n  }\n}\n",
    )


def test_comments_of_consecutive_lines() -> None:
    """Comments beside consecutive lines share a column; others follow their line after two spaces."""
    laid_out(
        "model m {# top\npart p { # p\nx=1#a\nlong=2     # b\n\n\n\n# own\ny=3 # c\n} # end\n}",
        "model m {  # top\n  part p {  # p\n    x = 1     # a\n    long = 2  # b\n\n    # own\n"
        "    y = 3  # c\n  }  # end\n}\n".replace("x = 1     # a", "x = 1     #a"),
    )


def test_continued_lines() -> None:
    """A statement stays broken where its author broke it, indented, with comments inside kept in place."""
    laid_out(
        "model m {\npart p {\nx = f(a, # first\n# second\nb,\n- c\n)\ny = a +\n\nb\n}\n}",
        "model m {\n  part p {\n    x = f(a,  # first\n        # second\n        b,\n        -c\n    )\n"
        "    y = a +\n        b\n  }\n}\n",
    )


def test_blocks_on_one_line() -> None:
    """A block written on one line stays on it; an empty one takes one line."""
    laid_out(
        "model m {\ncache last  w{a,b:f32[d]}# c\nstate{\n}\npart p {\nfor i in 0..2 {x=1}\n"
        "cache {\na : f32[d] }\n}\n}",
        "model m {\n  cache last w { a, b : f32[d] }  # c\n  state { }\n  part p {\n    for i in 0 .. 2 { x = 1 }\n"
        "    cache {\n      a : f32[d]\n    }\n  }\n}\n",
    )


@pytest.mark.parametrize("text", ["", "model m {}", "mks 2\n", "mks 1\nmodel m {\n  size d = 2MiB\n}\n", "mks 1\n}"])
def test_texts_with_errors_are_refused(text: str) -> None:
    """A text with any syntax error is not formatted; its errors are returned."""
    found = format_source(Source("a.mks", text))

    assert isinstance(found, list)
    assert found
