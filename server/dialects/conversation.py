"""What a chat request says to the model, and the two things that a family of models does with it its own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol

from attrs import field, frozen

from ..engine.grammar import json_rule
from .channels import Parser
from .tools import Tools


class FormKind(Enum):
    """`response_format.type`."""

    TEXT = "text"
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"


@frozen
class Form:
    """What content must be; `schema` is the JSON schema, where it is JSON."""

    kind: FormKind = FormKind.TEXT
    schema: dict[str, Any] = field(factory=dict, repr=False)


@frozen
class Conversation:
    """A checked request but for its sampling parameters."""

    messages: list[dict[str, Any]] = field(repr=False)
    tools: Tools = field(factory=Tools)
    form: Form = field(factory=Form)
    add_generation_prompt: bool = True
    # The template's own switches.
    variables: Mapping[str, Any] = field(factory=dict)


def schemas(tools: Tools, form: Form) -> tuple[str, ...]:
    """A grammar for each JSON schema that an answer must keep to: what nothing satisfies shows at its beginning."""
    constrained = [{"type": "object", **tool.parameters} for tool in tools.callable if tool.constrained]
    return tuple(f"start: {json_rule(schema)}" for schema in [*_of_form(form), *constrained])


def _of_form(form: Form) -> list[dict[str, Any]]:
    return [] if form.kind is FormKind.TEXT else [form.schema]


class Encode(Protocol):
    """From a text to ids."""

    def __call__(self, text: str, most: int | None = None) -> list[int]:
        """The ids of `text`. Raises `TooManyTokens` for more than `most`."""


@frozen
class Prompt:
    """A conversation as text, the way to its ids, and how its answer is read and held to what was asked.

    `encode` takes a beginning of `text` and how many ids there may be, beyond which it raises `TooManyTokens`.
    `grammars` says what the answer is held to, with the calls held to these tools: Lark, the last for the whole answer,
    those before it for parts that must be satisfiable by themselves; none where the model is free. It raises
    `GrammarError`.
    """

    text: str = field(repr=False)
    encode: Encode = field(repr=False)
    parser: Callable[[], Parser] = field(repr=False)
    grammars: Callable[[Tools], tuple[str, ...]] = field(repr=False)
    # Tokens that are markup, as they stand in the text that the parser reads.
    marks: Mapping[int, str] = field(factory=dict, repr=False)


class Dialect(Protocol):
    """How a family of models writes conversations."""

    @property
    def developer_role(self) -> bool:
        """Whether it tells `developer` from `system`."""

    def prompt(self, conversation: Conversation) -> Prompt:
        """The prompt of a conversation. Raises `ApiError` 400 where it cannot be written."""
