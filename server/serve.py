"""The work of `mks serve`."""

from __future__ import annotations

import argparse
import logging
import math
import sys
from typing import Any

from ..dsl.decoder import Decoder
from .app import build_app
from .dialects import dialect_of
from .engine import Engine
from .files import TextFiles
from .generation import Wakeups
from .grammar import Grammars
from .http import listen, serve_until_signal
from .load import CannotOpen, open_model
from .observer import Observer
from .params import Rules, default_sampling
from .service import Service
from .template import load_template
from .terminal import warn
from .tokenizer import end_ids, load_tokenizer

DEFAULT_CONTEXT = 4096


def serve_model(args: argparse.Namespace) -> None:
    """Load a model and serve it until SIGINT or SIGTERM. Raises what `open_model` raises, `CannotOpen`, `OSError`."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for ours in ("mks", "uvicorn"):
        logging.getLogger(ours).setLevel(logging.INFO)
    opened = open_model(
        args.model,
        checkpoint=args.checkpoint,
        sizes_from_config=args.sizes == "config",
        sizes=dict(args.size),
        backend=args.backend,
        dtype=args.dtype,
    )
    warn(opened.warnings)
    context = args.context or min(opened.longest or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    if opened.longest is not None and context > opened.longest:
        raise CannotOpen(f"--context is {context}, but the model's context is {opened.longest}")
    bound = listen(args.host, args.port)
    with bound:
        decoder = opened.decoder(max(args.max_rows, 2), context, True)
        service = build_service(decoder, opened.files, args.model_name or opened.name, max_waiting=args.max_waiting)
        host, port = bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        bound.listen(1024)
        print(f"serving {service.rules.model} at http://{shown}:{port}/v1", file=sys.stderr, flush=True)
        engine = service.engine
        engine.start()
        serve_until_signal(build_app(service), bound, lambda: engine.stop(args.drain), args.drain)
        engine.stop()
        engine.join(10)


def build_service(
    decoder: Decoder, files: TextFiles, name: str, *, seconds: float = math.inf, observer: Observer | None = None,
    **engine_options: Any,
) -> Service:  # fmt: skip
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
    engine = Engine(decoder, turn_ids=ends, observer=observer, flush=wakeups.flush, **engine_options)
    dialect = dialect_of(tokenizer, load_template(files))
    grammars = None if tokenizer is None else Grammars(tokenizer, ends, decoder.vocab)
    return Service(engine, rules, tokenizer, dialect, grammars, wakeups, seconds)
