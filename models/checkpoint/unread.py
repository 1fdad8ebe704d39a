"""Tensors of a checkpoint that no weight reads: meant so, left out by an option, or a mistake that must be told.

A definition that lacks a norm or a bias fits the checkpoint otherwise, and its answers are wrong.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property

from attrs import field, frozen

from ...dsl.diagnostics import Diagnostic, Label
from ...dsl.model import ir as m
from ...dsl.model.instance import Instance
from ...dsl.model.static import names
from .binding import Key, Source
from .name_patterns import fold, grouped
from .tensor_names import PLACEHOLDER, numbers, pattern
from .tensors import Checkpoint, listed

# Frequencies that older checkpoints keep beside the weights; every reader computes them from the config.
_COMPUTED = ("*.rotary_emb.inv_freq",)
_LIMIT = 8


@frozen(slots=False)
class Unread:
    """`unread` are the names that no place of a weight named; `sources` what is read of the others.

    `pointed` are patterns that another message proposes already, `overridden` the sizes that were given by hand.
    """

    instance: Instance
    checkpoint: Checkpoint
    unread: Collection[str] = field(repr=False)
    sources: dict[Key, Source] = field(repr=False)
    pointed: Collection[str] = ()
    overridden: Collection[str] = ()

    def found(self) -> Iterator[Diagnostic]:
        """E437 for what nothing reads, E438 for `ignore` lines that cover what is read, W415 for layers left out."""
        ignores = [(ignore, _regex(ignore.pattern, self.instance)) for ignore in self.instance.model.ignores]
        for ignore, regex in ignores:
            yield from self._contradicted(ignore, regex)
        regexes = [regex for _, regex in ignores] + [_regex(text, self.instance) for text in _COMPUTED]
        left = [name for name in self.unread if not any(regex.fullmatch(name) for regex in regexes)]
        beyond = [name for name in left if self._beyond(name)]
        if beyond:
            yield self._left_out(beyond)
            left = list(set(left) - set(beyond))
        left = sorted(name for name in left if pattern(name) not in self.pointed)
        if left:
            yield self._by_nothing(left)

    def _contradicted(self, ignore: m.Ignore, regex: re.Pattern[str]) -> Iterator[Diagnostic]:
        covered = {name for name in self.checkpoint.tensors if name not in self.unread and regex.fullmatch(name)}
        whole = [(tensor, name) for tensor, name in self._whole() if tensor in covered] if covered else []
        if whole:
            notes = tuple(f"`{tensor}` is read by `{name}`" for tensor, name in whole[:1])
            notes += (f"… and {len(whole) - 1} more",) if len(whole) > 1 else ()
            yield Diagnostic(
                "E438", f'`ignore "{ignore.pattern}"` covers tensors that are read', Label(ignore.span), (), notes
            )

    def _whole(self) -> Iterator[tuple[str, str]]:
        """Tensors of which a weight reads all, and the weight."""
        for (name, _), source in self.sources.items():
            for piece in source.pieces:
                cut = piece.cut
                if cut.axis is None or cut.stop - cut.start == cut.squeezed[cut.axis]:
                    yield piece.tensor.name, name

    def _by_nothing(self, left: list[str]) -> Diagnostic:
        groups = grouped(left, [name for name in self.checkpoint.tensors if name not in self.unread])
        notes = [f"`{group.shown}`" for group in groups[:_LIMIT]]
        if len(groups) > _LIMIT:
            rest = sum(len(group.names) for group in groups[_LIMIT:])
            notes.append(f"… and {rest} more of {len(groups) - _LIMIT} patterns")
        meant = listed([f'"{text}"' for group in groups for text in group.covering], 3)
        helps = [f"`ignore {meant}` in the model declares that they are not read"]
        beside = [f"`{name}`" for name in self._beside(left[0])]
        if beside:
            helps.insert(0, f"`{left[0]}` lies beside {listed(beside, 4)}: is a line missing?")
        model = self.instance.model
        count = f"{len(left)} tensors are" if len(left) > 1 else "1 tensor is"
        message = f"{count} in `{self.checkpoint.path}` but not read by `{model.name}`"
        return Diagnostic("E437", message, Label(model.span), (), tuple(notes), tuple(helps))

    def _beside(self, name: str) -> list[str]:
        """Weights whose tensors lie in the same place of a layer, as `wq` beside `q_proj.bias`."""
        parts = pattern(name).split(".")
        for count in range(len(parts) - 1, max(len(parts) - 3, 1), -1):
            start, weights = ".".join(parts[:count]) + ".", self.instance.model.weights.values()
            beside = [
                weight.name
                for weight in weights
                if any(
                    isinstance(stored_as, m.CheckpointTensor) and pattern(stored_as.name).startswith(start)
                    for stored_as in weight.tensors
                )
            ]
            if beside:
                return beside
        return []

    def _left_out(self, beyond: list[str]) -> Diagnostic:
        layers = fold([f"{self._layer(name)}" for name in beyond]).strip("{}")
        given = " and ".join(f"`{name}` = {self.instance.values[name]}" for name in sorted(self._bounds))
        return Diagnostic(
            "W415",
            f"the checkpoint's layers {layers} are left out, as {given} was asked for",
            Label(self.instance.model.span),
            (),
            (f"{len(beyond)} tensors are not read",),
        )

    @cached_property
    def _bounds(self) -> frozenset[str]:
        """The sizes given by hand that say how many layers there are."""
        loops = self.instance.layer_loop.values()
        return frozenset(name.text for loop in loops for name in names(loop.stop.expr)) & frozenset(self.overridden)

    @cached_property
    def _by_layer(self) -> dict[str, int]:
        """Patterns of places with `{layer}`, and which of their numbers it is."""
        by_layer = {}
        for weight in self.instance.model.weights.values():
            for stored_as in (stored_as for stored_as in weight.tensors if isinstance(stored_as, m.CheckpointTensor)):
                for text in (stored_as.name, stored_as.scale, stored_as.global_scale):
                    if text is not None and "{layer}" in text:
                        at = text.index("{layer}")
                        by_layer[pattern(text)] = pattern(text[:at] + "#").count("#") - 1
        return by_layer

    def _layer(self, name: str) -> int | None:
        """Which layer's tensor it is, if it is one that weights of layers have."""
        at = self._by_layer.get(pattern(name))
        indices = numbers(name)
        return None if at is None or at >= len(indices) else indices[at]

    def _beyond(self, name: str) -> bool:
        """Whether a tensor is unread only because fewer layers were asked for."""
        layer = self._layer(name) if self._bounds else None
        stops = [self.instance.value(loop.stop) for loop in self.instance.layer_loop.values()]
        return layer is not None and all(isinstance(stop, int) and layer >= stop for stop in stops)


def _regex(text: str, instance: Instance) -> re.Pattern[str]:
    """A pattern of an `ignore` line at an instance's sizes."""
    filled = PLACEHOLDER.sub(lambda word: str(instance.values[word[1]]), text)
    return re.compile(".*".join(map(re.escape, filled.split("*"))), re.DOTALL)
