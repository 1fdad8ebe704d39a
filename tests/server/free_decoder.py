"""A server whose model costs no work: `python free_decoder.py VOCAB SECONDS` prints its port.

A step takes SECONDS, in which the processor is free. It serves until stdin ends.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import uvicorn
from attrs import frozen

from mks.dsl.decoder import PendingStep, StepResult
from mks.models.text.files import read_text_files
from mks.server.api.app import Holder, build_app
from mks.server.api.build import build_service
from mks.server.api.metrics import Metrics
from mks.server.http.serve import configure, listen

ROWS = 8


WORD = 300  # every token gives text
IDS, FINITE = np.full((ROWS, 1), WORD, np.int32), np.ones((ROWS, 1), bool)


@frozen
class FreeStep:
    """A step that ends so many seconds after it was begun."""

    seconds: float
    began: float
    result: StepResult

    def wait(self) -> StepResult:
        time.sleep(max(0.0, self.began + self.seconds - time.monotonic()))
        return self.result


class FreeDecoder:
    """Always the same logits."""

    rows, context, chunk, cuts = ROWS, 100_000, 512, True
    tokens_per_row, rewinds = 1, False

    def __init__(self, vocab: int, seconds: float) -> None:
        self.seconds = seconds
        self.vocab = vocab
        self.logits = np.random.default_rng(0).standard_normal((ROWS, vocab), dtype=np.float32)
        self.logits[:, WORD] = 20

    def prefill(self, row: int, ids: Sequence[int], start: int, last_only: bool = False) -> np.ndarray:
        return self.logits[: 1 if last_only else len(ids)]

    def step(
        self, tokens: Sequence[Sequence[int]], positions: Sequence[int], logits: Collection[int] = ()
    ) -> PendingStep:
        return FreeStep(
            self.seconds, time.monotonic(), StepResult(IDS, FINITE, {r: self.logits[r : r + 1] for r in logits})
        )

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
