"""Axis lengths as polynomials."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from mks.dsl.model.shapes import Poly, product, show

NAMES = ("a", "b", "c")
VALUES = {"a": 3, "b": 5, "c": 7}

atoms = st.one_of(st.sampled_from(NAMES), st.integers(-4, 4)).map(Poly.of)
polys = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda t: t[0] + t[1]),
        st.tuples(inner, inner).map(lambda t: t[0] - t[1]),
        st.tuples(inner, inner).map(lambda t: t[0] * t[1]),
    ),
    max_leaves=8,
)


def number(poly: Poly) -> Fraction:
    """A polynomial's value at fixed sizes."""
    return poly.evaluate(lambda atom: VALUES[atom.name])


@given(polys, polys)
def test_arithmetic_is_that_of_numbers(a: Poly, b: Poly) -> None:
    """Sums, differences and products evaluate to those of the values."""
    assert number(a + b) == number(a) + number(b)
    assert number(a - b) == number(a) - number(b)
    assert number(a * b) == number(a) * number(b)


@given(polys, polys)
def test_form_is_canonical(a: Poly, b: Poly) -> None:
    """The same polynomial is equal however it was made."""
    assert a * b == b * a
    assert (a + b) - b == a
    assert a - a == Poly()


@given(polys, st.sampled_from(NAMES))
def test_division_undoes_multiplication(a: Poly, name: str) -> None:
    """A product by one size divides by it again."""
    assert (a * Poly.of(name)).divided_by(Poly.of(name)) == a


def test_names_matter_and_numbers_do_not() -> None:
    """Two sizes of equal length stay different axes."""
    assert Poly.of("a") != Poly.of("b")
    assert Poly.of("a").divided_by(Poly.of("b")) is None


def test_division_refuses_a_term_that_lacks_the_size() -> None:
    """`a * b + c` does not fall into `a` pieces."""
    assert (Poly.of("a") * Poly.of("b") + Poly.of("c")).divided_by(Poly.of("a")) is None


def test_text_reads_as_written() -> None:
    """Longer products first, constants last."""
    assert str(Poly.of("a") * Poly.of("b") + Poly.of("c") - Poly.of(1)) == "a * b + c - 1"
    assert show((Poly.of("a"), Poly.of(2) * Poly.of("b"))) == "[a, 2 * b]"
    assert product(()) == Poly.of(1)
