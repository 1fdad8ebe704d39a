"""`mks run` and `mks serve`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from .errors import ApiError
from .files import UnreadableFile
from .load import CannotOpen

_RUN_EXAMPLES = """\
examples:
  mks run smollm2 --prompt "What is the capital of France?"
  mks run smollm2 --raw --prompt "Once upon a time" --max-tokens 40
  mks run qwen3.mks --checkpoint ~/Qwen3-0.6B --sizes config --prompt Hello --temperature 0.7
  mks run qwen38 --checkpoint tiny --sizes config --ids 1,2,3 --max-tokens 8 --json --logits out.npz
"""

_SERVE_EXAMPLES = """\
examples:
  mks serve smollm2
  mks serve smollm2 --port 8080 --max-rows 8 --context 2048
  mks serve qwen38 --checkpoint ~/Qwen3.8-27B --sizes config --host 0.0.0.0

then, from Python:
  openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none").chat.completions.create(
      model="smollm2", messages=[{"role": "user", "content": "Hello"}])
"""


def run(argv: list[str]) -> int:
    """Answer one prompt on the terminal; the exit status."""
    return _guarded(_run_parser(), argv, _run)


def serve(argv: list[str]) -> int:
    """Serve a model over HTTP until a signal; the exit status."""
    return _guarded(_serve_parser(), argv, _serve)


def _run(args: argparse.Namespace) -> None:
    from .run import run_once

    run_once(args)


def _serve(args: argparse.Namespace) -> None:
    from .serve import serve_model

    serve_model(args)


def _guarded(parser: argparse.ArgumentParser, argv: list[str], work: Callable[[argparse.Namespace], None]) -> int:
    """Run a command: 1 and a message on stderr for what is to be expected, 2 for wrong usage.

    Anything else, diagnostics and bugs, is raised for `mks` itself to show.
    """
    try:
        args = parser.parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    try:
        work(args)
    except BrokenPipeError:
        raise
    except (CannotOpen, UnreadableFile, ApiError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _run_parser() -> argparse.ArgumentParser:
    parser = _parser("run", "Answer one prompt, greedily unless --temperature is given.", _RUN_EXAMPLES)
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="what the user says; without a chat template, or with --raw, "
                        "the text to continue")  # fmt: skip
    prompt.add_argument("--ids", metavar="1,2,3", type=_ids, help="the prompt as token ids")
    parser.add_argument("--raw", action="store_true", help="continue the text as it is, without the chat template")
    parser.add_argument("--max-tokens", metavar="N", type=_count, default=256, help="how long (default: %(default)s)")
    parser.add_argument("--temperature", metavar="T", type=_number(0, 2), default=0.0, help="0 to 2 (default: greedy)")
    parser.add_argument("--top-p", metavar="P", type=_number(0, 1), default=1.0, help="nucleus (default: all tokens)")
    parser.add_argument("--seed", metavar="N", type=int, help="makes a sampled answer repeatable")
    parser.add_argument("--ignore-eos", action="store_true", help="go on where the model would end")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object: prompt_ids, output_ids, text, seconds"
    )
    parser.add_argument("--logits", metavar="OUT.npz", type=Path, help="store the prompt's `logits` "
                        "[positions, vocab] in f32")  # fmt: skip
    return parser


def _serve_parser() -> argparse.ArgumentParser:
    parser = _parser("serve", "Serve a model over an OpenAI-compatible HTTP API.", _SERVE_EXAMPLES)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=8000, help="port; 0 takes a free one (default: %(default)s)")
    parser.add_argument("--max-rows", metavar="N", type=_count, default=4, help="sequences at a time; at least two are "
                        "compiled (default: %(default)s)")  # fmt: skip
    parser.add_argument("--context", metavar="N", type=_count, help="positions of a sequence, prompt and answer "
                        "together (default: the model's, at most 4096)")  # fmt: skip
    parser.add_argument("--model-name", metavar="NAME", help="what clients call the model (default: MODEL's name)")
    parser.add_argument("--max-waiting", metavar="N", type=_count, default=256, help="sequences that may wait before "
                        "requests are refused (default: %(default)s)")  # fmt: skip
    parser.add_argument("--drain", metavar="S", type=_number(0, 3600), default=20.0, help="seconds that running "
                        "answers get to end after SIGTERM (default: %(default)s)")  # fmt: skip
    return parser


def _parser(name: str, about: str, examples: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"mks {name}",
        description=about,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", help="a shipped definition's name, or a .mks file")
    parser.add_argument("--checkpoint", metavar="DIR", type=Path, help="a Hugging Face folder or a GGUF file "
                        "(default: the one that comes with the model)")  # fmt: skip
    parser.add_argument("--sizes", choices=["config"], help="take the sizes from the checkpoint's config.json")
    parser.add_argument("--dtype", choices=["f32", "bf16", "auto"], default="f32", help="what the model's bf16 means: "
                        "f32 is exact and fastest on most CPUs, bf16 takes half the memory, auto follows the "
                        "checkpoint (default: %(default)s)")  # fmt: skip
    parser.add_argument("--size", metavar="NAME=VALUE", type=_size, action="append", default=[], help="set one size")
    parser.add_argument(
        "--backend", choices=["reference", "pallas"], default="reference", help="(default: %(default)s)"
    )
    return parser


def _ids(text: str) -> tuple[int, ...]:
    return tuple(_natural(part) for part in text.split(","))


def _natural(text: str) -> int:
    if not text.strip().isdecimal() or len(text.strip()) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number, 0 or more")
    return int(text)


def _count(text: str) -> int:
    value = _natural(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _port(text: str) -> int:
    value = _natural(text)
    if value > 65535:
        raise argparse.ArgumentTypeError("must be at most 65535")
    return value


def _number(low: float, high: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be from {low:g} to {high:g}")
        return value

    return number


def _size(text: str) -> tuple[str, int | float]:
    name, equals, value = text.partition("=")
    try:
        if not equals or not name.isidentifier():
            raise ValueError
        return name, int(value) if value.lstrip("-").isdecimal() else float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, as in layers=2") from None
