"""The colours of editors: the TextMate grammar says of every word what the parser says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.definitions import NAMES, text
from helpers.textmate import scopes
from lark import Token

import mks.grammar
from mks.dsl.source import Source
from mks.dsl.text.forms import FORMS, WORDS, keywords
from mks.dsl.text.parser import comments, grammar

COLOURS: dict[str, Any] = json.loads(Path(mks.grammar.__file__).with_name("mks.tmLanguage.json").read_text("utf-8"))
WIDE = """\
mks 1
model m {\t# 宽 📏 "no text"
  size 宽𝕏 = 2 * 3  from a.from or b  # size
  weights "a.{layer}." { norm : int4 group 128[宽𝕏, d]  "📏#{name}"  rows a ..  scale "s" or other }
  part block { block = 1\n    by = rows + last[previous]\n    rows = f32(by) when layer in full else 2e-3\n  }
}
"""


def tokens(source: str) -> list[Token]:
    """What the parser reads."""
    return list(grammar().parse_interactive(source, start="file").iter_parse())


def kind(token: Token) -> str:
    """What a token should be shown as."""
    if keywords(frozenset((token.type,))):
        return "keyword."
    return {"NAME": "name", "NUMBER": "constant.numeric", "TOPOLOGY": "constant.numeric", "STRING": "string."}.get(
        token.type, ""
    )


def wrong(source: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Words whose colour does not say what they are."""
    found, marks = [], scopes(COLOURS, source)
    for token in tokens(source):
        wanted, names = kind(token), set(marks[token.start_pos : token.end_pos])
        shown = {name[-1] if name else "" for name in names}
        if wanted == "name":
            good = len(names) == 1 and all(
                x.startswith(("variable.", "entity.", "storage.type")) or x == "keyword.other.unit.mks" for x in shown
            )
        else:
            good = not wanted or all(each and each[0].startswith(wanted) for each in names)
        if not good:
            found.append((str(token), wanted, tuple(shown)))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_word_of_the_definitions(name: str) -> None:
    """Keywords, names, numbers, texts and comments, as the parser tells them apart."""
    source = text(name)
    assert wrong(source) == []
    marks = scopes(COLOURS, source)
    shown = "".join(c if m and m[0].startswith("comment.") else "\0" for c, m in zip(source, marks, strict=True))
    assert [c for c in shown.split("\0") if c] == [c.text for c in comments(Source(name, source))]


def test_words_that_are_names_elsewhere() -> None:
    """A size called `block`, a value called `by`, wide characters and signs inside of texts."""
    assert wrong(WIDE) == []
    marks = scopes(COLOURS, WIDE)
    at = WIDE.index("{layer}")
    assert marks[at : at + 7] == [("string.quoted.double.mks", "variable.other.placeholder.mks")] * 7
    assert marks[WIDE.index('"no')] == ("comment.line.number-sign.mks",)
    assert marks[WIDE.index("#{name}")] == ("string.quoted.double.mks",)


def test_a_wrong_grammar_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its statements, their words have the colour of names."""
    monkeypatch.setitem(COLOURS["repository"], "statement", {"match": "§"})
    assert ("cache", "keyword.", ("variable.other.mks",)) in wrong(text("smollm2"))


@pytest.mark.parametrize("word", sorted({w for words in WORDS.values() for w in words}))
def test_every_statement_has_a_colour(word: str) -> None:
    """Each word that begins a statement, also those that no shipped definition uses."""
    line = f"  {FORMS[word].split('[')[0]}\n"
    marks = scopes(COLOURS, line)
    assert {m[-1] for m in marks[2 : 2 + len(word)]} <= {"keyword.declaration.mks", "keyword.control.mks"}
