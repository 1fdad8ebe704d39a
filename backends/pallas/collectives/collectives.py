"""Collectives inside a kernel: sums (`sums`), gathers, softmaxes, the greatest; cores write each other's VMEM.

Each is split in `start`, which stores this core's part and sends the first messages, and `finish`, which waits, runs
the later rounds and returns the result; what is placed between the two runs while the messages travel.

Why no slot is written while a core may still read it. Take the collectives that use one set of buffers, c, c + 1, …,
by the same cores, each finished before the next is started, with parities that alternate:

* Another core's c + 2 writes where c was read. It left c + 1 first, so it had received what this core sent in c + 1.
  This core sent that after it had finished c, its reading included. So c + 1 lies between any reading and the next
  writing of a slot. (In `two_level` a slot has one writer only, the sibling or a core of another chip; in every
  collective that writer waits for this core's message of the same round, so the argument holds round by round.)
* Messages of c + 1 may come while this core waits in c. Parities and rounds have semaphores of their own, so that
  they are never counted as c's; c + 2 cannot have begun.
* What this core sends from, it overwrites at the earliest in its next collective: `finish` waits for all sends.

Hence: one set of buffers for each set of cores and shape, at most one collective under way on it, and `barrier` before
the first. A single parity breaks the first point: a core that has left c may send c + 1 to one that still reads c.

Sums run in the order of ranks over values as they travel, one's own included, so that all cores get the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import jax
from attrs import frozen
from jax.experimental.pallas import tpu as pltpu

from ....dsl.collectives.collective import CollectivePlan
from ....dsl.collectives.kinds import KERNELS
from ....dsl.diagnostics import Diagnostic, MksError
from ....dsl.installed import Installed, installed
from ...reference.rounding import DTYPES
from .messages import Pending
from .others import (
    finish_argmax,
    finish_gather,
    finish_softmax_merge,
    start_argmax,
    start_softmax_merge,
)
from .peers import Cores, Ref, Scalar
from .sums import (
    finish_direct,
    finish_reduce_scatter,
    finish_scatter_gather,
    finish_two_level,
    start_columns,
    start_direct,
    start_two_level,
)


@frozen
class Emission:
    """What a kind of collective does inside a kernel.

    `start` takes what is pending and this core's part, f32 `[rows, width]`, stores it and sends the first messages.
    `finish` waits, runs the later rounds and returns the result; of a sum f32 `[rows, width]`, the same bits on all
    cores.
    """

    start: Callable[..., None]
    finish: Callable[..., Any]


# By the name of a kind in `dsl/collectives`.
table: Mapping[str, Emission] = {
    "direct": Emission(start_direct, finish_direct),
    "scatter_gather": Emission(start_columns, finish_scatter_gather),
    "two_level": Emission(start_two_level, finish_two_level),
    "reduce_scatter": Emission(start_columns, finish_reduce_scatter),
    "gather": Emission(start_direct, finish_gather),
    "softmax_merge": Emission(start_softmax_merge, finish_softmax_merge),
    "argmax": Emission(start_argmax, finish_argmax),
}


@cache
def _brought() -> Installed[Emission]:
    return installed(KERNELS, Emission)


def find(name: str) -> Emission:
    """Of a kind by name; installed packages are asked only for what is not built in. Raises `MksError` (E901)."""
    found = table[name] if name in table else _brought().good.get(name)
    if found is None:
        fault = _brought().bad.get(name, f"`{KERNELS}` brings none")
        raise MksError([Diagnostic("E901", f"kernels cannot do this yet: `{name}`", notes=(fault,))])
    return found


def scratch(plan: CollectivePlan) -> tuple[object, ...]:
    """Scratch shapes of one set of buffers: the plan's in their order, then the semaphores."""
    held = [pltpu.VMEM(need.shape, DTYPES[need.dtype]) for need in plan.buffers]
    return (*held, pltpu.SemaphoreType.DMA(plan.semaphores))


def start(
    plan: CollectivePlan, cores: Cores, refs: Sequence[Ref], parity: Scalar, value: jax.Array, *others: jax.Array
) -> Pending:
    """Send the first messages of a collective.

    Args:
        plan: what is exchanged; its cores are as many as `cores`.
        refs: a set of buffers, in the order of `scratch`.
        parity: 0 and 1 in turn with each collective on these buffers, static or an int32 scalar.
        value: this core's part, f32 `[rows, width]`; to merge, a reference to the softmaxes of all heads,
            `[rows, heads, n + 128]`, as `ops.attend.apart` gives them.
        others: of an argmax, the id of each value, int32 `[rows, 1]`.

    Raises:
        ValueError: the plan is for other cores or another shape.
    """
    if plan.cores != cores.count:
        raise ValueError(f"an exchange between {plan.cores} cores, used by {cores.count}")
    rows, *columns = value.shape
    if (rows, prod(columns)) != (plan.rows, plan.kind.sends(plan)):
        raise ValueError(f"an exchange of {[plan.rows, plan.width]}, given {list(value.shape)}")
    if reason := plan.kind.unfit(cores.count, cores.paired):
        raise ValueError(f"{plan.kind.name} {reason}: {cores.axes} of {cores.mesh}")
    *buffers, semaphores = refs
    named = dict(zip((need.name for need in plan.buffers), buffers, strict=True))
    pending = Pending(plan, cores, named, semaphores, parity)
    find(plan.kind.name).start(pending, value, *others)
    return pending


def finish(pending: Pending, *given: Any) -> Any:
    """The rest, and the result; to merge softmaxes, `given` is how many heads are this core's."""
    return find(pending.plan.kind.name).finish(pending, *given)
