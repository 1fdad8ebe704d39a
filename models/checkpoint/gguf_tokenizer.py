"""The tokenizer that a GGUF file carries, as the files of a Hugging Face checkpoint folder.

Byte-level BPE only (`tokenizer.ggml.model = gpt2`), which is what every definition here uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Field(Protocol):
    """The part of `gguf.ReaderField` that is used."""

    def contents(self) -> Any:
        """The value: a scalar, a string or a list."""


class UnreadableTokenizer(ValueError):
    """A GGUF file's tokenizer is absent, contradictory or of a kind that is not read."""


# Values of `tokenizer.ggml.token_type`.
CONTROL, USER_DEFINED = 3, 4

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BY_PATTERN = r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PATTERN_ENDING = {"qwen2": "", "llama-bpe": "{1,3}"}


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _pre_tokenizer(name: str) -> dict[str, Any]:
    """How text is cut before merging; `name` is `tokenizer.ggml.pre`."""
    if name in ("default", "gpt-2"):
        return _byte_level(use_regex=True)
    if name == "smollm":
        first: dict[str, Any] = {"type": "Digits", "individual_digits": True}
        return {"type": "Sequence", "pretokenizers": [first, _byte_level(use_regex=True)]}
    if name in _PATTERN_ENDING:
        pattern = _CONTRACTIONS + _BY_PATTERN % _PATTERN_ENDING[name]
        first = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        return {"type": "Sequence", "pretokenizers": [first, _byte_level(use_regex=False)]}
    known = ", ".join(("default", "gpt-2", "smollm", *_PATTERN_ENDING))
    raise UnreadableTokenizer(f"`tokenizer.ggml.pre` is `{name}`; read are {known}")


def _value(fields: Mapping[str, Field], key: str, default: Any = None) -> Any:
    field = fields.get(f"tokenizer.{key}")
    return default if field is None else field.contents()


def _tokens(fields: Mapping[str, Field]) -> list[str]:
    model = _value(fields, "ggml.model")
    if model != "gpt2":
        raise UnreadableTokenizer(f"`tokenizer.ggml.model` is {model!r}; only `gpt2` (byte-level BPE) is read")
    tokens = _value(fields, "ggml.tokens")
    if not tokens:
        raise UnreadableTokenizer("`tokenizer.ggml.tokens` is absent or empty")
    if len(set(tokens)) != len(tokens):
        raise UnreadableTokenizer("`tokenizer.ggml.tokens` holds the same token twice")
    return list(tokens)


def _merges(fields: Mapping[str, Field]) -> list[list[str]]:
    merges = [merge.split(" ") for merge in _value(fields, "ggml.merges", [])]
    bad = next((pair for pair in merges if len(pair) != 2), None)
    if bad is not None:
        raise UnreadableTokenizer(f"`tokenizer.ggml.merges` holds {' '.join(bad)!r}, which is not two tokens")
    return merges


def _token_id(fields: Mapping[str, Field], role: str, tokens: Sequence[str]) -> int | None:
    """The id of a role such as `bos`, or None."""
    given = _value(fields, f"ggml.{role}_token_id")
    if given is not None and not 0 <= given < len(tokens):
        raise UnreadableTokenizer(f"`tokenizer.ggml.{role}_token_id` is {given}; ids run from 0 to {len(tokens) - 1}")
    return given


def _post_processor(fields: Mapping[str, Field], tokens: Sequence[str]) -> dict[str, Any] | None:
    """Puts the start token before a text where the file asks for it."""
    bos = _token_id(fields, "bos", tokens)
    if bos is None or not _value(fields, "ggml.add_bos_token", False):
        return None
    start = {"SpecialToken": {"id": tokens[bos], "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": number}} for number, name in enumerate("AB"))
    return {
        "type": "TemplateProcessing",
        "single": [start, first],
        "pair": [start, first, second],
        "special_tokens": {tokens[bos]: {"id": tokens[bos], "ids": [bos], "tokens": [tokens[bos]]}},
    }


def tokenizer_json(fields: Mapping[str, Field]) -> dict[str, Any]:
    """`tokenizer.json` for the fields of a `gguf.GGUFReader`.

    Raises `UnreadableTokenizer`, whose text names the key and what it holds.
    """
    tokens = _tokens(fields)
    types = _value(fields, "ggml.token_type", [1] * len(tokens))
    if len(types) != len(tokens):
        raise UnreadableTokenizer(f"`tokenizer.ggml.token_type` has {len(types)} entries for {len(tokens)} tokens")
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": number, "content": token, **plain, "special": kind == CONTROL}
        for number, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (CONTROL, USER_DEFINED)
    ]
    pre = _value(fields, "ggml.pre", "default")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": _pre_tokenizer(pre),
        "post_processor": _post_processor(fields, tokens),
        "decoder": _byte_level(use_regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre == "llama-bpe",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": _merges(fields),
        },
    }


def tokenizer_config(fields: Mapping[str, Field]) -> dict[str, Any]:
    """`tokenizer_config.json`: the named tokens, and `chat_template` where the file has one."""
    tokens = _tokens(fields)
    roles = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for name, role in roles.items():
        number = _token_id(fields, role, tokens)
        if number is not None:
            config[f"{name}_token"] = tokens[number]
    config["add_bos_token"] = bool(_value(fields, "ggml.add_bos_token", False))
    template = _value(fields, "chat_template")
    if template is not None:
        config["chat_template"] = template
    return config


def generation_config(fields: Mapping[str, Field]) -> dict[str, Any]:
    """`generation_config.json`: where an answer begins and, as a list, the tokens that end one."""
    tokens = _tokens(fields)
    ends = [_token_id(fields, role, tokens) for role in ("eos", "eot", "eom")]
    config: dict[str, Any] = {"eos_token_id": list(dict.fromkeys(number for number in ends if number is not None))}
    for name, role in (("bos", "bos"), ("pad", "padding")):
        number = _token_id(fields, role, tokens)
        if number is not None:
            config[f"{name}_token_id"] = number
    return config
