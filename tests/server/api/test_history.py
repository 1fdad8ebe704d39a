"""Whatever the server emits, it takes back as history, unchanged: S2, S3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mks.models.text.files import TextFiles
from mks.models.text.tokenizer import Tokenizer
from mks.server.api.build import build_service
from mks.server.dialects.conversation import Conversation
from mks.server.dialects.kimi_k3 import KimiDialect
from mks.server.http.errors import ApiError

from .. import kimi
from ..conftest import Running, running
from ..fake import Speaker

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in ("f", "g")]
USER = {"role": "user", "content": "Hi"}

# As SmolLM2's: nothing is marked.
PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m['role'] + '\n' + m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# As Qwen3.8's: calls are markup, arguments are walked through.
XML = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}"
    "{% for call in m.tool_calls or [] %}\n<tool_call>\n<function={{ call.function.name }}>\n"
    "{% for key, value in call.function.arguments | items %}<parameter={{ key }}>\n"
    "{{ value if value is string else value | tojson }}\n</parameter>\n{% endfor %}"
    "</function>\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)

TEXTS = ["Hello", " bye ", "\n", "\n\n", "🙂", '"', "<", "{", "}", "\\", "月"]
THOUGHT = ["<think>\n", "hm", "\n</think>\n\n", "Let me think step by step."]
HERMES = [
    '<tool_call>\n{"name": "f", "arguments": {"city": "Rome"}}\n</tool_call>',
    '<tool_call>\n{"name": "g", "arguments": {"city": "a\\"}<", "n": [1, {}]}}\n</tool_call>\n',
    '<tool_call>\n{"name": "g", "arguments": [1, null]}\n</tool_call>',
    '<tool_call>\n{"arguments": "{\\"n\\": 1}", "name": "f"}\n</tool_call>',
    '<tool_call>\n{"name": "f", "arguments": {"n": 1, "n": "\\ud83d"}}\n</tool_call>',
    *("<tool_call>", "</tool_call>", '{"name": "f"}', '{"name": "", "arguments": {}}'),
]
MARKUP = [
    "<tool_call>\n<function=f>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>\n<function=g>\n<parameter=n>\n12\n</parameter>\n<parameter=city>\n\na</p\n</parameter>\n</function>\n</tool_call>",
    *(
        "<tool_call>",
        "</tool_call>",
        "<function=f>\n",
        "<parameter=n>\n",
        "\n</parameter>\n",
        "</function>\n",
        "<function=>",
    ),
]
XTML = [
    "<|close|>think<|sep|>",
    "<|open|>response<|sep|>",
    "<|close|>response<|sep|>",
    "<|open|>tools<|sep|>",
    '<|open|>call tool="f" index="1"<|sep|>',
    '<|open|>argument key="city" type="string"<|sep|>Rome',
    '<|open|>argument key="n" type="number"<|sep|>12',
    "<|close|>argument<|sep|>",
    "<|close|>call<|sep|>",
    "<|close|>tools<|sep|>",
    '<|open|>json type="object"<|sep|>{"n": [1]',
    '<|open|>call tool="" index="2"<|sep|>',
]


@frozen
class Spoken:
    """A server, what it says, and what its answers are made of."""

    server: Running
    decoder: Speaker
    tokenizer: Tokenizer
    parts: list[str]
    tools: bool

    def say(self, text: str) -> None:
        """From now on, every greedy answer is this text."""
        self.decoder.ids = self.tokenizer.encode(text, add_special_tokens=False)


@pytest.fixture(scope="module", params=["plain", "hermes", "xml", "kimi"])
def spoken(request: pytest.FixtureRequest, files: TextFiles, tokenizer: Tokenizer) -> Iterator[Spoken]:
    """Each dialect that the server has."""
    kind = request.param
    if kind == "kimi":
        texts, spelled, end = kimi.text_files(), kimi.loaded()[1], kimi.END
    else:
        template = {"plain": PLAIN, "xml": XML, "hermes": files.template}[kind]
        texts, spelled, end = evolve(files, template=template), tokenizer, 2
    parts = {"plain": [*THOUGHT, *HERMES], "hermes": [*THOUGHT, *HERMES], "xml": [*THOUGHT, *MARKUP], "kimi": XTML}[
        kind
    ]
    decoder = Speaker(2, 8000, kimi.VOCAB if kind == "kimi" else 861, end)
    with running(build_service(decoder, texts, "tiny"), decoder) as server:
        yield Spoken(server, decoder, spelled, [*TEXTS, *parts], kind != "plain")


def chat_turn(spoken: Spoken, limit: int) -> list[dict[str, Any]]:
    """The assistant's message, and the one that a client makes of the same as a stream."""
    body = {"messages": [USER], "temperature": 0, "max_tokens": limit, **({"tools": TOOLS} if spoken.tools else {})}
    answer = spoken.server.post("/v1/chat/completions", body).json()["choices"][0]["message"]
    text = spoken.server.post("/v1/chat/completions", {**body, "stream": True}).text
    made: dict[str, Any] = {"role": "assistant", "content": ""}
    for event in text.split("\n\n")[:-2]:
        for choice in json.loads(event.removeprefix("data: "))["choices"]:
            for name in ("content", "reasoning"):
                if name in choice["delta"]:
                    made[name] = made.get(name, "") + choice["delta"][name]
            for call in choice["delta"].get("tool_calls", ()):
                calls = made.setdefault("tool_calls", [])
                if "id" in call:
                    calls.append({**call, "function": dict(call["function"])})
                else:
                    calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    return [answer, made]


def items_turn(spoken: Spoken, limit: int) -> list[list[dict[str, Any]]]:
    """The items of a response, and those of the same as a stream."""
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS] if spoken.tools else []  # type: ignore[dict-item]
    body = {"input": [USER], "temperature": 0, "max_output_tokens": limit, "tools": tools}
    answer = spoken.server.post("/v1/responses", body).json()["output"]
    events = spoken.server.post("/v1/responses", {**body, "stream": True}).text.split("\n\n")[:-1]
    told = [json.loads(event.split("\ndata: ")[1]) for event in events]
    return [answer, [event["item"] for event in told if event["type"] == "response.output_item.done"]]


def meant(text: str) -> Any:
    """Arguments as a template is given them."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        value = json.loads(text, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def check(message: dict[str, Any], content: str, reasoning: str, calls: list[tuple[str, str]]) -> None:
    """That a message says what was emitted."""
    assert message["role"] == "assistant"
    assert message["content"] == content
    assert message.get("reasoning", "") == message.get("reasoning_content", "") == reasoning
    got = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]
    assert got == [(name, meant(text) if text else {}) for name, text in calls]


def check_chat(spoken: Spoken, message: dict[str, Any]) -> None:
    """That a chat message is taken back, with results of its calls, as it was."""
    calls = message.get("tool_calls", [])
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "sunny"} for call in calls]
    asked = {"tools": TOOLS} if spoken.tools else {}
    shape = spoken.server.service.chat({"messages": [USER, message, *results, USER], "max_tokens": 1, **asked})
    check(
        shape.request.conversation.messages[1],
        message["content"] or "",
        message.get("reasoning") or "",
        [(call["function"]["name"], call["function"]["arguments"]) for call in calls],
    )


def check_items(spoken: Spoken, items: list[dict[str, Any]]) -> None:
    """The same for the items of a response."""
    calls = [item for item in items if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"} for call in calls]
    shape = spoken.server.service.responses({"input": [USER, *items, *results, USER], "max_output_tokens": 1})
    if not items:
        return
    texts = {
        kind: "".join(item["content"][0]["text"] for item in items if item["type"] == kind)
        for kind in ("message", "reasoning")
    }
    said = [(call["name"], call["arguments"]) for call in calls]
    check(shape.request.conversation.messages[1], texts["message"], texts["reasoning"], said)


def law(spoken: Spoken, text: str, limit: int) -> None:
    """An answer that says `text`, of at most `limit` tokens, in all four ways."""
    if not text:
        return
    spoken.say(text)
    for message in chat_turn(spoken, limit):
        check_chat(spoken, message)
    for items in items_turn(spoken, limit):
        check_items(spoken, items)


def answers(spoken: Spoken) -> st.SearchStrategy[str]:
    """Answers that are good, odd and broken."""
    return st.lists(st.sampled_from(spoken.parts), min_size=1, max_size=6).map("".join)


@pytest.mark.parametrize("examples", [6, pytest.param(250, marks=pytest.mark.slow)])
def test_s3_what_is_emitted_is_taken_back(spoken: Spoken, examples: int) -> None:
    """The law, for generated answers that are cut anywhere."""

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(answers(spoken), st.integers(1, 60))
    def hold(text: str, limit: int) -> None:
        law(spoken, text, limit)

    hold()


CUT = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": {"city": "Rome"}}\n</tool_call>',
    "xml": "</think><tool_call>\n<function=f>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
    "kimi": '<|close|>think<|sep|><|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>'
    '<|open|>argument key="city" type="string"<|sep|>Rome<|close|>argument<|sep|><|close|>call<|sep|>',
    "plain": "Hello there you",
}


def test_s2_a_call_that_was_cut_is_taken_back(spoken: Spoken, request: pytest.FixtureRequest) -> None:
    """At every token."""
    text = CUT[request.node.callspec.params["spoken"]]
    for limit in range(1, len(spoken.tokenizer.encode(text, add_special_tokens=False)) + 1, 3):
        law(spoken, text, limit)


ARGUMENTS = ['{"city', "[1]", "null", '"a"', "", "{}", '{"a": NaN}', '{"a": "\\ud83d"}', "{" * 300, "Rome"]


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_s2_arguments_of_any_kind_are_history(spoken: Spoken, request: pytest.FixtureRequest, arguments: str) -> None:
    """What is no object reaches the template as it is, or not at all where the template walks through objects."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    check_chat(spoken, {"role": "assistant", "content": None, "tool_calls": [call]})
    check_items(spoken, [{"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}])
    messages = [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{**call, "function": {"name": "f", "arguments": arguments}}],
        }
    ]
    written = spoken.server.service._dialect().prompt(Conversation(messages)).text
    kind = request.node.callspec.params["spoken"]
    assert kind == "plain" or "f" in written
    if arguments and kind in ("hermes", "kimi"):
        assert arguments in written


def test_s3_reasoning_alone_is_history(spoken: Spoken) -> None:
    """Under either name, with no content, empty or null; a message of nothing at all is refused."""
    for content in ({}, {"content": None}, {"content": ""}):
        for name in ("reasoning", "reasoning_content"):
            check_chat(spoken, {"content": None, **content, "role": "assistant", "reasoning": "hm", name: "hm"})
    with pytest.raises(ApiError, match="reasoning"):
        spoken.server.service.chat({"messages": [USER, {"role": "assistant", "content": None}]})


def test_s3_what_is_not_told_is_not_missing(spoken: Spoken) -> None:
    """Reasoning that is not sent leaves a message that is taken back."""
    body = {"messages": [USER], "temperature": 0, "max_tokens": 3, "include_reasoning": False}
    spoken.say("<think>\nLet me think.")
    message = spoken.server.post("/v1/chat/completions", body).json()["choices"][0]["message"]
    check_chat(spoken, message)


FUNCTION_CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_s13_a_name_is_taken_on_a_message_of_any_role(spoken: Spoken, role: str) -> None:
    """On both endpoints; the dialect that writes names has it in its prompt, and another one the same prompt."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    before = {"chat": {"role": "assistant", "content": None, "tool_calls": [call]}, "responses": FUNCTION_CALL}
    message = {"role": role, "content": "hm", **({"tool_call_id": "c"} if role == "tool" else {})}
    prompts: list[str] = []
    for name in ({}, {"name": "Anna"}):
        for endpoint, prior in before.items():
            messages = [USER, *([prior] if role == "tool" else []), {**message, **name}, USER]
            if endpoint == "chat":
                path, body = "/v1/chat/completions", {"messages": messages, "max_tokens": 1}
                prompts.append(spoken.server.service.chat(dict(body)).prompt.text)
            else:
                path, body = "/v1/responses", {"input": messages, "max_output_tokens": 1}
                prompts.append(spoken.server.service.responses(dict(body)).prompt.text)
            response = spoken.server.post(path, body)
            assert response.status_code == 200, response.text
    # The name of a tool's result is that of its call.
    written = ' name="Anna"' if role != "tool" and isinstance(spoken.server.service.dialect, KimiDialect) else ""
    assert prompts[0] == prompts[1] == prompts[2].replace(written, "")
    assert prompts[2] == prompts[3]
    assert (prompts[2] != prompts[0]) == bool(written)
