"""Sums that are left scattered: what cores make of their columns alone, and what needs all columns first."""

from __future__ import annotations

import pytest
from attrs import evolve
from helpers import toys
from helpers.comparing import compare
from helpers.drawing import Drawn, Opened

from mks.dsl.program.analysis.check_program import check_program
from mks.dsl.program.ir import Program

pytestmark = pytest.mark.timeout(900)

# Each with what travels: columns that are gathered are a second exchange.
COLUMNS, SUM, BOTH = ["p.u", "p.h columns"], ["p.u", "p.h"], ["p.u", "p.v columns"]
MADE = {
    "h = h + m * (w @ x) + u * 0.5": COLUMNS,
    "h = h + w @ (u * m)": SUM,
    "h = h + w @ rms_norm(u, m, 1e-5)": SUM,
    "h = h + w @ silu(u * m) / 2": SUM,
    "h = h + m * (w @ x) - u * u": COLUMNS,
    # A gain that is also read whole is not cut, nor is a matrix that meets a whole value.
    "h = h + m * w @ (u * g)": COLUMNS,
    "h = h + w @ rms_norm(u, g, 1e-5) + m": COLUMNS,
    "h = h + m * (w @ (u + x))": COLUMNS,
    "h = h + w @ x + rms_norm(u, m, 1e-5)": COLUMNS,
    "h = h + w @ x + softmax(u) * m": COLUMNS,
    "h = (h + w @ (m * x)) * u": COLUMNS,
    "h = w @ l2_norm(u, 1e-5) + m": COLUMNS,
    "v = u * m\n    h = h + w @ x + v": BOTH,
    "v = rms_norm(u, m, 1e-5)\n    h = h + w @ v": BOTH,
    "h = h + m * (w @ x) + u when layer == 0 else h": COLUMNS,
}
QUICK = ("h = h + w @ rms_norm(u, g, 1e-5) + m", "h = h + w @ (u * m)")


def drawn(then: str, first: str = "u = down @ silu(up @ x)", value: str = "u") -> Drawn:
    """A model whose part goes on like this."""
    text = toys.SCATTERED.format(first=first, then=then, value=value)
    return Drawn(0, text, 2, False, "f32", 2, (3, 4), (0, 200))


@pytest.mark.parametrize("then", MADE)
def test_what_travels(then: str) -> None:
    """Columns come together where something reads all of them, and else they stay."""
    made = drawn(then).lowered()
    assert isinstance(made, Program), made
    assert sorted(map(str, made.exchanges)) == sorted(MADE[then])


@pytest.mark.thorough
def test_values() -> None:
    """Columns that stay, and columns that come together."""
    assert [(each.kind, each.said) for each in compare(map(drawn, QUICK))] == [("same", "")] * len(QUICK)


@pytest.mark.slow
def test_every_value() -> None:
    """The reference's, whatever reads the sum."""
    found = dict(zip(MADE, compare(map(drawn, MADE)), strict=True))
    assert {then: each.said for then, each in found.items() if each.kind != "same"} == {}


def test_what_the_layers_carry_stays_whole() -> None:
    """Its sum cannot stay scattered: the next part reads all of it."""
    made = drawn("", first="z = w @ x\n    h = down @ silu(up @ (m * z))", value="h").lowered()
    assert not isinstance(made, Program)
    (said,) = made
    assert said.code == "E901"
    assert said.message == "kernels cannot do this yet: leave `h` scattered, which the layers carry"
    assert said.primary is not None
    assert said.primary.span.text == "p.h"


def test_what_is_added_to_columns_is_no_sum_alone() -> None:
    """It cannot be left scattered with them."""
    made = drawn("v = down @ (up @ (m * x)) + u\n    h = h + w @ v + g", value="u, p.v").lowered()
    assert not isinstance(made, Program)
    assert "scatter a value that is not a sum alone" in made[0].message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("(by = scatter_gather, wire = f32)", ["the Program is the same without `reduce p.h`"]),
        ("(by = direct, wire = f32)", ["the Program is the same without `reduce p.h`"]),
        ("(by = scatter_gather, wire = bf16)", []),
    ],
)
def test_a_line_on_gathered_columns(line: str, said: list[str]) -> None:
    """They travel by its wire; a line that changes nothing is refused."""
    made = drawn("h = h + w @ (softmax(u) * m)")
    opened = evolve(made, text=made.text.replace("wire = f32)\n}", f"wire = f32)\n  reduce p.h {line}\n}}")).open()
    assert isinstance(opened, Opened), opened
    assert [each.message for each in check_program(opened.schedule, opened.instance, True)] == said


def test_a_sum_is_called_by_the_first_of_its_values() -> None:
    """Of one that is cut into several, a line on another would change nothing."""
    made = drawn("h = h + one * m + two", first="one, two = split(twice @ silu(up @ x), d, d)", value="two")
    text = made.text.replace("      w    :", '      twice : bf16[2 * d, ffn]  "twice"\n      w    :')
    (said,) = evolve(made, text=text).lowered()
    assert (said.code, said.helps) == ("E207", ("write `reduce p.one`",))
    assert isinstance(evolve(made, text=text.replace("p.two (by = scatter,", "p.one (by = direct,")).lowered(), Program)
