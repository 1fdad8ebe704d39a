"""`mks serve` from start to end: loading, checks, readiness, signals."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from attrs import evolve, frozen

from mks.backends.opening.cannot_open import CannotOpen
from mks.models.text.files import TextFiles
from mks.server.api.build import build_service, check_decoder, check_template

from ..conftest import CHAT_TINY, wait_for
from ..fake import FakeDecoder, FakeStep

LONG: dict[str, Any] = {"prompt": "Hello", "max_tokens": 300, "ignore_eos": True, "temperature": 0}

TESTS = str(Path(__file__).parents[1])
CHILD = """
import sys, time
from pathlib import Path
import numpy as np
sys.path.insert(0, {tests!r})
from fake import FakeDecoder
from mks.server.commands import serve
from mks.server.commands.entry import serve as command
from mks.models.text.files import read_text_files
from mks.backends.opening.load import Opened

def opened(model, **options):
    def decoder(rows, context, ahead):
        {loading}
        return FakeDecoder(rows=rows, context=context, delay={delay})
    return Opened(model, read_text_files(Path({chat!r})), None, decoder)

serve.open_model = opened
sys.exit(command(["tiny", "--port", "0", "--max-rows", "1", "--context", "512", *sys.argv[1:]]))
"""


@frozen
class Child:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    errors: list[str]

    def status(self) -> str:
        """What `/health` says."""
        response = httpx.get(self.url + "/health", timeout=60)
        status: str = response.json()["status"]
        assert response.status_code == (200 if status == "ready" else 503)
        return status

    def signal(self, sig: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(sig)


@contextlib.contextmanager
def child(*options: str, loading: str = "", delay: float = 0.005) -> Iterator[Child]:
    """`mks serve` with a decoder without a model; its stdout goes where nobody reads."""
    source = CHILD.format(tests=TESTS, chat=str(CHAT_TINY), loading=loading or "pass", delay=delay)
    command = [sys.executable, "-c", source, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("loading tiny; http://127.0.0.1:"), line
            errors: list[str] = []
            thread = threading.Thread(target=errors.extend, args=(process.stderr,))
            thread.start()
            yield Child(process, line.split()[2].removesuffix("/health"), errors)
            process.wait(60)
            thread.join(60)
            assert "Traceback" not in "".join(errors)
        finally:
            process.kill()


def ready(one: Child) -> None:
    """Wait for readiness."""
    wait_for(lambda: one.status() == "ready", 120)


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_stream_end_and_exits_well(sig: signal.Signals) -> None:
    """Readiness is gone at once, the queue is told 503, what runs ends, and the status is 0."""
    with child("--drain", "20", "--max-waiting", "4") as one:
        ready(one)
        queued: list[httpx.Response] = []

        def ask() -> None:
            queued.append(httpx.post(one.url + "/v1/completions", json=LONG, timeout=120))

        with contextlib.ExitStack() as stack:
            streams = [
                stack.enter_context(
                    httpx.stream("POST", one.url + "/v1/completions", json={**LONG, "stream": True}, timeout=120)
                )
                for _ in range(2)
            ]
            thread = threading.Thread(target=ask)
            thread.start()
            waiting = 'vllm:num_requests_waiting{model_name="tiny"} 1.0'
            wait_for(lambda: waiting in httpx.get(one.url + "/metrics").text)
            one.signal(sig)
            wait_for(lambda: one.status() == "stopping")
            thread.join(60)
            assert queued[0].status_code == 503
            assert int(queued[0].headers["retry-after"]) > 0
            assert httpx.post(one.url + "/v1/completions", json=LONG).status_code == 503
            assert httpx.get(one.url + "/health/live").status_code == 200
            for stream in streams:
                text = stream.read()
                assert text.endswith(b"data: [DONE]\n\n")
                assert b'"finish_reason":"length"' in text
        assert one.process.wait(60) == 0


def test_what_runs_past_the_limit_is_ended() -> None:
    """With an error event, and the server ends all the same, with status 0."""
    with child("--drain", "0.2") as one:
        ready(one)
        with httpx.stream("POST", one.url + "/v1/completions", json={**LONG, "stream": True}, timeout=120) as stream:
            one.signal()
            text = stream.read()
        assert b'"message":"the server is stopping"' in text
        assert text.endswith(b"data: [DONE]\n\n")
        assert one.process.wait(60) == 0


def test_a_second_signal_ends_at_once() -> None:
    """Whatever still runs."""
    with child("--drain", "600", delay=0.5) as one:  # minutes of tokens
        ready(one)
        with httpx.stream("POST", one.url + "/v1/completions", json={**LONG, "stream": True}, timeout=120) as stream:
            lines = stream.iter_lines()
            next(lines)
            one.signal()
            wait_for(lambda: one.status() == "stopping")
            one.signal()
            assert one.process.wait(60) == 128 + signal.SIGTERM


def test_it_answers_while_it_loads() -> None:
    """Live and not ready; nothing else works yet, and then all does."""
    with child(loading="time.sleep(1.5)") as one:
        assert one.status() == "loading"
        assert httpx.get(one.url + "/health/live").status_code == 200
        assert httpx.get(one.url + "/version").status_code == 200
        for path in ("/v1/completions", "/v1/chat/completions", "/tokenize"):
            refused = httpx.post(one.url + path, json=LONG)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "loading"
            assert int(refused.headers["retry-after"]) > 0
        ready(one)
        assert httpx.post(one.url + "/v1/completions", json={**LONG, "max_tokens": 2}).status_code == 200
        one.signal()
        assert one.process.wait(60) == 0
    assert "".join(one.errors).startswith(f"serving tiny at {one.url}/v1\n")


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_loading_ends_at_once(sig: signal.Signals) -> None:
    """However long the loading would take."""
    with child(loading="time.sleep(60)") as one:
        assert one.status() == "loading"
        one.signal(sig)
        assert one.process.wait(60) == 0


def test_what_fails_while_loading_ends_the_server() -> None:
    """With status 1 and the reason; it never was ready."""
    with child(loading="np_nan = setattr(FakeDecoder, 'hashed', lambda self, t: np.full(861, np.nan, 'f4'))") as one:
        assert one.process.wait(60) == 1
    assert "not finite" in "".join(one.errors)
    assert "serving" not in "".join(one.errors)


def test_the_access_log_goes_where_it_is_told(tmp_path: Any) -> None:
    """A file gets it all; stdout that nobody reads holds nothing up."""
    place = tmp_path / "log"
    with child("--access-log", str(place)) as one:
        ready(one)
        httpx.post(one.url + "/v1/completions", json={**LONG, "max_tokens": 2})
        one.signal()
        assert one.process.wait(60) == 0
    assert [json.loads(line)["path"] for line in place.read_text().splitlines()] == ["/v1/completions"]

    with child() as one:
        ready(one)
        long = "/x" * 90
        with httpx.Client() as client:
            for _ in range(600):
                assert client.get(one.url + long).status_code == 404
        one.signal()
        assert one.process.wait(60) == 0


def test_keys_come_from_the_environment_and_files(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them open the server; they are not in the list of processes."""
    file = tmp_path / "keys"
    file.write_text("# ours\nthree\n")
    monkeypatch.setenv("MKS_API_KEY", "one,two")
    with child("--api-key-file", str(file), "--api-key", "four") as one:
        ready(one)
        for key, status in (("one", 200), ("two", 200), ("three", 200), ("four", 200), ("# ours", 401), ("", 401)):
            got = httpx.get(
                one.url + "/v1/models",
                headers={"authorization": f"Bearer {key}x".removesuffix("x")[:99]} if key else {},
            )
            assert got.status_code == status
        one.signal()
        assert one.process.wait(60) == 0


def test_a_decoder_is_tried_before_it_serves() -> None:
    """Logits must be finite and the same in every row."""
    check_decoder(FakeDecoder(rows=3))
    with pytest.raises(CannotOpen, match="not finite"):
        check_decoder(FakeDecoder(logits_of=lambda held: np.full(861, np.inf, np.float32)))

    class Uneven(FakeDecoder):
        def step(self, *args: Any) -> FakeStep:
            found = super().step(*args).wait()
            found.logits[1][0, 5] += 1
            return FakeStep(lambda: found)

    with pytest.raises(CannotOpen, match="different logits"):
        check_decoder(Uneven())


def test_a_template_is_tried_before_it_serves(files: TextFiles) -> None:
    """One that takes no conversation is an error; a context too short for one is not."""
    check_template(build_service(FakeDecoder(), files, "tiny"))
    check_template(build_service(FakeDecoder(context=2), files, "tiny"))
    broken = evolve(files, template="{{ raise_exception('no') }}")
    with pytest.raises(CannotOpen, match="template"):
        check_template(build_service(FakeDecoder(), broken, "tiny"))


def test_a_stop_is_no_hurry_for_an_idle_server() -> None:
    """With nothing to do it ends long before the limit."""
    with child("--drain", "60", delay=0.05) as one:  # a quarter of a minute of tokens
        ready(one)
        begun = time.monotonic()
        one.signal()
        assert one.process.wait(60) == 0
        assert time.monotonic() - begun < 30
