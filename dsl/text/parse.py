"""Text to syntax tree."""

from __future__ import annotations

from lark import UnexpectedInput

from ..diagnostics import Diagnostic
from ..source import Source
from . import syntax as s
from .limits import Refused
from .parser import comments, parse_as, version_problems
from .recover import recover


def parse(source: Source) -> tuple[s.File, list[Diagnostic]]:
    """The whole file, or, where it has errors, all of them and the statements that have none."""
    try:
        file = parse_as("file", source, source.text, 0)
    except (UnexpectedInput, Refused):
        return recover(source)
    problems = version_problems(source, file.version)
    return s.File(source, file.version, file.items, comments(source)), problems
