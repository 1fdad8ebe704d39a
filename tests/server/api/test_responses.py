"""`/v1/responses`, with the official client and without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest

from mks.models.text.files import TextFiles
from mks.models.text.tokenizer import Tokenizer
from mks.server.api.build import build_service
from mks.server.api.params import Rules
from mks.server.api.responses_input import read_responses
from mks.server.http.jsonbody import Fields

from ..conftest import Running, running, wait_for
from ..fake import FakeDecoder
from ..scripts import saying

BODY: dict[str, Any] = {"model": "tiny", "input": "Hi", "temperature": 0, "max_output_tokens": 120}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "name": "f", "description": "d", "parameters": PARAMETERS}
ANSWER = (
    "<think>\nhm\n</think>\n\nOh 🙂\n<tool_call>\n"
    '{"name": "f", "arguments": {"city": "Rome"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
)


@pytest.fixture(scope="module")
def server(files: TextFiles) -> Iterator[Running]:
    """The tiny chat checkpoint with more context."""
    decoder = FakeDecoder(context=1500, chunk=64)
    with running(build_service(decoder, files, "tiny"), decoder) as one:
        yield one


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    """The official client."""
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as one:
        yield one


def whole(server: Running, **more: Any) -> dict[str, Any]:
    """A whole response."""
    response = server.post("/v1/responses", {**BODY, **more})
    assert response.status_code == 200, response.text
    return response.json()


def events(server: Running, **more: Any) -> list[dict[str, Any]]:
    """The events of a stream; names and numbers are checked."""
    response = server.post("/v1/responses", {**BODY, **more, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    *written, rest = response.text.split("\n\n")
    assert rest == ""
    out = []
    for text in written:
        name, data = text.split("\n")
        out.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {out[-1]['type']}"
    assert [event["sequence_number"] for event in out] == list(range(len(out)))
    return out


def shown(output: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Items without what differs by chance."""
    texts = [item.get("content", [{}])[0].get("text") for item in output]
    calls = [(item.get("name"), item.get("arguments")) for item in output]
    return [(i["type"], i["status"], text, *call) for i, text, call in zip(output, texts, calls, strict=True)]


def test_an_answer_is_items(server: Running, tokenizer: Tokenizer) -> None:
    """Reasoning, a message, calls, in the order in which they came; usage and what was asked."""
    with saying(server, tokenizer, ANSWER):
        response = whole(server, tools=[TOOL], metadata={"a": "b"}, instructions="Be kind.", store=True)

    assert (response["object"], response["status"], response["error"]) == ("response", "completed", None)
    assert shown(response["output"]) == [
        ("reasoning", "completed", "hm", None, None),
        ("message", "completed", "Oh 🙂", None, None),
        ("function_call", "completed", None, "f", '{"city": "Rome"}'),
        ("function_call", "completed", None, "f", "{}"),
    ]
    assert len({item["id"] for item in response["output"]}) == 4
    usage = response["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert 0 < usage["output_tokens_details"]["reasoning_tokens"] < usage["output_tokens"]
    assert (response["store"], response["metadata"], response["instructions"]) == (False, {"a": "b"}, "Be kind.")
    assert response["tools"] == [TOOL]


@pytest.mark.parametrize("limit", [1, 5, 9, 14, 20, 30, 40, 120])
def test_the_events_tell_the_whole_response(server: Running, tokenizer: Tokenizer, limit: int) -> None:
    """In OpenAI's order, each item opened, filled and closed, cut anywhere."""
    with saying(server, tokenizer, ANSWER):
        response = whole(server, tools=[TOOL], max_output_tokens=limit)
        told = events(server, tools=[TOOL], max_output_tokens=limit)
    cut = limit < 120

    assert [event["type"] for event in told[:2]] == ["response.created", "response.in_progress"]
    assert told[0]["response"]["status"] == "in_progress"
    last = told[-1]
    assert last["type"] == ("response.incomplete" if cut else "response.completed")
    assert response["status"] == last["response"]["status"] == ("incomplete" if cut else "completed")
    assert response["incomplete_details"] == ({"reason": "max_output_tokens"} if cut else None)
    assert shown(last["response"]["output"]) == shown(response["output"])
    assert {event["response"]["id"] for event in (*told[:2], last)} == {last["response"]["id"]} != {response["id"]}
    same = ("input_tokens", "output_tokens", "total_tokens", "output_tokens_details")
    assert all(last["response"]["usage"][key] == response["usage"][key] for key in same)
    _check_items(told[2:-1], last["response"]["output"])


ORDERS = {
    "reasoning": ["content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"],
    "message": ["content_part.added", "output_text.delta", "output_text.done", "content_part.done"],
    "function_call": ["function_call_arguments.delta", "function_call_arguments.done"],
}


def _check_items(told: list[dict[str, Any]], output: list[dict[str, Any]]) -> None:
    for index, item in enumerate(output):
        own = [event for event in told if event["output_index"] == index]
        kinds = [event["type"].removeprefix("response.") for event in own]
        assert list(dict.fromkeys(kinds)) in (
            ["output_item.added", *ORDERS[item["type"]], "output_item.done"],
            ["output_item.added", "function_call_arguments.done", "output_item.done"],
        )
        assert own[0]["item"]["status"] == "in_progress"
        assert own[-1]["item"] == item
        deltas = "".join(event.get("delta", "") for event in own)
        done = next(event for event in own if event["type"].endswith(("text.done", "arguments.done")))
        assert deltas == done.get("text", done.get("arguments"))
        assert all(event.get("item_id", item["id"]) == item["id"] for event in own)
    assert [event["output_index"] for event in told] == sorted(event["output_index"] for event in told)


def read(**body: Any) -> list[dict[str, Any]]:
    """The messages that a request's input is."""
    fields = Fields({"input": "Hi", **body})
    return read_responses(fields, Rules("tiny", 100, 100, True), developer_role=False).conversation.messages


def test_input_is_a_conversation() -> None:
    """Items of one turn are one message; instructions and a system message are one."""
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}
    messages = read(
        instructions="Be kind.",
        input=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Oh"}]},
            call,
            {**call, "call_id": "c2"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "rainy"}]},
        ],
    )
    assert messages[0] == {"role": "system", "content": "Be kind.\n\nBe brief."}
    assert messages[1] == {"role": "user", "content": "a\nb"}
    calls = [
        {"id": name, "type": "function", "function": {"name": "f", "arguments": {"a": 1}}} for name in ("c1", "c2")
    ]
    assert messages[2] == {
        "role": "assistant",
        "content": "Oh",
        "reasoning": "hm",
        "reasoning_content": "hm",
        "tool_calls": calls,
    }
    assert [message["content"] for message in messages[3:]] == ["sunny", "rainy"]
    assert messages[3]["tool_call_id"] == "c1"
    assert read(instructions="Be kind.")[0] == {"role": "system", "content": "Be kind."}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"truncation": "some"}, "truncation"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"n": 2}, "n"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"store": "yes"}, "store"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [5]}, "input[0]"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"type": "function_call", "call_id": "c"}]}, "input[0].tool_calls[0]"),
        ({"input": "x " * 4000}, "input"),
        ({"tools": [{"type": "wizard"}]}, "tools[0].type"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tools[0].type"),
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tools[0].type"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}},
            "tool_choice.allowed_tools.tools",
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "x", "tools": [TOOL]}},
            "tool_choice.allowed_tools.mode",
        ),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "response_format.json_schema.schema"),
        ({"text": {"format": {"type": "nope"}}}, "response_format.type"),
        ({"reasoning": {"effort": "vast"}}, "reasoning.effort"),
        ({"model": "gpt-9"}, "model"),
    ],
)
def test_what_is_not_done_here_is_refused(server: Running, change: dict[str, Any], param: str) -> None:
    """With the field in `param`, streamed or not."""
    for stream in (False, True):
        response = server.post("/v1/responses", {**BODY, **change, "stream": stream})
        assert response.status_code == (404 if "model" in change else 400), response.text
        assert response.json()["error"]["param"] == param


def test_harmless_fields_are_taken(server: Running) -> None:
    """What clients send as a matter of course."""
    harmless = {
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "include": ["reasoning.encrypted_content"],
        "truncation": "disabled",
        "background": False,
        "previous_response_id": None,
        "service_tier": "auto",
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "reasoning": {"effort": None, "summary": "auto"},
        "user": "u",
        "max_output_tokens": 2,
        "max_tool_calls": 3,
        "prompt_cache_key": "k",
        "something_new": [1],
    }
    assert whole(server, **harmless)["usage"]["output_tokens"] == 2


HOSTED = [
    {"type": kind}
    for kind in (
        "web_search",
        "web_search_preview_2025_03_11",
        "custom",
        "local_shell",
        "namespace",
        "image_generation",
    )
]


@pytest.mark.parametrize("tools", [HOSTED, [*HOSTED, TOOL]])
def test_s6_hosted_tools_are_left_out(server: Running, tokenizer: Tokenizer, tools: list[dict[str, Any]]) -> None:
    """What agents list is taken where the model is free to call, and the log says what is not there."""
    with saying(server, tokenizer, ANSWER):
        response = whole(server, tools=tools, truncation="auto")
    assert (response["truncation"], response["tools"]) == ("auto", tools)
    assert [item["type"] for item in response["output"]].count("function_call") == (2 if TOOL in tools else 0)
    wait_for(lambda: server.records[-1].get("response_id") == response["id"])
    assert server.records[-1]["skipped_tools"] == [tool["type"] for tool in HOSTED]


def test_s6_some_tools_are_allowed(server: Running) -> None:
    """The others are told to the model and not called; hosted ones may be among them."""
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}
    other = {**TOOL, "name": "g", "parameters": {"type": "object"}}
    told = whole(server, tools=[TOOL, other], tool_choice=allowed, reasoning={"effort": "none"}, temperature=1, seed=1)
    assert {item["name"] for item in told["output"] if item["type"] == "function_call"} <= {"g"}
    assert told["output"][0]["type"] == "function_call"
    free = {**allowed, "mode": "auto", "tools": [*allowed["tools"], *HOSTED]}
    assert whole(server, tools=[TOOL, other, *HOSTED], tool_choice=free)["status"]


@pytest.mark.parametrize("text", [ANSWER, "Hello 🙂 there", "Hello" + ANSWER[ANSWER.index("<tool_call>") :] + " bye"])
@pytest.mark.parametrize("top", [0, 2])
def test_s13_log_probabilities_of_messages(server: Running, tokenizer: Tokenizer, text: str, top: int) -> None:
    """Of the tokens of each message, not of reasoning and calls; they join to the text, streamed as whole."""
    asked = {"tools": [TOOL], "include": ["message.output_text.logprobs"], "top_logprobs": top}
    with saying(server, tokenizer, text):
        response, told = whole(server, **asked), events(server, **asked)
    parts = [item["content"][0] for item in response["output"] if item["type"] == "message"]
    assert "".join(part["text"] for part in parts)
    for part in parts:
        data = b"".join(bytes(entry["bytes"]) for entry in part["logprobs"])
        assert data.decode().strip() == part["text"].strip()
        assert all(len(entry["top_logprobs"]) == top and entry["logprob"] <= 0 for entry in part["logprobs"])
    streamed = [item["content"][0] for item in told[-1]["response"]["output"] if item["type"] == "message"]
    assert [part["logprobs"] for part in streamed] == [part["logprobs"] for part in parts]
    done = [event["logprobs"] for event in told if event["type"] == "response.output_text.done"]
    assert done == [part["logprobs"] for part in parts]
    deltas = [entry for event in told if event["type"] == "response.output_text.delta" for entry in event["logprobs"]]
    assert all(any(entry in entries for entries in done) for entry in deltas)


def test_s12_ids_have_an_underscore(server: Running, tokenizer: Tokenizer) -> None:
    """As everywhere else."""
    with saying(server, tokenizer, ANSWER):
        response = whole(server, tools=[TOOL])
    ids = [response["id"], *(item["id"] for item in response["output"]), response["output"][-1]["call_id"]]
    assert [one.partition("_")[0] for one in ids] == ["resp", "rs", "msg", "fc", "fc", "call"]


class Thing(pydantic.BaseModel):
    """What the client wants parsed."""

    color: str
    sizes: list[int]


def test_the_client_creates_and_streams(client: openai.OpenAI, server: Running, tokenizer: Tokenizer) -> None:
    """`create`, `create(stream=True)`, `stream`, and a second turn with what the first gave."""
    body: dict[str, Any] = {"model": "tiny", "input": "Hi", "temperature": 0, "tools": [TOOL]}
    with saying(server, tokenizer, ANSWER):
        created = client.responses.create(**body)
        kinds = [event.type for event in client.responses.create(**body, stream=True)]
        with client.responses.stream(**body) as stream:
            streamed = list(stream)
            final = stream.get_final_response()
    assert created.output_text == final.output_text == "Oh 🙂"
    assert set(kinds) == {event.type for event in streamed}
    assert kinds[-1] == "response.completed"
    assert [item.type for item in created.output] == [item.type for item in final.output]

    turn = [{"role": "user", "content": "Hi"}, *[item.model_dump(exclude_none=True) for item in created.output]]
    results = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
        for item in created.output
        if item.type == "function_call"
    ]
    with saying(server, tokenizer, "Fine."):
        second = client.responses.create(model="tiny", input=[*turn, *results], temperature=0)  # type: ignore[list-item]
    assert second.output_text == "Fine."
    assert second.usage is not None
    assert created.usage is not None
    assert second.usage.input_tokens > 20


def test_the_client_parses(client: openai.OpenAI, server: Running, tokenizer: Tokenizer) -> None:
    """Structured output, held to its schema."""
    with saying(server, tokenizer, '<think>\nhm\n</think>\n\n{"color": "red", "sizes": [1]}'):
        parsed = client.responses.parse(model="tiny", input="Hi", text_format=Thing, temperature=0)
    assert parsed.output_parsed == Thing(color="red", sizes=[1])
    with saying(server, tokenizer, "no JSON at all"):
        response = whole(server, text={"format": {"type": "json_object"}}, reasoning={"effort": "none"})
    assert response["output"][0]["content"][0]["text"].startswith("{")


def test_a_failure_after_the_start_is_an_event(files: TextFiles) -> None:
    """Named `error`, numbered, the last."""
    decoder = FakeDecoder(rows=2, context=600)
    with running(build_service(decoder, files, "tiny"), decoder) as server:
        decoder.gate.clear()
        body = {**BODY, "stream": True, "max_output_tokens": 100}
        with server.http.stream("POST", server.url + "/v1/responses", json=body) as response:
            decoder.fail_next = 1
            decoder.gate.set()
            *_, last, rest = response.read().decode().split("\n\n")
    assert rest == ""
    assert last.startswith("event: error\n")
    error = json.loads(last.split("data: ")[1])
    assert error["type"] == "error"
    assert error["message"]
    assert error["sequence_number"] > 1
