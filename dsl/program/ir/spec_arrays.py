"""What arrays in HBM are, operands and outputs of a step: of each kind, the shape and type."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ...model.facts import STEP
from ...targets.lanes import padded
from .. import ir as p
from ..layout.tiling import WIDTH
from .spec_access import Wrong
from .spec_transfers import cached


def room_of(view: p.View) -> int:
    """The columns after a weight's last one among a layer's vectors."""
    lines, width = view.shape[::-1] if view.transposed and len(view.shape) == 2 else (1, prod(view.shape))
    return view.start + lines * padded(width)


type Made = tuple[tuple[int, ...], str]


def _state(array: p.Array, program: p.Program) -> Made:
    state = program.instance.model.states[array.name.removeprefix("state ")]
    shape = program.shares.shape(state.type.shape)
    rows = program.phase_of(state.part or STEP).rows
    return (program.entries(state.part), rows, *shape), program.instance.dtype(state.type)


def _ring_of(name: str, program: p.Program) -> p.CacheRing:
    for ring in program.caches.values():
        kept = ring.expanded
        if name in ring.caches or (kept is not None and name in (kept.latent, kept.common)):
            return ring
    raise Wrong(f"no ring brings the cache `{name}`")


def _held_cache(array: p.Array, program: p.Program) -> Made:
    """Whole tiles of all positions; consecutive tokens share one row."""
    ring = _ring_of(array.name, program)
    heads, width, dtype = cached(array.name, ring, program)
    return (program.entries(ring.part), program.of.sequences, heads, ring.tiles * ring.tile, width), dtype


def _entry(array: p.Array, program: p.Program) -> Made:
    name = array.name.removeprefix("entry ")
    ring = _ring_of(name, program)
    heads, width, dtype = cached(name, ring, program)
    part = array.part or ring.part
    return (program.entries(part), program.rows_at(part), heads, width), dtype


def _vectors(array: p.Array, program: p.Program) -> Made:
    """Weights one after the other, none in another's place."""
    views = [v for name, v in program.views.items() if v.buffer == array.name and name in program.weight_keys]
    at = 0
    for view in sorted(views, key=lambda view: view.start):
        if view.start != at:
            raise Wrong(f"weights overlap in `{array.name}`, or leave a gap at column {at}")
        at = room_of(view)
    return (program.entries(array.part), 1, at), "f32"


def _table(array: p.Array, program: p.Program) -> Made:
    weight = program.instance.model.weights[array.name.removeprefix("table ")]
    share, width = program.shares.weight_shape(weight)
    words = -(-width // (256 if program.instance.dtype(weight.type) == "bf16" else 128)) * 128
    return (share, 1, words), "int32"


def _bank_array(array: p.Array, program: p.Program) -> Made:
    bank = next((bank for bank in program.banks.values() if bank.array == array.name), None)
    if bank is None:
        raise Wrong(f"no bank has the array `{array.name}`")
    return (program.entries(bank.part), bank.count, bank.layout.rows, WIDTH), "int32"


def _logits(array: p.Array, program: p.Program) -> Made:
    phase = program.phase_of(STEP)
    share = program.shares.length(phase.step.types["logits"].shape[0])
    held = program.buffers[program.views["logits"].buffer]
    return (phase.rows, max(share, held.shape[-1])), "f32"


def _trace(array: p.Array, program: p.Program) -> Made:
    name = array.name.removeprefix(f"trace {array.part or STEP}.")
    held = program.buffers.get(f"{array.part}.{name}") or program.buffers[name]
    return (*([] if array.part is None else [program.entries(array.part)]), *held.shape), held.dtype


def _taps(array: p.Array, program: p.Program) -> Made:
    """Rows of the drafted model's values."""
    type_ = program.instance.model.taps[array.name.removeprefix("taps ")].type
    rows = program.rows_at(array.part or STEP)
    return (1, rows, *program.instance.shape(type_.shape)), program.instance.dtype(type_)


def _value(array: p.Array, program: p.Program) -> Made:
    """A step's output as its buffer is."""
    phase, held = program.phase_of(array.part or STEP), program.buffers[program.views[array.name].buffer]
    type_ = phase.step.types[array.name.removeprefix(f"{phase.place}.")]
    return (phase.rows, *program.shares.shape(type_.shape)), held.dtype


# Arrays in HBM by their kinds, operands and outputs: shape and type.
ARRAYS: dict[str, Callable[[p.Array, p.Program], Made]] = {
    "state": _state, "cache": _held_cache, "latents": _held_cache, "entry": _entry, "vectors": _vectors,
    "table": _table, "bank": _bank_array, "logits": _logits, "trace": _trace, "taps": _taps, "value": _value,
}  # fmt: skip
