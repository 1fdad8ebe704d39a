"""Equal layers as loops: what is traced, and so compiled, does not grow with depth."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import groupby

from attrs import frozen
from jax import lax

from .caches import Index

# Patterns longer than this are not looked for.
_PERIOD = 32


@frozen
class Run:
    """`length` layers of one kind in a row, `offset` layers into each repeat; `layers` are all that it stands for."""

    offset: int
    length: int
    layers: tuple[int, ...]


@frozen
class Segment:
    """Layers from `start` on: `count` repeats of a pattern of `period` layers."""

    start: int
    count: int
    period: int
    runs: tuple[Run, ...]


def arrange(kinds: Sequence[Hashable], first: int = 0) -> tuple[Segment, ...]:
    """The fewest bodies that cover layers `first ..` of the given kinds in order, as loops over repeated patterns."""
    n = len(kinds)
    # cost and choice for kinds[i:]: the bodies traced, then the loops
    best: list[tuple[int, int]] = [(0, 0)] * (n + 1)
    choice: list[tuple[int, int]] = [(0, 0)] * (n + 1)
    for i in reversed(range(n)):
        runs: list[tuple[tuple[int, int], tuple[int, int]]] = []
        for period in range(1, min(_PERIOD, n - i) + 1):
            bodies, count = _bodies(kinds[i : i + period]), 0
            while kinds[i + count * period : i + (count + 1) * period] == kinds[i : i + period]:
                count += 1
                rest = best[i + count * period]
                runs.append(((rest[0] + bodies, rest[1] + 1), (period, count)))
        best[i], choice[i] = min(runs)
    segments, at = [], 0
    while at < n:
        period, count = choice[at]
        segments.append(_segment(first + at, count, kinds[at : at + period]))
        at += period * count
    return tuple(segments)


def _bodies(pattern: Sequence[Hashable]) -> int:
    return sum(1 for _ in groupby(pattern))


def _segment(start: int, count: int, pattern: Sequence[Hashable]) -> Segment:
    runs, offset, period = [], 0, len(pattern)
    for _, same in groupby(pattern):
        length = len(list(same))
        covered = [start + i * period + offset + j for i in range(count) for j in range(length)]
        runs.append(Run(offset, length, tuple(covered)))
        offset += length
    return Segment(start, count, period, tuple(runs))


def over_layers[C](segments: Sequence[Segment], body: Callable[[Index, tuple[int, ...], C], C], carry: C) -> C:
    """Run `body(layer, layers, carry)` for every layer in order.

    It is traced once for each run; `layers` are those that this trace stands for, and `layer` is a plain number where
    there is only one.
    """
    for segment in segments:

        def repeat(i: Index, carry: C, segment: Segment = segment) -> C:
            for run in segment.runs:

                def layer(j: Index, carry: C, run: Run = run) -> C:
                    return body(segment.start + i * segment.period + run.offset + j, run.layers, carry)

                carry = _times(run.length, layer, carry)
            return carry

        carry = _times(segment.count, repeat, carry)
    return carry


def _times[C](count: int, body: Callable[[Index, C], C], carry: C) -> C:
    return body(0, carry) if count == 1 else lax.fori_loop(0, count, body, carry)
