"""Options in parentheses: `(slots = 4)`, `(tile = 256 tokens)`, `(by = direct, wire = bf16)`."""

from __future__ import annotations

from ..diagnostics import Label, did_you_mean
from ..text import syntax as s
from .context import Draft

BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def options(given: tuple[s.Option, ...], known: tuple[str, ...], draft: Draft) -> dict[str, s.Option]:
    """Those that are known, by name, each once."""
    by_name: dict[str, s.Option] = {}
    for option in given:
        name = option.name.text
        if name not in known:
            draft.sink.report(
                "E206",
                f"unknown option `{name}`",
                option.span,
                notes=(f"known: {', '.join(known)}",),
                helps=did_you_mean(name, known),
            )
        elif name in by_name:
            draft.sink.report(
                "E202", f"`{name}` is given twice", option.span, others=(Label(by_name[name].span, "first here"),)
            )
        else:
            by_name[name] = option
    return by_name


def count(option: s.Option | None, units: dict[str, int], draft: Draft) -> int | None:
    """A positive whole number in one of the units (`""` is none)."""
    if option is None:
        return None
    value = option.value
    if not isinstance(value, s.Number):
        draft.sink.report("E205", f"`{option.name.text}` takes a number", option.span)
        return None
    unit = value.unit or ""
    if unit not in units:
        units_left = [u for u in units if u]
        helps = did_you_mean(unit, units_left) or ((f"write `{value.text} {units_left[-1]}`",) if units_left else ())
        what = f"unknown unit `{unit}`" if unit else f"`{option.name.text}` needs a unit"
        draft.sink.report("E206", what, value.span, helps=helps)
        return None
    if not isinstance(value.value, int) or not 0 < value.value < 1 << 40:
        draft.sink.report(
            "E205", f"`{option.name.text}` must be a positive whole number below 2 ** 40, not {value.text}", value.span
        )
        return None
    return value.value * units[unit]


def word(
    option: s.Option | None, known: tuple[str, ...], default: str, draft: Draft, notes: tuple[str, ...] = ()
) -> str:
    """One of the known words."""
    if option is None:
        return default
    text = option.value.text if isinstance(option.value, s.Words) else ""
    if text in known:
        return text
    draft.sink.report(
        "E206",
        f"`{option.name.text}` is one of {', '.join(known)}",
        option.span,
        notes=notes,
        helps=did_you_mean(text, known),
    )
    return default
