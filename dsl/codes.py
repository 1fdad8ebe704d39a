"""Every diagnostic's code: its title, and the page that explains it (`explain/*.md`)."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from .records import frozen

_TITLE = re.compile(r"^# ([ENW]\d{3}): (.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


@frozen
class Example:
    """A piece of a page in its own lines; `options` say what a test needs to try it."""

    wrong: bool
    language: str
    options: dict[str, str]
    text: str


@frozen
class Page:
    """What a code means: a title of a few words, and Markdown."""

    code: str
    title: str
    body: str

    @property
    def examples(self) -> tuple[Example, ...]:
        """What is wrong, and how it is right."""
        examples = []
        for match in _FENCE.finditer(self.body):
            options = dict(word.partition("=")[::2] for word in match[2].split())
            examples.append(Example("wrong" in options, match[1], options, match[3]))
        return tuple(examples)

    @property
    def text(self) -> str:
        """The page for a terminal."""

        def example(match: re.Match[str]) -> str:
            title = "wrong" if "wrong" in match[2].split() else "right"
            return f"{title}:\n" + "".join(f"    {line}".rstrip() + "\n" for line in match[3].splitlines())

        return f"{self.code}: {self.title}\n\n{_FENCE.sub(example, self.body).strip()}\n"


@cache
def pages() -> dict[str, Page]:
    """All pages, by code."""
    pages_ = {}
    for path in sorted((Path(__file__).parent / "explain").glob("*.md")):
        _, *parts = _TITLE.split(path.read_text("utf-8"))
        for code, title, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            assert code not in pages_, code
            pages_[code] = Page(code, title, body)
    return pages_


@cache
def _lines() -> dict[str, tuple[Path, int]]:
    lines = {}
    for path in (Path(__file__).parent / "explain").glob("*.md"):
        text = path.read_text("utf-8")
        lines.update({match[1]: (path, text.count("\n", 0, match.start()) + 1) for match in _TITLE.finditer(text)})
    return lines


def explained(code: str) -> tuple[Path, int] | None:
    """The file that explains a code, and the line (from 1) on which it begins."""
    return _lines().get(code)
