"""From a bound checkpoint and a schedule to a decoder of kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve

from ...dsl.decoder import Decoder
from ...dsl.diagnostics import MksError, Sink
from ...dsl.program.lower import lower
from ...dsl.schedule.fits import check_shares
from ...dsl.schedule.ir import Schedule
from .terminal import Progress, loading

if TYPE_CHECKING:
    import numpy as np

    from ...dsl.model.instance import Instance
    from ...dsl.program.ir import Program
    from ...models.binding import Binding
    from ...models.packed import Packed

SLOW = (
    "note: no TPU here: the kernels are interpreted, to check them; a token takes a second in the smallest models and "
    "several in one of 100 million parameters"
)

# Gives a core's operands by name, as a Program reads them; may tell how far it is.
type Source = Callable[[Program, Progress], Callable[[str, int], np.ndarray]]


class NoDevices(Exception):
    """This host cannot run a schedule; the text says why, for people."""


def sized(schedule: Schedule, instance: Instance, rows: int, context: int) -> Schedule:
    """The schedule for so many rows and positions, at a checkpoint's sizes. Raises `MksError` where it does not fit."""
    schedule, sink = evolve(schedule, rows=(rows,), context=context), Sink()
    if not check_shares(schedule, instance, sink):
        raise MksError(sink.found)
    return schedule


def kernels(instance: Instance, schedule: Schedule, source: Source, span: int) -> Callable[[int, int, bool], Decoder]:
    """What makes a decoder of `rows`, `context` and `ahead`; with `ahead` prompts are read in passes of `span` tokens.

    Raises at once `MksError` where kernels cannot do what the definition says, and `NoDevices`.
    """
    lower(sized(schedule, instance, 1, schedule.context), instance, 1)
    # JAX takes a while to import, and what is wrong with a definition is said before.
    from ...backends.pallas.machine import TooFewDevices, machine
    from ...backends.reference.compilation import keep_compiled

    keep_compiled()
    try:
        here = machine(schedule)
    except TooFewDevices as e:
        raise NoDevices(str(e)) from e
    if here.interpreted:
        print(SLOW, file=sys.stderr, flush=True)

    def decoder(rows: int, context: int, ahead: bool) -> Decoder:
        from ...backends.pallas.decoder import PallasDecoder

        wanted = sized(schedule, instance, rows, context)
        with loading(f"Loading {schedule.model.name}") as progress:
            operand = source(lower(wanted, instance, rows), progress)
            made = PallasDecoder(wanted, instance, operand, here, rows=rows, span=span if ahead else None)
        if ahead:
            made.compile()
        return made

    return decoder


def from_checkpoint(binding: Binding) -> Source:
    """Operands made as they are asked for."""
    return partial(_packing, binding)


def from_packed(packed: Packed) -> Source:
    """Operands as `mks pack` left them: maps of the files, which are read where they are copied."""
    return lambda program, progress: lambda name, core: packed.tensors[core][name].array()


def _packing(binding: Binding, program: Program, progress: Progress) -> Callable[[str, int], np.ndarray]:
    """Operands made from the checkpoint as they are asked for."""
    from ...models import tapes
    from ...models.read import read

    total, done = sum(entry.nbytes for entry in binding.entries()) * program.schedule.cores, 0

    def counted(name: str, layer: int | None) -> np.ndarray:
        nonlocal done
        array = read(binding, name, layer)
        done += array.nbytes
        progress(min(done, total), total)
        return array

    def operand(name: str, core: int) -> np.ndarray:
        if name.startswith("tape "):
            return tapes.tape(program, name.removeprefix("tape "), counted, core)
        make = tapes.lookup_table if program.arrays[name].kind == "table" else tapes.vectors
        return make(program, name, counted, core)

    return operand
