"""HTTP itself: routes, bodies, headers, clients that leave, a full queue, signals."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mks.models.text.files import TextFiles
from mks.server.api.build import build_service

from ..conftest import Running, running, wait_for
from ..fake import FakeDecoder

LONG: dict[str, Any] = {"prompt": "Hello", "max_tokens": 200, "ignore_eos": True, "temperature": 0}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("POST", "/v1/chat/completion", 404),
        ("POST", "/v1/responses/resp-1/cancel", 404),
        ("GET", "/v1/responses", 405),
        ("POST", "/invocations", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/completions", 405),
        ("POST", "/v1/models", 405),
    ],
)
def test_other_routes_and_methods_have_the_envelope(server: Running, method: str, path: str, status: int) -> None:
    """404 and 405 are errors as any other."""
    response = server.http.request(method, server.url + path, json={})
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert path.rstrip("/") in response.json()["error"]["message"] or "models" in path


def test_small_routes(server: Running) -> None:
    """Health, version, models, with a query string too."""
    assert server.http.get(server.url + "/health?x=1").json() == {"status": "ready"}
    assert server.http.get(server.url + "/version").json()["version"]
    assert server.http.get(server.url + "/v1/models?limit=1").json()["data"][0]["id"] == "tiny"


@pytest.mark.parametrize(("given", "echoed"), [("abc-1", True), ("x" * 200, False), ("a b", False), (None, False)])
def test_every_response_has_a_request_id(server: Running, given: str | None, echoed: bool) -> None:
    """The client's where it is short and plain; errors have one too."""
    headers = {} if given is None else {"x-request-id": given}
    for path in ("/health", "/nowhere"):
        got = server.http.get(server.url + path, headers=headers).headers.get_list("x-request-id")
        assert len(got) == 1
        assert (got[0] == given) == echoed


def test_the_kind_of_body_matters(server: Running) -> None:
    """JSON under any charset or +json; nothing else."""
    body = json.dumps({**LONG, "max_tokens": 1})
    kinds = {"application/json; charset=utf-8": 200, "application/x+json": 200, "text/plain": 415, "x": 415}
    for kind, status in kinds.items():
        response = server.http.post(server.url + "/v1/completions", content=body, headers={"content-type": kind})
        assert response.status_code == status
    refused = server.http.post(server.url + "/v1/completions", content=b"{bad", headers={"content-type": kind})
    assert refused.json()["error"]["message"]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_413(files: TextFiles, chunked: bool) -> None:
    """Declared or counted; just below the limit is read."""
    decoder = FakeDecoder()

    def pieces(data: bytes) -> Iterator[bytes]:
        yield from (data[at : at + 1000] for at in range(0, len(data), 1000))

    with running(build_service(decoder, files, "tiny"), decoder, max_body=5000) as server:
        for size, status in ((4900, 200), (5100, 413)):
            data = json.dumps({**LONG, "max_tokens": 1}).encode()
            data += b" " * (size - len(data))
            response = server.http.post(
                server.url + "/v1/completions",
                content=pieces(data) if chunked else data,
                headers={"content-type": "application/json"},
            )
            assert response.status_code == status, response.text
        assert response.json()["error"]["code"] == "request_too_large"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_row(own_server: Running, stream: bool) -> None:
    """Running or queued, streamed or not: nothing is computed for it any more."""
    server, decoder = own_server, own_server.decoder
    decoder.gate.clear()
    address = (server.url.rpartition("/")[2].split(":")[0], int(server.url.rpartition(":")[2]))
    body = json.dumps({**LONG, "stream": stream}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    connections = []
    for _ in range(3):
        connection = socket.create_connection(address, timeout=60)
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        connections.append(connection)
    engine = server.service.engine
    wait_for(lambda: engine.running + engine.waiting == 3)
    for connection in connections:
        connection.close()
    wait_for(lambda: engine.waiting == 0)
    wait_for(lambda: all(run is None or run.cancelled for run in engine._rows))
    decoder.gate.set()

    wait_for(lambda: engine.running == 0)
    steps = sum(name == "step" for name, _ in decoder.calls)
    assert steps <= 2
    assert server.post("/v1/completions", {**LONG, "max_tokens": 2}).status_code == 200


def test_a_full_queue_is_429(own_server: Running) -> None:
    """With the time to wait; health and models answer meanwhile, and later there is room again."""
    server, engine = own_server, own_server.service.engine
    server.decoder.gate.clear()
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(httpx.post(server.url + "/v1/completions", json={**LONG, "max_tokens": 3}, timeout=120))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_for(lambda: engine.running + engine.waiting == 4)
    for stream in (False, True):
        refused = server.post("/v1/completions", {**LONG, "stream": stream})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert server.http.get(server.url + "/health").status_code == 200
    server.decoder.gate.set()
    for thread in threads:
        thread.join(20)

    assert [response.status_code for response in answers] == [200] * 4
    assert server.post("/v1/completions", {**LONG, "max_tokens": 1}).status_code == 200


def test_a_stopping_server_refuses_new_work(own_server: Running) -> None:
    """503, in health too, while what runs goes on."""
    server = own_server
    server.decoder.gate.clear()
    with httpx.stream(
        "POST", server.url + "/v1/completions", json={**LONG, "stream": True}, timeout=120
    ) as running_one:
        server.service.engine.stop(seconds=20)
        assert server.http.get(server.url + "/health").status_code == 503
        assert server.post("/v1/completions", LONG).status_code == 503
        server.decoder.gate.set()
        assert running_one.read().endswith(b"data: [DONE]\n\n")


def test_what_runs_at_the_deadline_is_told(own_server: Running) -> None:
    """The stream gets an error event and ends properly."""
    server = own_server
    server.decoder.gate.clear()
    with httpx.stream("POST", server.url + "/v1/completions", json={**LONG, "stream": True}, timeout=120) as response:
        server.service.engine.stop()
        server.decoder.gate.set()
        *_, error, done, end = response.read().split(b"\n\n")
    assert json.loads(error.removeprefix(b"data: "))["error"]["message"] == "the server is stopping"
    assert (done, end) == (b"data: [DONE]", b"")


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_has_so_long(files: TextFiles, stream: bool) -> None:
    """One that takes longer is told: 504, or an event where its answer has begun; waiting counts."""
    decoder = FakeDecoder(rows=1, context=4000, delay=0.005)
    with running(build_service(decoder, files, "tiny", seconds=0.3), decoder) as server:
        threads_said: list[httpx.Response] = []

        def ask() -> None:
            threads_said.append(
                httpx.post(server.url + "/v1/completions", json=LONG | {"max_tokens": 3000}, timeout=120)
            )

        thread = threading.Thread(target=ask)
        thread.start()
        engine = server.service.engine
        wait_for(lambda: engine.running == 1)
        waited = server.post("/v1/completions", LONG)
        thread.join(20)
        assert [waited.status_code, threads_said[0].status_code] == [504, 504]
        assert waited.json()["error"]["code"] == "timeout"
        late = server.post("/v1/completions", {**LONG, "max_tokens": 3000, "stream": stream})
        assert late.status_code == (200 if stream else 504)
        assert "longer than this server allows" in late.text
        assert server.post("/v1/completions", {**LONG, "max_tokens": 3}).status_code == 200
        wait_for(lambda: engine.running == 0)
