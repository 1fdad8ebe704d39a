"""The work of `mks serve`."""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

import uvicorn

from ...backends.commands.terminal import loading, warn
from ...backends.opening.cannot_open import CannotOpen
from ...backends.opening.load import Opened, open_model
from ..api.app import Holder, HttpOptions, build_app
from ..api.build import build_service, check_decoder, check_template
from ..api.metrics import Metrics
from ..http.access_log import Journal
from ..http.edge import read_keys
from ..http.serve import GRACE, HttpServer, Tls, configure, listen
from .model_options import opening

DEFAULT_ROWS = 4

# Keys, separated by commas, for those who do not want them in the list of processes.
KEYS_VARIABLE = "MKS_API_KEY"


def serve_model(args: argparse.Namespace) -> None:
    """Load a model and serve it until SIGINT or SIGTERM. Raises what `open_model` raises, `CannotOpen`, `OSError`.

    The socket answers while the model loads: `/health` says so, all else is 503.
    """
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("mks").setLevel(logging.INFO)
    options, tls = _http_options(args), _tls(args)
    opened = open_model(**opening(args), loading=loading)
    warn(opened.warnings)
    # A batch of one row would be another program than one of several.
    least = None if opened.compiled is not None else max(args.max_rows or DEFAULT_ROWS, 2)
    rows, context = opened.room(least or args.max_rows, args.context)
    with listen(args.host, args.port) as bound, _log(args.access_log) as log:
        journal = None if log is None else Journal(log)
        metrics = Metrics(args.model_name or opened.name)
        holder = Holder()
        app = build_app(holder, metrics, options, (lambda record: None) if journal is None else journal.add)
        config = configure(app, tls=tls, max_connections=args.max_connections)
        _Serving(args, opened, (rows, context), holder, metrics, config, bound).run()
        if journal is not None:
            journal.close()


class _Serving:
    """A server from the opening of its socket to its end."""

    def __init__(
        self,
        args: argparse.Namespace,
        opened: Opened,
        room: tuple[int, int],
        holder: Holder,
        metrics: Metrics,
        config: uvicorn.Config,
        bound: socket.socket,
    ) -> None:
        self._args, self._opened, self._room = args, opened, room
        self._holder, self._metrics, self._bound = holder, metrics, bound
        self._error: BaseException | None = None
        self._loader = threading.Thread(target=self._load, name="mks-loader", daemon=True)
        self._server = HttpServer(config, self._stop, self._finished)
        self._deadline = math.inf
        host, port = bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self._url = f"{'https' if config.is_ssl else 'http'}://{shown}:{port}"

    def run(self) -> None:
        """Load and serve. Raises what made the loading fail."""
        name = self._args.model_name or self._opened.name
        self._bound.listen(1024)
        print(f"loading {name}; {self._url}/health says when it is ready", file=sys.stderr, flush=True)
        self._loader.start()
        self._server.run(sockets=[self._bound])
        if self._error is not None:
            raise self._error
        if self._holder.service is None:
            # Compilers do not let themselves be interrupted.
            print("ended before the model was loaded", file=sys.stderr, flush=True)
            os._exit(0)
        self._holder.service.engine.stop()
        self._holder.service.engine.join(GRACE)

    def _load(self) -> None:
        args = self._args
        try:
            decoder = self._opened.decoder(*self._room, True)
            check_decoder(decoder)
            service = build_service(
                decoder,
                self._opened.files,
                args.model_name or self._opened.name,
                seconds=args.timeout or math.inf,
                max_waiting=args.max_waiting,
                stall_seconds=args.stall,
                prefix_cache_bytes=int(args.prefix_cache * 2**20),
                observer=self._metrics,
            )
            check_template(service)
            service.engine.start()
            self._metrics.watch(service.engine)
        except BaseException as error:
            self._error = error
            self._server.should_exit = True
            return
        self._holder.service = service
        if self._server.signalled:
            self._stop()
            return
        print(f"serving {service.rules.model} at {self._url}/v1", file=sys.stderr, flush=True)

    def _stop(self) -> None:
        self._deadline = time.monotonic() + self._args.drain
        if self._holder.service is not None:
            self._holder.service.engine.stop(self._args.drain)

    def _finished(self) -> bool:
        service = self._holder.service
        return service is None or service.engine.join(0) or time.monotonic() > self._deadline + GRACE


def _http_options(args: argparse.Namespace) -> HttpOptions:
    given = [*args.api_key, *(key for key in os.environ.get(KEYS_VARIABLE, "").split(",") if key.strip())]
    try:
        text = None if args.api_key_file is None else args.api_key_file.read_text(encoding="utf-8")
        keys = read_keys(given, text)
    except ValueError as error:
        raise CannotOpen(f"the API keys cannot be used: {error}") from error
    return HttpOptions(
        max_body=int(args.max_body * 2**20),
        keys=keys,
        origins=tuple(args.cors_origin),
        max_requests=2 * args.max_connections,
        log_prompts=args.log_prompts,
    )


def _tls(args: argparse.Namespace) -> Tls | None:
    if (args.tls_cert is None) != (args.tls_key is None):
        raise CannotOpen("--tls-cert and --tls-key go together")
    return None if args.tls_cert is None else Tls(args.tls_cert, args.tls_key)


@contextlib.contextmanager
def _log(name: str) -> Iterator[TextIO | None]:
    """The access log's file."""
    if name == "off":
        yield None
    elif name == "-":
        yield sys.stdout
    else:
        with open(name, "a", encoding="utf-8") as file:
            yield file
