"""Finds each weight of an instance in a checkpoint, and says everything that does not fit."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from attrs import define, field, frozen

from ...dsl.diagnostics import Diagnostic, Label
from ...dsl.model import ir as m
from ...dsl.model.instance import Instance
from ...dsl.model.instantiate import look_up
from .bind_errors import Faults
from .binding import Binding, Key, Piece, Scales, Source
from .slicing import cut, global_cut, layouts, row_axis
from .tensor_names import expand, runs
from .tensors import Checkpoint, Stored
from .unread import Unread

# What a weight's dtype can be read from without losing a bit, and what it can be rounded from.
EXACT = {"f32": ("f32", "bf16", "f16"), "bf16": ("bf16",)}
REAL = ("f64", "f32", "bf16", "f16")

# Layers beyond the number of tensors that are still looked for one by one.
_PLAUSIBLE = 1000


def bind(
    instance: Instance, checkpoint: Checkpoint, *, damaged: bool = False, overridden: Collection[str] = ()
) -> tuple[Binding | None, list[Diagnostic]]:
    """Places for all weights, or what is wrong, listed weight by weight, and then the tensors that nothing reads.

    With `damaged`, tensors may be absent because their file could not be opened, which has been said already.
    `overridden` are the sizes that were given by hand: they may leave layers out.
    """
    deepest = _most_layers(instance)
    # A config may say anything; layers are not counted out to see that it is wrong.
    if deepest > len(checkpoint.tensors) + _PLAUSIBLE:
        tensors = len(checkpoint.tensors)
        message = f"`{instance.model.name}` has {deepest} layers, and `{checkpoint.path}` holds {tensors} tensors"
        return None, [] if damaged else [Diagnostic("E420", message, Label(instance.model.span))]
    work = _Work(instance, checkpoint, Faults(checkpoint, damaged), set(checkpoint.tensors))
    for weight in instance.model.weights.values():
        for layer in instance.owner_layers(weight.part) or ((None,) if weight.part is None else ()):
            work.bind_one(weight, layer)
    work.check_ties()
    work.check_aliases()
    diagnostics = work.faults.diagnostics(instance.model, nothing=not work.sources)
    if work.sources and not damaged:
        unread = Unread(instance, checkpoint, work.unread, work.sources, work.faults.pointed, overridden)
        diagnostics += unread.found()
    failed = any(d.severity == "error" for d in diagnostics)
    return (None if failed else Binding(instance, checkpoint, work.sources, work.aliases)), diagnostics


def _most_layers(instance: Instance) -> int:
    """The length of the longest loop over layers."""
    bounds = [(instance.value(loop.start), instance.value(loop.stop)) for loop in instance.layer_loop.values()]
    return max((stop - start for start, stop in bounds if isinstance(start, int) and isinstance(stop, int)), default=0)


def tied(checkpoint: Checkpoint) -> bool | None:
    """Whether the config says that the output head is the embedding; `None` where it does not say, or says both."""
    config = checkpoint.config or {}
    values = [look_up(config, key) for key in ("tie_word_embeddings", "text_config.tie_word_embeddings")]
    declared = {value for value in values if isinstance(value, bool)}
    return declared.pop() if len(declared) == 1 else None


@frozen
class _Chosen:
    """A place; the weight's axes that run over its tensors; names of tensors, of scales, of global scales."""

    stored_as: m.CheckpointTensor
    axes: tuple[int, ...]
    names: list[list[str]]


@define
class _Work:
    instance: Instance
    checkpoint: Checkpoint
    faults: Faults
    unread: set[str]
    sources: dict[Key, Source] = field(factory=dict)
    aliases: dict[Key, Key] = field(factory=dict)
    doubled: list[tuple[m.Weight, m.Alias]] = field(factory=list)

    def bind_one(self, weight: m.Weight, layer: int | None) -> None:
        """Find one weight of one layer."""
        alias = next((p for p in weight.tensors if isinstance(p, m.Alias)), None)
        is_head = alias is not None and weight.part is None and "." not in alias.weight
        choice = self._choose(weight, layer)
        if isinstance(choice, m.Alias):
            if is_head and tied(self.checkpoint) is False:
                self.faults.untied(weight, choice)
            self.aliases[weight.name, layer] = self._same_layer(choice, layer)
        elif choice is not None:
            if alias is not None and is_head and tied(self.checkpoint):
                self.doubled.append((weight, alias))
            source = self._source(weight, layer, choice)
            if source is not None:
                self.sources[weight.name, layer] = source

    def _choose(self, weight: m.Weight, layer: int | None) -> _Chosen | m.Alias | None:
        """The first place that is there in full; of an incomplete one, what it lacks is reported."""
        tensors, incomplete, first = self.checkpoint.tensors, None, None
        for stored_as in weight.tensors:
            if isinstance(stored_as, m.Alias):
                if incomplete is None:
                    return stored_as
                continue
            over = runs(stored_as, weight, self.instance, len(tensors) + 1)
            names = [
                expand(n, layer, over)
                for n in (stored_as.name, stored_as.scale, stored_as.global_scale)
                if n is not None
            ]
            first = first or names[0]
            if any(name in tensors for name in names[0]):
                self.unread.difference_update(name for group in names for name in group)
                if all(name in tensors for group in names for name in group):
                    return _Chosen(stored_as, tuple(run.axis for run in over), names)
                incomplete = incomplete or names
        names = incomplete or [first or []]
        absent = [name for name in names[0] if name not in tensors]
        self.faults.absent(weight, absent)
        if not absent:
            self.faults.no_scales(weight, [n for group in names[1:] for n in group if n not in tensors])
        return None

    def _source(self, weight: m.Weight, layer: int | None, choice: _Chosen) -> Source | None:
        stored_as, axes = choice.stored_as, choice.axes
        shape = tuple(n for i, n in enumerate(self.instance.shape(weight.shape)) if i not in axes)
        start = None
        if stored_as.rows is not None:
            value = self.instance.value(stored_as.rows, layer)
            if not isinstance(value, int):
                self.faults.rows(weight, stored_as, value)
                return None
            start = value
        pieces = []
        for group in zip(*choice.names, strict=True):
            stored = [self.checkpoint.tensors[name] for name in group]
            if stored_as.scale is None:
                piece = self._plain(weight, stored_as, shape, start, stored[0])
            else:
                piece = self._packed(weight, shape, start, *stored)
            if piece is not None:
                pieces.append(piece)
        return Source(tuple(pieces), axes) if len(pieces) == len(choice.names[0]) else None

    def _plain(
        self, weight: m.Weight, stored_as: m.CheckpointTensor, shape: tuple[int, ...], start: int | None, tensor: Stored
    ) -> Piece | None:
        dtype = self.instance.dtype(weight.type)
        if tensor.kind not in REAL:
            self.faults.kind(weight, tensor, REAL)
            return None
        if tensor.kind not in EXACT[dtype] and not stored_as.rounded:
            self.faults.lossy(weight, tensor, dtype)
        taken = cut(tensor.shape, shape, start, row_axis(shape))
        if taken is None:
            self.faults.shape(weight, tensor, shape, start)
            return None
        return Piece(tensor, taken)

    def _packed(
        self,
        weight: m.Weight,
        shape: tuple[int, ...],
        start: int | None,
        tensor: Stored,
        scale: Stored,
        global_scale: Stored | None = None,
    ) -> Piece | None:
        options = layouts(weight.codec, shape, start)
        if not options:
            self.faults.groups(weight, shape)
            return None
        layout = next((o for o in options if tensor.kind in o.packed_kinds), None)
        if layout is None:
            self.faults.kind(weight, tensor, tuple(k for o in options for k in o.packed_kinds))
            return None
        axis = row_axis(shape)
        taken = cut(tensor.shape, layout.packed, start, axis)
        if taken is None:
            self.faults.shape(weight, tensor, layout.packed, start)
            return None
        scale_cut = cut(scale.shape, layout.scale, layout.scale_rows, axis)
        if scale_cut is None or scale.kind not in layout.scale_kinds:
            self.faults.scale(weight, scale, layout.scale, layout.scale_kinds, layout.scale_rows)
            return None
        global_taken = None
        if global_scale is not None:
            stored_rows = taken.squeezed[taken.axis] if taken.axis is not None else shape[-2]
            global_taken = global_cut(global_scale.shape, shape[:-2], stored_rows, start or 0, shape[-2])
            if global_taken is None or global_scale.kind not in REAL:
                self.faults.scale(weight, global_scale, (), REAL, None)
                return None
        return Piece(tensor, taken, Scales(scale, scale_cut, global_scale, global_taken, layout.skip))

    def _same_layer(self, alias: m.Alias, layer: int | None) -> Key:
        return alias.weight, (layer if self.instance.model.weights[alias.weight].part is not None else None)

    def check_aliases(self) -> None:
        """Follow aliases to what is stored; weights that only stand for each other are in no file."""
        for key in self.aliases:
            seen, at = {key}, self.aliases[key]
            while at in self.aliases and at not in seen:
                seen.add(at)
                at = self.aliases[at]
            if at in seen:
                weight = self.instance.model.weights[key[0]]
                tensors = [p for p in weight.tensors if isinstance(p, m.CheckpointTensor)]
                self.faults.absent(weight, [p.name for p in tensors] or [weight.name])
            self.aliases[key] = at

    def check_ties(self) -> None:
        """Where the config ties the head to the embedding and a head is stored too, both must be the same bytes."""
        for weight, alias in self.doubled:
            mine, other = self.sources.get((weight.name, None)), self.sources.get((alias.weight, None))
            if mine is None or other is None:
                continue
            if _same(mine, other):
                del self.sources[weight.name, None]
                self.aliases[weight.name, None] = alias.weight, None
            else:
                self.faults.tied(weight, alias, mine.pieces[0].tensor, other.pieces[0].tensor)


def _same(a: Source, b: Source, step: int = 1 << 24) -> bool:
    """Whether two sources hold the same bytes."""
    if len(a.pieces) != 1 or len(b.pieces) != 1 or a.pieces[0].cut != b.pieces[0].cut:
        return False
    left, right = a.pieces[0].tensor, b.pieces[0].tensor
    if (left.kind, left.shape) != (right.kind, right.shape):
        return False
    x, y = (t.array().reshape(-1).view(np.uint8) for t in (left, right))
    same = all(np.array_equal(x[at : at + step], y[at : at + step]) for at in range(0, x.size, step))
    left.release()
    right.release()
    return same
