"""A service out of a decoder and a checkpoint's text files, and whether it works."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backends.opening.cannot_open import CannotOpen
from ...dsl.decoder import Decoder
from ...models.text.files import TextFiles
from ...models.text.tokenizer import end_ids, load_tokenizer
from ..dialects.choice import dialect_of
from ..engine.engine import Engine
from ..engine.grammar import Grammars
from ..http.errors import ApiError
from ..text.template import load_template
from .generation import Wakeups
from .params import Rules, default_sampling
from .service import Service


def build_service(
    decoder: Decoder, files: TextFiles, name: str, *, seconds: float = math.inf, **engine_options: Any
) -> Service:
    """The service for a decoder, its engine not started. Raises `UnreadableFile` for a broken tokenizer or template.

    `seconds` is how long a request may take; the other options are those of `Engine`.
    """
    tokenizer = load_tokenizer(files)
    ends = tuple(token for token in end_ids(files, tokenizer) if token < decoder.vocab)
    rules = Rules(
        model=name,
        vocab=decoder.vocab,
        context=decoder.context,
        texts=tokenizer is not None,
        end_ids=ends,
        defaults=default_sampling(files.generation_config),
    )
    wakeups = Wakeups()
    engine = Engine(decoder, turn_ids=ends, flush=wakeups.flush, **engine_options)
    dialect = dialect_of(tokenizer, load_template(files))
    grammars = None if tokenizer is None else Grammars(tokenizer, ends, decoder.vocab)
    return Service(engine, rules, tokenizer, dialect, grammars, wakeups, seconds)


def check_decoder(decoder: Decoder) -> None:
    """Read a token into every row and decode one in all of them. Raises `CannotOpen` where numbers come out wrong."""
    rows = range(decoder.rows)
    read = np.stack([decoder.prefill(row, [0], 0, last_only=True)[-1] for row in rows])
    out = [read]
    if decoder.context > 1:
        step = decoder.step([[0] for _ in rows], [1 for _ in rows], rows).wait()
        out.append(np.stack([step.logits[row][-1] for row in rows]))
    for logits in out:
        if logits.shape != (decoder.rows, decoder.vocab) or not np.isfinite(logits).all():
            raise CannotOpen(
                "the model's logits are not finite: its weights are damaged, or not those of its definition"
            )
        if not np.array_equal(logits, np.broadcast_to(logits[0], logits.shape)):
            raise CannotOpen("the rows of a batch give different logits for the same tokens")


def check_template(service: Service) -> None:
    """Render a conversation. Raises `CannotOpen` where the checkpoint's template does not take the simplest."""
    if service.dialect is None:
        return
    try:
        service.chat({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1})
    except ApiError as error:
        if error.code != "context_length_exceeded":
            raise CannotOpen(f"the checkpoint's chat template fails: {error}") from error
