"""From what the checker says to what the protocol carries."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lsprotocol import types as lsp
from pygls.uris import from_fs_path

from ..codes import explained
from ..diagnostics import Diagnostic, Label
from ..source import Source, Span
from .complete import Proposal
from .outline import Symbol
from .positions import lines

_SYMBOLS = {
    "model": lsp.SymbolKind.Module,
    "schedule": lsp.SymbolKind.Namespace,
    "speculate": lsp.SymbolKind.Namespace,
    "part": lsp.SymbolKind.Class,
    "step": lsp.SymbolKind.Method,
    "stream": lsp.SymbolKind.Object,
    "function": lsp.SymbolKind.Function,
    "size": lsp.SymbolKind.Constant,
    "const": lsp.SymbolKind.Constant,
    "list": lsp.SymbolKind.Array,
    "weight": lsp.SymbolKind.Field,
}
_PROPOSALS = {
    "keyword": lsp.CompletionItemKind.Keyword,
    "op": lsp.CompletionItemKind.Function,
    "function": lsp.CompletionItemKind.Function,
    "size": lsp.CompletionItemKind.Constant,
    "const": lsp.CompletionItemKind.Constant,
    "list": lsp.CompletionItemKind.Constant,
    "weight": lsp.CompletionItemKind.Field,
    "part": lsp.CompletionItemKind.Class,
    "model": lsp.CompletionItemKind.Module,
    "schedule": lsp.CompletionItemKind.Module,
}


def uri_of(source: Source) -> str:
    """Where a file lies; editors' names of texts that lie nowhere are kept."""
    if "://" in source.name or source.name.startswith("untitled:"):
        return source.name
    return from_fs_path(str(Path(source.name).absolute())) or source.name


def range_of(span: Span, unit: str) -> lsp.Range:
    """A place."""
    of = lines(span.source.text, unit)
    return lsp.Range(*(lsp.Position(*of.position(at)) for at in (span.start, max(span.start, span.end))))


def location(span: Span, unit: str) -> lsp.Location:
    """A place and its file."""
    return lsp.Location(uri_of(span.source), range_of(span, unit))


_SEVERITIES = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "note": lsp.DiagnosticSeverity.Information,
}


def diagnostic(given: Diagnostic, main: Source, use: Span | None, unit: str) -> lsp.Diagnostic:
    """One for the file `main`. What is wrong in a file that it uses stands at `use`, with the place as related."""
    primary, others = given.primary, list(given.others)
    span = Span(main, 0, 0) if primary is None else primary.span
    if primary is not None and span.source is not main:
        others.insert(0, Label(span, primary.text or "here"))
        span = use or Span(main, 0, 0)
    related = [lsp.DiagnosticRelatedInformation(location(x.span, unit), x.text or "see here") for x in others]
    return lsp.Diagnostic(
        range_of(span, unit),
        _message(given),
        _SEVERITIES[given.severity],
        given.code,
        lsp.CodeDescription(page) if (page := _page(given.code)) is not None else None,
        "mks",
        related_information=related,
    )


def _message(given: Diagnostic) -> str:
    """The headline, what the carets say, notes and helps."""
    label = [given.primary.text] if given.primary is not None and given.primary.text else []
    helps = [text if text.startswith("help: ") else f"help: {text}" for text in given.helps]
    return "\n".join([given.message, *label, *given.notes, *helps])


def _page(code: str) -> str | None:
    """A link to the code's explanation, on its line."""
    page = explained(code)
    return None if page is None else f"{from_fs_path(str(page[0]))}#L{page[1]}"


def symbols(given: Iterable[Symbol], unit: str) -> list[lsp.DocumentSymbol]:
    """An outline."""
    return [
        lsp.DocumentSymbol(
            each.name,
            _SYMBOLS.get(each.kind, lsp.SymbolKind.Variable),
            range_of(each.span, unit),
            range_of(each.selection, unit),
            detail=each.kind,
            children=symbols(each.children, unit),
        )
        for each in given
    ]


def completion(given: Proposal) -> lsp.CompletionItem:
    """A word that may stand there."""
    kind = _PROPOSALS.get(given.kind, lsp.CompletionItemKind.Variable)
    return lsp.CompletionItem(given.word, kind=kind, detail=given.detail or given.kind)
