"""An editor as a language server sees it: JSON-RPC over a child's standard input and output."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

SCRIPT = "import sys; from mks.dsl.commands.cli import main; sys.exit(main(['lsp']))"
LIMIT = 60.0
PUBLISHED = "textDocument/publishDiagnostics"


class Editor:
    """A session with `mks lsp`; every wait ends after a minute."""

    def __init__(self, *encodings: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.came: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.notes: list[dict[str, Any]] = []
        self.errors = b""
        self.count = 0
        self.threads = [threading.Thread(target=self._listen), threading.Thread(target=self._drain)]
        for thread in self.threads:
            thread.start()
        self.general = {"general": {"positionEncodings": list(encodings)}} if encodings else {}
        self.capabilities: dict[str, Any] = {}

    def __enter__(self) -> Self:
        given = {"processId": None, "rootUri": None, "capabilities": self.general}
        try:
            self.capabilities = self.ask("initialize", given)["capabilities"]
        except BaseException:
            self.__exit__()
            raise
        self.tell("initialized", {})
        return self

    def __exit__(self, *error: object) -> None:
        self.child.kill()
        self.child.wait(LIMIT)
        for thread in self.threads:
            thread.join(LIMIT)
        for pipe in (self.child.stdin, self.child.stdout, self.child.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _listen(self) -> None:
        out = self.child.stdout
        assert out is not None
        while header := out.readline():
            size = 0
            while header.strip():
                name, _, value = header.decode("ascii").partition(":")
                size = int(value) if name.lower() == "content-length" else size
                header = out.readline()
            self.came.put(json.loads(out.read(size)))
        self.came.put(None)

    def _drain(self) -> None:
        assert self.child.stderr is not None
        self.errors = self.child.stderr.read()

    def send(self, message: dict[str, Any]) -> None:
        """Any message."""
        data = json.dumps({"jsonrpc": "2.0", **message}).encode("utf-8")
        assert self.child.stdin is not None
        self.child.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.child.stdin.flush()

    def tell(self, method: str, given: Any) -> None:
        """A notification."""
        self.send({"method": method, "params": given})

    def ask(self, method: str, given: Any) -> Any:
        """A request's result; what comes before it is kept in `notes`."""
        self.count += 1
        self.send({"id": self.count, "method": method, "params": given})
        while True:
            message = self._next(method)
            if message.get("id") == self.count and "method" not in message:
                assert "error" not in message, message
                return message["result"]
            self.notes.append(message)

    def _next(self, wanted: str) -> dict[str, Any]:
        try:
            message = self.came.get(timeout=LIMIT)
        except queue.Empty:
            raise AssertionError(f"no {wanted} within {LIMIT} s") from None
        assert message is not None, f"the server ended before {wanted}"
        return message

    def open(self, uri: str, text: str) -> None:
        """Open a file."""
        item = {"uri": uri, "languageId": "mks", "version": 1, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": item})

    def change(self, uri: str, text: str, version: int) -> None:
        """Replace a file's text."""
        document = {"uri": uri, "version": version}
        self.tell("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def diagnostics(self, uri: str, version: int | None) -> list[dict[str, Any]]:
        """What is published of one version of a file."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            for note in self.notes:
                given = note.get("params", {})
                if note.get("method") == PUBLISHED and (given["uri"], given.get("version")) == (uri, version):
                    self.notes.remove(note)
                    return given["diagnostics"]
            self.notes.append(self._next("diagnostics"))
        raise AssertionError(f"no diagnostics of version {version}")

    def at(self, method: str, uri: str, line: int, character: int, **more: Any) -> Any:
        """A request about a place."""
        place = {"line": line, "character": character}
        return self.ask(f"textDocument/{method}", {"textDocument": {"uri": uri}, "position": place, **more})

    def end(self) -> int:
        """Shut down as the protocol says; the exit status."""
        assert self.ask("shutdown", None) is None
        self.tell("exit", None)
        return self.child.wait(LIMIT)


def uri_of(path: Path) -> str:
    """A file's name for the protocol."""
    return path.absolute().as_uri()


def place(text: str, word: str, unit: str = "utf-16", which: int = 0) -> tuple[int, int]:
    """Line and column of a word, counted by other means than the server's."""
    at = -1
    for _ in range(which + 1):
        at = text.index(word, at + 1)
    before = text[:at].split("\n")
    codec, size = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}[unit]
    return len(before) - 1, len(before[-1].encode(codec)) // size
