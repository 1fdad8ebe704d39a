"""Tries grammars out in a process of its own, which may be killed: one that hangs or crashes the library ends here.

The first line of stdin has the vocabulary's size, its special tokens and its ends; each further line is a JSON string
with a grammar, and the answer is a line with a JSON string: what is wrong, or nothing.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
from collections.abc import Sequence

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

MEMORY = 2 * 2**30

# Less than a thread of the server has: what fits here does not overflow there.
STACK = 2 * 2**20

# Bytes that a trial follows; enough to enter most of a grammar.
TRIAL = 64


def limits() -> LLParserLimits:
    """Bounds on what one grammar may cost, in building and at each step."""
    return LLParserLimits(
        step_lexer_fuel=50_000,
        step_max_items=20_000,
        max_lexer_states=50_000,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )


class Bytes:
    """A vocabulary in which the first 256 tokens that are not special are the bytes, and the rest nothing."""

    bos_token_id = None

    def __init__(self, size: int, special: Sequence[int], ends: Sequence[int]) -> None:
        self.special_token_ids = sorted({*special, *ends})
        self.eos_token_id = ends[0]
        left = iter(range(256))
        self.tokens = [b""] * size
        self._of_byte: dict[int, int] = {}
        kept = set(self.special_token_ids)
        for token in range(size):
            value = None if token in kept else next(left, None)
            if value is not None:
                self._of_byte[value] = token
            self.tokens[token] = b"<%d>" % token if token in kept else b"" if value is None else bytes([value])

    def __call__(self, text: bytes) -> list[int]:
        """A token for each byte."""
        return [self._of_byte[value] for value in text]


def trial(matcher: LLMatcher, steps: int) -> str:
    """Follow a grammar for some tokens, always the last one that is allowed; what goes wrong."""
    for _ in range(steps):
        if matcher.is_error() or matcher.is_stopped():
            break
        allowed = matcher.compute_logit_bias().rstrip(b"\0")
        if allowed:
            matcher.consume_token(len(allowed) - 1)
    if matcher.is_error():
        return matcher.get_error()
    return "" if not matcher.is_stopped() or matcher.is_accepting() else "nothing satisfies it"


def _answer() -> None:
    size, special, ends = json.loads(sys.stdin.readline())
    tokenizer = LLTokenizer(TokenizerWrapper(Bytes(size, special, ends)), eos_token=ends)
    for line in sys.stdin:
        answer = trial(LLMatcher(tokenizer, json.loads(line), log_level=0, limits=limits()), TRIAL)
        print(json.dumps(answer), flush=True)


def main() -> None:
    """Answer until stdin ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(STACK)
    thread = threading.Thread(target=_answer)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
