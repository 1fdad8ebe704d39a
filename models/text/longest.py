"""How much text a token can stand for, from which it is known that a text is too long before it is tokenised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

# Canonical composition makes no text shorter than a third: three Hangul letters of three bytes become one.
_COMPOSED = 3

_SPLITS = frozenset(["ByteLevel", "Digits", "Metaspace", "Punctuation", "Split"])


def longest_token(pieces: Sequence[bytes], written: dict[str, Any]) -> int | None:
    """Bytes of a text that one token stands for at most; `written` is the content of `tokenizer.json`.

    None where text may go without leaving a token, as some normalizers and pre-tokenizers let it.
    """
    model = written.get("model") or {}
    splits = list(_parts(written.get("pre_tokenizer"), "pretokenizers"))
    normalizers = list(_parts(written.get("normalizer"), "normalizers"))
    byte_level = (
        model.get("type") == "BPE"
        and _every_byte_is_a_token(pieces, model, splits)
        and all(part.get("type") in _SPLITS and part.get("behavior") != "Removed" for part in splits)
        and all(map(_keeps, normalizers))
        and not any(token.get("lstrip") or token.get("rstrip") for token in written.get("added_tokens") or ())
    )
    if not byte_level:
        return None
    composed = any(part.get("type") == "NFC" for part in normalizers)
    return max(map(len, pieces), default=1) * (_COMPOSED if composed else 1)


def _every_byte_is_a_token(pieces: Sequence[bytes], model: dict[str, Any], splits: list[dict[str, Any]]) -> bool:
    """Whether what no other token stands for is written as bytes, none of which is missing."""
    bytewise = model.get("byte_fallback") or any(part.get("type") == "ByteLevel" for part in splits)
    return bool(bytewise) and {bytes([value]) for value in range(256)} <= set(pieces)


def _keeps(normalizer: dict[str, Any]) -> bool:
    """Whether it leaves at least a byte of each character, but for canonical composition."""
    kind = normalizer.get("type")
    pattern, content = normalizer.get("pattern"), normalizer.get("content")
    spaces = kind == "Replace" and pattern == {"String": " "} and isinstance(content, str) and bool(content)
    return spaces or kind in ("NFC", "Prepend")


def _parts(value: Any, name: str) -> Iterator[dict[str, Any]]:
    """A normalizer or pre-tokenizer, or those of a sequence."""
    if isinstance(value, dict) and value.get("type") == "Sequence":
        for part in value.get(name) or ():
            yield from _parts(part, name)
    elif isinstance(value, dict):
        yield value
