"""Answers over HTTP, with the official client and without."""

from __future__ import annotations

import concurrent.futures
import gzip
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from attrs import evolve

from mks.models.text.files import TextFiles
from mks.models.text.tokenizer import Tokenizer
from mks.server.api.build import build_service
from mks.server.api.shapes import FINGERPRINT

from ..conftest import Running, running
from ..fake import FakeDecoder

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    """The official client."""
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as one:
        yield one


def events(server: Running, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """All chunks of a stream, its form checked."""
    response = server.post(path, {**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert "content-length" not in response.headers
    lines = response.text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def answer(server: Running, path: str, **body: Any) -> dict[str, Any]:
    """A whole answer."""
    response = server.post(path, body)
    assert response.status_code == 200, response.text
    return response.json()


def complete(server: Running, prompt: Any, **more: Any) -> dict[str, Any]:
    """A greedy completion that does not end by itself."""
    defaults = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
    return answer(server, "/v1/completions", **{"prompt": prompt, **defaults, **more})


def test_the_client_streams_what_it_gets_whole(client: openai.OpenAI) -> None:
    """Chat: the same text, reason and usage; the role once and first."""
    body: dict[str, Any] = {"model": "tiny", "messages": HELLO, "max_tokens": 30, "temperature": 1.1, "seed": 4}
    whole = client.chat.completions.create(**body)
    chunks = list(client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}))

    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert [choice.delta.role for choice in chunks[0].choices] == ["assistant"]
    assert not any(choice.delta.role for chunk in chunks[1:] for choice in chunk.choices)
    ends = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert ends == [whole.choices[0].finish_reason]
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert {chunk.id for chunk in chunks} == {chunks[0].id} != {whole.id}


def test_the_client_completes_text(client: openai.OpenAI, server: Running) -> None:
    """Text: whole and streamed alike, an exact budget, 16 tokens where none is given."""
    whole = client.completions.create(model="tiny", prompt="Hello", temperature=0, max_tokens=20)
    parts = client.completions.create(model="tiny", prompt="Hello", temperature=0, max_tokens=20, stream=True)

    assert "".join(part.choices[0].text for part in parts) == whole.choices[0].text
    assert complete(server, "Hello", max_tokens=None)["usage"]["completion_tokens"] == 16


def test_the_client_lists_models(client: openai.OpenAI) -> None:
    """One model, with its context; others are not found."""
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").to_dict()["max_model_len"] == 256
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_the_client_raises_for_a_failure_in_a_stream(files: TextFiles) -> None:
    """An error after the first token is an event, then the stream ends; before it, it is a plain 500."""
    decoder = FakeDecoder()
    with (
        running(build_service(decoder, files, "tiny"), decoder) as server,
        openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120) as client,
    ):
        decoder.gate.clear()
        body: dict[str, Any] = {"model": "tiny", "messages": HELLO, "extra_body": {"ignore_eos": True}}
        stream = client.chat.completions.create(**body, stream=True)
        next(stream)
        decoder.fail_next = 1
        decoder.gate.set()
        with pytest.raises(openai.APIError, match="the model failed") as caught:
            list(stream)
        assert not isinstance(caught.value, openai.APIStatusError)
        decoder.fail_next = 2
        for flag in (False, True):
            with pytest.raises(openai.InternalServerError, match="the model failed"):
                client.chat.completions.create(**body, stream=flag)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("more", [{}, {"stop": ["e", "th"]}, {"n": 3}, {"max_tokens": 1}, {"min_tokens": 25}])
def test_streams_concatenate_to_whole_answers(server: Running, path: str, more: dict[str, Any]) -> None:
    """Text, log-probabilities, ids, reasons and usage of every choice, however the answer ends."""
    body: dict[str, Any] = {"temperature": 1.5, "seed": 11, "max_tokens": 60, "return_token_ids": True, **more}
    chat = "chat" in path
    body |= {"messages": HELLO, "logprobs": True, "top_logprobs": 2} if chat else {"prompt": "Hello", "logprobs": 2}
    whole = answer(server, path, **body)
    chunks = events(server, path, {**body, "stream_options": {"include_usage": True, "continuous_usage_stats": False}})

    assert chunks[-1]["usage"] == whole["usage"]
    assert all("usage" not in chunk for chunk in chunks[:-1])
    for index, choice in enumerate(whole["choices"]):
        parts = [part for chunk in chunks for part in chunk["choices"] if part["index"] == index]
        reasons = [part["finish_reason"] for part in parts]
        assert reasons == [None] * (len(parts) - 1) + [choice["finish_reason"]]
        assert parts[-1]["stop_reason"] == choice["stop_reason"]
        if chat:
            assert "".join(part["delta"].get("content", "") for part in parts) == choice["message"]["content"]
            entries = [entry for part in parts for entry in (part["logprobs"] or {"content": []})["content"]]
            assert entries == choice["logprobs"]["content"]
        else:
            assert "".join(part["text"] for part in parts) == choice["text"]
            for key, values in choice["logprobs"].items():
                assert [value for part in parts for value in part["logprobs"][key]] == values
        assert [token for part in parts for token in part.get("token_ids", [])] == choice["token_ids"]
    assert whole["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in whole["choices"])


def test_stop_strings_cut_the_same_answer(server: Running) -> None:
    """For every place in the text: cut before the first match, logprobs and usage end with its token."""
    whole = complete(server, "Once", logprobs=0)["choices"][0]
    text = whole["text"]
    for start in range(0, len(text) - 4, 3):
        stop = text[start : start + 3]
        if "\ufffd" in stop:
            continue
        got = complete(server, "Once", stop=stop, logprobs=0)
        choice = got["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == (text[: text.find(stop)], "stop")
        assert choice["stop_reason"] == stop
        count = len(choice["logprobs"]["tokens"])
        assert count == got["usage"]["completion_tokens"]
        assert choice["logprobs"]["tokens"] == whole["logprobs"]["tokens"][:count]


def test_a_stop_id_and_the_end_token_are_counted(server: Running, tokenizer: Tokenizer) -> None:
    """Both are among the ids and in the usage, neither in the text."""
    free = complete(server, "Once", return_token_ids=True)["choices"][0]["token_ids"]
    got = complete(server, "Once", return_token_ids=True, stop_token_ids=[free[5]])
    at = free.index(free[5])
    assert got["choices"][0]["token_ids"] == free[: at + 1]
    assert got["choices"][0]["stop_reason"] == free[5]
    assert got["choices"][0]["text"] == tokenizer.decode(free[:at])

    forced = complete(server, "Once", logit_bias={"2": 100}, ignore_eos=False, min_tokens=3, return_token_ids=True)
    choice = forced["choices"][0]
    assert (len(choice["token_ids"]), choice["token_ids"][-1], choice["finish_reason"]) == (4, 2, "stop")


def test_lists_of_prompts_are_answered_in_order(server: Running) -> None:
    """More than there are rows, as text and as ids, with copies; each as if it were alone."""
    prompts = [f"Number {number}" for number in range(7)]
    alone = [complete(server, prompt)["choices"][0]["text"] for prompt in prompts]
    ids = [answer(server, "/tokenize", prompt=prompt)["tokens"] for prompt in prompts]

    for given in (prompts, ids):
        got = complete(server, given, n=2)
        assert [choice["index"] for choice in got["choices"]] == list(range(14))
        assert [choice["text"] for choice in got["choices"]] == [text for text in alone for _ in range(2)]
        assert got["usage"]["prompt_tokens"] == sum(map(len, ids))
    greedy = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
    parts = events(server, "/v1/completions", {"prompt": prompts, **greedy})
    for index, text in enumerate(alone):
        assert "".join(c["text"] for part in parts for c in part["choices"] if c["index"] == index) == text


def test_copies_have_their_own_seeds(server: Running) -> None:
    """Copy i is the answer for seed + i; the prompt is counted once."""
    body = {"temperature": 1.2, "messages": HELLO, "max_tokens": 12}
    three = answer(server, "/v1/chat/completions", **body, seed=7, n=3)
    singles = [answer(server, "/v1/chat/completions", **body, seed=seed) for seed in (7, 8, 9)]

    got = [choice["message"]["content"] for choice in three["choices"]]
    assert got == [single["choices"][0]["message"]["content"] for single in singles]
    assert len(set(got)) == 3
    assert three["usage"]["prompt_tokens"] == singles[0]["usage"]["prompt_tokens"]


def test_parallel_requests_are_what_they_are_alone(server: Running) -> None:
    """Seeded, greedy and penalised requests in one batch do not touch each other."""
    kinds: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 1.3, "seed": 5},
        {"temperature": 1.0, "seed": 5, "top_p": 0.8},
        {"temperature": 0, "presence_penalty": 2},
        {"temperature": 0, "stop": ["a"]},
        {"max_tokens": 3, "seed": 1},
    ]
    bodies = [{"prompt": f"Prompt {number % 4}", "max_tokens": 16, **kinds[number % 6]} for number in range(24)]
    alone = [answer(server, "/v1/completions", **body)["choices"] for body in bodies]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda body: answer(server, "/v1/completions", **body)["choices"], bodies))

    assert together == alone


def test_echo_scores_the_prompt(server: Running, tokenizer: Tokenizer) -> None:
    """The prompt's text and scores come first; nothing need be generated; offsets point into the text."""
    prompt = "Hello 👍 it is"
    ids = tokenizer.encode(prompt)
    got = complete(server, prompt, echo=True, logprobs=1, max_tokens=0)
    choice, scores = got["choices"][0], got["choices"][0]["logprobs"]
    assert (choice["text"], choice["finish_reason"]) == (prompt, "length")
    assert scores["tokens"] == [tokenizer.spelling(token) for token in ids]
    assert scores["token_logprobs"][0] is None
    assert scores["top_logprobs"][0] is None
    assert all(value < 0 for value in scores["token_logprobs"][1:])
    assert got["usage"]["completion_tokens"] == 0
    spans = zip(scores["text_offset"], scores["tokens"], strict=True)
    assert all(prompt[at:].startswith(token) for at, token in spans if not token.startswith("bytes:"))

    longer = complete(server, prompt, echo=True, logprobs=1, max_tokens=4)["choices"][0]
    plain = complete(server, prompt, logprobs=1, max_tokens=4)["choices"][0]
    assert longer["text"] == prompt + plain["text"]
    assert longer["logprobs"]["token_logprobs"] == scores["token_logprobs"] + plain["logprobs"]["token_logprobs"]
    moved = [offset + len(prompt) for offset in plain["logprobs"]["text_offset"]]
    assert longer["logprobs"]["text_offset"] == scores["text_offset"] + moved
    parts = events(
        server,
        "/v1/completions",
        {"prompt": prompt, "max_tokens": 4, "echo": True, "ignore_eos": True, "temperature": 0, "logprobs": 1},
    )
    assert "".join(part["choices"][0]["text"] for part in parts) == longer["text"]
    assert parts[0]["choices"][0]["logprobs"]["tokens"][: len(ids)] == scores["tokens"]
    assert complete(server, ids, echo=True, max_tokens=4)["choices"][0]["text"] == longer["text"]


def test_chat_logprobs_give_names_and_bytes(server: Running) -> None:
    """Bytes join to the text, alternatives fall in order, and there are none unless asked for."""
    body = {"messages": HELLO, "temperature": 0, "max_tokens": 20, "ignore_eos": True, "logprobs": True}
    got = answer(server, "/v1/chat/completions", **body, top_logprobs=4)["choices"][0]
    entries = got["logprobs"]["content"]
    joined = b"".join(bytes(entry["bytes"]) for entry in entries).decode("utf-8", "replace")
    assert joined == got["message"]["content"] or "<|im" in joined
    for entry in entries:
        values = [top["logprob"] for top in entry["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert entry["token"] == entry["top_logprobs"][0]["token"]
    plain = answer(server, "/v1/chat/completions", **body)["choices"][0]
    assert all(entry["top_logprobs"] == [] for entry in plain["logprobs"]["content"])


def test_content_parts_reasoning_and_tool_history(server: Running) -> None:
    """Parts are their text, a developer is a system where the template knows no other, tool turns are read."""

    def count(messages: list[dict[str, Any]], **more: Any) -> int:
        return answer(server, "/tokenize", messages=messages, **more)["count"]

    def user(content: Any) -> list[dict[str, Any]]:
        return [{"role": "user", "content": content}]

    assert count(user("Hi")) == count(user([{"type": "text", "text": "Hi"}]))
    assert count(user("a\nb")) == count(user([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]))
    system = {"role": "system", "content": "Be good."}
    assert count([system, *user("Hi")]) == count([{**system, "role": "developer"}, *user("Hi")]) > count(user("Hi"))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    history = [
        *user("Hi"),
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm"},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "sunny"}]},
    ]
    ids = answer(server, "/tokenize", messages=history)["tokens"]
    text = answer(server, "/detokenize", tokens=ids)["prompt"]
    assert '{"name": "f", "arguments": {"a": 1}}' in text
    assert "<tool_response>\nsunny\n</tool_response>" in text
    assert count(user("Hi"), chat_template_kwargs={"enable_thinking": False}) > count(user("Hi"))
    assert count(user("Hi"), reasoning_effort="none") > count(user("Hi"))


def test_the_tokenizer_is_served(server: Running, tokenizer: Tokenizer) -> None:
    """Shapes as vLLM has them; ids that are none are refused."""
    got = answer(server, "/tokenize", prompt="Hello 👍", return_token_strs=True)
    assert got["tokens"] == tokenizer.encode("Hello 👍")
    assert (got["count"], got["max_model_len"]) == (len(got["tokens"]), 256)
    assert len(got["token_strs"]) == got["count"]
    assert answer(server, "/detokenize", tokens=got["tokens"]) == {"prompt": "Hello 👍"}
    for wrong in ([-1], ["a"], "x", None, [2**70], [861]):
        assert server.post("/detokenize", {"tokens": wrong}).status_code == 400
    assert server.post("/tokenize", {}).status_code == 400


def test_without_a_tokenizer_ids_are_answered_with_ids() -> None:
    """Text, chats and stop strings are refused; ids and log-probabilities work."""
    decoder = FakeDecoder()
    files = TextFiles(config={"eos_token_id": 3})
    with running(build_service(decoder, files, "bare"), decoder) as server:
        body = {"prompt": [5, 6], "temperature": 0, "max_tokens": 4, "ignore_eos": True}
        got = answer(server, "/v1/completions", **body, logprobs=1)
        choice = got["choices"][0]
        assert (choice["text"], choice["prompt_token_ids"], len(choice["token_ids"])) == ("", [5, 6], 4)
        assert choice["logprobs"]["tokens"] == [f"token_id:{token}" for token in choice["token_ids"]]
        parts = events(server, "/v1/completions", body)
        assert [token for part in parts for token in part["choices"][0]["token_ids"]] == choice["token_ids"]
        ended = answer(server, "/v1/completions", prompt=[5], logit_bias={"3": 100}, temperature=0)["choices"][0]
        assert (ended["token_ids"], ended["finish_reason"]) == ([3], "stop")
        for path, refused in (
            ("/v1/completions", {"prompt": "Hello"}),
            ("/v1/completions", {"prompt": [1], "stop": "x"}),
            ("/v1/chat/completions", {"messages": HELLO}),
            ("/tokenize", {"prompt": "Hello"}),
            ("/detokenize", {"tokens": [1]}),
        ):
            assert server.post(path, refused).status_code == 400


def test_what_the_template_or_the_checkpoint_says_counts(files: TextFiles) -> None:
    """A template's refusal is a 400 with its reason; the checkpoint's own sampling is the default."""
    changed = evolve(files, template="{{ raise_exception('never') }}", generation_config={"top_k": 1, "temperature": 9})
    decoder = FakeDecoder()
    with running(build_service(decoder, changed, "tiny"), decoder) as server:
        response = server.post("/v1/chat/completions", {"messages": HELLO})
        assert response.status_code == 400
        assert "never" in response.json()["error"]["message"]
        sampled = answer(server, "/v1/completions", prompt="Hello", max_tokens=12, temperature=1.5)
        greedy = answer(server, "/v1/completions", prompt="Hello", max_tokens=12, temperature=0)
        assert sampled["choices"] == greedy["choices"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_s9_usage_all_the_time(server: Running, path: str) -> None:
    """In every chunk from the first on, where usage is wanted at all."""
    body: dict[str, Any] = {"messages": HELLO, "prompt": "Hello", "max_tokens": 4, "temperature": 0, "stream": True}
    for wanted in (True, False):
        options = {"include_usage": wanted, "continuous_usage_stats": True}
        text = server.post(path, {**body, "stream_options": options}).text
        chunks = [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n")[:-2]]
        assert all((chunk.get("usage") is not None) == wanted for chunk in chunks)
        if wanted:
            counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
            assert counts == sorted(counts)
            assert chunks[0]["usage"]["prompt_tokens"] > 0


def test_s13_what_made_the_answer_is_named(server: Running) -> None:
    """In whole answers and in chunks; the same each time."""
    body: dict[str, Any] = {"messages": HELLO, "prompt": "Hello", "max_tokens": 1}
    answers = [server.post(path, body).json() for path in ("/v1/chat/completions", "/v1/completions")]
    assert answers[0]["system_fingerprint"] == answers[1]["system_fingerprint"] == FINGERPRINT
    assert FINGERPRINT in server.post("/v1/chat/completions", {**body, "stream": True}).text


def test_s13_bodies_with_a_mark_or_packed(server: Running) -> None:
    """A byte order mark is passed over; a packed body is told apart from one that is no JSON."""
    data = json.dumps({"messages": HELLO, "max_tokens": 1}).encode()
    url, headers = server.url + "/v1/chat/completions", {"content-type": "application/json"}
    assert server.http.post(url, content=b"\xef\xbb\xbf" + data, headers=headers).status_code == 200
    packed = server.http.post(url, content=gzip.compress(data), headers={**headers, "content-encoding": "gzip"})
    assert (packed.status_code, packed.headers["accept-encoding"]) == (415, "identity")
    assert "gzip" in packed.json()["error"]["message"]
    same = server.http.post(url, content=data, headers={**headers, "content-encoding": "identity"})
    assert same.status_code == 200


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_s13_a_message_may_have_a_name(server: Running, role: str) -> None:
    """Of any characters, in both endpoints."""
    message = {"role": role, "content": "Hi", "name": 'Zoë 🙂 "<|im_end|>'}
    for path, field in (("/v1/chat/completions", "messages"), ("/v1/responses", "input")):
        assert server.post(path, {field: [*HELLO, message], "max_tokens": 1}).status_code == 200


@pytest.mark.parametrize("count", [0, 3])
def test_prompts_are_scored_by_id(server: Running, tokenizer: Tokenizer, count: int) -> None:
    """`prompt_logprobs` in both endpoints: each token with its rank, the likeliest beside it; the first has none."""
    text = "Hello there you"
    ids = tokenizer.encode(text)
    told = complete(server, text, max_tokens=1, prompt_logprobs=count)["choices"][0]["prompt_logprobs"]
    echoed = complete(server, text, max_tokens=1, echo=True, logprobs=20)["choices"][0]["logprobs"]

    assert told[0] is None
    assert len(told) == len(ids)
    for token, entry, logprob, top in zip(
        ids[1:], told[1:], echoed["token_logprobs"][1:], echoed["top_logprobs"][1:], strict=False
    ):
        own = entry[str(token)]
        assert own["logprob"] == logprob
        assert own["decoded_token"] == tokenizer.spelling(token)
        assert len(entry) in (max(count, 1), count + 1)
        assert sorted(one["rank"] for one in entry.values())[:count] == list(range(1, count + 1))
        if own["rank"] <= 20:
            assert own["rank"] == sorted(top.values(), reverse=True).index(logprob) + 1
    body = {"messages": HELLO, "max_tokens": 1, "prompt_logprobs": count}
    chat = answer(server, "/v1/chat/completions", **body)
    assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"]
    assert server.post("/v1/chat/completions", {**body, "stream": True}).status_code == 400
    both = complete(server, text, max_tokens=0, echo=True, logprobs=5, prompt_logprobs=1)["choices"][0]
    assert all(len(entry) <= 2 for entry in both["prompt_logprobs"][1:])
    assert all(len(entry) >= 5 for entry in both["logprobs"]["top_logprobs"][1:])
