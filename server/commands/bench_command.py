"""`mks bench serve`, and the way to `mks bench compile`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from ...backends.commands.run_command import command_parser, guarded, itself
from ...backends.opening.cannot_open import CannotOpen
from ...dsl.commands.argtypes import count, number

_EXAMPLES = """\
examples:
  mks bench serve smollm2
  mks bench serve http://127.0.0.1:8000 --clients 1,8,32 --requests 64 --json
  mks bench serve qwen3 -- --checkpoint ~/Qwen3-0.6B --sizes config --max-rows 16

`mks bench compile` compares times of compilation: mks bench compile --help
"""


def bench(argv: list[str]) -> int:
    """Measure a server, or compilers; the exit status: 0, 1 where any request failed, 2 for wrong usage."""
    if argv[:1] == ["compile"]:
        from ...backends.commands.bench_compile import bench_compile

        return bench_compile(argv[1:])
    own, passed = _split(argv)
    return guarded(make_parser().parse_args, own, partial(_serve, passed))


def _serve(passed: list[str], args: argparse.Namespace) -> int:
    with _target(args.target, passed) as url:
        results = asyncio.run(_run(args, url))
    if args.json:
        print(json.dumps({"url": url, "runs": results}))
    return 1 if any(run["errors"] or not run["ok"] for run in results) else 0


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """What is before the first `--`, and what is after it."""
    at = argv.index("--") if "--" in argv else len(argv)
    return argv[:at], argv[at + 1 :]


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command_parser(
        "bench", "Send concurrent requests to a server and measure its latency and throughput.", _EXAMPLES
    )
    add = parser.add_argument
    add("what", choices=["serve"], help="what to measure")
    add(
        "target",
        metavar="URL|MODEL",
        nargs="?",
        default="http://127.0.0.1:8000",
        help="an OpenAI-compatible server, or a model to serve meanwhile; what follows -- is for `mks serve` "
        "(default: %(default)s)",
    )
    add(
        "--clients",
        metavar="N,N",
        type=_counts,
        default=(1, 8, 32),
        help="numbers of concurrent clients, one run each (default: 1,8,32)",
    )
    add("--requests", metavar="N", type=count, default=32, help="limit of requests for each run (default: %(default)s)")
    add(
        "--seconds",
        metavar="S",
        type=number(0.1, 3600),
        default=60.0,
        help="limit of seconds for each run (default: %(default)g)",
    )
    add("--max-tokens", metavar="N", type=count, default=64, help="length of the answers (default: %(default)s)")
    add("--temperature", metavar="T", type=number(0, 2), default=0.0, help="0 to 2 (default: greedy)")
    add("--ignore-eos", action="store_true", help="do not let answers end at the end token")
    add("--model", metavar="NAME", help="the model's name (default: the first that the server has)")
    add("--api-key", metavar="KEY", help="sent with every request")
    add("--json", action="store_true", help="print one JSON object instead of a table")
    return parser


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(count(part) for part in text.split(","))
    if max(counts) > 1024:
        raise argparse.ArgumentTypeError("at most 1024 clients")
    return counts


async def _run(args: argparse.Namespace, url: str) -> list[dict[str, Any]]:
    from attrs import evolve

    from .bench import Load, measure, summary

    model = args.model or await _first_model(url, args.api_key)
    load = Load(
        url=url,
        model=model,
        key=args.api_key,
        requests=args.requests,
        seconds=args.seconds,
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        ignore_eos=args.ignore_eos,
    )
    # One that is not counted, so that nothing is done for the first time.
    await measure(Load(url=url, model=model, key=args.api_key, requests=1, max_tokens=2, seed=1), 1)
    results = []
    if not args.json:
        print(f"{model or 'the model'} at {url}, {args.max_tokens} tokens an answer\n\n{_HEAD}", flush=True)
    for clients in args.clients:
        # Other prompts for each, or the later runs would find theirs read.
        run = summary(clients, await measure(evolve(load, seed=clients), clients))
        results.append(run)
        if not args.json:
            print(_line(run), flush=True)
    return results


_HEAD = (
    "            first token         between tokens\n"
    "clients    p50 ms    p99 ms    p50 ms    p99 ms   tokens/s   req/s    ok  errors"
)


def _line(run: dict[str, Any]) -> str:
    names = ("first_token_ms", "between_tokens_ms")
    times = [(run[name] or {}).get(point) for name in names for point in ("p50", "p99")]
    shown = "".join(f"{'-' if value is None else format(value, '.1f'):>10}" for value in times)
    wrong = ", ".join(f"{many} x {what}" for what, many in run["errors"].items()) or "0"
    rates = f"{run['output_tokens_per_second']:>11.1f}{run['requests_per_second']:>8.2f}"
    return f"{run['clients']:>7}{shown}{rates}{run['ok']:>6}  {wrong}"


async def _first_model(url: str, key: str | None) -> str | None:
    """The name of the server's first model, if it tells. Raises `CannotOpen` where nobody answers."""
    import httpx

    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(headers=headers, timeout=10) as http:
        try:
            response = await http.get(f"{url}/models")
            name = response.json()["data"][0]["id"] if response.status_code == 200 else None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CannotOpen(f"no server answers at {url}: {error}") from error
        except (ValueError, KeyError, IndexError, TypeError):
            return None
    return name if isinstance(name, str) else None


@contextlib.contextmanager
def _target(target: str, passed: list[str]) -> Iterator[str]:
    """The base URL of a server: the one that is named, or one that serves a model for the time being."""
    if "://" in target:
        parts = urlsplit(target)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CannotOpen(f"{target} is no http URL")
        if passed:
            raise CannotOpen("what follows -- is for a model that is served meanwhile, not for a server that is there")
        base = target.rstrip("/")
        yield base if parts.path.rstrip("/") else f"{base}/v1"
        return
    rows = [] if "--max-rows" in passed else ["--max-rows", "8"]
    command = itself("serve", target, "--port", "0", "--access-log", "off", *rows, *passed)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            yield _ready(server)
        finally:
            server.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(10)
            server.kill()


def _ready(server: subprocess.Popen[str]) -> str:
    """The URL, once the server says that it serves."""
    assert server.stderr is not None
    begun = time.monotonic()
    for line in server.stderr:
        if line.startswith("serving "):
            print(f"ready after {time.monotonic() - begun:.1f} s", file=sys.stderr)
            return line.split()[-1]
        print(line, end="", file=sys.stderr)
    raise CannotOpen("the model could not be served")
