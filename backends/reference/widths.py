"""How many rows a step works on: those that are live, not all that there are."""

from __future__ import annotations

from collections.abc import Sequence


def narrow(rows: int) -> tuple[int, ...]:
    """Numbers of rows below `rows` that have a program of their own: 1, then 4 and its doubles.

    Reading the weights takes most of a step, so that 2 or 3 rows take about as long as 4.
    """
    widths = [1, 4]
    while widths[-1] * 2 < rows:
        widths.append(widths[-1] * 2)
    return tuple(width for width in widths if width < rows)


def window(live: Sequence[bool], widths: Sequence[int]) -> slice:
    """The rows of a step: as many neighbours as the least of `widths` (ascending) that takes in every live row.

    The last width is that of all rows.
    """
    running = [row for row, alive in enumerate(live) if alive] or [0]
    width = next(width for width in widths if running[-1] - running[0] < width)
    first = min(running[0], widths[-1] - width)
    return slice(first, first + width)
