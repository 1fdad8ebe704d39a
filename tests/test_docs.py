"""What the pages point at exists, and their tables are those of the registries."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import readme, tables

from mks.dsl.collectives import kinds
from mks.dsl.commands import new

ROOT = readme.ROOT
PAGES = [*readme.pages(), ROOT / "CHANGELOG.md", ROOT / "server" / "FIELDS.md", ROOT / "grammar" / "EDITORS.md"]
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_PATH = re.compile(rf"(?:{'|'.join((*readme.ROOMS, 'tests', 'docs'))}|\.ci)/[\w./-]*|[A-Z]+\.md")


def headings(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    titles = re.findall(r"^#+ (.*)$", readme.prose(page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def dead_links(page: Path) -> Iterator[str]:
    """Relative links of a page to no file, or to no heading of it."""
    for link in _LINK.findall(readme.prose(page.read_text("utf-8"))):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in headings(there)):
            yield link


def absent(text: str) -> Iterator[str]:
    """Files, folders and modules that a text names in backticks, and that do not exist."""
    for span in re.findall(r"`([^`\n]+)`", readme.prose(text)):
        module = re.fullmatch(r"mks((?:\.\w+)+)", span)
        if module is not None:
            _, room, *rest = module[1].split(".")
            path = ROOT.joinpath(room, *rest)
            # Entry-point groups and settings of an editor are named like modules.
            if room in readme.ROOMS and not path.is_dir() and not path.with_suffix(".py").exists():
                yield span
        elif _PATH.fullmatch(span) and not (ROOT / span).exists():
            yield span


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    """To files of the project, and to headings in them."""
    assert list(dead_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_named_exists(page: Path) -> None:
    """Files, folders and modules."""
    assert list(absent(page.read_text("utf-8"))) == []


def test_the_checks_can_say_no(tmp_path: Path) -> None:
    """A file that is not there, a heading that is not there, a module that moved."""
    page = tmp_path / "page.md"
    page.write_text("# One: two\n[a](#one-two) [b](other.md) [c](#one) [d](https://x.y/z)\n```\n[e](f)\n```\n")
    assert list(dead_links(page)) == ["other.md", "#one"]
    text = "`dsl/frontend.py` `dsl/compile.py` `mks.dsl.frontend` `mks.dsl.compile` `mks.ops` `a/b` `docs/none.md`"
    assert list(absent(text)) == ["dsl/compile.py", "mks.dsl.compile", "docs/none.md"]


@pytest.mark.parametrize("page", readme.pages(), ids=lambda page: page.name)
def test_tables(page: Path) -> None:
    """Tables of statements, ops and targets are those of the registries; `MKS_UPDATE=1` writes them."""
    text = page.read_text("utf-8")
    wanted = tables.filled(text)
    if os.environ.get("MKS_UPDATE"):
        page.write_text(wanted, "utf-8")
    else:
        assert text == wanted, "MKS_UPDATE=1 writes these tables"


def test_pieces_of_definitions_are_real() -> None:
    """What pages show of a model stands in a shipped definition, or in what `mks new` writes."""
    texts = [new.TEMPLATE, *(path.read_text("utf-8") for path in (ROOT / "models").glob("*.mks"))]
    blocks = [block for page in readme.pages() for kind, block in readme.fences(page.read_text("utf-8")) if not kind]
    shown = [block for block in blocks if re.match(r" *(part|step|weights)\b.*\{\n", block)]
    assert len(shown) >= 3
    assert [block for block in shown if not any(block in text for text in texts)] == []


def test_the_glossary_is_in_order() -> None:
    """Each term once."""
    terms = re.findall(r"^\| ([^|]+) \| ", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)[1:]
    assert len(terms) > 30
    assert terms == sorted(set(terms), key=str.lower)


def test_every_op_is_in_the_language_reference() -> None:
    """By its signature."""
    text = (ROOT / "docs" / "language.md").read_text("utf-8")
    assert "`rms_norm(x, gain, eps)`" in text
    assert len(re.findall(r"<!-- table: \w+ -->", text)) == len(tables.TABLES)


def test_ways_to_complete_a_sum() -> None:
    """The language page lists those of the table of kinds, in its order."""
    page = (ROOT / "docs" / "language.md").read_text("utf-8")
    listed = re.search(r"\| `by =` \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", page)
    assert listed is not None
    summing = [kind for kind in kinds.table.values() if kind.operation in kinds.SUMMING]
    assert re.findall(r"^\| `(\w+)`", listed[1], re.MULTILINE) == [kind.by for kind in summing]
