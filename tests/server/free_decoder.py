"""A server whose model costs no work: `python free_decoder.py VOCAB SECONDS` prints its port.

A step takes SECONDS, in which the processor is free. It serves until stdin ends.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import uvicorn

from mks.models.text.files import read_text_files
from mks.server.api.app import Holder, build_app
from mks.server.api.build import build_service
from mks.server.api.metrics import Metrics
from mks.server.http.serve import configure, listen

ROWS = 8


class FreeDecoder:
    """Always the same logits."""

    rows, context, chunk, cuts = ROWS, 100_000, 512, True

    def __init__(self, vocab: int, seconds: float) -> None:
        self.seconds = seconds
        self.vocab = vocab
        self.logits = np.random.default_rng(0).standard_normal((ROWS, vocab), dtype=np.float32)
        # A word, so that every token gives text.
        self.logits[:, 300] = 20

    def prefill(self, row: int, ids: Sequence[int], start: int, last_only: bool = False) -> np.ndarray:
        return self.logits[: 1 if last_only else len(ids)]

    def decode(self, tokens: Sequence[int], positions: Sequence[int], live: Sequence[bool]) -> np.ndarray:
        time.sleep(self.seconds)
        return self.logits

    def save(self, row: int) -> None:
        return None

    def restore(self, row: int, saved: object, length: int) -> None:
        raise NotImplementedError

    def reset(self) -> bool:
        return True


def main(vocab: int, seconds: float) -> None:
    """Serve."""
    metrics = Metrics("free")
    files = read_text_files(Path(__file__).parents[1] / "data" / "chat_tiny")
    service = build_service(FreeDecoder(vocab, seconds), files, "free", observer=metrics)
    metrics.watch(service.engine)
    service.engine.start()
    bound = listen("127.0.0.1", 0)
    server = uvicorn.Server(configure(build_app(Holder(service), metrics)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    print(bound.getsockname()[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
