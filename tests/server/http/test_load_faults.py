"""Many clients at a time, impatient ones, broken requests, slow readers and a decoder that fails."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers.tiers import thorough_but

from mks.dsl.decoder import StepResult
from mks.models.text.files import TextFiles
from mks.server.api.build import build_service

from ..conftest import Running, running, wait_for
from ..fake import FakeDecoder, FakeStep

CLIENTS = 32
TURNS = ("Hello there, who are you?", "Tell me of the sea and the old man.", "And then? What does the dog find?")

# Paths, bodies and what they are answered with.
MALFORMED: list[tuple[str, bytes, int]] = [
    ("/v1/chat/completions", b"{", 400),
    ("/v1/chat/completions", b"[" * 50_000, 400),
    ("/v1/chat/completions", b'{"messages": []}', 400),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}', 400),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "x"}], "model": "other"}', 404),
    ("/v1/completions", b'{"prompt": [1, 99999999]}', 400),
    ("/v1/completions", b'{"prompt": "x", "stream": "yes"}', 400),
    ("/v1/completions", b'{"prompt": "\\ud800"}', 400),
    ("/v1/nothing", b"{}", 404),
    ("/v1/completions", b"\xff\xfe", 400),
]


def bodies() -> list[tuple[str, dict[str, Any]]]:
    """Well-formed requests of many kinds; conversations among them go on where others end."""
    chance = random.Random(5)
    made: list[tuple[str, dict[str, Any]]] = []
    for number in range(48):
        body: dict[str, Any] = {"max_tokens": chance.randint(1, 40), "temperature": chance.choice([0, 0, 0.8, 1.5])}
        body["seed"] = chance.randint(0, 5)
        if number % 3 == 0:
            body |= {"presence_penalty": 0.7, "repetition_penalty": 1.2}
        if number % 4 == 0:
            body["stop"] = ["e", "tion"]
        if number % 5 == 0:
            body |= {"ignore_eos": True, "min_tokens": 1}
        if number % 7 == 0:
            body["n"] = 2
        if number % 2:
            said = [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(TURNS)]
            made.append(("/v1/chat/completions", {**body, "messages": said[: 1 + number % 3]}))
        else:
            body["logprobs"] = 1 if number % 6 == 0 else None
            made.append(("/v1/completions", {**body, "prompt": chance.choice(TURNS) * chance.randint(1, 4)}))
    return made


Answer = list[tuple[str, str]]
Solo = list[tuple[str, dict[str, Any], Answer]]


def whole_answer(body: dict[str, Any]) -> Answer:
    """For each choice, its text and why it ended."""
    choices = sorted(body["choices"], key=lambda choice: choice["index"])
    return [(text_of(choice.get("message", choice)), choice["finish_reason"]) for choice in choices]


def text_of(message: dict[str, Any]) -> str:
    """Everything that a message or a delta says."""
    return (message.get("reasoning_content") or "") + (message.get("content") or message.get("text") or "")


def streamed_answer(lines: list[str]) -> Answer:
    """The same, of a stream's events; fails where the stream is no whole one."""
    assert lines[-1] == "data: [DONE]"
    texts: Counter[int] = Counter()
    said: dict[int, list[str]] = {}
    ends: dict[int, str] = {}
    for line in lines[:-1]:
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            return [("error", event["error"]["message"])]
        for choice in event["choices"]:
            said.setdefault(choice["index"], []).append(text_of(choice.get("delta", choice)))
            if choice["finish_reason"] is not None:
                texts[choice["index"]] += 1
                ends[choice["index"]] = choice["finish_reason"]
    assert set(texts.values()) == {1}
    return [("".join(said[index]), ends[index]) for index in sorted(said)]


class Crowd:
    """Clients that ask, leave and blunder; `found` counts what became of it."""

    def __init__(self, url: str, solo: Solo, *, leave: float, blunder: float) -> None:
        self.url, self.solo, self.leave, self.blunder = url, solo, leave, blunder
        self.found: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def run(self, requests: int) -> None:
        """All clients at once, each so many requests one after the other."""
        async with asyncio.timeout(300):
            await asyncio.gather(*(self._client(number, requests) for number in range(CLIENTS)))

    async def _client(self, number: int, requests: int) -> None:
        chance = random.Random(number)
        async with httpx.AsyncClient(base_url=self.url, timeout=60) as http:
            for _ in range(requests):
                if chance.random() < self.blunder:
                    await self._malformed(http, chance)
                else:
                    await self._good(http, chance)

    async def _malformed(self, http: httpx.AsyncClient, chance: random.Random) -> None:
        path, body, status = chance.choice(MALFORMED)
        response = await http.post(path, content=body, headers={"content-type": "application/json"})
        self.found["malformed"] += 1
        if response.status_code != status or "error" not in response.json():
            self.wrong.append(f"{path} {body[:80]!r}: {response.status_code}")

    async def _good(self, http: httpx.AsyncClient, chance: random.Random) -> None:
        path, body, expected = chance.choice(self.solo)
        body = {**body, "stream": chance.random() < 0.5}
        leaves = chance.random() < self.leave
        events = chance.randint(1, 12) if leaves and chance.random() < 0.5 else None
        try:
            async with asyncio.timeout(chance.choice([0.0, 0.002, 0.02, 0.1]) if leaves else 60):
                got = await self._ask(http, path, body, events)
        except TimeoutError:
            got = None
        if got is None:
            self.found["left" if leaves else "lost"] += 1
        elif got == [("error", "the model failed on this request")]:
            self.found["failed"] += 1
        else:
            self.found["answered"] += 1
            if got != expected:
                self.wrong.append(f"{body}: {got} is not {expected}")

    async def _ask(self, http: httpx.AsyncClient, path: str, body: dict[str, Any], events: int | None) -> Answer | None:
        """The answer, or None for a stream that is left after so many events."""
        async with http.stream("POST", path, json=body) as response:
            if response.status_code == 500:
                return [("error", json.loads(await response.aread())["error"]["message"])]
            assert response.status_code == 200, await response.aread()
            if not body["stream"]:
                return whole_answer(json.loads(await response.aread()))
            lines = []
            async for line in response.aiter_lines():
                if line and not line.startswith(":"):
                    lines.append(line)
                if events is not None and len(lines) >= events:
                    return None
        return streamed_answer(lines)


@pytest.fixture(scope="module")
def solo(files: TextFiles) -> Iterator[Solo]:
    """Requests, and what they are answered one at a time by a server that keeps nothing."""
    decoder = FakeDecoder(rows=2, context=512)
    with running(build_service(decoder, files, "tiny"), decoder) as server:
        yield [(path, body, whole_answer(server.post(path, body).json())) for path, body in bodies()]


def memory() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def ends(server: Running) -> dict[str, float]:
    """How sequences ended, as the metrics tell."""
    text = server.http.get(server.url + "/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("vllm:request_success_total")]
    return {line.split('finished_reason="')[1].split('"')[0]: float(line.split()[-1]) for line in lines}


def settled(server: Running) -> None:
    """Nothing runs, nothing waits, and the server is well."""
    engine = server.service.engine
    wait_for(lambda: engine.running + engine.waiting == 0)
    assert all(row is None for row in engine._rows)
    assert server.http.get(server.url + "/health").status_code == 200


@pytest.mark.parametrize(("requests", "cuts"), thorough_but([(8, False)], [(50, True), (8, False)]))
def test_a_crowd_gets_what_each_would_get_alone(files: TextFiles, solo: Solo, requests: int, cuts: bool) -> None:
    """32 clients, streamed or not, three in ten that leave, one in ten that blunders: none lost, mixed or leaked."""
    decoder = FakeDecoder(rows=8, context=512, cuts=cuts)
    service = build_service(decoder, files, "tiny", max_waiting=1000, prefix_cache_bytes=2 * 10**6)
    with running(service, decoder) as server:
        first = Crowd(server.url, solo, leave=0.3, blunder=0.1)
        asyncio.run(first.run(2))
        settled(server)
        before = memory()
        crowd = Crowd(server.url, solo, leave=0.3, blunder=0.1)
        asyncio.run(crowd.run(requests))
        settled(server)
        grown = memory() - before
        ended = ends(server)
        assert service.engine.store is not None
        assert 0 < service.engine.store.nbytes <= 2 * 10**6
    assert crowd.wrong == []
    assert crowd.found["lost"] == 0
    assert sum(crowd.found.values()) == CLIENTS * requests
    assert min(crowd.found[what] for what in ("answered", "left", "malformed")) > CLIENTS * requests / 25
    assert ended["error"] == 0
    assert ended["stop"] + ended["length"] > 0
    assert grown < 48 * 2**20


def test_failures_touch_only_whom_they_touch(files: TextFiles, solo: Solo) -> None:
    """While the decoder fails now and then, everyone gets the right answer or is told of the failure."""
    decoder = FakeDecoder(rows=4, context=512)
    decoder.unharmed = False
    chance = random.Random(0)
    step = decoder.step

    def flaky(*args: Any) -> Any:
        if chance.random() < 0.005:
            raise RuntimeError("the chip is on fire")
        decoder.fail_waits = int(chance.random() < 0.005)
        return step(*args)

    decoder.step = flaky  # type: ignore[method-assign]
    with running(build_service(decoder, files, "tiny", max_waiting=1000, prefix_cache_bytes=10**6), decoder) as server:
        crowd = Crowd(server.url, solo, leave=0.1, blunder=0.0)
        asyncio.run(crowd.run(6))
        decoder.step, decoder.fail_waits = step, 0  # type: ignore[method-assign]
        settled(server)
        again = Crowd(server.url, solo, leave=0.0, blunder=0.0)
        asyncio.run(again.run(1))
        assert ends(server)["error"] >= crowd.found["failed"] > 0
    assert crowd.wrong == again.wrong == []
    assert crowd.found["answered"] > 0
    assert crowd.found["lost"] == 0
    assert again.found == {"answered": CLIENTS}


def test_the_crowd_notices(files: TextFiles, solo: Solo) -> None:
    """A decoder that mixes rows up is found out by the same clients."""

    class Mixing(FakeDecoder):
        def step(self, tokens: Any, *args: Any) -> FakeStep:
            found = super().step(tokens, *args).wait()
            live = [row for row, given in enumerate(tokens) if given]
            other = dict(zip(range(self.rows), range(self.rows), strict=True)) | {live[0]: live[-1], live[-1]: live[0]}
            order = list(other.values())
            logits = {row: found.logits.get(other[row], each) for row, each in found.logits.items()}
            return FakeStep(lambda: StepResult(found.ids[order], found.finite[order], logits))

    decoder = Mixing(rows=4, context=512)
    with running(build_service(decoder, files, "tiny", max_waiting=1000), decoder) as server:
        crowd = Crowd(server.url, solo, leave=0.0, blunder=0.0)
        asyncio.run(crowd.run(1))
    assert crowd.wrong


def test_a_slow_reader_does_not_slow_others(files: TextFiles) -> None:
    """One that reads nothing: the others are answered meanwhile, and in the end it finds its whole stream."""
    decoder = FakeDecoder(rows=2, context=2100)
    body = {"prompt": "Hello", "max_tokens": 2000, "ignore_eos": True, "temperature": 0, "stream": True, "logprobs": 5}
    with running(build_service(decoder, files, "tiny"), decoder) as server:
        host, port = server.url.removeprefix("http://").split(":")
        data = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(data)}\r\n\r\n"
        with socket.create_connection((host, int(port)), timeout=60) as slow:
            slow.sendall(head.encode() + data)
            engine = server.service.engine
            wait_for(lambda: engine.running == 1)
            quick = {"prompt": "Hi", "max_tokens": 5, "temperature": 0, "ignore_eos": True}
            texts = {server.post("/v1/completions", quick).json()["choices"][0]["text"] for _ in range(20)}
            assert len(texts) == 1
            # Its row is free as soon as its tokens are made, whoever reads them.
            wait_for(lambda: engine.running == 0, 60)
            got = b""
            while part := slow.recv(2**16):
                got += part
        assert got.count(b'"finish_reason":"length"') == 1
        assert b"data: [DONE]" in got
        counted = got.count(b"token_logprobs")
        assert 0 < counted <= 2000
