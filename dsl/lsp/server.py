"""The server: what it answers to each request."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from ..diagnostics import Diagnostic
from ..source import Span
from ..text.files import LARGEST
from ..text.format import format_source
from ..version import version
from . import convert
from .analysis import Analysis
from .complete import complete
from .files import Files
from .hover import hover
from .names import Mention
from .outline import outline

log = logging.getLogger(__name__)
_LONGEST = 16 * LARGEST  # bytes of a message: a text that escapes most of its characters
_REFUSED = "a file with errors of syntax is left as it is"


def make_server() -> LanguageServer:
    """The server with everything it answers, not yet speaking to anyone."""
    # Whole texts, as lines end in more ways for Python than for editors.
    server = LanguageServer("mks", version(), lsp.TextDocumentSyncKind.Full)
    files = Files(server)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def _opened(given: lsp.DidOpenTextDocumentParams) -> None:
        files.changed(given.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def _changed(given: lsp.DidChangeTextDocumentParams) -> None:
        files.changed(given.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    async def _closed(given: lsp.DidCloseTextDocumentParams) -> None:
        files.closed(given.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def _hover(given: lsp.HoverParams) -> lsp.Hover | None:
        analysis, offset = files.at(given.text_document.uri, given.position)
        answer = _safely(lambda: hover(analysis, offset, files.good.get(given.text_document.uri)), None)
        if answer is None:
            return None
        text, span = answer
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text), convert.range_of(span, files.unit))

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def _definition(given: lsp.DefinitionParams) -> list[lsp.Location]:
        analysis, offset = files.at(given.text_document.uri, given.position)
        return _safely(lambda: _defined(analysis, offset, files), [])

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def _references(given: lsp.ReferenceParams) -> list[lsp.Location]:
        analysis, offset = files.at(given.text_document.uri, given.position)
        return _safely(lambda: _referred(analysis, offset, given.context.include_declaration, files), [])

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def _symbols(given: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        analysis = files.of(given.text_document.uri)
        return _safely(lambda: convert.symbols(outline(analysis.definition.file), files.unit), [])

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["."]))
    def _completion(given: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        analysis, offset = files.at(given.text_document.uri, given.position)
        return _safely(lambda: [convert.completion(each) for each in complete(analysis, offset)], [])

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def _formatting(given: lsp.DocumentFormattingParams) -> list[lsp.TextEdit] | None:
        source = files.of(given.text_document.uri).source
        edits = format_source(source) if len(source.text) <= LARGEST else []
        if not isinstance(edits, str):
            server.window_log_message(lsp.LogMessageParams(lsp.MessageType.Warning, _REFUSED))
            return None
        whole = convert.range_of(Span(source, 0, len(source.text)), files.unit)
        return [] if edits == source.text else [lsp.TextEdit(whole, edits)]

    return server


def _defined(analysis: Analysis, offset: int, files: Files) -> list[lsp.Location]:
    mention = analysis.index.at(analysis.source, offset)
    if mention is None:
        return []
    if mention.key.kind == "file":
        return _file(analysis, mention, files)
    return [convert.location(each.span, files.unit) for each in analysis.index.declarations(mention)]


def _referred(analysis: Analysis, offset: int, declaring: bool, files: Files) -> list[lsp.Location]:
    mention = analysis.index.at(analysis.source, offset)
    references = analysis.index.references(mention) if mention is not None else ()
    return [convert.location(each.span, files.unit) for each in references if declaring or not each.declares]


def _file(analysis: Analysis, mention: Mention, files: Files) -> list[lsp.Location]:
    """The beginning of a file that is used, if it can be read."""
    read = files.read((analysis.folder or Path()) / mention.key.name)
    return [] if isinstance(read, Diagnostic) else [convert.location(Span(read, 0, 0), files.unit)]


def _safely[T](ask: Callable[[], T], otherwise: T) -> T:
    """An answer; a fault of ours is logged, and costs the editor no more than this answer."""
    try:
        return ask()
    except Exception:
        log.exception("answering")
        return otherwise


class _Input(io.BufferedReader):
    """Standard input, which ends where a message is said to be longer than any editor's."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _LONGEST:
            print(
                f"mks lsp: a message of {size} bytes, where {_LONGEST} are the most; the session ends", file=sys.stderr
            )
            return b""
        return super().read(size)


def serve() -> int:
    """Speak through standard input and output until told to stop; 0 if that was done properly."""
    given = _Input(io.FileIO(os.dup(0)))
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that nothing printed gets among the messages
    logging.basicConfig(level=logging.WARNING)
    server = make_server()
    asked = False

    @server.feature(lsp.SHUTDOWN)
    def _shutdown(given: None) -> None:
        nonlocal asked
        asked = True

    server.start_io(given, output)
    return 0 if asked else 1
