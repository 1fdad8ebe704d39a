"""`mks run` and `mks serve`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from ...backends.commands.run_command import command_parser, guarded
from ...dsl.commands.argtypes import count, ids, number
from ..engine.sequence import NotFinite
from ..http.errors import ApiError
from .model_options import add_model, check_model
from .serve_options import EXAMPLES, add_options

_RUN_EXAMPLES = """\
examples:
  mks run smollm2 --prompt "What is the capital of France?"
  mks run smollm2 --raw --prompt "Once upon a time" --max-tokens 40
  mks run qwen3.mks --checkpoint ~/Qwen3-0.6B --sizes config --prompt Hello --temperature 0.7
  mks run qwen38 --checkpoint tiny --sizes config --ids 1,2,3 --max-tokens 8 --json --logits out.npz
  mks run smollm2 --backend pallas --ids 1,2,3 --max-tokens 2
  mks run --packed packed --prompt Hello --max-tokens 2       # what `mks pack -o packed` wrote
"""


def run(argv: list[str]) -> int:
    """Answer one prompt on the terminal; the exit status."""
    return guarded(partial(_parse, run_parser()), argv, _run, (ApiError, NotFinite))


def serve(argv: list[str]) -> int:
    """Serve a model over HTTP until a signal; the exit status."""
    return guarded(partial(_parse, serve_parser()), argv, _serve, (ApiError,))


def _run(args: argparse.Namespace) -> None:
    from .run import run_once

    run_once(args)


def _serve(args: argparse.Namespace) -> None:
    from .serve import serve_model

    serve_model(args)


def serve_parser() -> argparse.ArgumentParser:
    """The command line of `mks serve`."""
    return add_options(_parser("serve", "Serve a model over an OpenAI-compatible HTTP API.", EXAMPLES))


def run_parser() -> argparse.ArgumentParser:
    """The command line of `mks run`."""
    parser = _parser("run", "Answer one prompt, greedily unless --temperature is given.", _RUN_EXAMPLES)
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument(
        "--prompt",
        metavar="TEXT",
        help="what the user says; without a chat template, or with --raw, the text to continue",
    )
    prompt.add_argument("--ids", metavar="1,2,3", type=ids, help="the prompt as token ids")
    parser.add_argument("--raw", action="store_true", help="continue the text as it is, without the chat template")
    parser.add_argument(
        "--max-tokens",
        metavar="N",
        type=count,
        default=256,
        help="limit of tokens in the answer (default: %(default)s)",
    )
    parser.add_argument("--temperature", metavar="T", type=number(0, 2), default=0.0, help="0 to 2 (default: greedy)")
    parser.add_argument(
        "--top-p",
        metavar="P",
        type=number(0, 1),
        default=1.0,
        help="nucleus sampling: the probability mass to sample from (default: all tokens)",
    )
    parser.add_argument("--seed", metavar="N", type=int, help="makes a sampled answer repeatable")
    parser.add_argument("--ignore-eos", action="store_true", help="go on after the end token")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object: prompt_ids, output_ids, text, seconds"
    )
    parser.add_argument(
        "--logits", metavar="OUT.npz", type=Path, help="store the prompt's `logits` [positions, vocab] in f32"
    )
    return parser


def _parser(name: str, about: str, examples: str) -> argparse.ArgumentParser:
    parser = command_parser(name, about, examples)
    add_model(parser)
    return parser


def _parse(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    args = parser.parse_args(argv)
    check_model(parser, args)
    return args
