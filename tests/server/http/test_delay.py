"""A prompt of any text and size delays no other request: S1."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from mks.models.text import tokenizer as module
from mks.models.text.files import TextFiles
from mks.models.text.longest import longest_token
from mks.models.text.tokenizer import Tokenizer, TooManyTokens
from mks.server.http import jsonbody, jsonwrite
from mks.server.http.errors import ApiError
from mks.server.http.jsonbody import parse_body
from mks.server.http.jsonwrite import dump, dump_large

from .. import kimi
from ..heart import Heart

# Seconds of the event loop's processor time that a request may take in one go.
MOST = 0.1


@frozen
class Watched:
    """A server in a process of its own; `tell` asks how it has been."""

    url: str
    tell: Callable[[str], dict[str, float]]

    def post(self, path: str, data: bytes) -> tuple[int, dict[str, float]]:
        """The status of a request, and what it cost others."""
        self.tell("reset")
        headers = {"content-type": "application/json"}
        status = httpx.post(self.url + path, content=data, headers=headers, timeout=120).status_code
        return status, self.tell("report")


def serve(context: int) -> Iterator[Watched]:
    """Run `watched.py`."""
    command = [sys.executable, str(Path(__file__).parents[1].joinpath("watched.py")), str(context)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        to, of = server.stdin, server.stdout
        port = int(of.readline())

        def tell(line: str) -> dict[str, float]:
            to.write(line + "\n")
            to.flush()
            told: dict[str, float] = json.loads(of.readline())
            return told

        yield Watched(f"http://127.0.0.1:{port}", tell)
        server.kill()


@pytest.fixture(scope="module")
def small() -> Iterator[Watched]:
    """With little room."""
    yield from serve(256)


@pytest.fixture(scope="module")
def large() -> Iterator[Watched]:
    """With room for a million tokens."""
    yield from serve(2**20)


def chat(text: str, **more: Any) -> bytes:
    """A chat request."""
    return json.dumps(
        {"messages": [{"role": "user", "content": text}], "max_tokens": 1, **more}, ensure_ascii=False
    ).encode()


MILLION = 2**20
# Where, what, and what it is answered with where there is little room.
BODIES: dict[str, tuple[str, Callable[[], bytes], int]] = {
    "letters": ("/v1/chat/completions", lambda: chat("a" * 4 * MILLION), 400),
    "more-letters": ("/v1/chat/completions", lambda: chat("a" * 10 * MILLION), 400),
    "chinese": ("/v1/chat/completions", lambda: chat("月光" * MILLION), 400),
    "markers": ("/v1/chat/completions", lambda: chat("<|" * 2 * MILLION), 400),
    "lines": (
        "/v1/responses",
        lambda: json.dumps({"input": "a\n" * 2 * MILLION, "max_output_tokens": 1}).encode(),
        400,
    ),
    "messages": (
        "/v1/chat/completions",
        lambda: json.dumps({"messages": [{"role": "user", "content": "a" * 1000}] * 4000}).encode(),
        400,
    ),
    "prompt": ("/v1/completions", lambda: json.dumps({"prompt": "a" * 4 * MILLION}).encode(), 400),
    "ids": ("/v1/completions", lambda: json.dumps({"prompt": [7] * MILLION, "max_tokens": 1}).encode(), 400),
    "objects": ("/v1/completions", lambda: b'{"prompt": [' + b'{"a":1},' * MILLION + b"1]}", 400),
    "tokenize": ("/tokenize", lambda: json.dumps({"prompt": "a" * 4 * MILLION}).encode(), 200),
    "detokenize": ("/detokenize", lambda: json.dumps({"tokens": [70] * MILLION}).encode(), 200),
}


QUICK = ("letters", "chinese", "ids", "objects", "tokenize")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BODIES]
)
def test_s1_what_does_not_fit_delays_nobody(small: Watched, name: str) -> None:
    """It is refused; the event loop has little to do for it and is never kept from the lock."""
    path, body, expected = BODIES[name]
    status, cost = small.post(path, body())
    assert status == expected
    assert cost["loop"] < MOST, cost
    assert cost["lock"] < 3 * MOST, cost


FITTING: dict[str, tuple[str, Callable[[], bytes]]] = {
    "letters": ("/v1/chat/completions", lambda: chat("a" * (MILLION - 500))),
    "streamed": ("/v1/chat/completions", lambda: chat("月光" * 2**17, stream=True, return_token_ids=True, n=8)),
    "penalised": ("/v1/completions", lambda: _ids(repetition_penalty=1.2, n=8, echo=True)),
    "scored": ("/v1/completions", lambda: _ids(2**17, echo=True, logprobs=1, stream=True)),
    "shown": ("/v1/chat/completions", lambda: chat("a" * 2**17, prompt_logprobs=1)),
    "instructions": (
        "/v1/responses",
        lambda: json.dumps(
            {"input": "a", "instructions": "a" * (MILLION - 500), "max_output_tokens": 1, "stream": True}
        ).encode(),
    ),
}


def _ids(count: int = MILLION - 1, **more: Any) -> bytes:
    return json.dumps({"prompt": [7] * count, "max_tokens": 1, **more}).encode()


@pytest.mark.parametrize(
    "name", [name if name == "letters" else pytest.param(name, marks=pytest.mark.slow) for name in FITTING]
)
def test_s1_what_fits_delays_nobody(large: Watched, name: str) -> None:
    """A prompt of a million tokens, also where the answer repeats it."""
    path, body = FITTING[name]
    status, cost = large.post(path, body())
    assert status == 200
    assert cost["loop"] < MOST, cost


@pytest.mark.slow
def test_s1_memory_comes_back(small: Watched, large: Watched) -> None:
    """After the first large prompts, others leave nothing behind, whether they fit or not."""
    for server in (small, large):
        body = chat("a" * 10 * MILLION) if server is small else chat("月光" * 2**17)
        for _ in range(3):
            server.post("/v1/chat/completions", body)
        _, cost = server.post("/v1/chat/completions", body)
        assert cost["memory"] < 40, cost


def test_a_loop_that_is_held_up_is_found_out(tokenizer: Tokenizer) -> None:
    """The heart tells work on the loop, and work that keeps the lock, from work beside it."""

    async def beat(work: Callable[[], object], aside: bool) -> tuple[float, float]:
        heart = Heart()
        await asyncio.sleep(0.02)
        heart.reset()
        await (asyncio.to_thread(work) if aside else asyncio.sleep(0, work()))
        await asyncio.sleep(0.02)
        return heart.loop_seconds, heart.lock_seconds

    text = "a" * 300_000
    locked = asyncio.run(beat(lambda: tokenizer.backend.encode(text), aside=True))
    assert locked[0] < MOST < locked[1]
    assert min(asyncio.run(beat(lambda: tokenizer.backend.encode(text), aside=False))) > MOST
    assert asyncio.run(beat(lambda: tokenizer.encode(text), aside=True))[1] < locked[1] / 2


@given(
    st.lists(
        st.sampled_from(["<|im_start|>", "<|", "a", " ", "月", "\u1100\u1161\u11a8", "\n", module.BREAK, "🙂"]),
        max_size=40,
    )
)
def test_special_tokens_are_found_in_pieces(tokenizer: Tokenizer, parts: list[str]) -> None:
    """However a text is cut for the search, it is the same; its least number of tokens is never too high."""
    text = "".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        for block in (1, 3, 2**20):
            patch.setattr(module, "BLOCK", block)
            assert tokenizer.disarm(text) == tokenizer.disarm(text[:]) == _disarmed(tokenizer, text)
            ids = tokenizer.encode_rendered(tokenizer.disarm(text))
            assert ids == [*tokenizer.plain.encode(text.replace(module.BREAK, "\ufffd"), add_special_tokens=False).ids]
    assert tokenizer.least(text) <= len(ids)
    if ids:
        with pytest.raises(TooManyTokens):
            tokenizer.encode_rendered(tokenizer.disarm(text), len(ids) - 1)


def _disarmed(tokenizer: Tokenizer, text: str) -> str:
    text = text.replace(module.BREAK, "\ufffd")
    for token in tokenizer.special:
        spelled = tokenizer.pieces[token].decode()
        text = text.replace(spelled, spelled[0] + module.BREAK + spelled[1:])
    return text


def test_how_much_a_token_stands_for(files: TextFiles) -> None:
    """The longest token's bytes, three times as many where text is composed; unknown where text may vanish."""
    assert files.tokenizer is not None
    written = json.loads(files.tokenizer)
    pieces = [bytes([value]) for value in range(256)] + [b"abcdef"]
    assert longest_token(pieces, written) == 6
    assert longest_token(pieces, {**written, "normalizer": {"type": "NFC"}}) == 18
    assert longest_token(pieces[1:], written) is None
    assert longest_token(pieces, {**written, "normalizer": {"type": "Strip"}}) is None
    split = {"type": "Split", "behavior": "Removed"}
    assert longest_token(pieces, {**written, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split]}}) is None
    assert longest_token(pieces, {**written, "added_tokens": [{"lstrip": True}]}) is None
    assert kimi.loaded()[1].longest == max(map(len, kimi.loaded()[1].pieces))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_large_values_are_written_as_small_ones(value: Any) -> None:
    """In whatever pieces."""
    with pytest.MonkeyPatch.context() as patch:
        for block in (2, 2**16):
            patch.setattr(jsonwrite, "_BLOCK", block)
            assert dump_large(value) == dump(value)


def test_s1_bodies_of_too_many_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brackets and commas in strings are text, whatever is escaped there."""
    monkeypatch.setattr(jsonbody, "MAX_CONTAINERS", 50)
    monkeypatch.setattr(jsonbody, "MAX_COMMAS", 100)
    for inside in ("[{,", '\\",[', "\\\\", '\\\\\\",{'):
        text = '{"p": "' + inside * 100 + '"}'
        assert parse_body(text.encode()) == json.loads(text)
    for body in ("[" + "{}," * 50 + "1]", '["\\\\",' + "1," * 100 + "1]"):
        with pytest.raises(ApiError, match="more than"):
            parse_body(b'{"p": ' + body.encode() + b"}")
