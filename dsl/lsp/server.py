"""The server: keeps what is known of each open file, answers requests, and reports what is wrong after a pause."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from attrs import define, field
from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from ..commands.cli import version
from ..diagnostics import Diagnostic
from ..source import Source, Span
from ..text import syntax as s
from ..text.files import LARGEST, read_source
from ..text.format import format_source
from . import convert
from .analysis import Analysis
from .complete import complete
from .hover import hover
from .outline import outline
from .places import Mention
from .positions import lines

# Seconds without a change after which a text is checked.
PAUSE = 0.2
log = logging.getLogger("mks.lsp")


@define
class Files:
    """The open files: their texts, as the editor has them, and what is known of the newest version of each."""

    server: LanguageServer
    known: dict[str, Analysis] = field(factory=dict)
    waiting: dict[str, asyncio.Task[None]] = field(factory=dict)

    @property
    def unit(self) -> str:
        """What columns count, as agreed with the editor."""
        return str(getattr(self.server.workspace.position_encoding, "value", self.server.workspace.position_encoding))

    def of(self, uri: str) -> Analysis:
        """What is known of a file now."""
        text = self.server.workspace.get_text_document(uri).source
        found = self.known.get(uri)
        if found is None or found.source.text != text:
            path = to_fs_path(uri)
            folder = Path.cwd() if path is None else Path(path).parent
            found = self.known[uri] = Analysis(Source(path or uri, text), folder, self.read)
        return found

    def read(self, path: Path) -> Source | Diagnostic:
        """A file that another one uses: as it is being edited, or else as it lies on disk."""
        wanted = path.resolve()
        for uri, document in list(self.server.workspace.text_documents.items()):
            here = to_fs_path(uri)
            if here is not None and uri in self.known and Path(here).resolve() == wanted:
                return Source(here, document.source)
        return read_source(path)

    def changed(self, uri: str) -> None:
        """Check a file soon; also the others, which may use it."""
        self.of(uri)
        for other in list(self.known):
            if other != uri:
                used = {convert.uri_of(file.source) for file in self.known[other].definition.files}
                if uri not in used:
                    continue
                del self.known[other]
            if other in self.waiting:
                self.waiting[other].cancel()
            self.waiting[other] = asyncio.get_running_loop().create_task(self.check(other))

    async def check(self, uri: str) -> None:
        """Wait for a pause, and publish all diagnostics of a file."""
        await asyncio.sleep(PAUSE)
        analysis = self.of(uri)
        try:
            found = await asyncio.to_thread(lambda: analysis.diagnostics)
        except Exception as e:  # our fault, which must not end the editor's session
            log.exception("checking %s", uri)
            found = (Diagnostic("E900", f"this is a bug in mks: {type(e).__name__}: {e}"),)
        if self.known.get(uri) is not analysis:
            return  # closed, or changed meanwhile
        made = [convert.diagnostic(d, analysis.source, _use(analysis, d), self.unit) for d in found]
        number = self.server.workspace.get_text_document(uri).version
        self.server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, made, number))

    def closed(self, uri: str) -> None:
        """Forget a file, and what is wrong with it."""
        self.known.pop(uri, None)
        if (task := self.waiting.pop(uri, None)) is not None:
            task.cancel()
        self.server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))

    def at(self, uri: str, position: lsp.Position) -> tuple[Analysis, int]:
        """A file, and the character at a place of it."""
        analysis = self.of(uri)
        return analysis, lines(analysis.source.text, self.unit).offset(position.line, position.character)


def _use(analysis: Analysis, given: Diagnostic) -> Span | None:
    """The `use` line that leads to a place in another file; the first, where it is used by one that is used."""
    if given.primary is None or "definition" not in vars(analysis):
        return None
    uses = [item for item in analysis.definition.file.items if isinstance(item, s.Use)]
    wrong = Path(given.primary.span.source.name).name
    return next((x.path.span for x in uses if Path(x.path.value).name == wrong), uses[0].path.span if uses else None)


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
        found = _safely(lambda: hover(analysis, offset), None)
        if found is None:
            return None
        text, span = found
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text), convert.range_of(span, files.unit))

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def _definition(given: lsp.DefinitionParams) -> list[lsp.Location]:
        analysis, offset = files.at(given.text_document.uri, given.position)
        return _safely(lambda: _defined(analysis, offset, files), [])

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def _references(given: lsp.ReferenceParams) -> list[lsp.Location]:
        analysis, offset = files.at(given.text_document.uri, given.position)
        places = analysis.places
        mention = places.at(analysis.source, offset)
        found = places.references(mention) if mention is not None else ()
        kept = (each for each in found if given.context.include_declaration or not each.declares)
        return [convert.location(each.span, files.unit) for each in kept]

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
        made = format_source(source) if len(source.text) <= LARGEST else []
        if not isinstance(made, str):
            server.window_log_message(lsp.LogMessageParams(lsp.MessageType.Warning, _REFUSED))
            return None
        return [lsp.TextEdit(convert.range_of(Span(source, 0, len(source.text)), files.unit), made)][
            : made != source.text
        ]

    return server


_REFUSED = "a file with errors of syntax is left as it is"


def _defined(analysis: Analysis, offset: int, files: Files) -> list[lsp.Location]:
    mention = analysis.places.at(analysis.source, offset)
    if mention is None:
        return []
    if mention.key.kind == "file":
        return _file(analysis, mention, files)
    return [convert.location(each.span, files.unit) for each in analysis.places.declarations(mention)]


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


def serve() -> int:
    """Speak through standard input and output until told to stop; 0 if that was done properly."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that nothing printed gets among the messages
    logging.basicConfig(level=logging.WARNING)
    server = make_server()
    asked = False

    @server.feature(lsp.SHUTDOWN)
    def _shutdown(given: None) -> None:
        nonlocal asked
        asked = True

    server.start_io(stdout=output)
    return 0 if asked else 1
