"""A tokenizer given as ranks (`tiktoken.model`), as the text of a `tokenizer.json`.

The checkpoint's own Python is read for its pattern and never run.
"""

from __future__ import annotations

import ast
import base64
import json
from collections.abc import Mapping
from typing import Any

from .byte_level import CHARS

# Special tokens follow the ranks; so many ids are theirs, whether they have names or not.
SPECIALS = 256


class UnreadableRanks(ValueError):
    """Ranks, a pattern or special tokens that are not what they should be."""


def tokenizer_json(ranks: bytes, source: str, config: Mapping[str, Any]) -> str:
    """The `tokenizer.json` for a rank file, the Python that holds its pattern, and its `tokenizer_config.json`.

    Raises `UnreadableRanks`.
    """
    tokens = _ranks(ranks)
    decoder = config.get("added_tokens_decoder", {})
    added = []
    for token in range(len(tokens), len(tokens) + SPECIALS):
        named = decoder.get(str(token), {})
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        added.append({"id": token, "content": named.get("content", f"<|reserved_token_{token}|>"), **flags})
    split = {"type": "Split", "pattern": {"Regex": pattern(source)}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {
        "type": "BPE",
        "vocab": {_written(token): rank for token, rank in tokens.items()},
        "merges": _merges(tokens),
        # A piece that is a token is that token, whether merges lead to it or not.
        "ignore_merges": True,
    }
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": added,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
            "decoder": level,
            "model": model,
        }
    )


def _ranks(data: bytes) -> dict[bytes, int]:
    """Each token with its rank, which is its id."""
    try:
        lines = [line.split() for line in data.splitlines() if line]
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in lines}
    except ValueError as error:
        raise UnreadableRanks(f"a line is no token and rank: {error}") from error
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise UnreadableRanks("the ranks are not 0, 1, 2, …")
    if any(bytes([value]) not in ranks for value in range(256)):
        raise UnreadableRanks("some bytes are no tokens")
    return ranks


def _merges(ranks: Mapping[bytes, int]) -> list[tuple[str, str]]:
    """Every pair that makes a token, in the order of what it makes."""
    out = []
    for token in sorted(ranks, key=lambda token: ranks[token]):
        pairs = [(token[:at], token[at:]) for at in range(1, len(token))]
        known = [pair for pair in pairs if pair[0] in ranks and pair[1] in ranks]
        known.sort(key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        out += [(_written(left), _written(right)) for left, right in known]
    return out


def _written(token: bytes) -> str:
    return "".join(CHARS[value] for value in token)


def pattern(source: str) -> str:
    """The pattern by which text is cut, from `pat_str = …` in Python source: a string, or strings that are joined."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UnreadableRanks(f"the source of the pattern cannot be read: {error}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(isinstance(at, ast.Name) and at.id == "pat_str" for at in node.targets):
            return _text(node.value)
    raise UnreadableRanks("there is no `pat_str` in the source")


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "join"
        and len(node.args) == 1
        and isinstance(node.args[0], ast.List | ast.Tuple)
    ):
        return _text(node.func.value).join(map(_text, node.args[0].elts))
    raise UnreadableRanks("`pat_str` is neither a string nor strings that are joined")
