"""The work of `mks run`."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from functools import partial

import numpy as np

from ...backends.commands.terminal import loading, warn
from ...backends.opening.cannot_open import CannotOpen
from ...backends.opening.load import Opened, open_model
from ...models.text.tokenizer import Tokenizer, end_ids, load_tokenizer
from ..api.params import check_ids
from ..dialects.choice import dialect_of
from ..dialects.conversation import Conversation
from ..engine.sampling_params import Sampling
from ..http.errors import ApiError
from ..text.answer import Limits
from ..text.template import load_template
from .generate import Generated, generate
from .model_options import opening

# Contexts are rounded up to a multiple of this, so that a prompt of another length finds the same compiled program.
ROUND = 256


def run_once(args: argparse.Namespace) -> None:
    """Answer one prompt and print it. Raises what `open_model` raises, and `CannotOpen`."""
    opened = open_model(**opening(args), loading=loading)
    warn(opened.warnings)
    tokenizer = load_tokenizer(opened.files)
    prompt = args.ids if args.ids is not None else _encode(opened, tokenizer, args.prompt, args.raw)
    if not prompt:
        raise CannotOpen("the prompt gives no tokens")
    if args.logits is not None and not args.logits.absolute().parent.is_dir():
        raise CannotOpen(f"there is no folder `{args.logits.absolute().parent}` to write the logits into")
    needed = len(prompt) + args.max_tokens
    if opened.longest is not None and needed > opened.longest:
        raise CannotOpen(
            f"the prompt has {len(prompt)} tokens and --max-tokens asks for {args.max_tokens} more, "
            f"but the model's context is {opened.longest}"
        )
    decoder = opened.decoder(*_room(opened, needed), False)
    check_ids(list(prompt), decoder.vocab, "ids")
    ends = () if args.ignore_eos else end_ids(opened.files, tokenizer)
    started = time.perf_counter()
    show = _print if tokenizer is not None and not args.json else _quiet
    answer = generate(
        decoder,
        prompt,
        Sampling(
            temperature=args.temperature,
            top_p=args.top_p,
            seed=secrets.randbits(63) if args.seed is None else args.seed,
        ),
        Limits(args.max_tokens, end_ids=frozenset(ends)),
        _no_text if tokenizer is None else partial(tokenizer.piece, skip_special_tokens=True),
        show=show,
        keep_logits=args.logits is not None,
    )
    seconds = time.perf_counter() - started
    if answer.logits is not None:
        # A file object, because numpy adds `.npz` to other names.
        with open(args.logits, "wb") as file:
            np.savez(file, logits=answer.logits)
    _report(args, prompt, answer, tokenizer, seconds)


def _report(
    args: argparse.Namespace, prompt: tuple[int, ...], answer: Generated, tokenizer: Tokenizer | None, seconds: float
) -> None:
    if args.json:
        out = {
            "prompt_ids": list(prompt),
            "output_ids": answer.ids,
            "text": None if tokenizer is None else answer.delta.text,
            "seconds": round(seconds, 6),
        }
        print(json.dumps(out, ensure_ascii=False))
    elif tokenizer is None:
        print(",".join(map(str, answer.ids)))
    else:
        print()


def _encode(opened: Opened, tokenizer: Tokenizer | None, text: str, raw: bool) -> tuple[int, ...]:
    """The ids of `--prompt`: a user's message, or a text to continue."""
    if tokenizer is None:
        raise CannotOpen("the checkpoint has no tokenizer; give the prompt as --ids")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CannotOpen("the prompt is not UTF-8") from None
    dialect = None if raw else dialect_of(tokenizer, load_template(opened.files))
    if dialect is None:
        return tuple(tokenizer.encode(text))
    try:
        prompt = dialect.prompt(Conversation([{"role": "user", "content": text}]))
    except ApiError as error:
        raise CannotOpen(error.message) from error
    return tuple(prompt.encode(prompt.text))


def _room(opened: Opened, needed: int) -> tuple[int, int]:
    """Rows and context: one row where steps are not compiled already. Raises `MksError` where those do not fit."""
    context = _rounded(needed, opened.longest)
    if opened.compiled is None:
        return 1, context
    fewest = opened.compiled.fewest
    return opened.compiled.check(fewest.rows, context if needed > fewest.context else None)


def _rounded(needed: int, longest: int | None) -> int:
    context = -(-needed // ROUND) * ROUND
    return context if longest is None else min(context, longest)


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _quiet(text: str) -> None:
    pass


def _no_text(token: int) -> bytes:
    return b""
