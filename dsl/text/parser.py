"""One start rule of the grammar at a time: Lark's tables, and what is refused besides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark, Token

from ... import grammar as package
from ..cache import cache_folder
from ..diagnostics import Diagnostic, Label
from ..source import Source, Span
from . import syntax as s
from .builder import Builder
from .limits import Refused, glued, refusal

# After one of these a line goes on.
_OPEN = frozenset(
    "LBRACE _LAMBDA COMMA EQUAL COLON ARROW OR AND NOT IN WHEN ELSE FROM WITH AT OVER PLUS MINUS STAR SLASH FLOOR "
    "PERCENT POWER AT_SIGN EQUALS COMPARE".split()
)


class Newlines:
    """Drops the newlines that end nothing: inside brackets, and after a token that must be followed by another.

    Also refuses words that touch: where no name may stand, the lexer would read `modelx` as `model x`.
    """

    always_accept = ("_NL",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Looks back only, so that the parser's state may choose the lexer."""
        depth, before = 0, "_NL"
        last: Token | None = None
        for token in stream:
            if last is not None and last.end_pos == token.start_pos and _is_word(last[-1]) and _is_word(token[0]):
                raise Refused(glued(last, token))
            last = token
            if token.type in ("LPAR", "LSQB"):
                depth += 1
            elif token.type in ("RPAR", "RSQB"):
                depth = max(0, depth - 1)
            elif token.type == "_NL" and (depth or before in _OPEN or before == "_NL"):
                continue
            yield token
            before = token.type


VERSION = "1"


def _is_word(char: str) -> bool:
    return char == "_" or char.isalnum()


# What a statement alone can be parsed as, for recovery after an error.
STARTS: tuple[str, ...] = ("file", "version", "top", "model_item", "part_item", "statement", "weight", "state")
STARTS += ("schedule_item", "stream_item", "speculate_item")


@cache
def grammar() -> Lark:
    """The parser; its tables are kept in the cache folder, as building them costs 0.1 s."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        kept: str | bool = str(folder / "grammar.tables")
    except OSError:
        kept = False
    text = Path(package.__file__).with_name("mks.lark").read_text("utf-8")
    return Lark(
        text,
        parser="lalr",
        start=list(STARTS),
        postlex=Newlines(),
        propagate_positions=True,
        maybe_placeholders=True,
        cache=kept,
    )


def parse_as(start: str, source: Source, text: str, base: int) -> Any:
    """Parse `text`, which stands at `base` in `source`, by one start rule; raises `UnexpectedInput` or `Refused`."""
    tree = grammar().parse(text, start=start)
    why = refusal(tree)
    if why is not None:
        raise Refused(why)
    return Builder(source, base).transform(tree)


_STRING_OR_COMMENT = re.compile(r'"[^"\n]*"?|#[^\n]*')


def comments(source: Source) -> tuple[s.Comment, ...]:
    """Every comment, in order."""
    result = []
    for match in _STRING_OR_COMMENT.finditer(source.text):
        if match[0][0] == "#":
            text, at = match[0].rstrip(), match.start()
            before = source.text[source.text.rfind("\n", 0, at) + 1 : at]
            result.append(s.Comment(Span(source, at, at + len(text)), text, not before.strip()))
    return tuple(result)


def version_problems(source: Source, version: s.Number | None) -> list[Diagnostic]:
    """What is wrong with the version line: it is missing, or asks for another language."""
    helps = (f"begin the file with `mks {VERSION}`",)
    if version is None:
        first = re.search(r"^[ \t]*([^\s#]\S*)", source.text, re.MULTILINE)
        start, end = first.span(1) if first else (0, 0)
        message = "the file does not say which version of the language it is written in"
        return [Diagnostic("E001", message, Label(Span(source, start, end)), helps=helps)]
    if version.text != VERSION:
        message = f"version {version.text} of the language is not known; this is version {VERSION}"
        return [Diagnostic("E002", message, Label(version.span), helps=helps)]
    return []
