"""One diagnostic for a statement that does not parse: a frequent mistake by name, any other by what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..diagnostics import Diagnostic, Label
from ..records import frozen
from ..source import Source, Span
from .forms import BLOCKS, CONTEXTS, WORDS, expected, form, homes, keywords, near
from .limits import Refusal
from .scan import Piece, brackets

_INSTEAD = {
    "'": 'the double quote `"`',
    "“": 'the plain quote `"`',
    "”": 'the plain quote `"`',
    "„": 'the plain quote `"`',
    "&": "`and`",
    "|": "`or`",
    "!": "`not`",
    "^": "`**` for powers",
    "×": "`*`",
    "−": "the plain minus `-`",
    "–": "the plain minus `-`",
    "\u00a0": "a plain space",
    "\u3000": "a plain space",
    "\ufeff": "nothing: it is a byte order mark, which belongs at the very beginning",
}

_UNITLESS = frozenset("file model part step weights state".split())


@frozen
class Failure:
    """The word that the parser could not take (`$END` when the statement ended too early), and what it could."""

    terminal: str
    start: int
    end: int
    accepts: frozenset[str]


@frozen
class Broken:
    """A statement that does not parse, where it stands, and its pieces."""

    source: Source
    context: str
    pieces: Sequence[Piece]

    def span(self, start: int, end: int) -> Span:
        """A place in the source."""
        return Span(self.source, start, end)

    def report(
        self,
        code: str,
        message: str,
        piece: Piece | tuple[int, int],
        label: str = "",
        *,
        others: Iterable[Label] = (),
        notes: Iterable[str] = (),
        helps: Iterable[str] = (),
    ) -> Diagnostic:
        """A diagnostic at a piece, or at offsets."""
        start, end = (piece.start, piece.end) if isinstance(piece, Piece) else piece
        return Diagnostic(code, message, Label(self.span(start, end), label), tuple(others), tuple(notes), tuple(helps))


def diagnose(broken: Broken, failure: Failure) -> Diagnostic:
    """What is wrong with a statement."""
    diagnostic = _characters(broken) or _unbalanced(broken)
    if diagnostic:
        return diagnostic
    at = next((i for i, piece in enumerate(broken.pieces) if piece.end > failure.start), len(broken.pieces))
    if failure.terminal == "$END":
        at = len(broken.pieces)
    return (
        _beginning(broken, at)
        or _signs(broken, at, failure)
        or _words(broken, at, failure)
        or _general(broken, at, failure)
    )


def _characters(broken: Broken) -> Diagnostic | None:
    """What is wrong already as text."""
    for piece in broken.pieces:
        if piece.kind == "open":
            helps = ('a text begins and ends with `"` on one line',)
            return broken.report("E013", "this text has no closing quote", piece, helps=helps)
        if piece.text == ";":
            helps = ("leave it out: the end of the line ends a statement",)
            return broken.report("E016", "semicolons are not part of the language", piece, helps=helps)
        if piece.kind == "other":
            instead = [f"use {_INSTEAD[piece.text]}"] if piece.text in _INSTEAD else []
            shown = f"`{piece.text}`" if piece.text.isprintable() and not piece.text.isspace() else "this character"
            return broken.report("E015", f"{shown} (U+{ord(piece.text):04X}) means nothing here", piece, helps=instead)
    return None


def _unbalanced(broken: Broken) -> Diagnostic | None:
    """Brackets that are not closed or not opened."""
    pairs = brackets(broken.pieces)
    closed = set(pairs.values())
    for i, piece in enumerate(broken.pieces):
        if piece.text in ("(", "[", "{") and i not in pairs and piece.kind == "sign":
            closer = {"(": ")", "[": "]", "{": "}"}[piece.text]
            label = f"`{closer}` is missing"
            return broken.report("E012", f"this `{piece.text}` is not closed", piece, label)
        if piece.text in (")", "]", "}") and i not in closed and piece.kind == "sign":
            return broken.report("E014", f"this `{piece.text}` closes nothing", piece, helps=("leave it out",))
    return None


def _beginning(broken: Broken, at: int) -> Diagnostic | None:
    """A first word that begins no statement of this context."""
    first, context = broken.pieces[0], broken.context
    called = CONTEXTS[context][0] if context in CONTEXTS else "this block"
    if first.kind != "word" or first.text in WORDS[context] or at > 1:
        return _comment(broken, first) if at == 0 else None
    known, second = WORDS[context], broken.pieces[1] if len(broken.pieces) > 1 else None
    # Where statements may begin with any name, only what follows shows that a word of the language was meant.
    if at == 1 and (second is None or not (second.kind in ("word", "string", "number") or second.text in "{(")):
        return None
    if homes(first.text) and (at == 0 or second is not None):
        return misplaced(broken)
    meant = near(first.text, known) or (near(first.text, frozenset(BLOCKS)) if second and "{" in second.text else None)
    if meant is None and at == 1:
        return None
    helps = [f"did you mean `{meant}`?"] if meant else []
    if not meant and known:
        helps.append(f"{called} holds {', '.join(f'`{word}`' for word in sorted(known - {'mks'}))}")
    return broken.report("E019", f"`{first.text}` does not begin a statement of {called}", first, helps=helps)


def refused(broken: Broken, why: Refusal, base: int) -> Diagnostic:
    """A statement that follows the grammar and is refused; its text begins at `base`."""
    helps = (why.help,)
    if why.code == "E022" and broken.source.text[base + why.start].isdigit() and broken.context in _UNITLESS:
        helps = ("a number has a unit in schedules only, and no name begins with a digit",)
    return broken.report(why.code, why.message, (base + why.start, base + why.end), helps=helps)


def misplaced(broken: Broken) -> Diagnostic:
    """A statement that belongs elsewhere."""
    first = broken.pieces[0]
    inside = " or ".join(homes(first.text))
    message = f"`{first.text}` does not belong in {CONTEXTS[broken.context][0]}"
    return broken.report("E020", message, first, f"belongs in {inside}")


def _comment(broken: Broken, first: Piece) -> Diagnostic | None:
    if first.text in ("//", "/", "--", "-") and first.kind == "sign":
        helps = ("comments begin with `#`",)
        return broken.report("E010", f"a statement cannot begin with `{first.text}`", first, helps=helps)
    return None


def _signs(broken: Broken, at: int, failure: Failure) -> Diagnostic | None:
    """One sign for another."""
    if at >= len(broken.pieces):
        return None
    piece, before = broken.pieces[at], broken.pieces[at - 1] if at else None
    notes = form(broken.pieces[0].text, broken.context)
    for wrong, terminal, right in (
        (":", "EQUAL", "="),
        ("=", "COLON", ":"),
        ("==", "EQUAL", "="),
        ("=", "EQUALS", "=="),
    ):
        if piece.text == wrong and terminal in failure.accepts:
            return broken.report("E017", f"`{right}` belongs here, not `{wrong}`", piece, notes=notes)
    if broken.context == "stream" and at == 2 and before is not None and before.text in ":=":
        if (before.text, piece.kind) == (":", "number"):
            return broken.report("E017", "`=` belongs here, not `:`", before, notes=notes)
        if (before.text, piece.text) == ("=", "("):
            return broken.report("E017", "`:` belongs here, not `=`", before, notes=notes)
    if before is not None and before.kind == "number" and piece.kind == "word" and before.end == piece.start:
        why = Refusal("E022", f"`{piece.text}` needs a space before it", before.start, piece.end, "")
        return refused(broken, why, 0)
    return None


def _words(broken: Broken, at: int, failure: Failure) -> Diagnostic | None:
    """A misspelt word of the language, or a statement that begins in the middle of a line."""
    if at >= len(broken.pieces) or broken.pieces[at].kind != "word":
        return None
    piece, notes = broken.pieces[at], form(broken.pieces[0].text, broken.context)
    following = broken.pieces[at + 1] if at + 1 < len(broken.pieces) else None
    ended = "$END" in failure.accepts
    if ended and (piece.text in WORDS[broken.context] or (following is not None and following.text == "=")):
        helps = ("each statement has its own line",)
        return broken.report("E021", f"another statement begins at `{piece.text}`", piece, helps=helps)
    meant = near(piece.text, keywords(failure.accepts))
    if meant and meant != piece.text:
        helps = (f"did you mean `{meant}`?",)
        return broken.report("E019", f"`{piece.text}` means nothing here", piece, notes=notes, helps=helps)
    return None


def _general(broken: Broken, at: int, failure: Failure) -> Diagnostic:
    """What was expected, and what stands there."""
    wanted = expected(failure.accepts)
    first = broken.pieces[0].text if broken.pieces else ""
    notes = form(first, broken.context)
    if at >= len(broken.pieces):
        end = broken.pieces[-1].end if broken.pieces else failure.start
        return broken.report("E010", f"the statement ends too early: expected {wanted}", (end, end), notes=notes)
    piece = broken.pieces[at]
    if at == 1 and first in WORDS[broken.context] and piece.text in ("=", ":", ",", ".", "["):
        helps = (f"`{first}` is a word of the language; give what it names another name",)
        message = f"`{first}` begins a statement of its own and cannot be a name here"
        return broken.report("E010", message, broken.pieces[0], notes=notes, helps=helps)
    shown = f"`{piece.text}`" if len(piece.text) <= 40 else f"`{piece.text[:39]}…`"
    return broken.report("E010", f"expected {wanted}, found {shown}", piece, notes=notes)
