"""Files with errors: what is said, where, and what is kept."""

from __future__ import annotations

import re
import time

import pytest
from attrs import evolve
from helpers.tiers import thorough_but
from helpers.trees import NOISE, SNIPPETS, TEXTS, edited, shape
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mks.dsl.diagnostics import Diagnostic
from mks.dsl.render import render_all
from mks.dsl.source import Source, Span
from mks.dsl.text import syntax as s
from mks.dsl.text.cut import Trust, cut
from mks.dsl.text.forms import BLOCKS, CONTEXTS, FORMS, NAMED_FORMS, WORDS, human
from mks.dsl.text.parse import parse
from mks.dsl.text.parser import STARTS, grammar
from mks.dsl.text.recover import recover
from mks.dsl.text.scan import pieces

SMALL = TEXTS["smollm2"]
each_file = pytest.mark.parametrize("name", sorted(TEXTS))


def read(text: str) -> tuple[s.File, list[Diagnostic]]:
    """Parse a text, and insist that every place lies in it."""
    file, found = parse(Source("a.mks", text))
    for diagnostic in found:
        assert diagnostic.primary is not None
        for label in (diagnostic.primary, *diagnostic.others):
            assert 0 <= label.span.start <= label.span.end <= len(text)
    return file, found


def change(old: str, new: str, text: str = SMALL) -> tuple[s.File, Diagnostic]:
    """The one error of a definition in which something was replaced once, and its tree."""
    assert old in text
    file, found = read(text.replace(old, new, 1))
    assert len(found) == 1, render_all(found)
    return file, found[0]


def pointed(diagnostic: Diagnostic) -> str:
    """What the carets stand under."""
    assert diagnostic.primary is not None
    return diagnostic.primary.span.text


@each_file
def test_cutting_gives_the_same_tree(name: str) -> None:
    """A file without errors, cut into statements, gives the tree that parsing it whole gives, spans included."""
    source = Source(name, TEXTS[name])
    whole, _ = parse(source)

    pieced, found = recover(source)

    assert found == []
    assert pieced == whole
    assert pieced.damaged == frozenset()


@each_file
@pytest.mark.parametrize("trust", Trust)
def test_every_reading_of_good_braces_is_the_same(name: str, trust: Trust) -> None:
    """Where braces are right, indentation and words lead to the same blocks."""
    text = TEXTS[name]
    plain = cut(text, pieces(text), Trust.BRACES)

    assert cut(text, pieces(text), trust) == plain
    assert [plain.unclosed, plain.stray, plain.late, plain.crowded] == [[], [], [], []]


def test_every_terminal_has_a_human_name() -> None:
    """A message never shows a name of the grammar's insides."""
    unnamed = [t.name for t in grammar().terminals if human(t.name) is None]

    assert unnamed == []
    assert human("__ANON_22") is None


def test_forms_cover_every_statement() -> None:
    """Every word that begins a statement has a form, every place a start rule, every block a kind of place."""
    assert set().union(*WORDS.values()) == set(FORMS)
    assert set(BLOCKS.values()) | {"file"} == set(CONTEXTS)
    assert {start for _, start in CONTEXTS.values()} <= set(STARTS)
    assert all(place in NAMED_FORMS or WORDS[place] for place in CONTEXTS)


BLOCK_ENDS = [m.start() for m in re.finditer(r"^ *\}\n", SMALL, re.MULTILINE)]


@pytest.mark.parametrize("at", BLOCK_ENDS)
def test_a_missing_brace_is_one_error(at: int) -> None:
    """Whichever block's closing brace is taken away, that is the only error, and every statement is still there."""
    text = SMALL[:at] + SMALL[SMALL.index("\n", at) + 1 :]
    whole, _ = read(SMALL)

    file, found = read(text)

    assert [d.code for d in found] == ["E011"]
    assert pointed(found[0]) == "{"
    assert shape(file) == shape(whole)


@pytest.mark.parametrize("at", BLOCK_ENDS)
def test_a_second_brace_is_one_error(at: int) -> None:
    """Whichever closing brace is doubled, that is the only error."""
    indent = SMALL[at : SMALL.index("}", at)]
    text = SMALL[:at] + indent + "  }\n" + SMALL[at:]

    _, found = read(text)

    assert [(d.code, pointed(d)) for d in found] == [("E014", "}")]


def test_a_missing_brace_does_not_hide_other_errors() -> None:
    """With one brace missing, ten errors elsewhere are all told."""
    text = SMALL.replace("    }\n    cache", "    cache", 1).replace(" = ", " : ", 10)

    _, found = read(text)

    assert [d.code for d in found].count("E011") == 1
    assert [d.code for d in found].count("E017") == 10
    assert len(found) == 11


@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        ("mks 1\n", "", "E001", "model"),
        ("mks 1", "mks 2", "E002", "2"),
        ("mks 1", "mks 1.0", "E002", "1.0"),
        ("mks 1", "mks one", "E010", "one"),
        ("heads(wv @ x, kv_heads)", "heads(wv @ x, kv_heads", "E012", "("),
        ("bf16[ffn, d]", "bf16[ffn, d", "E012", "["),
        ("heads(wv @ x, kv_heads)", "heads(wv @ x, kv_heads))", "E014", ")"),
        ('"lm_head.weight"', '"lm_head.weight', "E013", '"lm_head.weight or embed'),
        ("d / q_heads", "d ÷ q_heads", "E015", "÷"),
        ("d / q_heads", "d / 'q'", "E015", "'"),
        ("d / q_heads", "d / \0", "E015", "\0"),
        ("      mlp\n", "      mlp;\n", "E016", ";"),
        ("norm     :", "norm     =", "E017", "="),
        ("size d        =", "size d        :", "E017", ":"),
        ("  weights {", '  require act = "silu"\n  weights {', "E017", "="),
        ("part mlp {", "part mlp\n  {", "E018", "{"),
        ("part mlp {", "part mlp\n\n# why\n  {", "E018", "{"),
        ("part mlp", "prat mlp", "E019", "prat"),
        ("for layer", "fro layer", "E019", "fro"),
        ("size d ", "siez d ", "E019", "siez"),
        ("from hidden_size", "form hidden_size", "E019", "form"),
        ("schedule one", "shedule one", "E019", "shedule"),
        ("  context 2048", "  contxt 2048", "E019", "contxt"),
        ("part mlp", "banana mlp", "E019", "banana"),
        ("h = embed[token]", "size k = 3", "E020", "size"),
        ("context 2048", "size k = 3", "E020", "size"),
        ("h = embed[token]", "h = embed[token] y = 3", "E021", "y"),
        ("  target v5e 1x1\n", "  target v5e 1x1 rows 1\n", "E021", "rows"),
        ("cache { keys, values : bf16[kv_heads, head] }", "cache { k : bf16[d] } x = 3", "E021", "x"),
        ("context 2048", "stream s { slot = 2MiB }", "E022", "2MiB"),
        ("d / q_heads", "2MiB", "E022", "2MiB"),
        ("size d ", "sized ", "E022", "sized"),
        ("size d        = 576    from", "size d        = 576from", "E022", "576from"),
        ("  context 2048", "  context2048", "E022", "context2048"),
        ("size d        = 576", "size d        = 1e999", "E023", "1e999"),
        ("size d        = 576", f"size d        = {'9' * 5000}", "E023", "9" * 5000),
        ("bf16[d, ffn]", "int4 group 1.5[d, ffn]", "E023", "1.5"),
        ("d / q_heads", "d /", "E010", ""),
        ("d / q_heads", "d / )", "E014", ")"),
        ("x = rms_norm(h, norm, eps)", "state = rms_norm(h, norm, eps)", "E010", "state"),
        ("    h = embed[token]", "    // the embedding\n    h = embed[token]", "E010", "//"),
    ],
)
def test_frequent_mistakes(old: str, new: str, code: str, place: str) -> None:
    """Each mistake gives one error with its own code, and the carets stand under the mistake alone."""
    _, found = change(old, new)

    assert (found.code, pointed(found)) == (code, place)


def test_colon_and_equal_sign_in_a_stream() -> None:
    """In a stream both signs occur, and what stands behind tells which was meant."""
    _, found = read(SMALL.replace("context 2048", "stream s {\n slots : 3\n mlp = (gate, up), down\n }"))

    assert [(d.code, pointed(d)) for d in found] == [("E017", ":"), ("E017", "=")]


def test_a_misspelt_block_is_still_read() -> None:
    """The statements of a block whose word is misspelt are in the tree, and their own errors are told."""
    file, _ = change("part mlp", "prat mlp")
    _, more = read(SMALL.replace("part mlp", "prat mlp").replace("(up @ x))\n", "(up @ x)\n"))

    assert shape(file) == shape(read(SMALL)[0])
    assert file.damaged == frozenset()
    assert [d.code for d in more] == ["E019", "E012"]


def test_damaged_words() -> None:
    """The words of a lost statement are listed, so that errors that follow from it can be left out; no others are."""
    file, _ = change("size head     = d / q_heads", "size head     = d / / q_heads")

    assert file.damaged == {"size", "head", "d", "q_heads"}
    assert len(file.items) == len(read(SMALL)[0].items)


def test_another_version_is_not_guessed_at() -> None:
    """Of a file in another version that does not parse, only the version is told."""
    file, found = change("mks 1", "mks 7", SMALL.replace(" = ", " := "))

    assert found.code == "E002"
    assert file.items == ()
    assert "smollm2" in file.damaged


def test_errors_of_a_cut_off_file() -> None:
    """A file that ends in the middle says which blocks are open, in one error."""
    file, found = read(SMALL[: SMALL.index("norm     : bf16")])

    assert file.damaged == {"model", "smollm2", "part", "mlp", "weights"}
    assert [d.code for d in found] == ["E011"]
    assert [label.span.text for label in found[0].others] == ["{", "{"]


def test_carriage_returns() -> None:
    """A file with CRLF line ends gives the same tree, errors included."""
    for text in (SMALL, SMALL.replace("d / q_heads", "d /")):
        unix, dos = read(text), read(text.replace("\n", "\r\n"))

        assert shape(dos[0]) == shape(unix[0])
        assert [(d.code, d.message) for d in dos[1]] == [(d.code, d.message) for d in unix[1]]


@pytest.mark.parametrize(
    "inner",
    [
        "(" * 10_000 + "d" + ")" * 10_000,
        "(" * 10_000,
        ")" * 10_000,
        "[(" * 5_000,
        "-" * 10_000 + "d",
        "not " * 10_000 + "d",
        "d" + " + d" * 10_000,
        "d" + "[0]" * 10_000,
        "d" + " ** d" * 10_000,
        "f(" * 5_000 + ")" * 5_000,
        "f(d) { e -> " * 5_000,
    ],
    ids=lambda inner: inner[:6],
)
def test_deep_nesting_is_refused(inner: str) -> None:
    """Nesting of any kind gets one error and no exception."""
    _, found = read(SMALL.replace("d / q_heads", inner))

    assert len(found) <= 2
    assert found[0].code in ("E006", "E010", "E012", "E014")


def test_deep_blocks_are_refused() -> None:
    """Loops in loops end somewhere, closed or not."""
    for close in ("}" * 5000, ""):
        _, found = read(SMALL.replace("h = embed[token]", "for i in 0 .. 1 {" * 5000 + close))

        assert "E006" in {d.code for d in found}
        assert len(found) <= 2


PIECES = [("a {\n", 0), ("}\n", 1000), ("f(\n", 0), ("model m {\n  size a = = 3\n  part {\n  }\n}\n", 2000)]


@pytest.mark.parametrize(("piece", "count"), thorough_but(PIECES[:3], PIECES))
def test_long_files_take_no_more_than_their_length(piece: str, count: int) -> None:
    """Errors in a long file take time in proportion to its length."""

    def seconds(times: int) -> float:
        """The best of three, as others use the machine too."""
        taken = []
        for _ in range(3):
            start = time.process_time()
            _, found = read("mks 1\n" + piece * times)
            assert len(found) >= count * times // 1000
            taken.append(time.process_time() - start)
        return min(taken)

    seconds(10)

    assert seconds(4000) < 12 * max(seconds(1000), 0.05)  # sixteen times, were it quadratic


def answers(text: str) -> None:
    """Parsing, recovery and rendering give an answer, which is an error exactly when the file does not parse."""
    file, found = read(text)
    again, told = recover(Source("a.mks", text))

    render_all(found)
    assert bool(found) == bool(told)
    assert shape(again) == shape(file)
    assert all(d.code.startswith("E0") for d in found)


few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
many = settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@few
@given(st.one_of(edited(), NOISE, st.lists(SNIPPETS, max_size=40).map(" ".join)))
def test_any_text_gets_an_answer(text: str) -> None:
    """Random edits, random text, random words: diagnostics, never an exception."""
    answers(text)


@pytest.mark.slow
@many
@given(st.one_of(edited(), NOISE, st.lists(SNIPPETS, max_size=40).map(" ".join)))
def test_any_text_gets_an_answer_at_length(text: str) -> None:
    """The same for many more texts."""
    answers(text)


def test_shape_sees_differences() -> None:
    """The comparison above is not blind: names count, places do not."""
    file, _ = read(SMALL)
    other, _ = read(SMALL.replace("head     = d", "head     = ffn"))
    source = Source("b", "x")

    assert shape(file) != shape(other)
    assert shape(s.Name(Span(source, 0, 1), "x")) == shape(s.Name(Span(source, 1, 2), "x"))
    assert shape(evolve(file, comments=())) == shape(file)
