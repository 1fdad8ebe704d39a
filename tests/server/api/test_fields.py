"""The table of fields says what the code does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mks.server
from mks.server.api.chat import read_chat
from mks.server.api.completions import read_completion
from mks.server.api.params import Rules
from mks.server.api.responses_input import read_responses
from mks.server.http.jsonbody import Fields

from ..conftest import Running

ENDPOINTS = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "responses": "/v1/responses"}
MINIMAL: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "temperature": 0},
    "completions": {"prompt": "Hi", "max_tokens": 3, "temperature": 0},
    "responses": {"input": "Hi", "max_output_tokens": 3, "temperature": 0},
}

# Values that are no neutral ones, for what is refused or ignored.
SOME: dict[str, Any] = {
    "prompt": {"id": "p"},
    "n": 2,
    "prompt_logprobs": 1,
    "response_format": {"type": "json_object"},
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "previous_response_id": "r",
    "conversation": "c",
    "background": True,
    "suffix": "x",
    "best_of": 2,
    "functions": [{}],
    "function_call": "auto",
    "modalities": ["audio"],
    "audio": {"voice": "x"},
    "web_search_options": {"a": 1},
    "use_beam_search": True,
    "length_penalty": 2,
    "bad_words": ["x"],
    "allowed_token_ids": [1],
    "prompt_embeds": ["x"],
    "truncate_prompt_tokens": 5,
    "logits_processors": ["x"],
    "guided_json": {"a": 1},
    "guided_regex": "a",
    "guided_choice": ["a"],
    "guided_grammar": "a",
    "structured_outputs": {"regex": "a"},
    "grammar": "a",
    "regex": "a",
    "ebnf": "a",
    "structural_tag": "a",
    "repeat_penalty": 1.1,
    "dry_multiplier": 0.8,
    "xtc_probability": 0.5,
    "top_a": 0.2,
    "tfs_z": 0.9,
    "top_n_sigma": 1,
    "dynatemp_range": 0.5,
    "no_repeat_ngram_size": 3,
    "num_beams": 4,
    "guidance_scale": 1.5,
    "negative_prompt": "x",
    "thinking_token_budget": 5,
    "max_length": 9,
    "max_new_tokens": 9,
    "n_predict": 9,
    "return_tokens_as_token_ids": True,
    "logprob_token_ids": [1],
    "documents": [{"text": "x"}],
    "json_schema": {"type": "object"},
    "typical_p": 0.5,
    "mirostat": 2,
    "chat_template": "x",
    "continue_final_message": True,
}


def table() -> dict[str, dict[str, str]]:
    """What the document says of each field, by endpoint."""
    text = (Path(mks.server.__file__).parent / "FIELDS.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]
    assert all(len(row) == 5 for row in rows)
    out = {row[0].strip("`"): dict(zip(ENDPOINTS, row[1:4], strict=True)) for row in rows}
    assert len(out) == len(rows)
    return out


TABLE = table()


class Seen(dict[str, Any]):
    """A body that remembers which fields were asked for."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(body)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


READERS: dict[str, Callable[[Fields, Rules], Any]] = {
    "chat": lambda fields, rules: read_chat(fields, rules, developer_role=True),
    "completions": read_completion,
    "responses": lambda fields, rules: read_responses(fields, rules, developer_role=True),
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_every_field_that_is_read_is_in_the_table(endpoint: str) -> None:
    """And those that act or are refused are read, where the table says so."""
    seen = Seen(MINIMAL[endpoint])
    READERS[endpoint](Fields(seen), Rules("tiny", 861, 256, True))
    assert wrong(endpoint, seen.names, TABLE) == set()
    assert wrong(endpoint, {*seen.names, "new"}, TABLE) == {"new"}
    assert wrong(endpoint, seen.names - {"seed"}, TABLE) == {"seed"}
    silent = {"seed": {**TABLE["seed"], endpoint: "ignored"}}
    assert wrong(endpoint, seen.names, {**TABLE, **silent}) == {"seed"}


# Read for their type only, or read where they then have no effect.
SILENT = {"user", "prompt_cache_key", "safety_identifier", "service_tier", "return_token_ids"}


def wrong(endpoint: str, read: set[str], told: dict[str, dict[str, str]]) -> set[str]:
    """The fields of which a table says something else than the code does."""
    listed = {name for name, what in told.items() if what[endpoint] != "ignored"}
    return (listed ^ read) - SILENT


REFUSED = [(name, end) for name, what in TABLE.items() for end in ENDPOINTS if what[end] == "refused"]
IGNORED = [(name, end) for name, what in TABLE.items() for end in ENDPOINTS if what[end] == "ignored"]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_what_is_refused_is_refused(server: Running, endpoint: str) -> None:
    """400 with the field's name, and fine at its neutral value."""
    text = (Path(mks.server.__file__).parent / "FIELDS.md").read_text()
    neutral = dict(re.findall(r"^\| `(\w+)` .*Neutral: `?(.*?)`? \|$", text, re.M))
    for name, end in REFUSED:
        if end == endpoint:
            response = server.post(ENDPOINTS[end], {**MINIMAL[end], name: SOME[name]})
            assert response.status_code == 400, name
            assert response.json()["error"]["param"] == name
            for value in (None, *([json.loads(neutral[name])] if name in neutral else [])):
                response = server.post(ENDPOINTS[end], {**MINIMAL[end], name: value})
                assert response.status_code == 200 or name == "prompt", (name, value, response.text)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_what_is_ignored_changes_nothing(server: Running, endpoint: str) -> None:
    """The same answer with any value, or with any string."""
    plain = _answer(server.post(ENDPOINTS[endpoint], MINIMAL[endpoint]).json())
    for name, end in IGNORED:
        if end == endpoint and name != "return_token_ids":
            given = server.post(ENDPOINTS[end], {**MINIMAL[end], name: SOME.get(name, "some value")})
            assert given.status_code == 200, (name, given.text)
            assert _answer(given.json()) == plain, name


def _answer(body: dict[str, Any]) -> Any:
    choice = (body.get("choices") or [None])[0]
    return choice if choice is not None else [item.get("content") for item in body["output"]]
