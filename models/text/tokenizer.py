"""Text to token ids and back, as a checkpoint wants it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import field, frozen
from tokenizers import Tokenizer as Backend

from .files import TextFiles, UnreadableFile
from .longest import longest_token
from .memory import give_back
from .pieces import pieces_of

# Put into a special token's spelling where a user wrote it, so that it is not taken for the token. Not a character.
BREAK = "\ufdd0"

# Characters that are searched in one go, while which no other thread runs.
BLOCK = 2**20

# Characters of a text whose tokenisation takes memory worth giving back.
_LARGE = 2**18

# A text is tokenised by the thread that asks; other processors are others'.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class TooManyTokens(ValueError):
    """A text has more tokens than may be; `count` are those known of, which may be fewer than all."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} tokens are too many")
        self.count = count


@frozen
class Tokenizer:
    """A checkpoint's tokenizer.

    `pieces[i]` are the bytes that token `i` adds to a text; `special` are the ids that stand for no text. `longest` is
    how many bytes of a text a token stands for at most, None where that is not known. What encodes raises
    `TooManyTokens` for more than `most`. Other threads run while a text is tokenised, however long it is.
    """

    backend: Backend = field(repr=False)
    # The same, but spellings of special tokens are text like any other.
    plain: Backend = field(repr=False)
    pieces: tuple[bytes, ...] = field(repr=False)
    special: frozenset[int] = field(repr=False)
    _spelling: re.Pattern[str] | None = field(repr=False)
    longest: int | None = None

    def encode(self, text: str, add_special_tokens: bool = True, most: int | None = None) -> list[int]:
        """The ids of a raw prompt, in which special tokens may be spelled out."""
        return _ids(self.backend, text, add_special_tokens, most)

    def least(self, text: str) -> int:
        """How many tokens a text has at least, known without tokenising it."""
        return 0 if self.longest is None else -(-len(text.replace(BREAK, "").encode()) // self.longest)

    def disarm(self, value: Any) -> Any:
        """`value`, a JSON value from a client, with all special tokens in its strings broken by `BREAK`."""
        if isinstance(value, str):
            return self._disarmed(value.replace(BREAK, "\ufffd"))
        if isinstance(value, list):
            return [self.disarm(item) for item in value]
        if isinstance(value, dict):
            return {self.disarm(key): self.disarm(item) for key, item in value.items()}
        return value

    def _disarmed(self, text: str) -> str:
        out, start = [], 0
        for match in self._specials(text):
            out += [text[start : match.start() + 1], BREAK]
            start = match.start() + 1
        return "".join([*out, text[start:]]) if out else text

    def _specials(self, text: str) -> Iterator[re.Match[str]]:
        """The special tokens that are spelled out in a text, searched for in pieces."""
        if self._spelling is None:
            return
        longest = max(len(self.pieces[token]) for token in self.special)
        at = 0
        while at < len(text):
            match = self._spelling.search(text, at, at + BLOCK + longest)
            if match is not None and match.start() < at + BLOCK:
                yield match
                at = match.end()
            else:
                at += BLOCK

    def encode_rendered(self, text: str, most: int | None = None) -> list[int]:
        """The ids of a rendered template: its own special tokens are tokens, disarmed ones are text."""
        if BREAK not in text or self._spelling is None:
            return self.encode(text, False, most)
        ids: list[int] = []
        start = 0
        for match in self._specials(text):
            ids += self._plain_ids(text[start : match.start()], most)
            ids += self.encode(match.group(), add_special_tokens=False)
            start = match.end()
            _check(len(ids), most)
        ids += self._plain_ids(text[start:], most)
        _check(len(ids), most)
        return ids

    def encode_plain(self, text: str, most: int | None = None) -> list[int]:
        """The ids of a text in which nothing is special."""
        return _ids(self.plain, text, False, most)

    def _plain_ids(self, text: str, most: int | None) -> list[int]:
        return self.encode_plain(text.replace(BREAK, ""), most)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids`; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self.piece(token, skip_special_tokens) for token in ids).decode("utf-8", "replace")

    def piece(self, token: int, skip_special_tokens: bool = True) -> bytes:
        """The bytes that `token` adds; none for ids that the tokenizer does not know."""
        if token >= len(self.pieces) or (skip_special_tokens and token in self.special):
            return b""
        return self.pieces[token]

    def spelling(self, token: int) -> str:
        """A token as a name: its text, or its bytes where they are not a whole text."""
        data = self.piece(token, skip_special_tokens=False)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _ids(backend: Backend, text: str, add_special_tokens: bool, most: int | None) -> list[int]:
    """The ids of one text. In a batch it is tokenised without the interpreter's lock, alone it would be with it."""
    encoding = backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0]
    try:
        _check(len(encoding), most)
        return encoding.ids
    finally:
        del encoding
        if len(text) >= _LARGE:
            give_back()


def _check(count: int, most: int | None) -> None:
    if most is not None and count > most:
        raise TooManyTokens(count)


def load_tokenizer(files: TextFiles) -> Tokenizer | None:
    """The tokenizer of a checkpoint, or None where it has none.

    Raises `UnreadableFile` for one that is broken or turns tokens into text in a way that is not known here.
    """
    if files.tokenizer is None:
        return None
    try:
        backend, plain = Backend.from_str(files.tokenizer), Backend.from_str(files.tokenizer)
        written = json.loads(files.tokenizer)
    except Exception as error:  # `tokenizers` raises bare exceptions
        raise UnreadableFile(f"the checkpoint's tokenizer cannot be read: {error}") from error
    for one in (backend, plain):
        one.no_truncation()
        one.no_padding()
    plain.encode_special_tokens = True
    added = backend.get_added_tokens_decoder()
    special = {token: item.content for token, item in added.items() if item.special}
    longest_first = sorted(special.values(), key=len, reverse=True)
    spelling = re.compile("|".join(map(re.escape, longest_first))) if special else None
    pieces = pieces_of(backend, written.get("decoder"))
    return Tokenizer(backend, plain, pieces, frozenset(special), spelling, longest_token(pieces, written))


def end_ids(files: TextFiles, tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """The ids that end an answer: those of `generation_config.json`, else `config.json`, and the tokenizer's own."""
    given = files.generation_config.get("eos_token_id")
    if given is None:
        given = files.config.get("eos_token_id", files.config.get("text_config", {}).get("eos_token_id"))
    ids = given if isinstance(given, list) else [given]
    name = token_text(files.tokenizer_config.get("eos_token"))
    if tokenizer is not None and name is not None:
        ids = [*ids, tokenizer.backend.token_to_id(name)]
    return tuple(dict.fromkeys(token for token in ids if isinstance(token, int) and token >= 0))


def token_text(value: Any) -> str | None:
    """A named token of `tokenizer_config.json`, which is a string or an object with its `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
