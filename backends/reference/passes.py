"""A prompt as passes of the lengths that there are programs for."""

from __future__ import annotations

from collections.abc import Sequence

# A prefill is made of passes of so many tokens, or of the decoder's chunk.
_SPANS = (1, 8, 32)
# What a pass costs beside its tokens, in tokens: the weights are read.
_OVERHEAD = 12


def spans(chunk: int, span: int | None = None) -> tuple[int, ...]:
    """The lengths of passes for prompts in pieces of up to `chunk` tokens; with `span` only that one."""
    return (*(n for n in _SPANS if n < chunk), chunk) if span is None else (min(span, chunk),)


def passes(count: int, spans: Sequence[int]) -> list[tuple[int, int]]:
    """The cheapest passes over `count` tokens: span and real tokens of each; only the last one is padded."""
    best: list[tuple[int, list[tuple[int, int]]]] = [(0, [])]
    for n in range(1, count + 1):
        padded = next((span for span in spans if span >= n), None)
        options = [] if padded is None else [(padded + _OVERHEAD, [(padded, n)])]
        for span in (span for span in spans if span < n):
            cost, rest = best[n - span]
            options.append((cost + span + _OVERHEAD, [(span, span), *rest]))
        best.append(min(options, key=lambda option: option[0]))
    return best[count][1]
