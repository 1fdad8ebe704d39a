"""Comparing syntax trees, and edited copies of the shipped definitions."""

from __future__ import annotations

from attrs import fields, has
from helpers.definitions import NAMES, text
from hypothesis import strategies as st

from mks.dsl.text import syntax as s
from mks.dsl.text.forms import FORMS

TEXTS = {name: text(name) for name in NAMES}

NOISE = st.text(st.characters(codec=None), max_size=20)
SNIPPETS = st.one_of(
    NOISE,
    st.sampled_from('{ } ( ) [ ] , : = == ; " # \n \r\n \t .. . -> - @ \0 \ud800 \u202e 注 👩'.split(" ")),
    st.sampled_from(["2MiB", "2x2", "1e9", "e1"]),
    st.sampled_from(sorted(FORMS)),
    st.sampled_from("part a {|size d = 3|for i in 0 .. 2 {|} else|x = y|\n}\n|{ e -> e }|at when|from or".split("|")),
)


def shape(node: object) -> object:
    """A tree without its places, comments and damaged words."""
    if isinstance(node, s.File):
        return shape((node.version, node.items))
    if isinstance(node, tuple):
        return tuple(map(shape, node))
    if has(type(node)):
        return (type(node).__name__, *(shape(getattr(node, f.name)) for f in fields(type(node)) if f.type != "Span"))
    return node


@st.composite
def edited(draw: st.DrawFn, snippets: st.SearchStrategy[str] = SNIPPETS) -> str:
    """A shipped definition, or a slice of one, after a few random edits."""
    changed = TEXTS[draw(st.sampled_from(sorted(TEXTS)))]
    if draw(st.booleans()):
        start = draw(st.integers(0, len(changed)))
        changed = changed[start : start + draw(st.integers(0, 2000))]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(changed)))
        changed = changed[:at] + draw(snippets) + changed[at + draw(st.integers(0, 30)) :]
    return changed.replace("\n", "\r\n") if draw(st.integers(0, 4)) == 0 else changed
