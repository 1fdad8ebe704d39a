"""Expressions over sizes, constants and lists."""

from fractions import Fraction

import pytest

from mks.dsl.model.static import StaticError, evaluate, names, polynomial
from mks.dsl.source import Source
from mks.dsl.text import syntax as s
from mks.dsl.text.parse import parse


def expression(text: str) -> s.Expr:
    """The expression of a constant."""
    file, found = parse(Source("t.mks", f"mks 1\nmodel m {{\n  const c = {text}\n}}\n"))
    assert not found
    model = file.items[0]
    assert isinstance(model, s.Model)
    size = model.items[0]
    assert isinstance(size, s.Size)
    return size.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("2 * 3 ** 2", 18),
        ("-3 ** 2", -9),
        ("2 ** -1", 0.5),
        ("7 // 2", 3),
        ("7 / 2", Fraction(7, 2)),
        ("6 / 2", 3),
        ("7 % 4", 3),
        ("d - 1 - 2", 5),
        ("1 < 2 and not 2 < 1", True),
        ("3 in full or 1 == 2", True),
        ("count(full) * 2", 4),
        ("(1 when d == 8 else 2)", 1),
        ("0.25 * 4", 1.0),
    ],
)
def test_values(text: str, value: object) -> None:
    """Precedence is that of the language's page; integers stay integers, `/` is exact."""
    found = evaluate(expression(text), {"d": 8, "full": (3, 7)})
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text", ["1 / 0", "7 % 0", "9 ** 9 ** 9", "nothing", "1 + (1 < 2)", "count(d)", "-full", "d[0]"]
)
def test_what_has_no_value_is_said(text: str) -> None:
    """A place comes with every refusal."""
    with pytest.raises(StaticError) as caught:
        evaluate(expression(text), {"d": 8, "full": (3, 7)})
    assert caught.value.span.text


def test_numbers_stay_of_a_size_that_means_something() -> None:
    """A tower of products is refused before it fills memory."""
    with pytest.raises(StaticError, match="too large"):
        evaluate(expression(" * ".join(["9999999999"] * 40)), {})


def test_polynomials_keep_what_they_cannot_cover_as_one_atom() -> None:
    """A floor division is opaque, but can still be evaluated."""
    found = polynomial(expression("(a + b - 1) // b * d"))
    assert str(found) == "((a + b - 1) // b) * d"
    assert found.evaluate(lambda atom: 5 if atom.expr is None else evaluate(atom.expr, {"a": 9, "b": 4})) == 15


def test_names_are_all_found() -> None:
    """Each name that an expression reads, in every position."""
    text = "(a when b in c else -d) + count(e)"
    assert [n.text for n in names(expression(text))] == ["a", "b", "c", "d", "e"]
