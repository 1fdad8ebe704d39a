"""The shipped definitions, and changed copies of them."""

import re
from pathlib import Path

import mks.models
from mks.dsl.frontend import Definition, check_source
from mks.dsl.source import Source

FOLDER = Path(mks.models.__file__).parent
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.mks")))


def text(name: str) -> str:
    """A shipped definition's text."""
    return (FOLDER / f"{name}.mks").read_text("utf-8")


def changed(name: str, *edits: tuple[str, str]) -> Definition:
    """A shipped definition with each first text replaced, once, by the second; how it is spaced does not matter."""
    source = text(name)
    for old, new in edits:
        found = re.search(" +".join(map(re.escape, re.split(" +", old))), source)
        assert found is not None, old
        source = source[: found.start()] + new + source[found.end() :]
    return check_source(Source(f"{name}.mks", source), FOLDER)


def codes(found: Definition) -> list[str]:
    """The codes of all diagnostics."""
    return [d.code for d in found.diagnostics]
