"""How a product's matrix lies on a tape: by its shape and the element's width alone, so that movement changes no bit.

A tape is rows of 512 32-bit words; a word holds two rows of a matrix with 16-bit elements and eight of one with 4 bits,
the first in the lowest bits. A matrix `[outputs, inputs]` is cut into column blocks of 512 outputs. What is left over
goes into blocks of 256 and 128, whose inputs are folded, two or four pieces side by side, so that a row of the tape is
full.
"""

from __future__ import annotations

from ...records import frozen
from ...targets.lanes import LANES, SUBLANES

WIDTH = 512  # fewer columns leave the two matrix units of a TPU7x core half idle
TILE_BYTES = 2560 * 1024  # of one transfer, at most: short waits, and long enough for the full rate
WORD_BITS = 32
ROW_BYTES = WIDTH * WORD_BITS // 8  # of a tape
TILE_ROWS = TILE_BYTES // ROW_BYTES


@frozen
class Run:
    """`count` equal iterations of a product's loop; each waits for its transfers, multiplies, and frees them.

    An iteration makes `blocks` blocks of `columns` columns, from column `first` on; `fold` pieces of the inputs lie
    side by side. `rows` are the tape rows of each of its transfers: several blocks share one, or one takes several.
    """

    count: int
    blocks: int
    columns: int
    fold: int
    first: int
    rows: tuple[int, ...]


@frozen
class Tiling:
    """`inputs` and `outputs` as padded; `bits` is an element's width."""

    inputs: int
    outputs: int
    bits: int
    runs: tuple[Run, ...]

    @property
    def per_word(self) -> int:
        """How many elements, of inputs one after the other, a word holds."""
        return WORD_BITS // self.bits

    @property
    def rows(self) -> int:
        """Tape rows of the whole product."""
        return sum(run.count * sum(run.rows) for run in self.runs)

    @property
    def transfers(self) -> tuple[int, ...]:
        """The tape rows of each transfer, in order."""
        return tuple(rows for run in self.runs for _ in range(run.count) for rows in run.rows)


def tiling(outputs: int, inputs: int, bits: int) -> Tiling:
    """How a matrix `[outputs, inputs]` with elements of `bits` bits (4, 8, 16 or 32) is cut."""
    per_word = WORD_BITS // bits
    narrow = _narrow(outputs % WIDTH, inputs, bits)
    fold = max([WIDTH // columns for columns in narrow], default=1)
    inputs = up(inputs, SUBLANES * per_word * fold)
    runs: list[Run] = []
    whole = outputs // WIDTH
    words = inputs // per_word
    limit = TILE_BYTES // ROW_BYTES
    if words > limit:
        runs += [Run(whole, 1, WIDTH, 1, 0, _parts(words, limit))] * (whole > 0)
    else:
        together = max(1, min(limit // words, whole))
        runs += [Run(whole // together, together, WIDTH, 1, 0, (together * words,))] * (whole >= together)
        if left := whole % together:
            runs.append(Run(1, left, WIDTH, 1, (whole - left) * WIDTH, (left * words,)))
    at = whole * WIDTH
    for columns in narrow:
        pieces = WIDTH // columns
        runs.append(Run(1, 1, columns, pieces, at, _parts(words // pieces, limit)))
        at += columns
    return Tiling(inputs, at, bits, tuple(runs))


def _narrow(rest: int, inputs: int, bits: int) -> tuple[int, ...]:
    """The widths of the blocks for fewer than 512 outputs.

    Only the last may be narrower than whole lanes, and only where its many pieces need no further inputs.
    """
    if rest > 384:
        return (WIDTH,)
    least, unit = LANES, SUBLANES * WORD_BITS // bits
    if bits >= 16 and up(inputs, 4 * unit) % (16 * unit) == 0:
        least = 32
    if rest <= LANES:
        return (next(columns for columns in (32, 64, LANES) if columns >= max(rest, least)),) if rest else ()
    if rest <= 256 and (rest > LANES + 64 or least == LANES):
        return (256,)
    whole = 256 if rest > 256 else LANES
    return (whole, *_narrow(rest - whole, inputs, bits))


def _parts(words: int, limit: int) -> tuple[int, ...]:
    """A block's tape rows as equal transfers, the last one perhaps shorter; their inputs are multiples of 128."""
    count = -(-words // limit)
    each = words if count == 1 else up(-(-words // count), LANES)
    return tuple(min(each, words - at) for at in range(0, words, each))


def up(value: int, unit: int) -> int:
    """Rounded up to whole units."""
    return -(-value // unit) * unit


def by_head(one: Tiling, heads: int) -> Tiling | None:
    """The tiling of `heads` equal matrices one after the other, each of one block; `None` where it has more."""
    if len(one.runs) != 1 or one.runs[0].count * one.runs[0].blocks != 1 or len(one.runs[0].rows) != 1:
        return None
    (run,) = one.runs
    together = max(1, min(TILE_ROWS // run.rows[0], heads))
    rest, whole = heads % together, heads // together
    runs = [Run(whole, together, run.columns, run.fold, 0, (together * run.rows[0],))]
    if rest:
        runs.append(Run(1, rest, run.columns, run.fold, whole * together, (rest * run.rows[0],)))
    return Tiling(one.inputs, one.outputs, one.bits, tuple(runs))
