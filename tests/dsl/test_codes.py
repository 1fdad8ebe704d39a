"""Every code has a page with examples that are true, and a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.mdtest import Case, cases, diagnostics

from mks.dsl.codes import Example, Page, pages
from mks.dsl.diagnostics import Diagnostic

ROOT = Path(__file__).parents[2]
PAGES = pages()
_CODE = re.compile(r'"([ENW]\d{3})"')
# What no program can show: files, a checkpoint's tensors, bugs of our own. Tests name these in Python.
_BEYOND = re.compile(r"E00[345]|E22\d|E40\d|E41[4-8]|E4[23]\d|E50\d|W202|W41[45]|W501|E90\d")


def used() -> dict[str, set[str]]:
    """The codes in the source, and the files that give them."""
    found: dict[str, set[str]] = {}
    for room in ("dsl", "models", "backends", "server"):
        for path in (ROOT / room).rglob("*.py"):
            for code in _CODE.findall(path.read_text("utf-8")):
                found.setdefault(code, set()).add(path.name)
    return found


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    """What the source can say is explained, and nothing is explained that cannot be said."""
    assert set(used()) == set(PAGES)


def test_pages_say_what_and_how() -> None:
    """A page has a short title, some words, and a wrong and a right example; it fits a terminal."""
    for page in PAGES.values():
        assert 3 < len(page.title) < 60, page.code
        assert not page.title.endswith("."), page.code
        assert [example.wrong for example in page.examples] == [True, False], page.code
        assert len(page.body.partition("```")[0].strip()) > 40, page.code
        assert all(len(line) <= 124 for line in page.text.splitlines() if "+1+1" not in line), page.code


def test_every_code_has_a_test() -> None:
    """Each code is expected in a diagnostics page, or, where no program can show it, named in a test."""
    shown = "".join(p.read_text("utf-8") for p in (ROOT / "tests").rglob("diagnostics/*.md"))
    tests = "".join(p.read_text("utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    missing = [
        code
        for code in sorted(PAGES)
        if not re.search(rf"# (error|warning|note): \[{code}\]", shown)
        and not (_BEYOND.fullmatch(code) and f'"{code}"' in tests)
    ]

    assert missing == []


TRIED = [(page, e) for page in PAGES.values() for e in page.examples if e.language == "mks"]


def say(example: Example, folder: Path) -> list[Diagnostic]:
    """What `mks check` says of an example, put into the base program that it names."""
    if "at" not in example.options:
        return diagnostics(Case("", [({}, example.text)]), folder)[0]
    page = (ROOT / "tests/dsl/diagnostics" / f"{example.options['in']}.md").read_text("utf-8")
    base = next(text for case in cases(page) for options, text in case.blocks if "at" in options)
    return diagnostics(Case("", [({"at": example.options["at"], "with": example.text}, base)]), folder)[0]


@pytest.mark.parametrize(("page", "example"), TRIED, ids=[f"{p.code} {'wrong' * e.wrong}" for p, e in TRIED])
def test_examples_are_true(page: Page, example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong example gives the code that it explains, and the right one does not."""
    monkeypatch.chdir(tmp_path)

    assert (page.code in {d.code for d in say(example, tmp_path)}) == example.wrong


def test_text_of_a_page() -> None:
    """On a terminal an example is indented and says whether it is right."""
    text = PAGES["E016"].text

    assert text.startswith("E016: a semicolon\n\n")
    assert "wrong:\n    x = x + w @ x;\n" in text
    assert text.endswith("right:\n    x = x + w @ x\n")
    assert "```" not in text
