"""Which dialect a checkpoint speaks: told by its tokenizer and its template, never by its name."""

from __future__ import annotations

from ...models.text.tokenizer import Tokenizer
from ..text.template import ChatTemplate
from . import kimi_k3
from .conversation import Dialect
from .jinja_dialect import CallStyle, JinjaDialect
from .tagged import CALL, THINK


def dialect_of(tokenizer: Tokenizer | None, template: ChatTemplate | None) -> Dialect | None:
    """The dialect of a checkpoint; None where it says nothing of conversations."""
    if tokenizer is None:
        return None
    kimi = kimi_k3.dialect_of(tokenizer)
    if kimi is not None or template is None:
        return kimi
    thinks = THINK in template.source or tokenizer.backend.token_to_id(THINK) is not None
    calls = None
    if CALL in template.source:
        calls = CallStyle.XML if "<function=" in template.source else CallStyle.JSON
    return JinjaDialect(template, tokenizer, thinks, calls)
