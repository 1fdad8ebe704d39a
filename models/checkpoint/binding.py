"""A binding: for each weight of each layer, the tensors that it is read from."""

from __future__ import annotations

from attrs import field, frozen

from ...dsl.model.instance import Instance
from .slicing import TensorSlice
from .tensors import Checkpoint, Stored

# A weight and its layer; `None` is the model.
type Key = tuple[str, int | None]


@frozen
class Scales:
    """A codec's companions of one tensor. `skip`: rows of the first `fp8` block that come before the ones taken."""

    tensor: Stored
    cut: TensorSlice
    global_tensor: Stored | None = None
    global_cut: TensorSlice | None = None
    skip: int = 0


@frozen
class Piece:
    """One tensor, the part of it that is taken, and its scales where it is packed."""

    tensor: Stored
    cut: TensorSlice
    scales: Scales | None = None


@frozen
class Source:
    """Where a weight of a layer lies: one piece, or one for each index of the weight's axes `axes`."""

    pieces: tuple[Piece, ...]
    axes: tuple[int, ...] = ()

    @property
    def packed(self) -> bool:
        """Whether it is stored by the weight's codec; a codec's plain form is not."""
        return self.pieces[0].scales is not None

    @property
    def nbytes(self) -> int:
        """Bytes that the file holds of it, scales included."""
        return sum(
            piece.tensor.nbytes + (piece.scales.tensor.nbytes if piece.scales is not None else 0)
            for piece in self.pieces
        )


@frozen
class Entry:
    """A weight of a layer (`None`: of the model) and how many bytes its file holds of it."""

    weight: str
    layer: int | None
    nbytes: int


@frozen
class Binding:
    """All weights of an instance. `aliases` maps weights that are not stored to the stored ones that they share."""

    instance: Instance
    checkpoint: Checkpoint
    sources: dict[Key, Source] = field(eq=False, repr=False)
    aliases: dict[Key, Key] = field(eq=False)

    @property
    def same(self) -> dict[str, str]:
        """Weights that are not stored, and those that they share."""
        return {alias: target for (alias, _), (target, _) in self.aliases.items()}

    def key(self, weight: str, layer: int | None = None) -> Key:
        """Where a weight's numbers are, aliases followed: a key of `sources`."""
        return self.aliases.get((weight, layer), (weight, layer))

    def entries(self) -> tuple[Entry, ...]:
        """Everything there is to read, in order: the model's weights, then layer by layer."""
        keys = sorted(self.sources, key=lambda key: -1 if key[1] is None else key[1])
        return tuple(Entry(name, layer, self.sources[name, layer].nbytes) for name, layer in keys)
