"""Decoders that say what a test wants, and answers put together from streams."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mks.models.text.tokenizer import Tokenizer

from .conftest import Running


def script(ids: Sequence[int], end: int, vocab: int) -> Callable[[Sequence[int]], np.ndarray]:
    """Logits that continue `ids` wherever their beginning was said last, then end."""
    said = [*ids, end]

    def logits(held: Sequence[int]) -> np.ndarray:
        known = next(n for n in range(min(len(held), len(ids)), -1, -1) if list(held[len(held) - n :]) == said[:n])
        out = np.random.default_rng([len(held), *held]).standard_normal(vocab, dtype=np.float32)
        out[said[known]] += 50
        return out

    return logits


@contextlib.contextmanager
def saying(server: Running, tokenizer: Tokenizer, text: str, end: int = 2) -> Iterator[None]:
    """For the time being, every greedy answer is this text."""
    decoder = server.decoder
    before = decoder._logits_of
    decoder._logits_of = script(tokenizer.encode(text, add_special_tokens=False), end, decoder.vocab)
    try:
        yield
    finally:
        decoder._logits_of = before


def whole(server: Running, body: dict[str, Any]) -> dict[str, Any]:
    """A whole chat answer."""
    response = server.post("/v1/chat/completions", body)
    assert response.status_code == 200, response.text
    return response.json()


def streamed(server: Running, body: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """A chat stream put together again, in the form of whole messages by index; its form is checked."""
    options = {"stream": True, "stream_options": {"include_usage": True}}
    response = server.post("/v1/chat/completions", {**body, **options})
    assert response.status_code == 200, response.text
    *events, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    out: dict[int, dict[str, Any]] = {}
    for event in events:
        chunk = json.loads(event.removeprefix("data: "))
        for choice in chunk["choices"]:
            one = out.setdefault(choice["index"], {"finish_reason": None, "text": {}, "calls": [], "logprobs": []})
            _add(one, choice)
    for one in out.values():
        one["usage"] = chunk["usage"]
    return out


def _add(one: dict[str, Any], choice: dict[str, Any]) -> None:
    delta = choice["delta"]
    assert one["finish_reason"] is None, "nothing follows the finish"
    one["finish_reason"] = choice["finish_reason"]
    one["logprobs"] += (choice["logprobs"] or {}).get("content", [])
    for name in ("content", "reasoning", "reasoning_content"):
        if name in delta:
            one["text"][name] = one["text"].get(name, "") + delta[name]
    for call in delta.get("tool_calls", ()):
        if "id" in call:
            assert call["index"] == len(one["calls"])
            assert call["type"] == "function"
            assert call["function"]["arguments"] == ""
            one["calls"].append({"name": call["function"]["name"], "arguments": ""})
        else:
            assert set(call) == {"index", "function"}
            assert set(call["function"]) == {"arguments"}
            one["calls"][call["index"]]["arguments"] += call["function"]["arguments"]


def same(choice: dict[str, Any], stream: dict[str, Any]) -> bool:
    """Whether a choice of a whole answer and a stream that was put together say the same."""
    message = choice["message"]
    return (
        [call["function"] for call in message.get("tool_calls", [])] == stream["calls"]
        and (message["content"] or "") == stream["text"].get("content", "")
        and message.get("reasoning", "") == stream["text"].get("reasoning", "")
        and message.get("reasoning_content", "") == stream["text"].get("reasoning_content", "")
        and choice["finish_reason"] == stream["finish_reason"]
        and ((choice["logprobs"] or {}).get("content") or []) == stream["logprobs"]
    )
