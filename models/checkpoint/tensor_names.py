"""From a definition's place to the names of tensors in a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

from attrs import define, field, frozen

from ...dsl.diagnostics import nearest
from ...dsl.model import ir as m
from ...dsl.model.instance import Instance
from .tensors import Checkpoint, listed

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


@frozen
class Run:
    """An axis that runs over a place's tensors: its index in the weight's shape, its text and its length."""

    axis: int
    text: str
    length: int


def runs(stored_as: m.CheckpointTensor, weight: m.Weight, instance: Instance, most: int) -> tuple[Run, ...]:
    """The axes that the place's name holds as `{size}`, outermost first; lengths end at `most`, if a config lies."""
    placeholders = set(PLACEHOLDER.findall(stored_as.name))
    texts = [(i, str(axis)) for i, axis in enumerate(weight.shape)]
    return tuple(Run(i, text, min(instance.length(weight.shape[i]), most)) for i, text in texts if text in placeholders)


def expand(name: str, layer: int | None, over: tuple[Run, ...]) -> list[str]:
    """All names of a place at a layer, the last axis fastest."""
    names = [name if layer is None else name.replace("{layer}", str(layer))]
    for run in over:
        numbers, word = [str(i) for i in range(run.length)], f"{{{run.text}}}"
        names = [name.replace(word, number) for name in names for number in numbers]
    return names


@lru_cache(maxsize=1 << 16)
def pattern(name: str) -> str:
    """A name with each placeholder and each number between points as `#`."""
    return NUMBER.sub("#", PLACEHOLDER.sub("#", name))


def numbers(name: str) -> list[int]:
    """The numbers between points of a name, in the order of its pattern's `#`; a billion for larger ones."""
    return [int(number) if len(number) < 10 else 10**9 for number in NUMBER.findall(name)]


@define
class Names:
    """A checkpoint's names by pattern, for suggestions: a K3 checkpoint has 497 220 names and 60 patterns.

    `pointed` are the patterns that were suggested.
    """

    tensors: Collection[str]
    pointed: set[str] = field(factory=set, init=False)
    _patterns: dict[str, str] | None = field(default=None, init=False)

    def _by_pattern(self) -> dict[str, str]:
        if self._patterns is None:
            self._patterns = {}
            for stored in self.tensors:
                self._patterns.setdefault(pattern(stored), stored)
        return self._patterns

    def sample(self) -> str:
        """A few names, for a message."""
        return listed([f"`{name}`" for name in self._by_pattern().values()], 3)

    def near(self, name: str) -> tuple[str, ...]:
        """A help line with the nearest stored name, numbered as `name` is where that exists.

        Nothing where the name is right and only its number is absent.
        """
        best = nearest(pattern(name), self._by_pattern())
        if best is None or pattern(name) in self._by_pattern():
            return ()
        self.pointed.add(best)
        numbers = iter(NUMBER.findall(name))
        same = re.sub("#", lambda _: next(numbers, "#"), best)
        return (f"did you mean `{same if same in self.tensors else self._by_pattern()[best]}`?",)


def working_type(model: m.Model, checkpoint: Checkpoint) -> str:
    """What `bf16` means for this checkpoint: `f32` if a weight declared so is stored in a type that bf16 cuts."""
    kinds: dict[str, set[str]] = {}
    for name, tensor in checkpoint.tensors.items():
        kinds.setdefault(pattern(name), set()).add(tensor.kind)
    for weight in model.weights.values():
        if weight.type.dtype == "bf16" and _widest(weight, kinds) & {"f16", "f32", "f64"}:
            return "f32"
    return "bf16"


def _widest(weight: m.Weight, kinds: Mapping[str, set[str]]) -> set[str]:
    for stored_as in weight.tensors:
        if isinstance(stored_as, m.CheckpointTensor) and stored_as.scale is None and not stored_as.rounded:
            tensor = kinds.get(pattern(stored_as.name))
            if tensor:
                return tensor
    return set()
