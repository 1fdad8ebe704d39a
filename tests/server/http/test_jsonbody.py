"""Request bodies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mks.server.http.errors import ApiError
from mks.server.http.jsonbody import Fields, parse_body


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"{not json", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b"[" * 100_000, "nested"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "nested"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "nested more than"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too long"),
        (b'{"a": "\\ud83d"}', "surrogate"),
        (b'{"\\udc00\\ud800": 1}', "surrogate"),
    ],
    ids=lambda value: value[:16] if isinstance(value, bytes) else None,
)
def test_what_is_no_object_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    """Broken, odd and hostile bodies are the client's mistake."""
    with pytest.raises(ApiError, match=reason) as caught:
        parse_body(data)
    assert caught.value.status == 400


def test_pairs_of_surrogates_are_characters() -> None:
    """The usual spelling of an emoji is fine."""
    assert parse_body(b'{"a": "\\ud83d\\ude00"}') == {"a": "😀"}


@given(st.binary(max_size=60))
def test_no_body_raises_anything_else(data: bytes) -> None:
    """Any bytes are an object or a refusal."""
    with contextlib.suppress(ApiError):
        assert isinstance(parse_body(data), dict)


@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [
        (lambda f: f.integer("x", 0, 5), [0, 5, 2.0, None], [-1, 6, 1.5, "1", True, [], 1e300, 10**30]),
        (lambda f: f.number("x", 0, 2, 1), [0, 2, 1.5, None], [-0.1, 2.1, "1", False, {}, 1e999]),
        (lambda f: f.number("x", 0, 1, 1, above=True), [1e-6, 1], [0, -1]),
        (lambda f: f.boolean("x"), [True, False, None], [0, 1, "true"]),
        (lambda f: f.text("x"), ["", "a", None], [1, [], True]),
        (lambda f: f.choice("x", ("a", "b")), ["a", None], ["c", 1, []]),
        (lambda f: f.mapping("x"), [{}, None], [[], "{}"]),
        (lambda f: f.array("x"), [[], None], [{}, "[]"]),
    ],
)
def test_fields_are_what_they_should_be(read: Callable[[Fields], Any], good: list[Any], bad: list[Any]) -> None:
    """Types and ranges are strict, null is absence, and the message names the field."""
    for value in good:
        read(Fields({"x": value}))
    for value in bad:
        with pytest.raises(ApiError, match=r"`p\.x` must be") as caught:
            read(Fields({"x": value}, "p."))
        assert caught.value.param == "p.x"


def test_messages_do_not_repeat_long_values() -> None:
    """A prompt in the wrong place is not echoed."""
    with pytest.raises(ApiError) as caught:
        Fields({"x": "secret" * 100}).integer("x", 0)
    assert "secret" not in caught.value.message
