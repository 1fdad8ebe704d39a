"""Chat templates: jinja2 in a sandbox, with the means that `transformers` gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sized
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from attrs import field, frozen
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ...models.text.files import TextFiles, UnreadableFile
from ...models.text.tokenizer import token_text

# Bounds on one rendering. Real templates stay far below them.
MAX_TURNS = 300_000
MAX_CHARACTERS = 64 * 2**20

_NAMED_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")


class TemplateFailure(ValueError):
    """A conversation that the template refuses or cannot render."""


class _Environment(ImmutableSandboxedEnvironment):
    """A sandbox in which every turn of a loop is counted and no operator makes huge strings."""

    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Multiply or raise only where the result stays small."""
        text, count = (left, right) if isinstance(left, Sized) else (right, left)
        numbers = all(isinstance(side, int | float) and abs(side) < 2**31 for side in (left, right))
        if operator == "*" and isinstance(text, Sized) and isinstance(count, int):
            small = len(text) * count <= MAX_CHARACTERS // 64
        else:
            small = numbers and (operator == "*" or right <= 64)
        if not small:
            raise TemplateFailure(f"the template's `{operator}` makes too much")
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            turn = nodes.Call(nodes.Name("_turn", "load"), [], [], None, None)
            loop.body.insert(0, nodes.ExprStmt(turn).set_lineno(loop.lineno))
        return tree


class _Generation(Extension):
    """`{% generation %}`, which marks what a model is trained on; it renders its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body, as it stands."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as `transformers` writes it: no HTML escapes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _environment() -> jinja2.Environment:
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


@frozen
class ChatTemplate:
    """A compiled template and the tokens that it may name; `source` is its text."""

    source: str = field(repr=False)
    _template: jinja2.Template = field(repr=False)
    _tokens: Mapping[str, str]

    def render(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt for a conversation; `variables` are the template's own switches.

        Raises `TemplateFailure` with the template's reason.
        """
        turns = 0

        def turn() -> str:
            nonlocal turns
            turns += 1
            if turns > MAX_TURNS:
                raise TemplateFailure("the template runs for too long")
            return ""

        given = {**self._tokens, **(variables or {}), "messages": messages, "tools": tools, "_turn": turn}
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(given, add_generation_prompt=add_generation_prompt):
                parts.append(part)
                size += len(part)
                if size > MAX_CHARACTERS:
                    raise TemplateFailure(f"the rendered template has more than {MAX_CHARACTERS} characters")
        except TemplateFailure:
            raise
        except RecursionError:
            raise TemplateFailure("the template nests too deeply") from None
        except Exception as error:  # a template is a program: it may raise anything
            raise TemplateFailure(f"the chat template does not take this conversation: {error}") from error
        return "".join(parts)


def compile_template(source: str, tokens: Mapping[str, str] | None = None) -> ChatTemplate:
    """Compile a template's text. Raises `UnreadableFile` naming the line that is wrong."""
    try:
        return ChatTemplate(source, _environment().from_string(source), tokens or {})
    except jinja2.TemplateSyntaxError as error:
        raise UnreadableFile(f"the chat template is wrong at line {error.lineno}: {error.message}") from error


def load_template(files: TextFiles) -> ChatTemplate | None:
    """The template of a checkpoint, or None where it has none."""
    source: Any = files.template
    if source is None:
        source = files.tokenizer_config.get("chat_template")
    if isinstance(source, list):
        named = {item.get("name"): item.get("template") for item in source if isinstance(item, dict)}
        source = named.get("default")
    if source is None:
        return None
    if not isinstance(source, str):
        raise UnreadableFile("`chat_template` in tokenizer_config.json is not text")
    tokens = {name: token_text(files.tokenizer_config.get(name)) for name in _NAMED_TOKENS}
    return compile_template(source, {name: text for name, text in tokens.items() if text is not None})
