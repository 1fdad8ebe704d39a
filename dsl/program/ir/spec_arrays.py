"""What arrays in HBM are, operands and outputs of a step: of each kind, the shape and type."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ...model.facts import STEP
from ...targets.lanes import padded
from .. import ir as p
from ..layout.lanes import table_words
from ..layout.tiling import WIDTH
from .spec_access import Wrong
from .spec_transfers import cached


def room_of(view: p.View) -> int:
    """The columns after a weight's last one among a layer's vectors."""
    lines, width = view.shape[::-1] if view.transposed and len(view.shape) == 2 else (1, prod(view.shape))
    return view.start + lines * padded(width)


type Made = tuple[tuple[int, ...], str]


def _state(array: p.Array, program: p.Program) -> Made:
    assert isinstance(array.name, p.StateRef)
    state = program.instance.model.states[array.name.state]
    shape = program.shares.shape(state.type.shape)
    rows = program.phase_of(state.part or STEP).rows
    return (program.entries(state.part), rows, *shape), program.instance.dtype(state.type)


def _ring_of(name: p.CacheRef, program: p.Program) -> p.CacheRing:
    for ring in program.caches.values():
        kept = ring.expanded
        if name in ring.caches or (kept is not None and name in (kept.latent, kept.common)):
            return ring
    raise Wrong(f"no ring brings the cache `{name}`")


def _held_cache(array: p.Array, program: p.Program) -> Made:
    """Whole tiles of all positions; consecutive tokens share one row."""
    assert isinstance(array.name, p.CacheRef)
    ring = _ring_of(array.name, program)
    heads, width, dtype = cached(array.name, ring, program)
    return (program.entries(ring.part), program.of.sequences, heads, ring.tiles * ring.tile, width), dtype


def _entry(array: p.Array, program: p.Program) -> Made:
    assert isinstance(array.name, p.EntryRef)
    ring = _ring_of(array.name.cache, program)
    heads, width, dtype = cached(array.name.cache, ring, program)
    part = array.part or ring.part
    return (program.times(part), program.rows_at(part), heads, width), dtype


def _vectors(array: p.Array, program: p.Program) -> Made:
    """Weights one after the other, none in another's place."""
    views = [v for ref, v in program.views.items() if v.buffer == array.name and isinstance(ref, p.SmallWeightRef)]
    at = 0
    for view in sorted(views, key=lambda view: view.start):
        if view.start != at:
            raise Wrong(f"weights overlap in `{array.name}`, or leave a gap at column {at}")
        at = room_of(view)
    return (program.entries(array.part), 1, at), "f32"


def _table(array: p.Array, program: p.Program) -> Made:
    assert isinstance(array.name, p.TableRef)
    weight = program.instance.model.weights[array.name.weight]
    share, width = program.shares.weight_shape(weight)
    words = table_words(width, program.instance.dtype(weight.type))
    return (share, 1, words), "int32"


def _bank_array(array: p.Array, program: p.Program) -> Made:
    bank = next((bank for bank in program.banks.values() if bank.array == array.name), None)
    if bank is None:
        raise Wrong(f"no bank has the array `{array.name}`")
    return (program.entries(bank.part), bank.count, bank.layout.rows, WIDTH), "int32"


def _logits(array: p.Array, program: p.Program) -> Made:
    phase = program.phase_of(STEP)
    share = program.shares.length(phase.step.types["logits"].shape[0])
    held = program.buffers[program.views[p.LOGITS].buffer]
    return (phase.rows, max(share, held.shape[-1])), "f32"


def _trace(array: p.Array, program: p.Program) -> Made:
    assert isinstance(array.name, p.TraceRef)
    place, value = array.name.place, array.name.value
    refs = (p.ValueRef(place, value), p.ValueRef("", value), p.ModelBufferRef(value))
    held = program.buffers[next((ref for ref in refs if ref in program.buffers), refs[0])]
    return (*([] if array.part is None else [program.entries(array.part)]), *held.shape), held.dtype


def _taps(array: p.Array, program: p.Program) -> Made:
    """Rows of the drafted model's values."""
    assert isinstance(array.name, p.TapsRef)
    type_ = program.instance.model.taps[array.name.tap].type
    rows = program.rows_at(array.part or STEP)
    return (1, rows, *program.instance.shape(type_.shape)), program.instance.dtype(type_)


def _value(array: p.Array, program: p.Program) -> Made:
    """A step's output as its buffer is."""
    assert isinstance(array.name, p.StepOutputRef)
    phase = program.phase_of(array.part or STEP)
    held = program.buffers[program.views[array.name.value].buffer]
    type_ = phase.step.types[array.name.value.name]
    return (phase.rows, *program.shares.shape(type_.shape)), held.dtype


def made_of(array: p.Array, program: p.Program) -> Made:
    """An array's shape and type, as its kind and name say. Raises `Wrong` where the two do not agree."""
    if array.kind not in ARRAYS:
        raise Wrong(f"nothing is known of an array of kind `{array.kind}`")
    ref, rule = ARRAYS[array.kind]
    if not isinstance(array.name, ref):
        raise Wrong(f"`{array.name}` is no array of kind `{array.kind}`")
    return rule(array, program)


# Arrays in HBM by their kinds, operands and outputs: what names them, and their shape and type.
ARRAYS: dict[str, tuple[type[p.ArrayRef], Callable[[p.Array, p.Program], Made]]] = {
    "state": (p.StateRef, _state),
    "cache": (p.CacheRef, _held_cache),
    "latents": (p.CacheRef, _held_cache),
    "entry": (p.EntryRef, _entry),
    "vectors": (p.SmallWeightsRef, _vectors),
    "table": (p.TableRef, _table),
    "bank": (p.ExpertArrayRef, _bank_array),
    "logits": (p.LogitsRef, _logits),
    "trace": (p.TraceRef, _trace),
    "taps": (p.TapsRef, _taps),
    "value": (p.StepOutputRef, _value),
}
