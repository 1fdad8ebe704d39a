"""What tells Programs apart."""

import pytest
from attrs import evolve
from helpers.definitions import FOLDER, changed, text

from mks.dsl.frontend import Definition, check_source
from mks.dsl.program.analysis.fingerprint import digest
from mks.dsl.program.lower.lower import lower
from mks.dsl.source import Source


def of(found: Definition, rows: int = 1, consecutive: bool = False, listed: tuple[int, ...] = (1, 8)) -> str:
    """The digest of a definition's first Program; its schedule lists other rows."""
    (key, *_) = found.own_schedules
    schedule = found.schedules[key]
    assert schedule is not None
    return digest(lower(evolve(schedule, rows=listed), found.instances[key[0]], rows, consecutive=consecutive))


def test_places_of_the_text_do_not_matter() -> None:
    """Nor does the file, a comment, or what other rows the schedule lists."""
    moved = check_source(Source("elsewhere.mks", text("qwen38").replace("\n", "\n\n# a comment\n", 1)), FOLDER)

    assert of(moved) == of(changed("qwen38")) == of(changed("qwen38"), listed=(1,))


@pytest.mark.parametrize(
    "edit",
    [
        ("slots = 16", "slots = 15"),
        ("context 4096", "context 8192"),
        ("wire = bf16", "wire = f32"),
        ("rms_norm(m, norm, eps)", "rms_norm(m, norm, 1e-6)"),
        ("by = scatter_gather", "by = direct"),
    ],
)
def test_anything_that_is_said_does(edit: tuple[str, str]) -> None:
    """A number of slots, a wire, an expression."""
    assert of(changed("kimi_k3", edit)) != of(changed("kimi_k3"))


def test_rows_do() -> None:
    """How many, and whether they follow one another."""
    found = changed("qwen38")

    assert len({of(found), of(found, 8), of(found, 8, consecutive=True)}) == 3
