"""Which token comes next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from mks.server.engine.draw import draw
from mks.server.engine.sampling import Sampler, uniform, uniforms
from mks.server.engine.sampling_params import Sampling

VOCAB = 50


def noise(seed: int) -> np.ndarray:
    """Logits `[VOCAB]` with some equal ones."""
    return np.random.default_rng(seed).integers(-4, 5, VOCAB).astype(np.float32)


def tokens(params: Sampling, count: int = 20, prompt: tuple[int, ...] = ()) -> list[int]:
    """A sequence over fixed logits."""
    sampler = Sampler(params, VOCAB, prompt)
    return [sampler.choose(noise(at)) for at in range(count)]


@pytest.mark.parametrize("change", [{"top_p": 1e-6}, {"top_k": 1}, {"min_p": 1.0}, {"temperature": 0}])
def test_narrow_sampling_is_greedy(change: dict[str, Any]) -> None:
    """The tightest filter leaves the likeliest token, the first of equal ones, whatever the temperature."""
    expected = [int(noise(at).argmax()) for at in range(20)]

    assert tokens(evolve(Sampling(temperature=1.7, seed=3), **change)) == expected


@pytest.mark.parametrize("change", [{"top_p": 1.0}, {"top_k": 0}, {"top_k": 10**6}, {"min_p": 0.0}])
def test_neutral_filters_change_nothing(change: dict[str, Any]) -> None:
    """A filter that keeps all tokens gives the same sequence as none."""
    base = Sampling(temperature=1.3, seed=5)

    assert tokens(evolve(base, **change)) == tokens(base)


def test_a_sequence_depends_on_its_seed_only() -> None:
    """Equal seeds repeat, others differ, and any 64-bit integer is one."""
    runs = {seed: tokens(Sampling(temperature=1.5, seed=seed)) for seed in (0, 1, -7, 2**63 - 1, -(2**63))}

    assert runs[0] == tokens(Sampling(temperature=1.5, seed=0))
    assert len({tuple(run) for run in runs.values()}) == len(runs)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 10**6))
def test_uniform_is_a_function_into_the_unit_interval(seed: int, position: int) -> None:
    """The same number for the same seed and position; below one."""
    assert 0 <= uniform(seed, position) < 1
    assert uniform(seed, position) == uniform(seed, position)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 10**6))
def test_random_numbers_can_be_made_ahead(seed: int, position: int) -> None:
    """They are the same as one by one."""
    assert uniforms(seed, position, 5).tolist() == [uniform(seed, position + at) for at in range(5)]


def test_uniform_is_spread_evenly() -> None:
    """Over many positions and seeds, all tenths of the interval are hit alike."""
    found = [uniform(seed, position) for seed in range(40) for position in range(50)]

    counts, _ = np.histogram(found, bins=10, range=(0, 1))
    assert counts.min() > 150
    assert counts.max() < 250


@given(
    st.integers(0, 10**6), st.integers(1, 60), st.floats(0.05, 1), st.floats(0, 0.9), st.floats(0, 1, exclude_max=True)
)
def test_filters_keep_what_their_definition_keeps(seed: int, top_k: int, top_p: float, min_p: float, at: float) -> None:
    """A drawn token is within each filter, checked against a full sort."""
    logits = noise(seed)
    token = draw(logits, Sampling(top_k=top_k, top_p=top_p, min_p=min_p), at)

    order = sorted(range(VOCAB), key=lambda index: (-logits[index], index))
    probs = np.exp(logits.astype(np.float64) - logits.max())
    kept = [index for index in order if probs[index] >= min_p][:top_k]
    before = np.concatenate(([0], np.cumsum(probs[kept])))
    inside = [index for index, sum_before in zip(kept, before, strict=False) if sum_before < top_p * before[-1]]
    assert token in inside


def test_sampling_follows_the_distribution() -> None:
    """Frequencies approach the softmax of the logits over the temperature."""
    logits = np.log(np.array([0.5, 0.3, 0.2], dtype=np.float32))
    drawn = [draw(logits, Sampling(), uniform(1, position)) for position in range(4000)]

    assert np.allclose(np.bincount(drawn) / 4000, [0.5, 0.3, 0.2], atol=0.03)


def test_bias_forces_and_bans() -> None:
    """+100 makes a token certain, -100 impossible."""
    assert tokens(Sampling(temperature=0, logit_bias=((7, 100.0),))) == [7] * 20
    best = int(noise(0).argmax())
    assert tokens(Sampling(temperature=0, logit_bias=((best, -100.0),)), 1) != [best]


def test_presence_and_frequency_penalties_count_the_answer() -> None:
    """Presence is subtracted once, frequency each time; the prompt does not count."""
    flat = np.zeros(3, dtype=np.float32) + np.array([0.0, 0.5, 0.9], dtype=np.float32)

    once = Sampler(Sampling(temperature=0, presence_penalty=1.0), 3, prompt=(2, 2))
    assert [once.choose(flat) for _ in range(4)] == [2, 1, 0, 2]
    often = Sampler(Sampling(temperature=0, frequency_penalty=0.3), 3)
    assert [often.choose(flat) for _ in range(4)] == [2, 2, 1, 2]


def test_repetition_penalty_counts_prompt_and_answer() -> None:
    """Positive logits of seen tokens are divided, negative ones multiplied."""
    sampler = Sampler(Sampling(temperature=0, repetition_penalty=2.0), 3, prompt=(2,))

    assert sampler.choose(np.array([0.0, 0.9, 1.6], dtype=np.float32)) == 1
    assert sampler.choose(np.array([-1.5, -0.9, -1.0], dtype=np.float32)) == 0


def test_ends_are_banned_until_min_tokens() -> None:
    """An end token comes no sooner than it may."""
    best_last = np.array([0.0, 1.0, 2.0], dtype=np.float32)
    sampler = Sampler(Sampling(temperature=0, min_tokens=2, end_ids=(2,)), 3)

    assert [sampler.choose(best_last) for _ in range(3)] == [1, 1, 2]


def test_logits_are_left_alone() -> None:
    """Neither bias nor penalties are written into the decoder's array."""
    logits = noise(1)
    before = logits.copy()
    sampler = Sampler(Sampling(logit_bias=((1, 5.0),), frequency_penalty=1.0, repetition_penalty=2.0), VOCAB, (1, 2))
    sampler.choose(logits)

    assert np.array_equal(logits, before)
