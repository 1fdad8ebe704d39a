"""Errors as data: one object that the command prints, JSON carries, an editor shows and Python raises."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from attrs import field

from .records import frozen
from .source import Span

MOST_WORDS = 5000


@frozen
class Label:
    """A place, and a few words that belong under its carets."""

    span: Span
    text: str = ""


@frozen
class Diagnostic:
    """What is wrong (`message`), where (`primary`, `others`), which facts (`notes`) and what would help (`helps`).

    The first letter of `code` is the severity: `E` stops, `W` does not, and `N` is no fault.
    """

    code: str
    message: str
    primary: Label | None = None
    others: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    helps: tuple[str, ...] = ()

    @property
    def severity(self) -> str:
        """`error`, `warning` or `note`."""
        return {"W": "warning", "N": "note"}.get(self.code[:1], "error")

    @property
    def order(self) -> tuple[str, int, int, str, str]:
        """Sort key: file, position, code, text."""
        if self.primary is None:
            return ("", 0, 0, self.code, self.message)
        span = self.primary.span
        return (span.source.name, span.start, span.end, self.code, self.message)


class MksError(Exception):
    """Raised by library calls that cannot return diagnostics; carries all of them."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = ordered(diagnostics)
        super().__init__("; ".join(f"{d.code}: {d.message}" for d in self.diagnostics))


@frozen
class Sink:
    """Collects diagnostics while a pass goes on."""

    diagnostics: list[Diagnostic] = field(factory=list)

    def report(
        self,
        code: str,
        message: str,
        at: Span | None = None,
        label: str = "",
        *,
        others: Iterable[Label] = (),
        notes: Iterable[str] = (),
        helps: Iterable[str] = (),
    ) -> None:
        """Add one."""
        primary = None if at is None else Label(at, label)
        self.diagnostics.append(Diagnostic(code, message, primary, tuple(others), tuple(notes), tuple(helps)))

    @property
    def failed(self) -> bool:
        """Whether an error was found."""
        return any(d.severity == "error" for d in self.diagnostics)


def ordered(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sorted by file, position and code, each once."""
    return tuple(sorted(dict.fromkeys(diagnostics), key=lambda d: d.order))


def reportable(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The same; notes only where there are no errors."""
    in_order = ordered(diagnostics)
    failed = any(d.severity == "error" for d in in_order)
    return tuple(d for d in in_order if not failed or d.severity != "note")


def did_you_mean(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """A help line naming the nearest known word, or nothing."""
    near = nearest(word, known)
    return () if near is None else (f"did you mean `{near}`?",)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The nearest known word, if one is near; of very many words it is not looked for."""
    words = sorted(set(known))
    near = get_close_matches(word, words, n=1, cutoff=0.6) if len(words) <= MOST_WORDS else []
    return near[0] if near else None
