"""The grammar of a value that stands in a call as it is: what it takes and what it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import field, frozen
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from mks.server.dialects.calls_xml import VALUE_CLOSE
from mks.server.dialects.formats import FORMATS, LONGEST, search_pattern
from mks.server.dialects.relaxed import holdable, outline
from mks.server.dialects.xml_values import lowered
from mks.server.engine.grammar import GrammarError, json_rule
from mks.server.engine.grammar_worker import Bytes, limits, trial

BYTES = LLTokenizer(TokenizerWrapper(Bytes(260, [257], [258])), eos_token=[258])
COLOR = {"enum": ["red", "green"], "type": "string"}


@frozen
class Grammar:
    """A grammar over bytes."""

    text: str = field(repr=False)

    def takes(self, text: str) -> bool:
        """Whether a whole text is of it."""
        matcher = LLMatcher(BYTES, self.text, log_level=0, limits=limits())
        assert not matcher.is_error(), matcher.get_error()
        for byte in text.encode():
            if not matcher.compute_bitmask()[byte // 8] >> byte % 8 & 1:
                return False
            matcher.consume_token(byte)
        return matcher.is_accepting()


def grammar(schema: Any) -> Grammar:
    """Of a value and what closes it."""
    value = lowered(schema, {"$defs": {"color": COLOR, "loop": {"$ref": "#/$defs/loop"}}}, "VALUE")
    return Grammar(f"start: {value.rule}\n" + (f"VALUE: {value.terminal}\n" if value.terminal else ""))


def text(**bounds: Any) -> dict[str, Any]:
    """The schema of a string."""
    return {"type": "string", **bounds}


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        ({}, ["", "5", "a</parameter>b", "a\n", "\n<"], ["a\n</parameter>", "a\n</parameter>\nb"]),
        (text(pattern="^a+$"), ["a", "aa"], ["", "b", "aab", "a\n"]),
        (text(pattern="a/b|^c|d$"), ["xa/by", "cz", "zd"], ["zc", "dz", "a/", "a/b\n</parameter>\nx"]),
        (text(pattern=r"[/\]^$]\/"), ["//", "]/", "x$/y"], ["a/"]),
        (text(minLength=2, maxLength=3), ["äö", "abc", "\n\n"], ["", "a", "abcd"]),
        (text(pattern="b", format="date-time", minLength=0), [], ["2024-01-01T00:00:00Z", "b"]),
        (text(pattern="Z", format="date-time", maxLength=20), ["2024-01-01T00:00:00Z"], ["2024-01-01T00:00:00.5Z"]),
        (text(enum=["a", "bb", "\n</parameter>\n"], minLength=2), ["bb"], ["a", "\n</parameter>\n"]),
        ({"const": "x"}, ["x"], ["y", "xx"]),
        ({"anyOf": [text(format="date"), {"type": "null"}]}, ["2024-02-29", "null"], ["x", "None", "2024-02-30"]),
        ({"type": ["string", "integer"], "maxLength": 2}, ["ab", "5a", "1234", "-1"], ["abc", "01x"]),
        (
            {"anyOf": [text(maxLength=4), {"type": "array", "items": {"type": "integer"}}]},
            ["[1,\n 2]", "[]", "ab", "a[1]"],
            ["[a]", '["a"]', " [1]", "abcde"],
        ),
        ({"anyOf": [{"type": "boolean"}, text(pattern="^t")]}, ["true", "false", "tr"], ["True", "fals"]),
        ({"enum": ["1", 1, None, "a"]}, ["1", "null", "a"], ["None", "2"]),
        ({"allOf": [{"$ref": "#/$defs/color"}], "default": "red"}, ["red", "green"], ["blue"]),
        ({"anyOf": [{"$ref": "#/$defs/color"}, {"type": "null"}]}, ["red", "null"], ["blue"]),
        ({"allOf": [text(minLength=2), text(maxLength=2)]}, ["ab"], ["a", "abc"]),
        ({"type": "integer", "minimum": 3}, ["3", "10"], ["2", "x", "3.5"]),
        ({"type": ["string", "number"], "contentEncoding": "base64"}, ["1.5", "x"], []),
    ],
)
def test_a_value_is_held(schema: dict[str, Any], taken: list[str], refused: list[str]) -> None:
    """To all that its schema says, and it never holds what closes it."""
    of_value = grammar(schema)
    assert [value for value in [*taken, *refused] if of_value.takes(value + VALUE_CLOSE)] == taken


@pytest.mark.parametrize(
    "schema",
    [
        text(pattern="(?=a)"),
        text(pattern="(^a)"),
        text(pattern=r"\ba"),
        text(pattern=r"(a)\1"),
        text(pattern="a)("),
        text(pattern=5),
        text(format="regex"),
        text(format=["date"]),
        text(maxLength=LONGEST + 1),
        text(minLength="1"),
        text(**{"not": {"const": "a"}}),
        {"oneOf": [text(), text(minLength=2)]},
        {"type": ["string", "integer"], "minimum": 3},
        {"anyOf": 5},
        {"enum": 5},
        {"$ref": "#/$defs/loop"},
        {"$ref": "#/$defs/none"},
        [1],
    ],
)
def test_what_cannot_be_held_is_told(schema: Any) -> None:
    """Rather than left out."""
    with pytest.raises(GrammarError):
        grammar(schema)


def test_what_nothing_satisfies_shows_at_once() -> None:
    """Though it is far behind the beginning of the whole."""
    for schema in (text(pattern="^a$", minLength=2), {"type": ["string", "null"], "enum": ["null"]}):
        value = lowered(schema, {}, "VALUE")
        assert value.bounded
        matcher = LLMatcher(BYTES, f"start: VALUE\nVALUE: {value.terminal}\n", log_level=0, limits=limits())
        assert trial(matcher, 64)


SAMPLES: dict[str, tuple[list[str], list[str]]] = {
    "date-time": (
        ["2024-02-29T01:02:03Z", "2024-12-31t23:59:60.5+01:00"],
        ["2024-02-30T01:02:03Z", "2024-01-01", "2024-01-01T01:02:03"],
    ),
    "time": (["01:02:03Z", "23:59:60.25-10:30"], ["24:00:00Z", "01:02:03"]),
    "date": (["2024-04-30"], ["2024-04-31", "2024-13-01", "24-01-01"]),
    "duration": (["P1Y2M3DT4H5M6S", "PT5M", "P3W", "P1M"], ["P", "PT", "P1YT", "P1Y3D", "5M"]),
    "email": (["a.b+c@d-e.fg", "x@[1.2.3.255]"], ["a.@b", "a@-b", "ab", "x@[1.2.3.256]"]),
    "hostname": (["a-b.c", "x"], ["-a", "a..b", "a_b", "a" * 64]),
    "ipv4": (["0.0.0.0", "255.249.199.10"], ["256.1.1.1", "01.1.1.1", "1.1.1"]),
    "ipv6": (["::", "::1", "1::8", "1:2:3:4:5:6:7::", "fe80::1:2"], ["1:2:3:4:5:6:7", "1::2::3", "12345::"]),
    "uuid": (["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000", "g-"]),
    "uri": (["http://a@b:80/c%20d?e#f", "urn:x:y", "http://[::1]/", "a:"], ["/a", "http://a b", "1:x", "http://%zz"]),
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_those_of_json(name: str) -> None:
    """The same values as text and in JSON."""
    taken, refused = SAMPLES[name]
    of_text, of_json = grammar(text(format=name)), Grammar(f"start: {json_rule(text(format=name))}")
    assert [value for value in [*taken, *refused] if of_text.takes(value + VALUE_CLOSE)] == taken
    assert [value for value in [*taken, *refused] if of_json.takes(json.dumps(value))] == taken


def test_less_of_a_schema() -> None:
    """First without what no grammar holds, then types and names alone."""
    date = text(format="date", pattern="^(?!a)", title="A", maxLength=LONGEST + 1, **{"not": {}})
    schema = {
        "type": "object",
        "properties": {"format": date, "b": {"oneOf": [text(pattern="^a"), {"$ref": "#/$defs/c"}]}},
        "patternProperties": {r"\bx": {}},
        "required": ["format"],
        "$defs": {"c": {"type": "array", "items": text(minLength=2), "uniqueItems": True}},
    }
    held = holdable(schema)
    assert held == {
        "type": "object",
        "properties": {"format": text(format="date"), "b": {"anyOf": [text(pattern="^a"), {"$ref": "#/$defs/c"}]}},
        "required": ["format"],
        "$defs": {"c": {"type": "array", "items": text(minLength=2)}},
    }
    assert outline(schema)["properties"] == {"format": text(), "b": {"anyOf": [text(), {"$ref": "#/$defs/c"}]}}
    assert outline(schema)["$defs"] == {"c": {"type": "array", "items": text()}}


def test_patterns_are_found_anywhere() -> None:
    """Unless they say where."""
    assert search_pattern("a|^b$") == "(?s:.*)(?:a)(?s:.*)|(?:b)"
    assert search_pattern("a^b") is None
