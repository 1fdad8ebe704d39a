"""Which scalars the ops take, at given sizes: what no shape rule sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from .static import Value

type Lengths = Mapping[str, tuple[int, ...]]
type Scalars = Mapping[str, Value]
type Domain = Callable[[Lengths, Scalars], Iterator[str]]


def is_number(value: Value) -> bool:
    """Whether arithmetic takes it."""
    return isinstance(value, int | float | Fraction) and not isinstance(value, bool)


def _whole(scalars: Scalars, name: str, least: int, most: int | None = None) -> Iterator[str]:
    value = scalars[name]
    whole = isinstance(value, int | float | Fraction) and value == int(value)
    if not whole or value < least or (most is not None and value > most):  # type: ignore[operator]
        limits = f"{least} to {most}" if most is not None else f"{least} or more"
        yield f"`{name}` is {value}; it must be a whole number, {limits}"


def _positive(scalars: Scalars, name: str) -> Iterator[str]:
    if not scalars[name] > 0:  # type: ignore[operator]
        yield f"`{name}` is {scalars[name]}; it must be more than 0"


def index(lengths: Lengths, scalars: Scalars) -> Iterator[str]:
    """A row that the table has; one chosen by a value is seen only when the model runs."""
    if is_number(scalars.get("i", False)):
        yield from _whole(scalars, "i", 0, lengths["table"][0] - 1)


def rope(lengths: Lengths, scalars: Scalars) -> Iterator[str]:
    """An even number of channels that are there, turned by a positive base."""
    yield from _positive(scalars, "theta")
    yield from _positive(scalars, "scaling")
    yield from _whole(scalars, "pairs", 0, 1)
    last = lengths["x"][-1]
    width = scalars.get("width", last)
    if not is_number(width) or width % 2 or not 0 < width <= last:  # type: ignore[operator]
        yield f"{width} of {last} channels are rotated; it must be an even number of them"


def route(lengths: Lengths, scalars: Scalars) -> Iterator[str]:
    """No more experts than there are, in equal groups of which no more are kept than there are."""
    experts = lengths["score"][0]
    yield from _whole(scalars, "top", 1, experts)
    yield from _whole(scalars, "groups", 1, experts)
    groups = scalars["groups"]
    if isinstance(groups, int) and 0 < groups <= experts:
        yield from _whole(scalars, "keep", 1, groups)
        if experts % groups:
            yield f"{experts} experts do not fall into {groups} equal groups"
        elif groups > 1 and experts // groups < 2:
            yield "a group is scored by its two best experts; each has only one"
        elif groups > 1 and scalars["keep"] * (experts // groups) < scalars["top"]:  # type: ignore[operator]
            yield f"the {scalars['keep']} groups that are kept have fewer than `top` = {scalars['top']} experts"


def mask(lengths: Lengths, scalars: Scalars) -> Iterator[str]:
    """A part of the last axis."""
    yield from _whole(scalars, "used", 1, lengths["x"][-1])


DOMAINS: Mapping[str, Domain] = {"index": index, "rope": rope, "route": route, "mask": mask}
# `causal` is a choice; what is no number as an index is said of it as an operand.
_OTHER = frozenset({"causal", "i"})


def faults(op: str, lengths: Lengths, scalars: Scalars) -> Iterator[str]:
    """What is wrong with the scalars of a call, if anything."""
    wrong = [f"`{name}` must be a number" for name, v in scalars.items() if name not in _OTHER and not is_number(v)]
    yield from wrong
    if not wrong and scalars.get("eps", 0) < 0:  # type: ignore[operator]
        yield f"`eps` is {scalars['eps']}; it must be 0 or more"
    if not wrong and op in DOMAINS:
        yield from DOMAINS[op](lengths, scalars)
