"""Spaces between words, and columns shared by consecutive statements of a kind."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field

from ..records import define
from .columns import show
from .layout import Entry, Word

WIDTH = 120
# Values longer than this do not push the `from` of their neighbours to the right.
_LONG = 14
# Targets of assignments share a column when their widths differ by at most this.
_SPREAD = 2

_OPERANDS = frozenset("NAME NUMBER STRING RPAR RSQB RBRACE".split())
_OPEN = frozenset("LPAR LSQB LBRACE _LAMBDA".split())
_CLOSE = frozenset("RPAR RSQB RBRACE".split())
_TIGHT_BEFORE = frozenset("COMMA RPAR RSQB DOT".split())
_TIGHT_AFTER = frozenset("LPAR LSQB DOT".split())

# For each kind of statement, by its first word: the words that begin a column, and the spaces before it.
_DECLARED = {"EQUAL": 1, "FROM": 2}
_STORED = {"COLON": 1, "PLACE": 2, "ROWS": 2, "SCALE": 2, "GLOBAL": 2}
_COLUMNS = {
    "SIZE": _DECLARED,
    "CONST": _DECLARED,
    "LIST": _DECLARED,
    "TAPS": _DECLARED,
    "SHARD": {"COLON": 1},
    "SPLIT": {"OVER": 2},
    "PREFETCH": {"AT": 2, "OPTIONS": 2},
    "REDUCE": {"OPTIONS": 2},
    "FETCH": {"OPTIONS": 2},
    "OVERLAP": {"WITH": 2},
    "FORM": {"EQUAL": 1},
    "STORE": {"AS": 1},
    "ROWS": {"OPTIONS": 2},
    "SPAN": {"OPTIONS": 2},
    "CONTEXT": {"OPTIONS": 2},
}


def space(before: Word, after: Word, context: str, earlier: Word | None) -> str:
    """What stands between two words of a line."""
    if before.kind in _TIGHT_AFTER or after.kind in _TIGHT_BEFORE:
        return ""
    if after.kind == "LSQB":
        grouped = earlier is not None and earlier.kind in ("GROUP", "BLOCK", "BY")
        return " " if grouped or before.kind not in _OPERANDS else ""
    if after.kind == "LPAR":
        return "" if before.kind == "NAME" and context not in ("schedule", "stream") else " "
    if before.kind == "MINUS" and (earlier is None or earlier.kind not in _OPERANDS):
        return ""
    return "  " if after.kind == "COMMENT" else " "


@define
class Line:
    """A statement cut into rows, and its first row into what comes first and cells, each named for its column.

    `align` makes `text` of the first row, and notes in `starts` where its columns are.
    """

    kind: str
    columns: dict[str, int]
    head: str
    cells: dict[str, str] = field(factory=dict)
    rows: list[str] = field(factory=list)
    text: str = ""
    starts: dict[str, int] = field(factory=dict)


def line(entry: Entry, context: str, indent: int) -> Line:
    """Cut a statement; its continuation lines are kept where the author broke it."""
    words = _broken(entry.words, context, indent)
    kind, columns = _kind(words, context)
    laid_out = Line(kind, columns, words[0].text)
    depth, left, cell = 0, set(columns), ""
    code = [words[0]]  # without comments
    for word in words[1:]:
        gap = space(code[-1], word, context, code[-2] if len(code) > 1 else None)
        starts = _starts(code, word, context) if not depth else ""
        depth += (word.kind in _OPEN) - (word.kind in _CLOSE)
        if word.kind == "OR" and context == "weights":
            left.clear()  # the columns are those of the first place
        if word.breaks:
            laid_out.rows.append(word.text)
        elif laid_out.rows:
            laid_out.rows[-1] += gap + word.text
        elif starts in left:
            cell = starts
            laid_out.cells[cell] = word.text
            left -= set(list(columns)[: list(columns).index(cell) + 1])
        elif cell:
            laid_out.cells[cell] += gap + word.text
        else:
            laid_out.head += gap + word.text
        if word.kind != "COMMENT":
            code.append(word)
    return laid_out


def _kind(words: list[Word], context: str) -> tuple[str, dict[str, int]]:
    """What a statement shares columns with, and which."""
    first = words[0].kind
    if context in ("weights", "state"):
        return "stored", _STORED
    if context in ("model", "schedule") and first in _COLUMNS:
        return "declared" if _COLUMNS[first] is _DECLARED else first, _COLUMNS[first]
    if context in ("part", "step"):
        return "assigned", {"EQUAL": 1}
    if context in ("stream", "speculate"):
        sign = next((word.kind for word in words if word.kind in ("EQUAL", "COLON")), "")
        return sign, {sign: 1} if sign else {}
    return first, {}


def _starts(code: Sequence[Word], word: Word, context: str) -> str:
    """The column that a word outside of brackets begins, if any."""
    if context == "weights" and code[-1].kind == "RSQB":
        return "PLACE"
    if context == "schedule" and word.kind == "LPAR":
        return "OPTIONS"
    return word.kind


def _broken(words: list[Word], context: str, indent: int) -> list[Word]:
    """A weight with places that do not fit a line has one on each."""
    if context != "weights" or not any(word.kind == "OR" for word in words):
        return words
    if indent + sum(len(word.text) + 1 for word in words) <= WIDTH:
        return words
    return [
        Word(word.kind, word.text, word.breaks or (before.kind == "OR" and word.kind != "COMMENT"), False)
        for before, word in zip([words[0], *words], words, strict=False)
    ]


def align(section: list[Line]) -> None:
    """Give consecutive lines of a kind their columns."""
    for run in _runs(section):
        for one in run:
            one.text = one.head
        for name, gap in run[0].columns.items():
            for group in _groups([one for one in run if name in one.cells], name):
                start = max(show(one.text).width for one in group) + gap
                for one in group:
                    one.text = pad(one.text, start) + one.cells[name]
                    one.starts[name] = start


def pad(text: str, width: int) -> str:
    """Text with spaces up to a column."""
    return text + " " * (width - show(text).width)


def _runs(section: list[Line]) -> list[list[Line]]:
    """Assignments whose targets differ much in width do not share a column."""
    runs: list[list[Line]] = []
    for one in section:
        widths = [show(x.head).width for x in (*(runs[-1] if runs else ()), one)]
        if runs and (one.kind != "assigned" or max(widths) - min(widths) <= _SPREAD):
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


def _groups(lines: list[Line], name: str) -> list[list[Line]]:
    """Lines that share a column: all, but `from` behind a long value stands by itself or with its long neighbours."""
    if name != "FROM":
        return [lines] if lines else []
    short: list[Line] = []
    groups: list[list[Line]] = []
    was_long = False
    for one in lines:
        is_long = len(one.cells.get("EQUAL", "")) > _LONG
        if not is_long:
            short.append(one)
        elif was_long:
            groups[-1].append(one)
        else:
            groups.append([one])
        was_long = is_long
    return [short, *groups] if short else groups
