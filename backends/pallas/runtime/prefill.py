"""A pass of the reference over one row, with the kernels' weights and states."""

from __future__ import annotations

import jax

from ....dsl.program import ir as p
from ...reference import step as steps
from ...reference.states import Arrays
from .packed_weights import packed_weights
from .row_state import Rows


def prefill(
    program: p.Program,
    layout: Rows,
    last_only: bool,
    arrays: Arrays,
    held: Arrays,
    tokens: jax.Array,
    start: jax.Array,
    lengths: jax.Array,
    row: jax.Array,
) -> tuple[Arrays, jax.Array]:
    """What is held after `tokens` int32 `[1, span]` in `row`, and logits f32 `[span, vocab]`, or the last one's alone.

    `start` int32 `[1]` is the first one's position, `lengths` int32 `[1]` how many are real; `row` is a number.
    """
    weights = packed_weights(program, arrays)
    at = steps.decode_pass(program.instance, weights, layout.room, tokens, start, lengths, 0)
    step = program.phase.step
    names, after = steps.run(at, step, layout.read(held, row), last_only=last_only)
    return layout.write(held, row, after, arrays), names["logits"][0]
