"""The ops that lowering puts into expressions and no definition can name: a row each, with its shape rule.

They lay values out as other ops take them, or do an op of the definition with a core's share of its operand. Shapes are
those of one core, rows first. `verify.op_terms` says what each means, `backends/pallas/ops/views.py` computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...records import frozen
from ...targets.lanes import LANES

type Dims = tuple[int, ...]
type Rule = Callable[[tuple[Dims, ...], Mapping[str, int]], tuple[Dims, ...]]


@frozen
class LoweredOp:
    """A row: `rule` gives the shapes of the results, from those of the operands and from the scalars.

    With `repeats` the last parameter may be given several times. One with `heads_first` gives heads before rows.
    """

    name: str
    parameters: tuple[str, ...]
    rule: Rule
    summary: str
    scalars: tuple[str, ...] = ()
    repeats: bool = False
    heads_first: bool = False


def _same(shapes: tuple[Dims, ...], scalars: Mapping[str, int]) -> tuple[Dims, ...]:
    return (shapes[0],)


def _last(shapes: tuple[Dims, ...], scalars: Mapping[str, int]) -> tuple[Dims, ...]:
    return ((*shapes[0][:-1], scalars["width"]),)


def _turned(shapes: tuple[Dims, ...], scalars: Mapping[str, int]) -> tuple[Dims, ...]:
    (first, second, _), width = shapes[0], scalars["width"]
    return ((second, first, width),)


def _in_lanes(shapes: tuple[Dims, ...], scalars: Mapping[str, int]) -> tuple[Dims, ...]:
    rows, heads, _ = shapes[0]
    return ((rows, heads * scalars["width"]),)


def _one_head(shapes: tuple[Dims, ...], scalars: Mapping[str, int]) -> tuple[Dims, ...]:
    rows, width = shapes[0]
    return ((rows, 1, width),)


def _of_one_head(shapes: tuple[Dims, ...], scalars: Mapping[str, int]) -> tuple[Dims, ...]:
    rows, _, width = shapes[0]
    return ((rows, width),)


def _keys_values(shapes: tuple[Dims, ...], scalars: Mapping[str, int]) -> tuple[Dims, ...]:
    (rows, columns), (_, common), heads, value = *shapes, scalars["heads"], scalars["value"]
    return ((rows, heads, columns // heads - value + common), (rows, heads, value))


def _side_by_side(shapes: tuple[Dims, ...], scalars: Mapping[str, int]) -> tuple[Dims, ...]:
    return ((shapes[0][0], sum(shape[-1] for shape in shapes)),)


def _lanes(shapes: tuple[Dims, ...], scalars: Mapping[str, int]) -> tuple[Dims, ...]:
    return ((shapes[0][0], LANES),)


def _number(shapes: tuple[Dims, ...], scalars: Mapping[str, int]) -> tuple[Dims, ...]:
    return ((*shapes[0][:-1], 1),)


_ROWS = (
    LoweredOp("view_last", ("x",), _last, "the last `width` channels of `[B, h, n]`", ("width",)),
    LoweredOp(
        "view_by_head",
        ("x",),
        _turned,
        "the first `width` channels, heads first: `[h, B, width]`",
        ("width",),
        heads_first=True,
    ),
    LoweredOp("view_by_row", ("x",), _turned, "`[h, B, n]` to `[B, h, width]`", ("width",)),
    LoweredOp("view_in_lanes", ("x",), _in_lanes, "`[B, h, n]` to `[B, h * width]`, zero from `n` on", ("width",)),
    LoweredOp("view_one_head", ("x",), _one_head, "`[B, n]` to `[B, 1, n]`"),
    LoweredOp("view_of_one_head", ("x",), _of_one_head, "`[B, 1, n]` to `[B, n]`"),
    LoweredOp(
        "view_keys_values",
        ("x", "common"),
        _keys_values,
        "expanded latents as keys, which end with the common channels, and as values",
        ("heads", "value"),
    ),
    LoweredOp("side_by_side", ("share",), _side_by_side, "several `[B, n]` as one", repeats=True),
    LoweredOp("sum_squares", ("x",), _number, "the sum of the squares of a row: `[B, 1]`"),
    LoweredOp("squares_in_lanes", ("x",), _lanes, "the same in the first two of 128 lanes, exact in two bf16 numbers"),
    LoweredOp(
        "over_root_mean",
        ("x", "squares"),
        _same,
        "x over the root of a mean of `count` squares, which `squares_in_lanes` gave, + eps",
        ("eps", "count"),
    ),
    LoweredOp(
        "rms_norm_of_share",
        ("x", "total", "gain"),
        _same,
        "a norm of this core's columns, given the sum of all squares",
        ("eps", "count"),
    ),
    LoweredOp("softmax_sums", ("x",), _lanes, "the largest of a row and its sum of exponentials, in two of 128 lanes"),
    LoweredOp(
        "softmax_of_share",
        ("x", "sums"),
        _same,
        "this core's columns of a softmax, given the sums of all cores",
        ("repeats",),
    ),
    LoweredOp(
        "mask_of_share",
        ("x",),
        _same,
        "this core's columns of a vector, with `fill` from the vector's index `used` on",
        ("used", "fill"),
    ),
)

table: dict[str, LoweredOp] = {row.name: row for row in _ROWS}
