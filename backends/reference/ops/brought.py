"""What packages bring to compute an op. What such a function does wrong is the package's fault, and is said with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from attrs import frozen

from ....dsl.diagnostics import Diagnostic, MksError
from ....dsl.installed import PackageError, entries, load, told


@frozen
class Brought:
    """The function of an op from a package, which `place` names. Calls raise `MksError` (E105) where it fails."""

    op: str
    place: str
    function: Callable[..., Any]

    def __call__(self, *args: Any, **scalars: Any) -> Any:
        """What the function gives of an op's parameters, in order, and its scalars."""
        try:
            return self.function(*args, **scalars)
        except MksError:
            raise
        except (Exception, SystemExit) as e:  # a package that is not ours: whatever it raises is its fault
            raise self._wrong(f"fails: {told(e)}", args) from e

    def check(self, result: Any, wanted: Sequence[Sequence[int]], lead: Sequence[int], args: Sequence[Any]) -> None:
        """Whether a result is one array, or a tuple of several, of the shapes that are wanted.

        Each stands behind the axes `lead` of all tokens, or some of length 1, or none. Raises `MksError` (E105).
        """
        shapes = [list(shape) for shape in wanted]
        shown = " and ".join(map(str, shapes))
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(shapes):
            raise self._wrong(f"gives {_shown(result)}, and not {len(shapes)} values of {shown}", args)
        for each, shape in zip(results, shapes, strict=True):
            found = _shape(each)
            if found is None or not _fits(found, shape, list(lead)):
                behind = f" behind the tokens' {list(lead)}" if lead else ""
                raise self._wrong(f"gives {_shown(each)}, and not {shape}{behind}", args)

    def check_updated(self, result: Any, states: Sequence[Any], args: Sequence[Any]) -> None:
        """Whether a result is a value and new states of their old shapes. Raises `MksError` (E105)."""
        wanted = f"a value and then {len(states)} new states"
        if not isinstance(result, tuple) or len(result) != 1 + len(states):
            raise self._wrong(f"gives {_shown(result)}, and not {wanted}", args)
        for new, old in zip(result[1:], states, strict=True):
            if _shape(new) != _shape(old):
                raise self._wrong(f"gives {_shown(new)} for a state that is {_shown(old)}", args)

    def _wrong(self, fault: str, args: Sequence[Any]) -> MksError:
        given = ", ".join(map(_shown, args)) or "nothing"
        return MksError([Diagnostic("E105", f"`{self.place}`, which computes `{self.op}` of {given}, {fault}")])


def _fits(found: list[int], shape: list[int], lead: list[int]) -> bool:
    cut = len(found) - len(shape)
    if cut not in (0, len(lead)) or found[cut:] != shape:
        return False
    return all(length in (1, whole) for length, whole in zip(found[:cut], lead, strict=False))


def _shape(value: Any) -> list[int] | None:
    """Of an array of numbers, or of a number."""
    if isinstance(value, bool | int | float):
        return []
    if isinstance(value, jax.Array | np.ndarray | np.generic) and not jnp.issubdtype(value.dtype, jnp.complexfloating):
        return list(value.shape)
    return None


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{getattr(value, 'dtype', type(value).__name__)}{list(shape)}"


@cache
def brought(group: str, name: str) -> Brought | None:
    """An op's implementation from an installed package. Raises `MksError` (E105) if it cannot be loaded."""
    given = entries(group).get(name)
    if given is None:
        return None
    try:
        function = load(given)
        if not callable(function):
            raise PackageError(f"`{given[0].value}` is no function, but {type(function).__name__}")
    except PackageError as e:
        fault = Diagnostic("E105", f"nothing computes `{name}`", notes=(f"in `{group}`, {e}",))
        raise MksError([fault]) from (e.__cause__ or e)
    return Brought(name, given[0].value, function)
