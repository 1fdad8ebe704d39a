"""The pages of `diagnostics/`: each program gives the errors that stand beside it, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.mdtest import Case, cases, check, run

PAGES = sorted((Path(__file__).parent / "diagnostics").glob("*.md"))
ALL = [(page, case) for page in PAGES for case in cases(page.read_text("utf-8"))]


@pytest.mark.parametrize(("page", "case"), ALL, ids=[f"{page.stem}: {case.name}" for page, case in ALL])
def test_page(page: Path, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors, places and printed text are as the page says."""
    monkeypatch.chdir(tmp_path)
    check(page, case, tmp_path)


def test_names_are_unique() -> None:
    """Each heading of a page is another one, so that updating finds its text."""
    for page in PAGES:
        names = [case.name for case in cases(page.read_text("utf-8"))]
        assert len(names) == len(set(names)), page.name


PAGE = """\
# Title

```mks base
mks 1
model m {
  size a = 3
  size b = 4  #: size
}
```

## One

Words.

```mks at=size
{0}
```
"""


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("size b : 4", "not expected"),
        ('size b : 4  # error: [E017] "belongs here"', None),
        ("# error: [E017]\nsize b : 4", None),
        ('size b : 4  # error: [E017] "banana"', "not given"),
        ("size b : 4  # error: [E010]", "not given"),
        ("size b : 4  # warning: [E017]", "not given"),
        ("# error: [E017]\n\nsize b : 4", "not given"),
        ("size b = 4  # error: [E017]", "not given"),
    ],
)
def test_the_harness_can_say_no(
    line: str, missing: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A diagnostic that is not expected fails, and so does an expected one that is not given, or given elsewhere."""
    monkeypatch.chdir(tmp_path)
    (case,) = cases(PAGE.replace("{0}", line))

    if missing is None:
        run(case, tmp_path)
    else:
        with pytest.raises(AssertionError, match=missing):
            run(case, tmp_path)


def test_snapshots_are_compared_and_updated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A printed text that differs fails, and is written anew on request, later ones of the page included."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MKS_UPDATE", raising=False)
    page = tmp_path / "page.md"
    two = "".join(f"# {n}\n```mks\n# error: [E001]\n{n}\n```\n```text\nold\n```\n" for n in ('use "a"', 'use "b"'))
    page.write_text(two.replace("# error: [E001]", "# error: [E001]\n# error: [E123]"))

    for case in cases(page.read_text()):
        with pytest.raises(AssertionError, match="MKS_UPDATE=1"):
            check(page, case, tmp_path)
    monkeypatch.setenv("MKS_UPDATE", "1")
    for case in cases(page.read_text()):
        check(page, case, tmp_path)
    monkeypatch.delenv("MKS_UPDATE")
    for case in cases(page.read_text()):
        check(page, case, tmp_path)
    assert page.read_text().count("error[E001]") == 2
