"""From a model to an instance: defaults, overrides, and a checkpoint's `config.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from attrs import field

from ..diagnostics import Diagnostic, Sink, did_you_mean
from ..records import define
from ..text import syntax as s
from . import ir as m
from .instance import Instance
from .static import StaticError, Value, evaluate, simplified

_ABSENT = object()


def look_up(config: Mapping[str, Any], key: str) -> Any:
    """A dotted key's value in a nested config, or a mark that it is absent (compare with `is_absent`)."""
    value: Any = config
    for word in key.split("."):
        if not isinstance(value, Mapping) or word not in value:
            return _ABSENT
        value = value[word]
    return _ABSENT if value is None else value


def is_absent(value: Any) -> bool:
    """Whether `look_up` found nothing."""
    return value is _ABSENT


@define
class _Values:
    """Sizes, constants and lists, evaluated when first asked for, so that their order does not matter."""

    model: m.Model
    config: Mapping[str, Any] | None
    overrides: Mapping[str, Value]
    adopt: bool
    sink: Sink
    adopting: str
    known: dict[str, Value] = field(factory=dict)
    open: list[str] = field(factory=list)

    def __contains__(self, name: object) -> bool:
        return name in self.model.sizes or name in self.model.lists or name == "all"

    def __getitem__(self, name: str) -> Value:
        if name == "all":
            return math.inf
        if name not in self.known:
            size = self.model.sizes.get(name)
            if name in self.open:
                at = size or self.model.lists[name]
                self.known |= dict.fromkeys(self.open[self.open.index(name) :], 1)  # one circle, one error
                circle = " -> ".join([*self.open[self.open.index(name) :], name])
                raise StaticError(f"`{name}` is defined in terms of itself: {circle}", at.span)
            self.open.append(name)
            try:
                self.known[name] = self._size(size) if size is not None else self._list(self.model.lists[name])
            finally:
                self.open.pop()
        return self.known[name]

    def _size(self, size: m.Size) -> Value:
        if size.name in self.overrides:
            return self._legal(size, self.overrides[size.name])
        if self.config is not None and size.keys and self.adopt:
            configured = self._configured(size.keys)
            if not is_absent(configured):
                if (
                    isinstance(configured, bool)
                    or not isinstance(configured, int | float)
                    or not -math.inf < configured < math.inf
                ):
                    self.sink.report(
                        "E412", f"the config's `{size.keys[0]}` is not a number: {configured!r}", size.span
                    )
                else:
                    return self._legal(size, _tidy(configured))
            else:
                keys = " nor ".join(f"`{k}`" for k in size.keys)
                self.sink.report("E411", f"the config has no {keys}, which `{size.name}` is read from", size.span)
        return self._legal(size, evaluate(size.default, self))

    def _legal(self, size: m.Size, value: Value) -> Value:
        if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
            self.sink.report("E112", f"`{size.name}` must be a number, not {value!r}", size.span)
            return 1
        if isinstance(value, Fraction):
            value = simplified(value)
        finite = _finite(value)
        if size.kind == "size" and (not isinstance(value, int) or not 0 < value < 1 << 40):
            text = f"{float(value):g}" if finite and not isinstance(value, int) else str(value)
            self.sink.report("E113", f"a size must be a positive whole number; `{size.name}` is {text}", size.span)
            return 1
        if not finite:
            self.sink.report("E112", f"`{size.name}` must be a finite number, as f64 has it", size.span)
            return 1
        return value

    def _list(self, declared: m.LayerList) -> Value:
        if declared.name in self.overrides:
            return self.overrides[declared.name]
        if self.config is not None and declared.keys and self.adopt:
            configured = self._configured(declared.keys)
            values = None if is_absent(configured) else _numbers(configured, declared.where)
            if values is not None:
                return values
            code, what = ("E411", "has no") if is_absent(configured) else ("E412", "has no list of numbers at")
            self.sink.report(
                code, f"the config {what} `{declared.keys[0]}`, which `{declared.name}` is read from", declared.span
            )
        return self._default(declared)

    def _default(self, declared: m.LayerList) -> tuple[int, ...]:
        items: list[int] = []
        for item in declared.items:
            if isinstance(item, s.Range):
                assert item.stop is not None
                step = evaluate(item.step, self) if item.step is not None else 1
                bounds = [evaluate(item.start, self), evaluate(item.stop, self), step]
                if any(isinstance(b, bool) or not isinstance(b, int) for b in bounds) or bounds[2] == 0:
                    raise StaticError(
                        "a range has whole numbers as its bounds and as its step, which must not be 0", item.span
                    )
                start, stop, by = (int(b) for b in bounds)  # type: ignore[arg-type]
                if abs(stop - start) > 1 << 20:
                    raise StaticError("this range has more than 2 ** 20 numbers", item.span)
                items.extend(range(start, stop, by))
            else:
                value = evaluate(item, self)
                if isinstance(value, bool) or not isinstance(value, int):
                    raise StaticError("a list holds whole numbers", item.span)
                items.append(value)
        return tuple(items)

    def _configured(self, keys: tuple[str, ...]) -> Any:
        assert self.config is not None
        return next((v for key in keys if not is_absent(v := look_up(self.config, key))), _ABSENT)

    def compare(self) -> None:
        """Report every key of the config that says something else than the definition."""
        for size in self.model.sizes.values():
            configured = self._configured(size.keys) if size.keys else _ABSENT
            if size.name in self.overrides or not size.keys:
                continue
            mine = self[size.name]
            if is_absent(configured):
                keys = " nor ".join(f"`{k}`" for k in size.keys)
                self.sink.report("W411", f"the config has no {keys}; `{size.name}` keeps {_show(mine)}", size.span)
            elif isinstance(configured, bool) or not isinstance(configured, int | float) or configured != mine:
                self.sink.report(
                    "E410",
                    f"the config says `{size.keys[0]}` = {configured!r}; here `{size.name}` is {_show(mine)}",
                    size.span,
                    helps=(f"`{self.adopting}` takes the sizes from the config",),
                )
        for declared in self.model.lists.values():
            if not declared.keys or declared.name in self.overrides:
                continue
            configured = self._configured(declared.keys)
            mine = self[declared.name]
            if not is_absent(configured) and _numbers(configured, declared.where) != mine:
                self.sink.report(
                    "E410",
                    f"the config's `{declared.keys[0]}` is not what `{declared.name}` lists",
                    declared.span,
                    notes=(f"config: {_numbers(configured, declared.where)}", f"definition: {mine}"),
                    helps=(f"`{self.adopting}` takes the sizes from the config",),
                )

    def guard(self) -> None:
        """Report every `require` that the config does not meet."""
        assert self.config is not None
        for require in self.model.requires:
            value, wanted = look_up(self.config, require.key), evaluate(require.value, {"true": True, "false": False})
            if is_absent(value):
                if not require.or_absent:
                    self.sink.report(
                        "E413", f"the config has no `{require.key}`; it must be {_show(wanted)}", require.span
                    )
            elif (type(value) is not type(wanted) and not _both_numbers(value, wanted)) or value != wanted:
                self.sink.report(
                    "E413", f"the config says `{require.key}` = {value!r}; it must be {_show(wanted)}", require.span
                )


def _both_numbers(a: object, b: object) -> bool:
    return all(isinstance(x, int | float) and not isinstance(x, bool) for x in (a, b))


def _show(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def _finite(value: int | float | Fraction) -> bool:
    """Whether it can be computed with."""
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _tidy(value: float) -> int | float:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53 else value


def _numbers(value: Any, where: str | int | float | None) -> tuple[int, ...] | None:
    if not isinstance(value, list | tuple):
        return None
    if where is not None:
        alike = (lambda item: _both_numbers(item, where)) if not isinstance(where, str) else (lambda item: True)
        return tuple(i for i, item in enumerate(value) if alike(item) and item == where)
    return tuple(value) if all(isinstance(x, int) and not isinstance(x, bool) for x in value) else None


def instantiate(
    model: m.Model,
    *,
    config: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Value] | None = None,
    adopt: bool = False,
    working: str = "bf16",
    adopting: str = "--sizes config",
) -> tuple[Instance | None, list[Diagnostic]]:
    """An instance, or what stands in its way.

    `overrides` win over everything. With `adopt` the config's values are taken, otherwise they must be the
    definition's own; `adopting` is the option by which the command at hand adopts. `require` guards are checked
    whenever there is a config.
    """
    sink = Sink()
    values = _Values(model, config, overrides or {}, adopt, sink, adopting)
    for name in overrides or {}:
        if name not in values:
            known = [*model.sizes, *model.lists]
            sink.report("E114", f"`{model.name}` has no size `{name}`", helps=did_you_mean(name, known))
    for name in (*model.sizes, *model.lists):
        try:
            values[name]
        except StaticError as e:
            sink.report("E111", e.message, e.span)
    if config is not None and not sink.failed:
        values.guard()
        if not adopt:
            values.compare()
    if sink.failed:
        return None, sink.diagnostics
    return Instance(model, {**values.known, "all": math.inf, "true": True, "false": False}, working), sink.diagnostics
