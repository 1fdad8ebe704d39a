"""The open files: their texts, what is known of them, and the diagnostics that follow a pause."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from attrs import define, field
from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from ..diagnostics import Diagnostic
from ..source import Source, Span
from ..text import syntax as s
from ..text.files import read_source
from . import convert
from .analysis import Analysis
from .positions import lines

# Seconds without a change after which a text is checked.
PAUSE = 0.2
log = logging.getLogger(__name__)


@define
class Files:
    """The open files: their texts, as the editor has them, and what is known of the newest version of each."""

    server: LanguageServer
    known: dict[str, Analysis] = field(factory=dict)
    good: dict[str, Analysis] = field(factory=dict)  # the last versions that had models without errors
    waiting: dict[str, asyncio.Task[None]] = field(factory=dict)

    @property
    def unit(self) -> str:
        """What columns count, as agreed with the editor."""
        return str(getattr(self.server.workspace.position_encoding, "value", self.server.workspace.position_encoding))

    def of(self, uri: str) -> Analysis:
        """What is known of a file now."""
        try:
            text = self.server.workspace.get_text_document(uri).source
        except (OSError, UnicodeError):  # neither open nor on disk
            text = ""
        analysis = self.known.get(uri)
        if analysis is None or analysis.source.text != text:
            if analysis is not None and analysis.complete:
                self.good[uri] = analysis
            path = to_fs_path(uri)
            folder = Path.cwd() if path is None else Path(path).parent
            analysis = self.known[uri] = Analysis(Source(path or uri, text), folder, self.read)
        return analysis

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
            diagnostics = await asyncio.to_thread(lambda: analysis.diagnostics)
        except Exception as e:  # our fault, which must not end the editor's session
            log.exception("checking %s", uri)
            diagnostics = (Diagnostic("E900", f"this is a bug in mks: {type(e).__name__}: {e}"),)
        if self.known.get(uri) is not analysis:
            return  # closed, or changed meanwhile
        converted = [convert.diagnostic(d, analysis.source, _use(analysis, d), self.unit) for d in diagnostics]
        number = self.server.workspace.get_text_document(uri).version
        self.server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, converted, number))

    def closed(self, uri: str) -> None:
        """Forget a file, and what is wrong with it."""
        self.known.pop(uri, None)
        self.good.pop(uri, None)
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
