"""The kernel's functions for ops that lowering makes agree with their rows: names, operands, scalars and shapes."""

from __future__ import annotations

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import pytest

from mks.backends.pallas import ops
from mks.backends.pallas.emit.emitter import EMIT
from mks.backends.pallas.emit.evaluate import WITH_CORE
from mks.backends.pallas.ops import views
from mks.backends.timeline.unroll import ACTIONS
from mks.dsl.model import ops as registry
from mks.dsl.program import ir as p
from mks.dsl.program.ir import lowered_ops

# Operands of each op, and its scalars.
SAMPLES = {
    "view_last": ([(3, 4, 192)], {"width": 64}),
    "view_by_head": ([(3, 4, 192)], {"width": 128}),
    "view_by_row": ([(4, 3, 192)], {"width": 128}),
    "view_in_lanes": ([(3, 4, 96)], {"width": 128}),
    "view_one_head": ([(3, 64)], {}),
    "view_of_one_head": ([(3, 1, 64)], {}),
    "view_keys_values": ([(3, 4 * 96), (3, 32)], {"heads": 4, "value": 64}),
    "side_by_side": ([(3, 128), (3, 64)], {}),
    "sum_squares": ([(3, 128)], {}),
    "squares_in_lanes": ([(3, 256)], {}),
    "over_root_mean": ([(3, 256), (3, 128)], {"eps": 1e-5, "count": 256}),
    "rms_norm_of_share": ([(3, 256), (3, 1), (1, 256)], {"eps": 1e-5, "count": 512}),
    "softmax_sums": ([(3, 256)], {}),
    "softmax_of_share": ([(3, 256), (3, 256)], {"repeats": 1}),
}


def test_every_row_is_computed() -> None:
    """By a function of its operands, or by one that knows the core; and nothing else is among them."""
    assert {f.__name__ for f in views.OPS} | {"mask_of_share"} == set(lowered_ops.table) == {*SAMPLES, "mask_of_share"}
    assert set(WITH_CORE) <= set(lowered_ops.table) | set(registry.table)
    assert not set(lowered_ops.table) & set(registry.table)


@pytest.mark.parametrize("name", SAMPLES)
def test_functions_are_as_rows_say(name: str) -> None:
    """Operands by position, scalars by name, and results of the shapes that the rule gives."""
    row, function, (shapes, scalars) = lowered_ops.table[name], ops.find(name), SAMPLES[name]
    parameters = inspect.signature(function).parameters.values()
    own = [x.name for x in parameters if x.kind is x.KEYWORD_ONLY]
    found = jax.eval_shape(partial(function, **scalars), *(jax.ShapeDtypeStruct(x, jnp.float32) for x in shapes))

    assert tuple(own) == row.scalars
    if not row.repeats:
        assert tuple(x.name for x in parameters if x.name not in own) == row.parameters
    assert tuple(x.shape for x in jax.tree.leaves(found)) == row.rule(tuple(shapes), scalars)


def test_every_op_of_a_program_is_emitted_and_charged() -> None:
    """The timeline has a row for each, as the spec does; the kernel for all but those of a call of several steps."""
    every = set(p.Op.__value__.__args__)

    assert set(ACTIONS) == every
    assert set(EMIT) == every - {p.AttendBlock, p.ArgmaxValue, p.Keep, p.RowLoop}
