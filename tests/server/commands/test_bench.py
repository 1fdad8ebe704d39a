"""`mks bench serve`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from mks.models.text.files import TextFiles
from mks.server.api.build import build_service
from mks.server.commands.bench import Load, measure, summary
from mks.server.commands.bench_command import bench
from mks.server.http.serve import configure, listen

from ..conftest import Running, running, wait_for
from ..fake import FakeDecoder


def test_a_server_is_measured(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """Every number of clients is a run; all figures are there and fit together."""
    url = f"{server.url}/"
    assert (
        bench(["serve", url, "--clients", "1,4", "--requests", "6", "--max-tokens", "5", "--ignore-eos", "--json"]) == 0
    )
    out = json.loads(capsys.readouterr().out)
    assert out["url"] == f"{server.url}/v1"
    for clients, run in zip((1, 4), out["runs"], strict=True):
        assert (run["clients"], run["ok"], run["errors"], run["output_tokens"]) == (clients, 6, {}, 30)
        assert run["prompt_tokens"] > 6 * 8
        for name in ("first_token_ms", "whole_ms"):
            assert 0 < run[name]["p50"] <= run[name]["p90"] <= run[name]["p99"] <= run[name]["max"]
        assert run["output_tokens_per_second"] == pytest.approx(30 / run["seconds"], rel=0.01)


def test_the_table_says_the_same(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """A line a run, under a head."""
    assert bench(["serve", server.url, "--clients", "2", "--requests", "3", "--max-tokens", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("tiny at http://127.0.0.1:")
    assert lines[-1].split()[0] == "2"
    assert lines[-1].split()[-2:] == ["3", "0"]


def test_requests_differ_and_repeat(server: Running) -> None:
    """A run's prompts are all different, and the same in the next run with the same seed."""
    load = Load(url=f"{server.url}/v1", model="tiny", requests=4, max_tokens=1)
    one, two = (asyncio.run(measure(load, 2)) for _ in range(2))
    assert one.prompt_tokens == two.prompt_tokens
    other = asyncio.run(measure(Load(url=load.url, model="tiny", requests=4, max_tokens=1, seed=9), 2))
    assert other.prompt_tokens != one.prompt_tokens


def test_time_is_bounded(own_server: Running) -> None:
    """What is not answered in time is left, and counts neither as good nor as an error."""
    own_server.decoder.gate.clear()
    begun = time.monotonic()
    tally = asyncio.run(measure(Load(url=f"{own_server.url}/v1", model=None, requests=50, seconds=0.5), 3))
    assert time.monotonic() - begun < 60
    assert (tally.ok, sum(tally.errors.values())) == (0, 0)
    own_server.decoder.gate.set()
    engine = own_server.service.engine
    wait_for(lambda: engine.running + engine.waiting == 0)


@contextlib.contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A server that always says the same."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    bound = listen("127.0.0.1", 0)
    server = uvicorn.Server(configure(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    wait_for(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


TEXT = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"completion_tokens":1,"prompt_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (500, b"", "status 500"),
        (200, TEXT + END + USAGE, "a stream without an end"),
        (200, TEXT + USAGE + DONE, "0 finish reasons"),
        (200, TEXT + END + END + USAGE + DONE, "2 finish reasons"),
        (200, TEXT + END + DONE, "no usage"),
        (200, TEXT + b'data: {"error":{"message":"m"}}\n\n' + DONE, "an error in the stream"),
        (200, b"data: [1]\n\n", "an event that is no object"),
        (200, b"data: {\n\n", "an event that is no object"),
        (200, TEXT + END + USAGE + DONE, None),
    ],
)
def test_streams_are_checked(status: int, body: bytes, error: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is wrong with an answer is an error of its own kind, and of the whole run."""
    with answering(status, body) as url:
        code = bench(["serve", url, "--clients", "2", "--requests", "4", "--json"])
    run = json.loads(capsys.readouterr().out)["runs"][0]
    assert run["errors"] == ({} if error is None else {error: 4})
    assert (run["ok"], code) == ((4, 0) if error is None else (0, 1))


def test_the_key_is_sent(files: TextFiles) -> None:
    """To a server that asks for one."""
    decoder = FakeDecoder()
    with running(build_service(decoder, files, "tiny"), decoder, keys=("k",)) as server:
        options = [server.url, "--clients", "1", "--requests", "1"]
        assert bench(["serve", *options, "--api-key", "k"]) == 0
        assert bench(["serve", *options]) == 1


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        ([], 2, "required"),
        (["serve", "--clients", "0"], 2, "1 or more"),
        (["serve", "--clients", "1,2000"], 2, "at most 1024"),
        (["serve", "ftp://x"], 1, "no http URL"),
        (["serve", "http://127.0.0.1:1"], 1, "no server answers"),
        (["serve", "http://127.0.0.1:1", "--", "--max-rows", "2"], 1, "not for a server that is there"),
        (["serve", "nothing", "--requests", "1"], 1, "could not be served"),
    ],
)
def test_wrong_usage_is_told(argv: list[str], code: int, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """On stderr, with the usual statuses."""
    assert bench(argv) == code
    assert text in capfd.readouterr().err


def test_nothing_measured_is_nothing_said() -> None:
    """No times where no text came."""
    from mks.server.commands.bench import Tally

    empty = summary(1, Tally())
    assert empty["first_token_ms"] is None
    assert empty["output_tokens_per_second"] == 0
