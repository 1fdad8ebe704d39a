"""Tries grammars out in a process of its own, which may be killed: one that hangs or crashes the library ends here.

Each line of stdin is a JSON string with a grammar; the answer is a line with a JSON string: what is wrong, or nothing.
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
    """A vocabulary of the 256 bytes, and an end."""

    eos_token_id = 256
    bos_token_id = None
    tokens: Sequence[bytes] = (*(bytes([value]) for value in range(256)), b"<end>")
    special_token_ids = (256,)

    def __call__(self, text: bytes) -> list[int]:
        """Its bytes."""
        return list(text)


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
    tokenizer = LLTokenizer(TokenizerWrapper(Bytes()), eos_token=256)
    for line in sys.stdin:
        found = trial(LLMatcher(tokenizer, json.loads(line), log_level=0, limits=limits()), TRIAL)
        print(json.dumps(found), flush=True)


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
