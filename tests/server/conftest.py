"""What the server's tests share: the tiny chat checkpoint's text, and servers on real sockets."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from attrs import frozen

from mks.models.text.files import TextFiles, read_text_files
from mks.models.text.tokenizer import Tokenizer, load_tokenizer
from mks.server.api.app import Holder, HttpOptions, build_app
from mks.server.api.build import build_service
from mks.server.api.metrics import Metrics
from mks.server.api.service import Service
from mks.server.http.serve import configure, listen

from .fake import FakeDecoder

# Run against servers by test_conformance.py.
collect_ignore = ["conformance"]

CHAT_TINY = Path(__file__).parents[1] / "data" / "chat_tiny"


@frozen
class Running:
    """A server under test."""

    url: str
    service: Service
    decoder: FakeDecoder
    http: httpx.Client
    # What the access log would say.
    records: list[dict[str, Any]]

    def post(self, path: str, body: object) -> httpx.Response:
        """POST a JSON body."""
        return self.http.post(self.url + path, json=body)


@contextlib.contextmanager
def running(service: Service, decoder: Any, **http_options: Any) -> Iterator[Running]:
    """Serve on a free port of the loopback interface, in a thread."""
    bound = listen("127.0.0.1", 0)
    metrics, records = Metrics(service.rules.model), []
    service.engine.observer = metrics
    metrics.watch(service.engine)
    app = build_app(Holder(service), metrics, HttpOptions(**http_options), records.append)
    server = uvicorn.Server(configure(app))
    service.engine.start()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        wait_for(lambda: server.started)
        with httpx.Client(timeout=120) as client:
            yield Running(f"http://127.0.0.1:{bound.getsockname()[1]}", service, decoder, client, records)
    finally:
        if isinstance(decoder, FakeDecoder):
            decoder.gate.set()
        service.engine.stop()
        server.should_exit = True
        thread.join(60)
        bound.close()
        assert service.engine.join(60)


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until `condition` holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


@pytest.fixture(scope="session")
def files() -> TextFiles:
    """The text files of the tiny chat checkpoint."""
    return read_text_files(CHAT_TINY)


@pytest.fixture(scope="session")
def tokenizer(files: TextFiles) -> Tokenizer:
    """Its tokenizer."""
    loaded = load_tokenizer(files)
    assert loaded is not None
    return loaded


@pytest.fixture(scope="module")
def server(files: TextFiles) -> Iterator[Running]:
    """A server for the tests of a module, with a decoder that answers at once."""
    decoder = FakeDecoder()
    with running(build_service(decoder, files, "tiny"), decoder) as one:
        yield one


@pytest.fixture
def own_server(files: TextFiles) -> Iterator[Running]:
    """A server for one test, which may hold its decoder up."""
    decoder = FakeDecoder(rows=2)
    with running(build_service(decoder, files, "tiny", max_waiting=2), decoder) as one:
        yield one
