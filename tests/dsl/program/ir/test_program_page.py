"""docs/program.md agrees with the executable spec: each op and resource has a section with what the spec says of it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from helpers.program_page import generated

from mks.dsl.program import ir as p
from mks.dsl.program import verify

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "program.md"
_PART = re.compile(r"(<!-- spec: ([\w ]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def section(title: str) -> str:
    """What stands below a heading of the third level."""
    found = re.search(rf"^### `{title}`\n(.*?)(?=^##|\Z)", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None, f"docs/program.md has no section `{title}`"
    return found[1]


def test_the_page_says_what_the_spec_says() -> None:
    """Word for word; `MKS_UPDATE=1` writes it anew."""
    text, parts = PAGE.read_text("utf-8"), generated()
    said = _PART.sub(lambda found: f"{found[1]}{parts[found[2]]}\n{found[4]}", text)
    names = [found[2] for found in _PART.finditer(text)]
    if os.environ.get("MKS_UPDATE"):
        PAGE.write_text(said, "utf-8")

    assert sorted(names) == sorted(parts)
    assert said == PAGE.read_text("utf-8"), "MKS_UPDATE=1 writes what the spec says into the page"


def test_every_op_has_its_section() -> None:
    """With what must be so before it, what it does, what checks it, and what the spec says it touches."""
    for cls in p.Op.__value__.__args__:
        text = section(cls.__name__)
        for word in ("**Before.**", "**Effect.**", "**Checked by.**", f"<!-- spec: op {cls.__name__} -->"):
            assert word in text, (cls.__name__, word)


def test_every_resource_has_its_section() -> None:
    """Those that a Program has tables of, and those that they are made of."""
    for cls in (
        p.Buffer,
        p.View,
        p.Ring,
        p.Product,
        p.Copy,
        p.CacheRing,
        p.Expanded,
        p.Collective,
        p.Piece,
        p.ExpertPool,
        p.Array,
        p.Phase,
    ):
        section(cls.__name__)


def test_what_checks_is_there() -> None:
    """Every file that the page names exists, and every property is a module of the proof."""
    text = PAGE.read_text("utf-8")
    files = re.findall(r"`((?:tests|dsl|backends)/[\w/]+(?:\.\w+)?)`", text)
    properties = {
        name
        for line in re.findall(r"^\*\*Checked by\.\*\*.*$", text, re.MULTILINE)
        for name in re.findall(r"property `(\w+)`", line)
    }

    assert files
    assert [name for name in files if not (ROOT / name).exists()] == []
    assert properties <= {path.stem for path in Path(verify.__path__[0]).glob("*.py")}
