"""What is refused before anything starts, and how."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from mks.server.api.service import Service
from mks.server.http.errors import ApiError

from ..conftest import Running

CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0}
TEXT = {"prompt": "Hello", "max_tokens": 4, "temperature": 0}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def refused(server: Running, path: str, body: dict[str, Any], status: int = 400) -> dict[str, Any]:
    """The error object of a refusal, which is the same for a stream."""
    plain, stream = (server.post(path, {**body, "stream": flag}) for flag in (False, True))
    assert (plain.status_code, stream.status_code) == (status, status), plain.text
    assert set(plain.json()["error"]) == {"message", "type", "param", "code"}
    assert plain.json() == stream.json()
    return plain.json()["error"]


CHAT_FIELDS: list[tuple[str, Any]] = [
    ("temperature", 2.5),
    ("temperature", "hot"),
    ("temperature", True),
    ("top_p", 0),
    ("top_p", 1.5),
    ("top_k", -2),
    ("min_p", 1.1),
    ("repetition_penalty", 0),
    ("presence_penalty", 2.1),
    ("frequency_penalty", -3),
    ("max_tokens", 0),
    ("max_tokens", 1.5),
    ("max_tokens", 10**30),
    ("max_completion_tokens", -5),
    ("min_tokens", -1),
    ("min_tokens", 5),
    ("n", 0),
    ("n", 10**6),
    ("seed", 2**70),
    ("seed", 1.5),
    ("stop", 5),
    ("stop", [""]),
    ("stop", [1]),
    ("stop", ["a"] * 17),
    ("stop", ["a" * 2000]),
    ("stop_token_ids", [861]),
    ("stop_token_ids", ["a"]),
    ("logit_bias", {"861": 1}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"a": 1}),
    ("logit_bias", {"1": 101}),
    ("logprobs", 1),
    ("user", 5),
    ("tools", [TOOL, TOOL]),
    ("tools", []),
    ("tools", "x"),
    ("tool_choice", "auto"),
    ("tool_choice", 7),
    ("functions", [{"name": "f"}]),
    ("response_format", {"type": "nope"}),
    ("response_format", {}),
    ("response_format", "json"),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x"}}),
    ("modalities", ["audio"]),
    ("chat_template_kwargs", []),
    ("chat_template", "x"),
    ("reasoning_effort", "huge"),
    ("guided_regex", "a+"),
    ("continue_final_message", True),
    ("messages", None),
    ("messages", []),
    ("messages", ["hi"]),
    ("model", 5),
]


@pytest.mark.parametrize(("field", "value"), CHAT_FIELDS, ids=[f"{f}={v!r}"[:40] for f, v in CHAT_FIELDS])
def test_wrong_fields_are_named(server: Running, field: str, value: Any) -> None:
    """400 with the field in `param`, streamed or not."""
    error = refused(server, "/v1/chat/completions", {**CHAT, field: value})

    assert error["type"] == "invalid_request_error"
    assert (error["param"] or "").startswith(field)
    assert field in error["message"]


@pytest.mark.parametrize("change", [{"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 21}])
def test_alternatives_need_logprobs(server: Running, change: dict[str, Any]) -> None:
    """And there are at most twenty."""
    assert refused(server, "/v1/chat/completions", {**CHAT, **change})["param"] == "top_logprobs"


def test_stream_options_need_a_stream(server: Running) -> None:
    """They mean nothing otherwise."""
    response = server.post("/v1/chat/completions", {**CHAT, "stream_options": {"include_usage": True}})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "stream_options"


MESSAGES: list[dict[str, Any]] = [
    {"content": "x"},
    {"role": "wizard", "content": "x"},
    {"role": "user"},
    {"role": "user", "content": 5},
    {"role": "user", "content": None},
    {"role": "user", "content": ["x"]},
    {"role": "assistant", "content": None},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]},
    {"role": "user", "content": [{"type": "text"}]},
    {"role": "assistant", "tool_calls": "x"},
    {"role": "assistant", "tool_calls": ["x"]},
    {"role": "assistant", "tool_calls": [{"function": {"name": 5}}]},
    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]},
    {"role": "assistant", "reasoning": 5},
    {"role": "assistant", "reasoning_content": ["x"]},
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: json.dumps(message)[:50])
def test_wrong_messages_are_named(server: Running, message: dict[str, Any]) -> None:
    """The message's place is in `param`."""
    good = {"role": "user", "content": "x"}
    error = refused(server, "/v1/chat/completions", {**CHAT, "messages": [good, message]})
    assert error["param"].startswith("messages[1]")


PROMPTS: list[Any] = [
    None,
    "",
    [],
    [[]],
    [-1],
    [861],
    [2**63],
    [1, "a"],
    [[1], "a"],
    [[1], 2],
    [1.5],
    5,
    {"a": 1},
    [None],
    [True, [1]],
    [True],
    ["a"] * 129,
]


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: repr(prompt)[:30])
def test_wrong_prompts_are_refused(server: Running, prompt: Any) -> None:
    """Ids are checked against the vocabulary, kinds are not mixed, nothing is empty."""
    assert refused(server, "/v1/completions", {**TEXT, "prompt": prompt})["param"] == "prompt"


@pytest.mark.parametrize(
    "change", [{"suffix": "x"}, {"best_of": 2}, {"logprobs": 21}, {"logprobs": True}, {"max_tokens": 0}, {"echo": 1}]
)
def test_wrong_completion_fields_are_refused(server: Running, change: dict[str, Any]) -> None:
    """Fields of the older endpoint; no tokens at all are only for `echo`."""
    assert refused(server, "/v1/completions", {**TEXT, **change})["param"] in change


def test_neutral_and_harmless_fields_are_taken(server: Running) -> None:
    """What changes nothing is no reason to refuse."""
    harmless = {
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "parallel_tool_calls": True,
        "service_tier": "auto",
        "modalities": ["text"],
        "verbosity": "low",
        "response_format": {"type": "text"},
        "tool_choice": "none",
        "tools": None,
        "best_of": 1,
        "stop": [],
        "stop_token_ids": [],
        "logit_bias": {},
        "seed": -1,
        "n": 1,
        "something_new": {"a": [1]},
        "max_completion_tokens": None,
        "stream_options": None,
        "suffix": None,
    }
    response = server.post("/v1/chat/completions", {**CHAT, **harmless})
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize"])
def test_an_unknown_model_is_404(server: Running, path: str) -> None:
    """Whatever else the request holds; its name is in the message."""
    body = CHAT if "chat" in path else TEXT
    error = refused(server, path, {**body, "model": "gpt-9"}, 404)

    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert "gpt-9" in error["message"]


@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)])
def test_a_prompt_that_does_not_fit_is_told_both_numbers(server: Running, path: str, body: dict[str, Any]) -> None:
    """A little or far too long, or too long with the answer; exactly full is fine."""
    for words in (300, 200_000):
        text = "a " * words
        change = {"prompt": text} if "prompt" in body else {"messages": [{"role": "user", "content": text}]}
        error = refused(server, path, {**body, **change})
        assert error["code"] == "context_length_exceeded"
        assert "256" in error["message"]
    error = refused(server, path, {**body, "max_tokens": 256})
    assert (error["param"], error["code"]) == ("max_tokens", "context_length_exceeded")

    full = server.post("/v1/completions", {**TEXT, "prompt": [5] * 255, "max_tokens": 1, "ignore_eos": True})
    assert full.json()["usage"] == {
        "prompt_tokens": 255,
        "completion_tokens": 1,
        "total_tokens": 256,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_a_tokenizer_with_more_ids_than_the_model() -> None:
    """A text whose ids the table of embeddings lacks is refused: kernels would take the nearest row."""
    tokenizer = SimpleNamespace(least=lambda text: 1)
    service: Any = SimpleNamespace(rules=SimpleNamespace(context=16, vocab=10), _tokenizer=lambda: tokenizer)

    assert Service._encode(service, "text", lambda text, most: [3, 9], "prompt") == (3, 9)
    with pytest.raises(ApiError, match="`prompt` holds 10; token ids run from 0 to 9"):
        Service._encode(service, "text", lambda text, most: [3, 10], "prompt")
