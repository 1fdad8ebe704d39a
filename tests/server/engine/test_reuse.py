"""Real models: what is kept of earlier prompts and who else is in the batch change no bit of an answer."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mks.backends.opening.load import open_model
from mks.server.api.build import build_service

from ..conftest import Running, running

DATA = Path(__file__).parents[2] / "data"
MODELS = {"qwen3": DATA / "chat_tiny", "qwen38": DATA / "qwen38_tiny", "kimi_k3": DATA / "kimi_k3_tiny"}


def ask(server: Running, prompt: list[int], **more: Any) -> tuple[list[int], list[float], int]:
    """The ids and log-probabilities of an answer, and how much of its prompt was known."""
    body = {"prompt": prompt, "max_tokens": 12, "logprobs": 0, "ignore_eos": True, "return_token_ids": True}
    out = server.post("/v1/completions", {**body, "temperature": 0, **more}).json()
    choice, usage = out["choices"][0], out["usage"]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"], usage["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize(
    "name",
    ["qwen3", pytest.param("qwen38", marks=pytest.mark.thorough), pytest.param("kimi_k3", marks=pytest.mark.slow)],
)
def test_reuse_and_neighbours_change_no_bit(name: str) -> None:
    """A conversation of four turns, with and without reuse, alone and beside others: tokens and log-probabilities."""
    opened = open_model(name, checkpoint=MODELS[name], sizes_from_config=True)
    decoder = opened.decoder(3, 512, True)
    chance = np.random.default_rng(1)

    def words(count: int) -> list[int]:
        return [int(token) for token in chance.integers(3, decoder.vocab, count)]

    turns = [words(count) for count in (60, 5, 90, 20)]
    with running(build_service(decoder, opened.files, name), decoder) as server:
        prompt: list[int] = []
        expected, prompts = [], []
        for turn in turns:
            prompt = prompt + turn
            prompts.append(prompt)
            expected.append(ask(server, prompt))
            prompt = prompt + expected[-1][0]
        hot = ask(server, prompts[1], temperature=1.2, seed=7)
    assert [known for _, _, known in expected] == [0] * 4

    with running(build_service(decoder, opened.files, name, prefix_cache_bytes=2**28), decoder) as server:
        stop = threading.Event()

        def disturb() -> None:
            while not stop.is_set():
                ask(server, words(30), temperature=1.0, max_tokens=20)

        threads = [threading.Thread(target=disturb) for _ in range(3)]
        for thread in threads:
            thread.start()
        got = [ask(server, prompt) for prompt in prompts]
        again = ask(server, prompts[1], temperature=1.2, seed=7)
        stop.set()
        for thread in threads:
            thread.join(20)
    assert [answer[:2] for answer in got] == [answer[:2] for answer in expected]
    assert again[:2] == hot[:2]
    # Each turn goes on from the end of the prompt before it.
    assert [known for _, _, known in got] == [0, *(len(prompt) for prompt in prompts[:-1])]
