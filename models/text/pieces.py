"""The bytes that each token of a vocabulary adds to a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from tokenizers import Tokenizer as Backend

from .byte_level import BYTES
from .files import UnreadableFile

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def pieces_of(backend: Backend, decoder: dict[str, Any] | None) -> tuple[bytes, ...]:
    """The bytes of every token; `decoder` is that entry of `tokenizer.json`.

    Raises `UnreadableFile` where a token's text depends on its neighbours in a way that is not known here.
    """
    kinds = set(_kinds(decoder))
    if "ByteLevel" in kinds:
        piece: Callable[[str], bytes] = _byte_level
    elif kinds & {"Metaspace", "ByteFallback"}:
        piece = _metaspace
    else:
        raise UnreadableFile(f"the tokenizer's decoder {sorted(kinds)} is not known")
    added = {token: item.content for token, item in backend.get_added_tokens_decoder().items()}
    count = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    return tuple(piece(added.get(token) or backend.id_to_token(token) or "") for token in range(count))


def _kinds(decoder: dict[str, Any] | None) -> Iterator[str]:
    if decoder is not None:
        yield str(decoder.get("type"))
        for part in decoder.get("decoders", ()):
            yield from _kinds(part)


def _byte_level(token: str) -> bytes:
    if all(char in BYTES for char in token):
        return bytes(BYTES[char] for char in token)
    return token.encode()


def _metaspace(token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode()
