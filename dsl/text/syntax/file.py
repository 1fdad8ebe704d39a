"""A whole file, and its comments."""

from __future__ import annotations

from ...records import frozen
from ...source import Source, Span
from .expressions import Number, String
from .model import Model
from .schedule import Schedule, Speculate


@frozen(repr=False)
class Comment:
    """From `#` to the end of its line; `own_line` when nothing stands before it."""

    span: Span
    text: str
    own_line: bool


@frozen(repr=False)
class Use:
    """`use "file.mks"`."""

    span: Span
    path: String


type TopLevel = Use | Model | Schedule | Speculate


@frozen(repr=False)
class File:
    """A whole file; `damaged` are the words of statements that did not parse, which may have been declarations."""

    source: Source
    version: Number | None
    items: tuple[TopLevel, ...]
    comments: tuple[Comment, ...]
    damaged: frozenset[str] = frozenset()
