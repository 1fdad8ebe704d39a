"""What parses but is refused: nesting that later passes could not walk, numbers that are none, glued units."""

from __future__ import annotations

from typing import Any

from lark import Token, Tree

from ..records import frozen

DEEPEST = 100
DEEPEST_BLOCK = 20
_LONGEST_NUMBER = 400
_BLOCKS = frozenset("model weights states part step for_ schedule stream speculate".split())


@frozen
class Refusal:
    """Why, and where in the parsed text; `words` are those that touch, told apart."""

    code: str
    message: str
    start: int
    end: int
    help: str
    words: tuple[str, ...] = ()


class Refused(Exception):
    """Raised by the parser for a text that follows the grammar and is still refused."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def refusal(tree: Tree[Token]) -> Refusal | None:
    """The first reason to refuse a parse tree; walks without recursion."""
    todo: list[tuple[Any, int, int]] = [(tree, 0, 0)]
    while todo:
        node, blocks, depth = todo.pop()
        if isinstance(node, Token):
            problem = _number(node) if node.type == "NUMBER" else None
        elif isinstance(node, Tree):
            problem = _grouping(node) or _nesting(node, blocks, depth)
            inside = node.data in _BLOCKS or node.data == "file"
            step = (blocks + (node.data in _BLOCKS), 0) if inside else (blocks, depth + 1)
            todo.extend((child, *step) for child in reversed(node.children))
        else:
            continue
        if problem:
            return problem
    return None


def _nesting(node: Tree[Token], blocks: int, depth: int) -> Refusal | None:
    if depth > DEEPEST:
        message, help_ = f"this is nested more than {DEEPEST} deep", "give a part of it a name of its own"
    elif blocks > DEEPEST_BLOCK:
        message, help_ = f"blocks are nested more than {DEEPEST_BLOCK} deep", "no definition needs that"
    else:
        return None
    start = node.meta.start_pos
    return Refusal("E006", message, start, start + 1, help_)


def _number(token: Token) -> Refusal | None:
    assert token.start_pos is not None
    assert token.end_pos is not None
    if len(token) <= _LONGEST_NUMBER and float(token) < float("inf"):
        return None
    return Refusal("E023", "this number is too large", token.start_pos, token.end_pos, "numbers end at about 1.8e308")


def _grouping(node: Tree[Token]) -> Refusal | None:
    """`group` and `block` count numbers."""
    if node.data != "codec" or not isinstance(node.children[-1], Tree):
        return None
    token = node.children[-1].children[0]
    if isinstance(token, Token) and not (token.isdigit() and int(token[:_LONGEST_NUMBER])):
        assert token.start_pos is not None
        assert token.end_pos is not None
        help_ = f"write a whole number, as in `{node.children[1]} 128`"
        return Refusal(
            "E023", f"`{node.children[1]}` takes a count, not `{token}`", token.start_pos, token.end_pos, help_
        )
    return None


def glued(before: Token, after: Token) -> Refusal:
    """`2MiB`, or `sized` where only `size d` can be meant."""
    start, end = before.start_pos or 0, after.end_pos or 0
    return Refusal(
        "E022", f"`{after}` needs a space before it", start, end, f"write `{before} {after}`", (before, after)
    )
