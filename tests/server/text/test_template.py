"""Chat templates."""

from __future__ import annotations

from typing import Any

import pytest

from mks.models.text.files import TextFiles, UnreadableFile
from mks.server.text.template import TemplateFailure, compile_template, load_template

USER = [{"role": "user", "content": "hi"}]


def render(source: str, **options: Any) -> str:
    """A rendered conversation of one message."""
    return compile_template(source, {"bos_token": "<s>"}).render(USER, **options)


def test_blocks_leave_no_white_space() -> None:
    """Lines that hold only a block vanish, as in `transformers`."""
    assert render("{% for m in messages %}\n  {% if m %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}\n") == "hi\n"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0]['content'] }}", "<s>hi"),
        ("{{ {'a': '<é>&'} | tojson }}", '{"a": "<é>&"}'),
        ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
        ("{{ strftime_now('%%') }}", "%"),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("{{ tools is none }}{{ enable_thinking is defined }}", "TrueFalse"),
        ("{% generation %}a{% endgeneration %}", "a"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ loop.index }}{% endfor %}", "1"),
        ("{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "3"),
        ("{{ '-' * 3 }}{{ 2 * 3 }}", "---6"),
    ],
)
def test_templates_have_their_usual_means(source: str, text: str) -> None:
    """Filters, functions, tags and variables that published templates use."""
    assert render(source) == text


def test_variables_reach_the_template() -> None:
    """`chat_template_kwargs` are variables; they cannot replace the messages."""
    assert render("{{ mode }}{{ messages[0].content }}", variables={"mode": "x", "messages": []}) == "xhi"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[5].content.x }}", "conversation"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "runs for too long"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nests too deeply"),
        ("{{ 'a' * 10**9 }}", "makes too much"),
        ("{{ 9 ** 99 }}", "makes too much"),
        ("{% for i in range(99999) %}{{ 'abcdefgh' * 1000 }}{% endfor %}", "characters"),
    ],
)
def test_a_failing_template_gives_its_reason(source: str, reason: str) -> None:
    """Refusals, mistakes, forbidden accesses and templates without end are all one kind of failure."""
    with pytest.raises(TemplateFailure, match=reason):
        render(source)


def test_a_wrong_template_names_its_line() -> None:
    """It is found when loading, not at the first request."""
    with pytest.raises(UnreadableFile, match="line 2"):
        compile_template("\n{% if %}")


def test_the_jinja_file_goes_before_the_configuration() -> None:
    """`chat_template.jinja` counts first, then `chat_template`, of several the default one; none is none."""
    config = {"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}
    config["bos_token"] = {"content": "<b>"}  # type: ignore[assignment]

    def text(files: TextFiles) -> str | None:
        template = load_template(files)
        return None if template is None else template.render(USER)

    assert text(TextFiles(template="{{ bos_token }}", tokenizer_config=config)) == "<b>"
    assert text(TextFiles(tokenizer_config=config)) == "d"
    assert text(TextFiles()) is None
