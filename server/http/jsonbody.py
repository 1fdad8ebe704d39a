"""Request bodies: JSON read without surprises, and strict access to its fields."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from attrs import frozen

from .errors import ApiError, bad_request

# JSON deeper than this is nothing a client means.
MAX_DEPTH = 128

# Objects and lists of a body, and commas between its values. As many are read in less than 0.1 s, in which nothing else
# runs; long texts and prompts of a million token ids have fewer.
MAX_CONTAINERS = 2**17
MAX_COMMAS = 2**20 + 2**17

_MARK = b"\xef\xbb\xbf"

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

INT64 = 2**63 - 1


def parse_body(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`, which may begin with a byte order mark. Raises `ApiError` 400 for anything else."""
    data = data.removeprefix(_MARK)
    _check_count(data)
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise bad_request("the body's JSON is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    except ValueError as error:  # a number with thousands of digits
        raise bad_request("the body's JSON holds a number that is too long") from error
    if not isinstance(value, dict):
        raise bad_request("the body is not a JSON object")
    _check_tree(value, surrogates=_SURROGATE.search(data) is not None)
    return value


def _check_count(data: bytes) -> None:
    """Refuse more values than are read in a moment."""
    if data.count(b"{") + data.count(b"[") <= MAX_CONTAINERS and data.count(b",") <= MAX_COMMAS:
        return
    containers = commas = 0
    for start, end in _outside(data):
        containers += data.count(b"{", start, end) + data.count(b"[", start, end)
        commas += data.count(b",", start, end)
        if containers > MAX_CONTAINERS:
            raise bad_request(f"the body's JSON has more than {MAX_CONTAINERS} objects and lists")
        if commas > MAX_COMMAS:
            raise bad_request(f"the body's JSON has more than {MAX_COMMAS} values")


def _outside(data: bytes) -> Iterator[tuple[int, int]]:
    """The stretches of a JSON text that are outside of its strings."""
    start = 0
    while (quote := data.find(b'"', start)) >= 0:
        yield start, quote
        start = quote + 1
        while (quote := data.find(b'"', start)) >= 0:
            before = data[start:quote]
            start = quote + 1
            if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
                break
        else:
            return
    yield start, len(data)


def _no_constant(name: str) -> NoReturn:
    raise bad_request(f"the body holds {name}, which is not JSON")


def _check_tree(root: dict[str, Any], surrogates: bool) -> None:
    """Refuse deep nesting and, if any are spelled in the body, surrogates that have no partner."""
    level: list[Any] = [root]
    for _ in range(MAX_DEPTH):
        children: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                children += value.values()
                children += value if surrogates else ()
            elif isinstance(value, list):
                children += value
            elif surrogates and isinstance(value, str):
                _check_text(value)
        if not children:
            return
        level = children
    raise bad_request(f"the body's JSON is nested more than {MAX_DEPTH} deep")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise bad_request("the body holds half of a surrogate pair, which is no character") from error


@frozen
class Fields:
    """Typed access to a JSON object's fields. A null is the same as no field; a boolean is no number.

    Every method raises `ApiError` 400 naming the field where the value is of another type or out of range.
    """

    raw: dict[str, Any]
    prefix: str = ""

    def path(self, name: str) -> str:
        """The full name of a field, for messages."""
        return self.prefix + name

    def wrong(self, name: str, what: str) -> ApiError:
        """The error for a field that is not `what`."""
        return bad_request(f"`{self.path(name)}` must be {what}, not {show(self.raw.get(name))}", self.path(name))

    def get(self, name: str) -> Any:
        """The value as it came."""
        return self.raw.get(name)

    def boolean(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.raw.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def integer(self, name: str, low: int, high: int = INT64) -> int | None:
        """A whole number within bounds."""
        value = self.raw.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            bound = f"{low} or more" if high == INT64 else f"from {low} to {high}"
            raise self.wrong(name, f"a whole number, {bound}")
        return value

    def number(self, name: str, low: float, high: float, default: float, *, above: bool = False) -> float:
        """A finite number from `low` (itself excluded with `above`) to `high`."""
        value = self.raw.get(name)
        if value is None:
            return default
        fine = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
        if not fine or not math.isfinite(value) or (above and value == low):
            start = f"above {low:g}" if above else f"from {low:g}"
            raise self.wrong(name, f"a number {start} to {high:g}" if math.isfinite(high) else f"a number {start}")
        return float(value)

    def text(self, name: str) -> str | None:
        """A string."""
        value = self.raw.get(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def choice(self, name: str, allowed: Iterable[str]) -> str | None:
        """One of some strings."""
        value = self.raw.get(name)
        options = tuple(allowed)
        if value is not None and value not in options:
            raise self.wrong(name, "one of " + ", ".join(f"`{option}`" for option in options))
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """An object; empty where absent."""
        value = self.raw.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return value

    def array(self, name: str) -> list[Any] | None:
        """A list."""
        value = self.raw.get(name)
        if value is not None and not isinstance(value, list):
            raise self.wrong(name, "a list")
        return value


def show(value: Any) -> str:
    """A value in a message: short, and never the text of a prompt."""
    if isinstance(value, str):
        return f"the string {value!r}" if len(value) <= 40 else f"a string of {len(value)} characters"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if value is None:
        return "null"
    return json.dumps(value)[:40]
