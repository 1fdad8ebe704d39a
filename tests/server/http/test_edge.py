"""Who gets in, what is noted of it, and what a connection may do."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from mks.models.text.files import TextFiles
from mks.server.api.app import Holder, build_app
from mks.server.api.build import build_service
from mks.server.api.metrics import Metrics
from mks.server.http import connection, edge
from mks.server.http.access_log import Journal
from mks.server.http.edge import OPEN, read_keys
from mks.server.http.serve import Tls, configure, listen

from ..conftest import Running, running, wait_for
from ..fake import FakeDecoder

ASK: dict[str, Any] = {"prompt": "Hello", "max_tokens": 3, "temperature": 0}


@pytest.fixture(scope="module")
def guarded(files: TextFiles) -> Any:
    """A server with two keys."""
    decoder = FakeDecoder()
    with running(build_service(decoder, files, "tiny"), decoder, keys=("first", "second")) as server:
        yield server


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer first", 200),
        ("bearer second", 200),
        ("Bearer third", 401),
        ("Bearer", 401),
        ("first", 401),
        ("Basic first", 401),
        ("Bearer first second", 401),
        ("Bearer firs", 401),
        (None, 401),
    ],
)
def test_a_key_lets_in(guarded: Running, header: str | None, status: int) -> None:
    """Any of the keys, as a bearer's; nothing else."""
    headers = {} if header is None else {"authorization": header}
    response = guarded.http.post(guarded.url + "/v1/completions", json=ASK, headers=headers)
    assert response.status_code == status
    if status == 401:
        assert response.json()["error"]["code"] == "invalid_api_key"
        assert response.headers["www-authenticate"] == "Bearer"
        assert "first" not in response.text


def test_two_keys_in_one_request_are_none(guarded: Running) -> None:
    """A proxy may look at one header and the server at the other."""
    both = [("authorization", "Bearer first"), ("authorization", "Bearer x")]
    assert guarded.http.get(guarded.url + "/v1/models", headers=both).status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models",
        "/v1/models/tiny",
        "/tokenize",
        "/detokenize",
        "/nowhere",
        "//health",
        "/health/",
        "/HEALTH",
        "/health/../v1/models",
        "/%76%31/models",
        "/v1/chat/completions/",
        "/metrics/../v1/models",
        "/health;/v1/models",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_everything_else_is_guarded(guarded: Running, path: str, method: str) -> None:
    """Also what does not exist, by whatever spelling and method."""
    host, port = guarded.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as raw:
        raw.sendall(f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n".encode())
        assert raw.recv(12) == b"HTTP/1.1 401"


def test_open_paths_are_open_to_reading_only(guarded: Running) -> None:
    """Health, metrics, version and the page need no key."""
    for path in OPEN - {"/"}:
        assert guarded.http.get(guarded.url + path).status_code == 200
        assert guarded.http.post(guarded.url + path).status_code == 401


def test_a_key_is_compared_in_constant_time(guarded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests of all keys, by a comparison whose time tells nothing."""
    seen: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def watched(one: bytes, other: bytes) -> bool:
        seen.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(edge.hmac, "compare_digest", watched)
    guarded.http.get(guarded.url + "/v1/models", headers={"authorization": "Bearer first"})
    known = [hashlib.sha256(key).digest() for key in (b"first", b"second")]
    assert [other for _, other in seen] == known
    assert {one for one, _ in seen} == {known[0]}


def test_the_key_is_asked_for_before_the_body(guarded: Running) -> None:
    """A broken body of a stranger is not looked at."""
    got = guarded.http.post(guarded.url + "/v1/completions", content=b"{", headers={"content-type": "application/json"})
    assert got.status_code == 401


def test_keys_come_from_options_and_files() -> None:
    """Each once, without remarks; an empty one would open the server to everybody."""
    assert read_keys(["a", " b "], "# ours\nc\n\na\n") == ("a", "b", "c")
    assert read_keys([], None) == ()
    for given, text in (([""], None), (["a b"], None), ([], "# nothing\n"), (["a\x00"], None)):
        with pytest.raises(ValueError, match="key"):
            read_keys(given, text)


def test_pages_of_other_origins_need_leave(files: TextFiles, server: Running) -> None:
    """No CORS headers unless an origin was named; the preflight needs no key."""
    asked = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    assert "access-control-allow-origin" not in server.http.get(server.url + "/v1/models", headers=asked).headers
    decoder = FakeDecoder()
    options: dict[str, Any] = {"keys": ("k",), "origins": ("https://app.example",)}
    with running(build_service(decoder, files, "tiny"), decoder, **options) as other:
        flight = other.http.options(other.url + "/v1/chat/completions", headers=asked)
        assert flight.status_code == 200
        assert flight.headers["access-control-allow-origin"] == "https://app.example"
        assert "x-request-id" in flight.headers
        evil = other.http.options(other.url + "/v1/models", headers={**asked, "origin": "https://evil.example"})
        assert "access-control-allow-origin" not in evil.headers
        assert other.http.options(other.url + "/v1/models").status_code == 401


def test_the_log_tells_of_requests_but_not_of_prompts(files: TextFiles) -> None:
    """Ids, status, tokens and time of each; what was asked only where that is wanted."""
    for prompts in (False, True):
        decoder = FakeDecoder()
        with running(build_service(decoder, files, "tiny"), decoder, log_prompts=prompts) as server:
            whole = server.http.post(server.url + "/v1/completions", json=ASK, headers={"x-request-id": "mine"}).json()
            server.post("/v1/completions", {**ASK, "stream": True})
            server.post("/v1/completions", {**ASK, "temperature": 7})
            wait_for(lambda server=server: len(server.records) == 3)
            first, second, third = server.records
        assert first["request_id"] == "mine"
        assert first["response_id"] == whole["id"]
        assert first["client"] == "127.0.0.1"
        for record, stream in ((first, False), (second, True)):
            assert (record["status"], record["path"], record["stream"]) == (200, "/v1/completions", stream)
            assert record["completion_tokens"] == 3
            assert record["prompt_tokens"] == whole["usage"]["prompt_tokens"]
            assert record["seconds"] > 0
        assert third["status"] == 400
        assert ("Hello" in json.dumps([first, second, third])) == prompts
        assert ("body" in first) == prompts


def test_a_client_that_leaves_is_noted(own_server: Running) -> None:
    """As 499, with what it got."""
    server = own_server
    body = {**ASK, "max_tokens": 200, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=120) as response:
        next(response.iter_lines())
        server.decoder.gate.clear()
    server.decoder.gate.set()
    wait_for(lambda: len(server.records) == 1)
    assert server.records[0]["status"] == 499
    assert 1 <= server.records[0]["completion_tokens"] < 200


def test_the_journal_writes_json_and_never_waits() -> None:
    """A line a request, health checks left out; a reader that does not read costs lines, not time."""
    out = io.StringIO()
    journal = Journal(out)
    for path in ("/v1/models", "/health", "/metrics", "/nowhere"):
        journal.add({"path": path, "status": 200})
    journal.close()
    assert [json.loads(line)["path"] for line in out.getvalue().splitlines()] == ["/v1/models", "/nowhere"]

    free = threading.Event()

    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            assert free.wait(20)
            return super().write(text)

    slow = Slow()
    journal = Journal(slow)
    for number in range(10_500):
        journal.add({"path": "/x", "number": number})
    free.set()
    wait_for(lambda: slow.getvalue().count("\n") >= 10_000)
    journal.add({"path": "/last"})
    journal.close()
    lines = [json.loads(line) for line in slow.getvalue().splitlines()]
    assert sum(line.get("dropped_lines", 0) for line in lines) + len(lines) == 10_501


def test_too_many_requests_at_a_time_are_refused(files: TextFiles) -> None:
    """With 503 in the envelope, but for health and metrics."""
    decoder = FakeDecoder()
    with running(build_service(decoder, files, "tiny"), decoder, max_requests=1) as server:
        decoder.gate.clear()
        thread = threading.Thread(target=server.post, args=("/v1/completions", ASK))
        thread.start()
        wait_for(lambda: server.service.engine.running == 1)
        with httpx.Client(timeout=120) as other:
            refused = other.get(server.url + "/v1/models")
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "overloaded"
            assert other.get(server.url + "/health").status_code == 200
        decoder.gate.set()
        thread.join(20)
        assert server.http.get(server.url + "/v1/models").status_code == 200


def raw(server: Running, data: bytes, timeout: float = 10) -> bytes:
    """What the server says to some bytes until it closes the connection."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=timeout) as plug:
        plug.sendall(data)
        out = b""
        while part := plug.recv(65536):
            out += part
    return out


def test_what_is_no_http_has_the_envelope(server: Running) -> None:
    """400 and a closed connection."""
    got = raw(server, b"\x16\x03\x01 what is this\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 400 ")
    assert json.loads(got.split(b"\r\n\r\n")[1])["error"]["type"] == "invalid_request_error"


def test_a_long_head_is_refused(server: Running) -> None:
    """One header or many, or a long target: 431, without waiting for the end; just below the limit is served."""
    start = b"GET /version HTTP/1.1\r\nhost: x\r\n"
    many = b"".join(b"x-%d: %s\r\n" % (number, b"y" * 1000) for number in range(70))
    for data in (start + b"x: " + b"y" * 70_000, start + many, b"GET /" + b"y" * 70_000):
        got = raw(server, data + b"\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 431 ")
        assert b'"error"' in got
    fine = raw(server, start + b"connection: close\r\nx: " + b"y" * 60_000 + b"\r\n\r\n")
    assert fine.startswith(b"HTTP/1.1 200 ")


def test_a_head_that_does_not_come_ends_the_connection(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the start or after a first request; a slow answer is no reason."""
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
    assert raw(server, b"") == b""
    assert raw(server, b"GET /version HT") == b""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as plug:
        plug.sendall(b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n")
        assert plug.recv(65536).startswith(b"HTTP/1.1 200")
        plug.sendall(b"GET /ver")
        assert plug.recv(65536) == b""
    server.decoder.delay = 0.02
    try:
        slow = server.post("/v1/completions", {**ASK, "max_tokens": 30, "ignore_eos": True})
    finally:
        server.decoder.delay = 0
    assert slow.status_code == 200
    assert slow.elapsed.total_seconds() > 0.5


def serve(app: Any, **options: Any) -> tuple[uvicorn.Server, threading.Thread, int]:
    """An application in a thread, and its port."""
    bound = listen("127.0.0.1", 0)
    server = uvicorn.Server(configure(app, **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    wait_for(lambda: server.started)
    return server, thread, bound.getsockname()[1]


def test_connections_are_bounded() -> None:
    """One more than may be is told 503 and closed; when another ends there is room."""
    server, thread, port = serve(build_app(Holder(), Metrics("m")), max_connections=2)
    try:
        held = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(2)]
        wait_for(lambda: len(server.server_state.connections) == 2)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as third:
            assert third.recv(4096).startswith(b"HTTP/1.1 503 ")
        held[0].close()
        wait_for(lambda: len(server.server_state.connections) == 1)
        assert httpx.get(f"http://127.0.0.1:{port}/version").status_code == 200
        held[1].close()
    finally:
        server.should_exit = True
        thread.join(60)


def test_a_reader_that_stopped_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be sent for long ends the connection."""
    monkeypatch.setattr(connection, "UNREAD_SECONDS", 0.2)

    begun = threading.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(2000):
            await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})

    server, thread, port = serve(endless)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as lazy:
            lazy.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert begun.wait(60)
            wait_for(lambda: len(server.server_state.connections) == 0)
    finally:
        server.should_exit = True
        thread.join(60)


def test_https(tmp_path: Path) -> None:
    """With a certificate the server speaks TLS only; one that is none is an error before anything is served."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 2 -subj /CN=localhost"
    subprocess.run([*command.split(), "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    server, thread, port = serve(build_app(Holder(), Metrics("m")), tls=Tls(certificate, key))
    try:
        trusted = ssl.create_default_context(cafile=str(certificate))
        assert httpx.get(f"https://127.0.0.1:{port}/version", verify=trusted).status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/version")
    finally:
        server.should_exit = True
        thread.join(60)
    key.write_text("nonsense")
    with pytest.raises(ssl.SSLError):
        configure(build_app(Holder(), Metrics("m")), tls=Tls(certificate, key))
