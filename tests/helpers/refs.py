"""A Program's things by their labels, as texts show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mks.dsl.model.ir import Ref


def labelled[T](things: Mapping[Ref, T]) -> dict[str, T]:
    """Each by its label; no two have the same."""
    found = {ref.label: thing for ref, thing in things.items()}
    assert len(found) == len(things)
    return found


def ref_of[R: Ref](label: str, refs: Iterable[R]) -> R:
    """The one that is called so."""
    (found,) = (ref for ref in refs if ref.label == label)
    return found
