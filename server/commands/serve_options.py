"""What `mks serve` can be told."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...dsl.commands.argtypes import count, number, port

EXAMPLES = """\
examples:
  mks serve smollm2
  mks serve smollm2 --port 8080 --max-rows 8 --context 2048
  mks serve qwen38 --checkpoint ~/Qwen3.8-27B --sizes config --host 0.0.0.0 --api-key-file keys
  mks serve --packed packed --compiled compiled              # on the TPUs that they are for

then, from Python:
  openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none").chat.completions.create(
      model="smollm2", messages=[{"role": "user", "content": "Hello"}])

or in a browser: http://127.0.0.1:8000/
"""


def add_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add them to a parser; gives it back."""
    _add_serving(parser)
    _add_access(parser.add_argument_group("access"))
    return parser


def _add_serving(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    add("--port", type=port, default=8000, help="port; 0 takes a free one (default: %(default)s)")
    add(
        "--max-rows",
        metavar="N",
        type=count,
        help="sequences at a time; at least two are compiled (default: 4; with --compiled, as many as were compiled)",
    )
    add(
        "--context",
        metavar="N",
        type=count,
        help="positions of a sequence, prompt and answer together (default: the model's, at most 4096; with "
        "--compiled, those that were compiled)",
    )
    add("--model-name", metavar="NAME", help="what clients call the model (default: MODEL's name)")
    add(
        "--max-waiting",
        metavar="N",
        type=count,
        default=256,
        help="sequences that may wait before requests are refused (default: %(default)s)",
    )
    add(
        "--timeout",
        metavar="S",
        type=number(0, 86400),
        default=0.0,
        help="seconds that a request may take, waiting included (default: no limit)",
    )
    add(
        "--drain",
        metavar="S",
        type=number(0, 3600),
        default=20.0,
        help="seconds that running answers get to end after SIGTERM (default: %(default)g)",
    )
    add(
        "--prefix-cache",
        metavar="MIB",
        type=number(0, 2**24),
        default=512.0,
        help="memory for cached prompt prefixes, 0 for no cache (default: %(default)g)",
    )
    add(
        "--stall",
        metavar="S",
        type=number(1, 86400),
        default=300.0,
        help="fail all requests when the model gives no token for this many seconds (default: %(default)g)",
    )


def _add_access(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--api-key",
        metavar="KEY",
        action="append",
        default=[],
        help="a key that clients must send; several may be given, also as MKS_API_KEY=KEY,KEY (default: none)",
    )
    add("--api-key-file", metavar="FILE", type=Path, help="a file with one API key on each line")
    add("--tls-cert", metavar="PEM", type=Path, help="serve https with this certificate")
    add("--tls-key", metavar="PEM", type=Path, help="the private key of the certificate")
    add(
        "--cors-origin",
        metavar="ORIGIN",
        action="append",
        default=[],
        help="let pages of this origin use the API, * for all; several may be given (default: none)",
    )
    add(
        "--max-body",
        metavar="MIB",
        type=number(0, 2**14),
        default=32.0,
        help="largest request body (default: %(default)g)",
    )
    add(
        "--max-connections",
        metavar="N",
        type=count,
        default=1024,
        help="limit of open connections (default: %(default)s)",
    )
    add(
        "--access-log",
        metavar="FILE",
        default="-",
        help="where a line of JSON for each request goes; - is stdout, off is nowhere (default: %(default)s)",
    )
    add("--log-prompts", action="store_true", help="include request bodies in the access log")
