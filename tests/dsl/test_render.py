"""Diagnostics as text and as JSON."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mks.dsl.diagnostics import Diagnostic, Label
from mks.dsl.render import COLOURED, PLAIN, as_json, render, render_all, style_for, summary
from mks.dsl.source import Source, Span
from mks.dsl.text.columns import show


def spot(source: Source, word: str, text: str = "", nth: int = 0) -> Label:
    """A label at the nth occurrence of a word."""
    at = -1
    for _ in range(nth + 1):
        at = source.text.index(word, at + 1)
    return Label(Span(source, at, at + len(word)), text)


def test_the_design_s_example() -> None:
    """Headline, both places with carets and words, the bill and the help look as in the design."""
    lines = [""] * 107 + ["    slots = 14"] + [""] * 8
    lines.append("  prefetch attention.cache  at attention.start  (tile = 8192 tokens, slots = 3)")
    source = Source("qwen38.mks", "\n".join(lines))
    found = Diagnostic(
        "E301",
        "`ironwood4` needs 66.3 MiB of VMEM at rows = 8; a tpu7x core has 63.9 MiB",
        spot(source, "14", "14 slots x 2.50 MiB = 35.0 MiB"),
        (spot(source, "8192", "live at the same time: 3 x 8.0 MiB = 24.0 MiB"),),
        ("bill: dense 35.0 + cache tiles 24.0 + states 3.0",),
        ("slots = 13 fits (63.8 MiB), or tile = 4096 tokens (54.3 MiB)",),
    )

    assert render(found) == (
        """\
error[E301]: `ironwood4` needs 66.3 MiB of VMEM at rows = 8; a tpu7x core has 63.9 MiB
  --> qwen38.mks:108:13
108|     slots = 14
   |             ^^ 14 slots x 2.50 MiB = 35.0 MiB
  ::: qwen38.mks:117:57
117|   prefetch attention.cache  at attention.start  (tile = 8192 tokens, slots = 3)
   |                                                         ---- live at the same time: 3 x 8.0 MiB = 24.0 MiB
   = bill: dense 35.0 + cache tiles 24.0 + states 3.0
   = help: slots = 13 fits (63.8 MiB), or tile = 4096 tokens (54.3 MiB)"""
    )


@pytest.mark.parametrize(
    ("line", "word", "column"),
    [
        ("\tx = q", "q", 8),
        ("a\tq", "q", 4),
        ("  注意 = q", "q", 9),
        ("e\u0301 q", "q", 2),
        ("👩‍🚀 q", "q", 3),
        ("👍🏽 q", "q", 3),
        ("🇫🇷 q", "q", 3),
        ("❤️ q", "q", 3),
        ("ﾊ q", "q", 2),
        ("\x00\x1b q", "q", 3),
        ("\ud800 q", "q", 2),
    ],
)
def test_carets_stand_under_their_word(line: str, word: str, column: int) -> None:
    """Tabs, wide characters, combining marks, emoji and control signs count as many columns as they take."""
    source = Source("a.mks", line)

    text, marks = render(Diagnostic("E001", "m", spot(source, word))).splitlines()[2:]

    assert marks == "  | " + " " * column + "^"
    assert "\x1b" not in text
    assert "\t" not in text


def test_wide_words_get_wide_carets() -> None:
    """The carets are as wide as the word."""
    source = Source("a.mks", "x = 注意")

    assert render(Diagnostic("E001", "m", spot(source, "注意"))).endswith("  |     ^^^^")


def test_several_labels_on_a_line() -> None:
    """Each label of a line has its own carets below it, from left to right; only the primary's are `^`."""
    source = Source("a.mks", "one two three")
    found = Diagnostic("E001", "m", spot(source, "two", "here"), (spot(source, "three", "c"), spot(source, "one", "a")))

    assert render(found).splitlines()[2:] == [
        " 1| one two three",
        "  | --- a",
        "  |     ^^^ here",
        "  |         ----- c",
    ]


def test_another_file() -> None:
    """A label in another file is shown with that file's name and line."""
    here, there = Source("a.mks", "x"), Source("b.mks", "\n\ny")

    assert render(Diagnostic("E001", "m", spot(here, "x"), (spot(there, "y", "first"),))).splitlines()[4:] == [
        " ::: b.mks:3:1",
        " 3| y",
        "  | - first",
    ]


def test_a_span_of_several_lines() -> None:
    """The first and the last line are shown, the words under the last."""
    source = Source("a.mks", "a {\n  b\n  c\n  }")

    assert render(Diagnostic("E001", "m", Label(Span(source, 2, len(source.text)), "here"))).splitlines() == [
        "error[E001]: m",
        " --> a.mks:1:3",
        " 1| a {",
        "  |   ^",
        "  :",
        " 4|   }",
        "  |   ^ here",
    ]


def test_a_place_at_the_end_of_the_text() -> None:
    """An empty place is one caret wide, also behind the last character, and an empty file has no line to show."""
    source, empty = Source("a.mks", "ab\n"), Source("e.mks", "")

    assert render(Diagnostic("E001", "m", Label(Span(source, 2, 2)))).endswith(" 1| ab\n  |   ^")
    assert render(Diagnostic("E001", "m", Label(Span(empty, 0, 0)))) == "error[E001]: m\n --> e.mks:1:1"


def test_a_very_long_line() -> None:
    """Only the surroundings of the place are shown, and the caret is still right."""
    source = Source("a.mks", "注\t" * 5000 + "q" + "x" * 9000)

    text, marks = render(Diagnostic("E001", "m", spot(source, "q"))).splitlines()[2:]

    assert len(text) < 210
    before = text[: text.index("q")]
    assert len(marks) - 1 == len(before) + before.count("注")


def test_notes_and_helps() -> None:
    """A note that names its kind keeps it; further lines are indented."""
    found = Diagnostic("W201", "m", None, (), ("bill: 1", "two\nlines"), ("do",))

    assert render(found) == "warning[W201]: m\n  = bill: 1\n  = note: two\n    lines\n  = help: do"


def test_summary() -> None:
    """Errors and warnings are counted; none says so."""
    e, w = Diagnostic("E001", "m"), Diagnostic("W001", "m")

    assert summary([e, w, e]) == "2 errors, 1 warning"
    assert summary([w, w]) == "2 warnings"
    assert summary([]) == "no errors"
    assert render_all([e]).endswith("error[E001]: m\n\n1 error\n")
    assert render_all([]) == ""


def test_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours appear on a terminal only, and never when NO_COLOR is set."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    closed = io.StringIO()
    closed.close()

    assert style_for(Terminal()) is COLOURED
    assert style_for(io.StringIO()) is PLAIN
    assert style_for(closed) is PLAIN
    monkeypatch.setenv("NO_COLOR", "1")
    assert style_for(Terminal()) is PLAIN
    assert render(Diagnostic("E001", "m"), COLOURED) == "\x1b[1;31merror[E001]\x1b[0m\x1b[1m: m\x1b[0m"


def test_json() -> None:
    """Lines and columns count from 1 in characters, and everything that the text says is there."""
    source = Source("a.mks", "x\n  注 = q\n")
    found = Diagnostic("E103", "m", spot(source, "q", "here"), (spot(source, "x", "there"),), ("n",), ("h",))

    said = json.loads(json.dumps(as_json(found)))

    assert said["code"] == "E103"
    assert said["severity"] == "error"
    assert (said["message"], said["notes"], said["helps"]) == ("m", ["n"], ["h"])
    assert said["spans"][0] == {
        "file": "a.mks",
        "line": 2,
        "column": 7,
        "end_line": 2,
        "end_column": 8,
        "label": "here",
        "primary": True,
    }
    assert (said["spans"][1]["line"], said["spans"][1]["primary"]) == (1, False)


ANYTHING = st.text(st.characters(codec=None), max_size=60)


@given(ANYTHING, st.lists(st.tuples(st.integers(-5, 70), st.integers(-5, 70), ANYTHING), max_size=4), ANYTHING)
def test_nothing_can_fail(text: str, places: list[tuple[int, int, str]], words: str) -> None:
    """Any text, any spans, any words: rendered and sent without an exception, in lines that hold no control signs."""
    source = Source(words, text)
    labels = [Label(Span(source, start, end), said) for start, end, said in places]
    found = Diagnostic("E001", words, labels[0] if labels else None, tuple(labels[1:]), (words,), (words,))

    lines = render(found).split("\n")

    json.dumps(as_json(found))
    assert all(line.isprintable() or set(line) & set("\u200d\ufe0e\ufe0f") for line in lines)
    assert show(text).width >= 0
