"""Grammars that hold an answer to a form: built within limits, then a mask over the vocabulary at every step.

The grammars are llguidance's Lark. Each is tried out first in a process that is killed when it takes too long, so that
no schema or pattern of a client can hang or end the server.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from select import select
from typing import Any

import numpy as np
from attrs import field, frozen
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from ...models.text.tokenizer import Tokenizer
from .grammar_worker import limits, trial

# Characters of one grammar.
MAX_SIZE = 256 * 2**10

# Seconds that a grammar may take to build, and that one waits for others to be built.
BUILD_SECONDS = 3.0
WAIT_SECONDS = 20.0
START_SECONDS = 30.0

# Grammars kept for the next request that has the same.
CACHED = 64

# What dialects write round thoughts and calls; where these are single tokens, grammars say so.
MARKUP = ("<think>", "</think>", "<tool_call>", "</tool_call>")

# Between the tokens of JSON: nothing, a space, or a line break with some indentation. Never endless.
WHITESPACE = r"( |\n {0,16})"


class GrammarError(ValueError):
    """A grammar that cannot be held to, and why."""


class GrammarBusy(Exception):
    """Other grammars are being built; worth another try."""


class GrammarFailure(ArithmeticError):
    """A grammar that became too complex while it was followed."""


def json_rule(schema: Any) -> str:
    """A Lark expression for the JSON texts that a schema describes."""
    own = {"whitespace_pattern": WHITESPACE, "whitespace_flexible": True, "lenient": False}
    if schema is True:
        schema = {}
    if isinstance(schema, dict):
        schema = {**schema, "x-guidance": own}
    return f"%json {json.dumps(schema)}"


def literal(text: str) -> str:
    """A Lark expression for exactly this text."""
    return json.dumps(text, ensure_ascii=False)


class Mask:
    """Where one sequence is in its grammar."""

    def __init__(self, matcher: LLMatcher, vocab: int) -> None:
        self._matcher = matcher
        self._vocab = vocab

    def allowed(self) -> np.ndarray:
        """Which tokens may come next, bool `[vocab]`. At least one; at the end of the grammar only end tokens."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        out = np.zeros(self._vocab, dtype=bool)
        known = np.unpackbits(bits, bitorder="little")[: self._vocab]
        out[: len(known)] = known
        return out

    def take(self, token: int) -> None:
        """Go on by a token that is allowed."""
        self._matcher.consume_token(token)
        self._check()

    def roll_back(self, count: int) -> None:
        """Undo the last `count` tokens, for drafts that were not accepted."""
        self._matcher.rollback(count)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarFailure(f"the answer's grammar became too complex: {_line(self._matcher.get_error())}")


@frozen(eq=False)
class Grammar:
    """A grammar that was built."""

    _matcher: LLMatcher = field(repr=False)
    _vocab: int

    def start(self) -> Mask:
        """The mask of a new sequence."""
        return Mask(self._matcher.deep_copy(), self._vocab)


class Grammars:
    """Builds grammars for one vocabulary; every method may be called from any thread but the event loop's."""

    def __init__(self, tokenizer: Tokenizer, end_ids: Sequence[int], vocab: int) -> None:
        self._tokenizer = tokenizer
        self._end_ids = list(end_ids)
        self._vocab = vocab
        self._lock = threading.Lock()
        self._vocabulary: LLTokenizer | None = None
        self._cache: OrderedDict[str, Grammar] = OrderedDict()
        self._worker = _Worker(json.dumps([len(tokenizer.pieces), sorted(tokenizer.special), self._end_ids]))

    def build(self, text: str) -> Grammar:
        """The grammar that a Lark text describes. Raises `GrammarError`, `GrammarBusy`."""
        if not self._end_ids:
            raise GrammarError("the checkpoint names no token that ends an answer")
        if len(text) > MAX_SIZE:
            raise GrammarError(f"its grammar has {len(text)} characters; the limit is {MAX_SIZE}")
        if not self._lock.acquire(timeout=WAIT_SECONDS):
            raise GrammarBusy
        try:
            built = self._cache.pop(text, None) or self._build(text)
            self._cache[text] = built
            if len(self._cache) > CACHED:
                self._cache.popitem(last=False)
            return built
        finally:
            self._lock.release()

    def _build(self, text: str) -> Grammar:
        wrong = self._worker.wrong(text)
        if not wrong:
            if self._vocabulary is None:
                self._vocabulary = _vocabulary(self._tokenizer, self._end_ids)
            matcher = LLMatcher(self._vocabulary, text, log_level=0, limits=limits())
            wrong = matcher.get_error() if matcher.is_error() else trial(matcher.deep_copy(), 4)
        if wrong:
            raise GrammarError(_line(wrong))
        return Grammar(matcher, self._vocab)


class _Vocabulary:
    """A tokenizer as llguidance wants it, in which markup is text, whether its tokens are special or not."""

    def __init__(self, tokenizer: Tokenizer, end_id: int) -> None:
        self._tokenizer = tokenizer
        self._markup = {mark: tokenizer.backend.token_to_id(mark) for mark in MARKUP}
        self._split = re.compile(f"({'|'.join(map(re.escape, MARKUP))})")
        self.eos_token_id = end_id
        self.bos_token_id = None
        self.tokens = list(tokenizer.pieces)
        self.special_token_ids = sorted(tokenizer.special.difference(self._markup.values()))

    def __call__(self, text: bytes) -> list[int]:
        """How the model would write a text."""
        out: list[int] = []
        for part in self._split.split(text.decode("utf-8", "replace")):
            token = self._markup.get(part)
            out += self._tokenizer.encode_plain(part) if token is None else [token]
        return out


def _vocabulary(tokenizer: Tokenizer, end_ids: list[int]) -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(_Vocabulary(tokenizer, end_ids[0])), eos_token=end_ids)


class _Worker:
    """The process in which grammars are tried; started when it is needed, killed when it does not answer."""

    def __init__(self, vocabulary: str) -> None:
        self._vocabulary = vocabulary
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[..., _Worker] | None = None

    def wrong(self, text: str) -> str:
        """What is wrong with a grammar; nothing if it is fine."""
        if self._process is None:
            process = self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.grammar_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._end = weakref.finalize(self, _end, process)
            # Starting up is not the grammar's time.
            _ask(process, f'{self._vocabulary}\n"start: /a/"', START_SECONDS)
        answer = _ask(self._process, json.dumps(text), BUILD_SECONDS)
        if answer is None and self._end is not None:
            self._end()
            self._process = None
        return "it takes too long or too much to compile" if answer is None else answer


def _ask(process: subprocess.Popen[bytes], lines: str, seconds: float) -> str | None:
    """A worker's answer; None where there is none in time."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(lines.encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        return None
    line = process.stdout.readline() if select([process.stdout], [], [], seconds)[0] else b""
    return json.loads(line) if line else None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _line(message: str) -> str:
    """The first line of the library's message, without its position in a text that nobody has seen."""
    first = message.strip().split("\n", 1)[0]
    for prefix in ("failed to compile JSON schema: ", 'failed to parse "%json": '):
        first = first.rpartition(prefix)[2]
    return first[:300]
