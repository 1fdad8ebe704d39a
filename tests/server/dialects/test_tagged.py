"""Reasoning and calls in text: every exit, and the same for every way of cutting."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from helpers.tiers import thorough_but
from hypothesis import given, settings
from hypothesis import strategies as st

from mks.server.dialects.calls_json import JsonCalls
from mks.server.dialects.calls_xml import XmlCalls, typed, types_of
from mks.server.dialects.channels import Kind, Message, Parser, Piece, fold, joined, partial, reasoning_tokens
from mks.server.dialects.tagged import TaggedParser

SCHEMAS: dict[str, dict[str, Any]] = {
    "f": {
        "properties": {
            "text": {"type": "string"},
            "n": {"type": "integer"},
            "any": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "list": {"$ref": "#/$defs/list"},
            "flag": {"enum": [True, False]},
        },
        "$defs": {"list": {"type": "array"}},
    }
}


def json_parser() -> TaggedParser:
    """Thinking, calls as JSON."""
    return TaggedParser(thinks=True, calls=JsonCalls(("f", "g")))


def xml_parser() -> TaggedParser:
    """Thinking, calls as markup."""
    return TaggedParser(thinks=True, calls=XmlCalls(SCHEMAS))


def opened_json_parser() -> TaggedParser:
    """The prompt has opened the reasoning, calls are JSON."""
    return TaggedParser(thinks=True, opened=True, calls=JsonCalls(("f", "g")))


def opened_parser() -> TaggedParser:
    """The prompt has opened the reasoning; no calls."""
    return TaggedParser(thinks=True, opened=True)


def held_parser() -> TaggedParser:
    """A grammar holds the answer to calls as markup."""
    return TaggedParser(thinks=False, calls=XmlCalls(SCHEMAS, constrained=True))


def called_parser() -> TaggedParser:
    """The prompt has opened the reasoning, calls are markup."""
    return TaggedParser(thinks=True, opened=True, calls=XmlCalls(SCHEMAS))


def read(parser: Parser, parts: Sequence[str], cut: bool = False) -> Message:
    """The message that parts of a text make."""
    pieces = [piece for part in parts for piece in parser.push(part)]
    return fold([*pieces, *parser.finish(cut)])


def call(name: str, **arguments: Any) -> tuple[str, str]:
    """A call as it is read."""
    return name, json.dumps(arguments)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello", Message(content="Hello")),
        ("<think>\nhm\n\nso\n</think>\n\nHi \n", Message("hm\n\nso", "Hi \n")),
        ("\n<think></think>Hi", Message("", "Hi")),
        ("<think>no end\n", Message("no end\n")),
        ("a <think>b</think>", Message(content="a <think>b</think>")),
        ("<thin", Message(content="<thin")),
        ("<think>a</thin", Message("a</thin")),
        (
            'Well.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
            Message("", "Well.", (call("f", a=1),)),
        ),
        (
            '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>\n<tool_call>\n'
            '{"name": "g", "arguments": {}}\n</tool_call>\n bye ',
            Message("", "bye ", (call("f", a="</tool_call>"), call("g"))),
        ),
        ('<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', Message("", "", (call("f", a=1),))),
        ('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', Message("", "", (call("f", a=1),))),
        ('<tool_call>{"name": "f"}</tool_call>', Message("", "", (call("f"),))),
        ('<tool_call>{"name": "f", "arguments": {"a": "}"}}', Message("", "", (call("f", a="}"),))),
        ("<tool_call>no JSON</tool_call>x", Message("", "<tool_call>no JSON</tool_call>x")),
        ('<tool_call>{"name": "f", "argu', Message("", '<tool_call>{"name": "f", "argu')),
    ],
)
def test_json_calls_and_reasoning(text: str, expected: Message) -> None:
    """What is marked is taken out; what is no markup stays, wherever the text is cut."""
    assert read(json_parser(), [text]) == expected
    assert read(json_parser(), list(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'Hi\n\n<tool_call>\n<function=f>\n<parameter=text>\na\n"b"\n</parameter>\n<parameter=n>\n12\n</parameter>\n'
            "</function>\n</tool_call>",
            Message("", "Hi", (call("f", text='a\n"b"', n=12),)),
        ),
        ("<tool_call><function=g></function></tool_call> x", Message("", "x", (call("g"),))),
        (
            "<tool_call><function=f><parameter=n>x</parameter><parameter=any>null</parameter><parameter=list>[1]"
            "</parameter><parameter=flag>True</parameter><parameter=new>5</parameter></function></tool_call>",
            Message("", "", (call("f", n="x", any=None, list=[1], flag=True, new="5"),)),
        ),
        (
            "<tool_call><function=f><parameter=text>\n\n a \n\n</parameter><parameter=any> b </parameter></function>"
            "</tool_call>",
            Message("", "", (call("f", text="\n a \n", any=" b "),)),
        ),
        # Left open, at each place where the next thing shows it.
        (
            "<tool_call><function=f><parameter=text>a\n<parameter=n>1</function></tool_call>",
            Message("", "", (call("f", text="a", n=1),)),
        ),
        ("<tool_call><function=f><parameter=text>a\n</tool_call>x", Message("", "x", (call("f", text="a"),))),
        ("<tool_call><function=f><parameter=text>a</param", Message("", "", (call("f", text="a</param"),))),
        ("<tool_call><function=f></tool_call>", Message("", "", (call("f"),))),
        ("<tool_call>what</tool_call>", Message("", "<tool_call>what</tool_call>")),
        ("<tool_call><functi", Message("", "<tool_call><functi")),
    ],
)
def test_xml_calls(text: str, expected: Message) -> None:
    """Values are typed by the schema, and one line break at each end of them is markup."""
    assert read(xml_parser(), [text]) == expected
    assert read(xml_parser(), list(text)) == expected


F, G = '{"name": "f", "arguments": {"a": 1}}', '{"name": "g", "arguments": {}}'
CALLS = (call("f", a=1), call("g"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Two in one tag.
        (f"<tool_call>\n{F}\n{G}\n</tool_call>", Message(calls=CALLS)),
        (f"<tool_call>{F}, {G}</tool_call>x", Message("", "x", CALLS)),
        (f"<tool_call>[{F}, {G}]</tool_call>", Message(calls=CALLS)),
        (f'<tool_call>{F[:-1]}, "id": "}}<"}}}}\n{G}</tool_call>', Message(calls=CALLS)),
        # Not closed, and another one, or text.
        (f"<tool_call>\n{F}\n<tool_call>\n{G}\n</tool_call>", Message(calls=CALLS)),
        (f"<tool_call>{F}<tool_call>{G}", Message(calls=CALLS)),
        (f"<tool_call>{F}\nDone.", Message("", "Done.", CALLS[:1])),
        # Named in prose.
        (f"I use <tool_call> now:\n<tool_call>{F}</tool_call>", Message("", "I use <tool_call> now:", CALLS[:1])),
        (f"`<tool_call>`{{x}} <tool_call>{F}</tool_call>", Message("", "`<tool_call>`{x}", CALLS[:1])),
        (f"<tool_call> {{x}} <tool_call>{F}</tool_call>", Message("", "<tool_call> {x}", CALLS[:1])),
        (f'<tool_call>{{"a<tool_call>{F}</tool_call>', Message("", f'<tool_call>{{"a<tool_call>{F}</tool_call>')),
        # Text around.
        (f"Hello<tool_call>{F}</tool_call> bye", Message("", "Hello bye", CALLS[:1])),
        (
            f"Hello \n<tool_call>{F}</tool_call>\n\n<tool_call>{G}</tool_call>\nbye ",
            Message("", "Hello \n\n\n\nbye ", CALLS),
        ),
        (f"\n<tool_call>{F}</tool_call>\nbye", Message("", "bye", CALLS[:1])),
        ("a <tool_call>what</tool_call>  b", Message("", "a <tool_call>what</tool_call>  b")),
        # Strings hold anything, in every order of the fields.
        (
            '<tool_call>{"arguments": {"a": "</tool_call><tool_call>{"}, "name": "f"}</tool_call>',
            Message(calls=(call("f", a="</tool_call><tool_call>{"),)),
        ),
        # In reasoning that was left open.
        (f"<think>hm \n<tool_call>{F}</tool_call>", Message("hm", "", CALLS[:1])),
        ('<think>a <tool_call> {"name": "x"} b</think>c', Message('a <tool_call> {"name": "x"} b', "c")),
        ("<think>a <tool_call>\n</think>c", Message("a <tool_call>", "c")),
    ],
)
def test_s8_no_json_call_is_lost(text: str, expected: Message) -> None:
    """Every call is returned, and text is kept as it was."""
    assert read(json_parser(), [text]) == expected
    assert read(json_parser(), list(text)) == expected


FX, GX = "<function=f>\n<parameter=n>\n1\n</parameter>\n</function>", "<function=g>\n</function>"
XCALLS = (call("f", n=1), call("g"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"<tool_call>\n{FX}\n{GX}\n</tool_call>", Message(calls=XCALLS)),
        (f"<tool_call>\n{FX}\n<tool_call>\n{GX}\n</tool_call>", Message(calls=XCALLS)),
        (f"<tool_call>{FX[:-11]}<tool_call>{GX}</tool_call>", Message(calls=XCALLS)),
        (f"<tool_call>{FX} Done.", Message("", "Done.", XCALLS[:1])),
        (f"I use <tool_call> now:\n<tool_call>{FX}</tool_call>", Message("", "I use <tool_call> now:", XCALLS[:1])),
        (f"Hello<tool_call>{FX}</tool_call> bye", Message("", "Hello bye", XCALLS[:1])),
        # Without opener, where the tool is known.
        (f"Well.\n{FX}\n</tool_call>", Message("", "Well.", XCALLS[:1])),
        (f"{FX}\n{FX}\nbye", Message("", "bye", XCALLS[:1] * 2)),
        ("Use <function=x> or <function=", Message("", "Use <function=x> or <function=")),
        (f"<think>hm\n<tool_call>\n{FX}\n</tool_call>", Message("hm", "", XCALLS[:1])),
        ("<think>a <tool_call><function=x> b</think>c", Message("a <tool_call><function=x> b", "c")),
    ],
)
def test_s8_no_xml_call_is_lost(text: str, expected: Message) -> None:
    """The same for markup."""
    assert read(xml_parser(), [text]) == expected
    assert read(xml_parser(), list(text)) == expected


VALUES = [
    "a</parameter>b",
    "a\n</parameter>b",
    "</parameter>",
    "<parameter=n>",
    "</function>",
    "</tool_call>",
    "a\n",
    "\n\n",
    "",
]
LOOSE_ONLY = [
    "a\n<parameter=n>\n1",
    "a</parameter>\n</function>\n</tool_call>",
    "a\n</tool_call>b",
    "a</function></tool_call>",
]


@pytest.mark.parametrize("cut", [False, True])
def test_a_parameter_that_comes_twice_keeps_its_first_value(cut: bool) -> None:
    """One key, whether the value was passed on as it came or not: what a stream has sent cannot be taken back."""
    first = [("text", "a"), ("n", "1"), ("any", "null")]
    again = [("n", "2"), ("text", 'b"'), ("any", "c"), ("text", "d")]
    body = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in first + again)
    text = f"<tool_call>\n<function=f>\n{body}</function>\n</tool_call>"
    expected = Message(calls=(call("f", text="a", n=1, any=None),))
    for parser in (xml_parser, held_parser):
        assert read(parser(), [text], cut) == read(parser(), list(text), cut) == expected
    # Cut inside of the second value: nothing of it is told.
    begun = read(xml_parser(), list(text[: text.index('b"') + 1]), cut)
    assert begun.calls[0][1] == '{"text": "a", "n": 1, "any": null' + ("" if cut else "}")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "[NaN]"])
def test_arguments_are_json(value: str) -> None:
    """What JSON cannot write stays text."""
    types = frozenset(["number", "array"])
    assert typed(value, types) == value


@pytest.mark.parametrize("value", VALUES + LOOSE_ONLY)
def test_s7_a_value_ends_where_the_template_ends_it(value: str) -> None:
    """At a line that is `</parameter>`; other ends count only where no grammar holds the model, before a tag."""
    text = f"<tool_call>\n<function=f>\n<parameter=text>\n{value}\n</parameter>\n</function>\n</tool_call>"
    assert read(held_parser(), [text]) == read(held_parser(), list(text)) == Message(calls=(call("f", text=value),))
    loose = read(xml_parser(), list(text))
    assert (loose == Message(calls=(call("f", text=value),))) == (value in VALUES)
    assert loose.calls[0][1].startswith('{"text": "a' if value[:1] == "a" else '{"text": "')


def test_the_prompt_may_have_opened_the_reasoning() -> None:
    """Then all is reasoning up to its end."""
    assert read(opened_parser(), ["\nhm\n</think>\n\nHi"]) == Message("hm", "Hi")
    assert read(opened_parser(), ["hm"], cut=True) == Message("hm")


@pytest.mark.parametrize("parser", [json_parser, xml_parser])
def test_a_call_that_was_cut_stays_incomplete(parser: Callable[[], TaggedParser]) -> None:
    """Nothing is made up, and markup is not shown as content."""
    head = {"json_parser": '{"name": "f", "arguments": {"text": "a', "xml_parser": "<function=f><parameter=text>a"}
    text = "<tool_call>" + head[parser.__name__]
    message = read(parser(), [text], cut=True)
    assert message.calls == (("f", '{"text": "a'),)
    assert not message.content
    begun = {"json_parser": "<tool_call>\n{", "xml_parser": "<tool_call>\n<func"}
    assert read(parser(), [begun[parser.__name__]], cut=True) == Message()


FRAGMENTS = [
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=f>", "</function>", "<parameter=text>"),
    *("<parameter=n>\n", "</parameter>", '{"name": "f", "arguments": ', '{"a": "b\\"}<"}', "}", '{"name": "g"}'),
    *("\n", "\n\n", " ", "a", "<", "<t", '"', "\\", "12", "🙂", "}", "{", "[", "]", ","),
    *("\n</parameter>\n", "<function=g>\n", '{"name": "f", "arguments": {}}', "<function=x>"),
]


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join),
    st.lists(st.integers(0, 200), max_size=6),
    st.sampled_from([json_parser, xml_parser, opened_parser, held_parser, called_parser]),
    st.booleans(),
)
def test_cutting_the_text_changes_nothing(
    text: str, places: list[int], parser: Callable[[], TaggedParser], cut: bool
) -> None:
    """Whole, in single characters or cut anywhere: the same message, the same reasoning."""
    places = sorted(place for place in places if place < len(text))
    cuts = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    whole, single, parted = parser(), parser(), parser()
    expected = read(whole, [text], cut)

    assert read(single, list(text), cut) == expected
    assert read(parted, cuts, cut) == expected
    assert single.spans == parted.spans == whole.spans


MANY = [
    (json_parser, "<tool_call> no "),
    (json_parser, '<tool_call>{"name": "f", "arguments": {}}</tool_call>'),
    (json_parser, '<tool_call>{"name": "'),
    (opened_json_parser, "<tool_call> no "),
    (xml_parser, "<tool_call><function=f><parameter=text>a</parameter></function></tool_call> x "),
    (xml_parser, "<function=x> "),
    (xml_parser, "<function=f><parameter=n>1</parameter></function>"),
]


def seconds(parser: Parser, text: str) -> float:
    """Of a processor, to read a whole answer."""
    gc.collect()
    gc.disable()
    start = time.process_time()
    read(parser, [text])
    reasoning_tokens(range(0, len(text), 8), parser.spans)
    gc.enable()
    return time.process_time() - start


@pytest.mark.parametrize(("parser", "part"), thorough_but(MANY[:1], MANY))
def test_an_answer_of_many_markers_is_read_in_time(parser: Callable[[], TaggedParser], part: str) -> None:
    """Twice the markers take twice the time of a processor; a copy of the rest at each takes four times as much."""
    count = 20_000
    once = twice = float("inf")
    for _ in range(6):
        once, twice = min(once, seconds(parser(), part * count)), min(twice, seconds(parser(), part * 2 * count))
        if twice < 2.7 * once:
            return
    pytest.fail(f"twice the markers take {twice / once:.1f} times as long")


def test_pieces_of_a_kind_are_joined_in_time() -> None:
    """However many there are."""
    for count in (20_000, 200_000):
        start = time.process_time()
        assert len(joined([Piece(Kind.CONTENT, "a" * 20)] * count)[0].text) == 20 * count
    assert time.process_time() - start < 2


def test_a_parser_that_reads_each_part_alone_is_found_out() -> None:
    """The check above can fail."""
    text = "<think>a</think>b"
    alone = [piece for part in ("<thi", "nk>a</think>b") for piece in json_parser().push(part)]
    assert fold(alone) != read(json_parser(), [text])


def test_pieces_are_joined() -> None:
    """Neighbours of a kind become one; a push gives few pieces."""
    pieces = json_parser().push('<think>a b</think>c<tool_call>{"name": "f", "arguments": {}}</tool_call>')
    assert [piece.kind for piece in pieces] == [Kind.REASONING, Kind.CONTENT, Kind.CALL, Kind.ARGUMENTS]
    assert joined([*pieces, *pieces[-1:]])[-1].text == "{}{}"


def test_tokens_of_reasoning_are_counted_by_where_they_begin() -> None:
    """Between the marks, whatever was held back."""
    parser = json_parser()
    read(parser, ["<think>", "ab", "c", "</think>", "d"])
    assert parser.spans == [(7, 10)]
    assert reasoning_tokens([0, 7, 9, 10, 18], parser.spans) == 2
    assert reasoning_tokens([0, 7, 9], [(0, None)]) == 3


def test_what_may_still_become_a_marker() -> None:
    """The longest end of a text that begins one, never a whole one."""
    assert [partial(text, "<ab>", "<a") for text in ("x<", "x<a", "<ab", "<ab>", "b", "")] == [1, 2, 3, 0, 0, 0]


def test_types_and_values() -> None:
    """A text stands for a value of the types that its schema allows, else for itself."""
    assert typed("5", frozenset(["integer"])) == 5
    assert typed("5.0", frozenset(["integer"])) == "5.0"
    assert typed(' {"a": 1} ', frozenset(["object"])) == {"a": 1}
    assert typed("5", frozenset(["array"])) == "5"
    assert typed('"5"', frozenset(["string", "null"])) == '"5"'
    assert typed("[" * 10**5, frozenset(["array"])) == "[" * 10**5
    circle = {"$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert types_of({"$ref": "#/$defs/a"}, circle) == frozenset()
    assert types_of({"type": ["null", "string"]}, {}) == {"null", "string"}
