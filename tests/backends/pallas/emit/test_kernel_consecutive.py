"""Consecutive tokens of one sequence in one pass: verification of drafts, with the states kept after each."""

from __future__ import annotations

import pytest
from helpers.children import call
from helpers.oracles import FAMILIES
from helpers.tiers import thorough_but


def errors(folder: str, tokens: int, kept: int, mode: str, tile: int = 256, form: str = "") -> list[list[float]]:
    """The largest error of each token's logits in two passes, the second after token `kept` of the first."""
    found: list[list[float]] = call("helpers.consecutive:errors", folder, tokens, kept, mode, tile, form, seconds=400)
    return found


FIRST = (("qwen38_tiny", "on_wait"),)


@pytest.mark.parametrize(("folder", "mode"), thorough_but(FIRST, (*FIRST, ("kimi_k3_tiny", "eager"))))
def test_a_rejected_draft_costs_no_copy(folder: str, mode: str) -> None:
    """Four tokens at once give the oracle's logits; so does the pass that goes on from the second of them."""
    for row in errors(folder, 4, 1, mode):
        assert max(row) <= FAMILIES[folder][1]


@pytest.mark.thorough
def test_tokens_of_one_sequence_over_an_expanded_cache() -> None:
    """Their own keys and values are made in the pass, those before them were kept."""
    for row in errors("kimi_k3_tiny", 3, 1, "on_wait", form="expanded"):
        assert max(row) <= FAMILIES["kimi_k3_tiny"][1]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["on_wait", "eager"])
@pytest.mark.parametrize(("tokens", "kept"), [(1, 0), (8, 6)])
def test_any_token_of_an_expanded_cache(tokens: int, kept: int, mode: str) -> None:
    """More spans, in short tiles."""
    for row in errors("kimi_k3_mxfp4_tiny", tokens, kept, mode, 128, "expanded"):
        assert max(row) <= FAMILIES["kimi_k3_mxfp4_tiny"][1]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["qwen3_tiny", "qwen38_tp8", "kimi_k3_mxfp4_tiny"])
@pytest.mark.parametrize(("tokens", "kept"), [(1, 0), (3, 2), (8, 0), (8, 6)])
def test_any_token_may_be_the_last_one_kept(folder: str, tokens: int, kept: int) -> None:
    """All models, spans and kept tokens; caches in short tiles."""
    for row in errors(folder, tokens, kept, "on_wait", 128):
        assert max(row) <= FAMILIES[folder][1]
