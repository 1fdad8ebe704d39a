"""From what the command line names to a decoder and the checkpoint's text files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import field, frozen

from ..dsl.decoder import Decoder
from .files import TextFiles

# Called with the bytes read so far and the bytes there are.
Progress = Callable[[int, int], None]


class CannotOpen(Exception):
    """A model cannot be opened as it was asked for; the text says why, for people."""


@frozen
class Opened:
    """A checkpoint that fits its definition, before its weights are read.

    `longest` is the context that the model was made for, where the checkpoint says so.
    `decoder(rows, context, progress)` reads the weights for so many sequences of so many positions.
    """

    name: str
    files: TextFiles = field(repr=False)
    longest: int | None
    decoder: Callable[[int, int, Progress], Decoder] = field(repr=False)


def open_model(
    model: str,
    *,
    checkpoint: Path | None = None,
    sizes_from_config: bool = False,
    sizes: Mapping[str, int] | None = None,
    backend: str = "reference",
) -> Opened:
    """Find a definition (a shipped one's name or a path) and its checkpoint, and see that they fit.

    Raises `CannotOpen`, `UnreadableFile`, or `MksError` with all that is wrong.
    """
    if backend != "reference":
        raise CannotOpen(f"the `{backend}` backend cannot run models yet; use `--backend reference`")
    raise CannotOpen(f"no backend to open `{model}` with")
