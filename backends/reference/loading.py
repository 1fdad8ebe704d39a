"""Weights into memory: each is copied once, to where the step reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import ml_dtypes
import numpy as np

from ...dsl.model import ir as m
from ...dsl.model.expressions import walk
from ...dsl.model.instance import Instance
from .weights import Weights, WeightSlice

type Array = np.ndarray[Any, Any]
# A weight's qualified name, its layer (`None` for the model's own) and its values.
type Values = Iterable[tuple[str, int | None, Array]]

# Compilers write the loops of smaller products out, and then sum in another order than in a larger one.
_FEWEST_ROWS = 16

_DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}


def load(instance: Instance, values: Values, same: Mapping[str, str] | None = None, *, fuse: bool = True) -> Weights:
    """Put every weight into arrays of their final size as it comes; `same` names weights that are another.

    What is held at any time is the weights and the one at hand. Raises `ValueError` where one is missing.
    """
    same = same or {}
    slices, shapes = layout(instance, shared_operands(instance) if fuse else (), same)
    arrays = {key: _aligned(*shape) for key, shape in shapes.items()}
    missing = {(name, layer) for name, slice_ in slices.items() for layer in slice_.layers or (None,)}
    for name, layer, value in values:
        slice_ = slices[name]
        array = arrays[slice_.key]
        if slice_.layers is not None and layer is not None:
            array = array[slice_.layers.index(layer)]
        if slice_.rows is not None:
            array = array[slice_.start : slice_.start + slice_.rows]
        array[...] = value.reshape(array.shape)
        missing.discard((name, layer))
    if missing:
        name, layer = min(missing, key=str)
        raise ValueError(f"{len(missing)} weights were not given, among them `{name}` of layer {layer}")
    on_device = {key: jax.device_put(array) for key, array in arrays.items()}
    return Weights(on_device, slices | {name: slices[other] for name, other in same.items()})


def layout(
    instance: Instance, groups: tuple[tuple[str, ...], ...] = (), same: Mapping[str, str] | None = None
) -> tuple[dict[str, WeightSlice], dict[str, tuple[tuple[int, ...], np.dtype[Any]]]]:
    """Where each weight goes, and the arrays' shapes and types; each of `groups` shares an array."""
    same = same or {}
    together = {name: group for group in groups for name in group}
    slices: dict[str, WeightSlice] = {}
    arrays: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
    for name, weight in instance.model.weights.items():
        layers = instance.owner_layers(weight.part)
        if name in slices or name in same or layers == ():
            continue
        group = together.get(name, (name,))
        shapes = [instance.shape(instance.model.weights[each].shape) for each in group]
        key, start = "+".join(group), 0
        for each, shape in zip(group, shapes, strict=True):
            slices[each] = WeightSlice(key, layers) if len(group) == 1 else WeightSlice(key, layers, start, shape[0])
            start += shape[0] if shape else 0
        whole = shapes[0] if len(group) == 1 else (start, *shapes[0][1:])
        lead = () if layers is None else (len(layers),)
        arrays[key] = ((*lead, *whole), _DTYPES[instance.dtype(weight.type)])
    return slices, arrays


def shared_operands(instance: Instance) -> tuple[tuple[str, ...], ...]:
    """Weights of a part that multiply one and the same value, in groups of two or more, the smallest excepted."""
    groups, taken = [], set[str]()
    for part in instance.model.parts.values():
        sharing: dict[tuple[str, int, str], list[str]] = {}
        version: dict[str, int] = {}
        for statement in part.body:
            if isinstance(statement, m.Assign | m.Write):
                for node in walk(statement.value):
                    name, operand = product(node)
                    if name is None or operand is None or name in taken:
                        continue
                    weight = instance.model.weights[name]
                    if weight.part == part.name and instance.length(weight.shape[0]) >= _FEWEST_ROWS:
                        taken.add(name)
                        key = (operand.name, version.get(operand.name, 0), instance.dtype(weight.type))
                        sharing.setdefault(key, []).append(name)
            if isinstance(statement, m.Assign):
                for name in statement.names:
                    version[name] = version.get(name, 0) + 1
        groups += [tuple(names) for names in sharing.values() if len(names) > 1]
    return tuple(groups)


def product(node: m.Node) -> tuple[str | None, m.Local | None]:
    """The weight and the named operand, where a node is a product of such."""
    if isinstance(node, m.Call) and node.op == "matmul":
        w, x = node.args
        if isinstance(w, m.WeightRef) and isinstance(x, m.Local):
            return w.name, x
    return None, None


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Room that begins at a cache line, as JAX asks for so that it can take an array over without a copy."""
    size = int(np.prod(shape)) * dtype.itemsize
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(shape)
