"""From a bound checkpoint and a schedule to a decoder of kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from ...dsl.decoder import Decoder
from ...dsl.diagnostics import MksError, Sink
from ...dsl.program.lower.lower import lower
from ...dsl.schedule.fits import check_shares
from ...dsl.schedule.ir import Schedule
from .cannot_open import CannotOpen
from .progress import Loading, Progress

if TYPE_CHECKING:
    import numpy as np

    from ...dsl.model.instance import Instance
    from ...dsl.program.ir import ArrayRef, Program
    from ...models.checkpoint.binding import Binding
    from ...models.packing.packed import Packed
    from ..pallas.runtime.device import Machine

SLOW = (
    "note: no TPU here: the kernels are interpreted, to check them; a token takes a second in the smallest models and "
    "several in one of 100 million parameters"
)

# A core's operands by name, as a Program reads them.
type Operand = Callable[[ArrayRef, int], np.ndarray]


@frozen
class Source:
    """Where operands come from; `operands` may tell how far it is. Weights that are `plain` are so for `lower` too."""

    plain: frozenset[str]
    operands: Callable[[Program, Progress], Operand]


def sized(schedule: Schedule, instance: Instance, rows: int, context: int) -> Schedule:
    """The schedule for so many rows and positions, at a checkpoint's sizes. Raises `MksError` where it does not fit."""
    schedule, sink = evolve(schedule, rows=(rows,), context=context), Sink()
    if not check_shares(schedule, instance, sink):
        raise MksError(sink.diagnostics)
    return schedule


def kernels(
    instance: Instance,
    schedule: Schedule,
    source: Source,
    span: int,
    loading: Loading,
    steps: Callable[[int], Path] | None = None,
) -> Callable[[int, int, bool], Decoder]:
    """What makes a decoder of `rows`, `context` and `ahead`; with `ahead` prompts are read in passes of `span` tokens.

    Raises at once `MksError` where kernels cannot do what the definition says, and `CannotOpen`. With `steps`, which
    gives the executable for so many rows, nothing is asked of the host before a decoder is made.
    """
    lower(sized(schedule, instance, 1, schedule.context), instance, 1, source.plain)
    # JAX takes a while to import, and what is wrong with a definition is said before.
    from ..reference.compilation import keep_compiled

    keep_compiled()
    devices = None if steps is not None else host(schedule)

    def decoder(rows: int, context: int, ahead: bool) -> Decoder:
        from ..pallas.runtime.decoder import PallasDecoder
        from ..pallas.runtime.executable import load_step

        here = devices or host(schedule)
        wanted = sized(schedule, instance, rows, context)
        with loading(f"Loading {schedule.model.name}") as progress:
            program = lower(wanted, instance, rows, source.plain)
            step = None if steps is None else load_step(steps(rows), program, here.mesh)
            operand = source.operands(program, progress)
            kernel_decoder = PallasDecoder(
                wanted, instance, operand, here, plain=source.plain, rows=rows, span=span if ahead else None, step=step
            )
        if ahead:
            kernel_decoder.compile()
        return kernel_decoder

    return decoder


def host(schedule: Schedule) -> Machine:
    """This host's cores; says so where kernels are interpreted. Raises `CannotOpen`."""
    from ..pallas.runtime.device import TooFewDevices, machine

    try:
        here = machine(schedule)
    except TooFewDevices as e:
        raise CannotOpen(str(e)) from e
    if here.interpreted:
        print(SLOW, file=sys.stderr, flush=True)
    return here


def from_checkpoint(binding: Binding) -> Source:
    """Operands made as they are asked for."""
    from ...models.packing.operands import plain

    return Source(plain(binding), partial(_packing, binding))


def from_packed(packed: Packed) -> Source:
    """Operands as `mks pack` left them: maps of the files, compared with their checksums where they are copied."""
    return Source(packed.plain, lambda program, progress: _checked(packed, progress))


def _checked(packed: Packed, progress: Progress) -> Operand:
    done, lock = 0, Lock()

    def operand(name: ArrayRef, core: int) -> np.ndarray:
        nonlocal done
        array = packed.operand(name.label, core)
        with lock:
            done += array.nbytes
            progress(done, packed.nbytes)
        return array

    return operand


def _packing(binding: Binding, program: Program, progress: Progress) -> Operand:
    """Operands made from the checkpoint as they are asked for."""
    from ...models.packing.operands import operand, stored

    read, sizes = stored(binding), {(entry.weight, entry.layer): entry.nbytes for entry in binding.entries()}
    total, done = sum(sizes.values()) * program.schedule.cores, 0
    one_at_a_time = Lock()  # each makes its own copy of a weight while it packs

    def counted(name: str, layer: int | None) -> np.ndarray:
        nonlocal done
        array = read(name, layer)
        done += sizes.get((name, layer), 0)
        progress(min(done, total), total)
        return array

    def packing(name: ArrayRef, core: int) -> np.ndarray:
        with one_at_a_time:
            return operand(program, counted, name, core)

    return packing
