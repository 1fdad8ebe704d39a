"""Models on schedules for tests of whole kernels, with a checkpoint's weights or drawn ones."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from helpers.definitions import FOLDER, text
from helpers.mutants import mutants

from mks.dsl.frontend import check_source
from mks.dsl.model import ir as m
from mks.dsl.model.instance import Instance
from mks.dsl.model.instantiate import instantiate
from mks.dsl.program.ir import Program
from mks.dsl.program.lower.lower import lower
from mks.dsl.schedule.ir import Schedule
from mks.dsl.source import Source
from mks.models.checkpoint import codecs
from mks.models.checkpoint.binding import Binding
from mks.models.checkpoint.load import load
from mks.models.checkpoint.read import Quantised, read
from mks.models.checkpoint.tensors import DTYPES
from mks.models.demo import default_checkpoint
from mks.models.packing import operands

DATA = Path(__file__).parents[1] / "data"

type Array = np.ndarray[Any, Any]
type Step = tuple[tuple[int, ...], tuple[int, ...]]  # the rows' tokens and positions


@frozen
class Case:
    """A model on a schedule's `lines`, and the steps that it makes.

    `model` is a shipped definition's name, or a text; `folder` a checkpoint in `tests/data`, or `demo` for the embedded
    one, or else weights are drawn. `sizes` change the text's. States are zero at first, or drawn if `filled`; `fault`
    is one of `helpers.mutants`.
    """

    model: str
    steps: tuple[Step, ...]
    lines: str = "target v5e 1x1\ncontext 256"
    folder: str = ""
    sizes: tuple[tuple[str, int], ...] = ()
    working: str = "f32"
    mode: str = "on_wait"
    filled: bool = False
    fault: str = ""
    consecutive: bool = False

    @property
    def rows(self) -> int:
        """How many sequences are decoded together."""
        return len(self.steps[0][0])


def lowered(case: Case) -> Program:
    """What the kernel is emitted from."""
    model = model_of(case)
    program = lower(model.schedule, model.instance, case.rows, model.plain, consecutive=case.consecutive)
    return dict(mutants(program))[case.fault] if case.fault else program


@frozen
class Read:
    """`read` gives a weight of a layer as an array, `stored` as it is packed; `same` are names of other weights."""

    schedule: Schedule
    instance: Instance
    read: Callable[[str, int | None], Any]
    stored: Callable[[str, int | None], Any]
    plain: frozenset[str] = frozenset()
    same: dict[str, str] = field(factory=dict)


def model_of(case: Case) -> Read:
    """A case's model and its weights."""
    source = case.model if case.model.startswith("mks") else re.sub(r"\nschedule .*", "", text(case.model), flags=re.S)
    declared = re.search(r"\nmodel (\w+)", source)
    assert declared is not None
    name = declared[1]
    source += f"\nschedule tried for {name} {{\n{case.lines}\n}}\n"
    definition = check_source(Source("case.mks", source), FOLDER)
    schedule = definition.schedules.get((name, "tried"))
    assert schedule is not None, [(d.code, d.message) for d in definition.diagnostics]
    model = definition.models[name]
    if case.folder:
        binding = _binding(model, case)
        return Read(
            evolve(schedule, model=binding.instance.model),
            binding.instance,
            partial(read, binding),
            operands.stored(binding),
            operands.plain(binding),
            binding.same,
        )
    instance, problems = instantiate(model, overrides=dict(case.sizes), working=case.working)
    assert instance is not None, problems
    return drawn_weights(schedule, instance)


def drawn_weights(schedule: Schedule, instance: Instance) -> Read:
    """A model whose weights are drawn."""
    return Read(schedule, instance, partial(_drawn, instance), partial(_stored, instance))


def _binding(model: m.Model, case: Case) -> Binding:
    folder = default_checkpoint(model.name)[0] if case.folder == "demo" else DATA / case.folder
    assert folder is not None
    binding, said = load(model, folder, adopt=True, working=case.working, overrides=dict(case.sizes))
    assert binding is not None, said
    return binding


def values(model: Read) -> Iterator[tuple[str, int | None, Array]]:
    """All weights, as the reference loads them."""
    for name, weight in model.instance.model.weights.items():
        if name not in model.same:
            for layer in (None,) if weight.part is None else model.instance.owner_layers(weight.part) or ():
                yield name, layer, model.read(name, layer)


def _drawn(instance: Instance, name: str, layer: int | None) -> Array:
    """A weight that keeps values about as large as they are."""
    weight = instance.model.weights[name]
    if weight.codec.name == "mxfp4":
        matrices = [codecs.mxfp4(matrix.codes, matrix.scales) for matrix in _stored(instance, name, layer)]
        return np.stack(matrices).astype(DTYPES[instance.dtype(weight.type)])
    shape, rng = instance.shape(weight.shape), _rng(name, layer)
    values = rng.normal(size=shape)
    if len(shape) == 1:
        values = values * 0.3 + 0.5
    elif name != "embed":
        values = values * shape[-1] ** -0.5
    return values.astype(DTYPES[instance.dtype(weight.type)])


def _stored(instance: Instance, name: str, layer: int | None) -> Any:
    """The same as it is packed: of `mxfp4` each expert's codes and scales, of which the standard deviation is 2.9."""
    weight = instance.model.weights[name]
    if weight.codec.name != "mxfp4":
        return _drawn(instance, name, layer)
    experts, outputs, inputs = instance.shape(weight.shape)
    rng, middle = _rng(name, layer), round(127 - log2(2.9 * inputs**0.5))
    return [
        Quantised(
            rng.integers(0, 256, (outputs, inputs // 2), np.uint8),
            rng.integers(middle - 1, middle + 2, (outputs, inputs // 32), np.uint8),
        )
        for _ in range(experts)
    ]


def _rng(name: str, layer: int | None) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(name.encode()), layer or 0])
