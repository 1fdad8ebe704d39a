"""Layers as loops."""

import jax.numpy as jnp
import pytest

from mks.backends.reference.layers import arrange, over_layers

K3 = ["D"] + ["m" if layer + 1 in (*range(4, 94, 4), 93) else "k" for layer in range(1, 93)]


@pytest.mark.parametrize(
    ("kinds", "bodies"),
    [("", 0), ("a", 1), ("a" * 30, 1), ("dddf" * 16, 2), (K3, 7), ("ab" * 9 + "a", 3), ("abcabd", 6), (["b", "a"], 2)],
)
def test_bodies(kinds, bodies):
    """As few bodies as the pattern has, whatever the depth; each layer is covered once, in order, by its kind."""
    segments = arrange(list(kinds), 5)
    assert sum(len(segment.runs) for segment in segments) <= bodies
    order = []
    for s in segments:
        for i in range(s.count):
            for run in s.runs:
                own = [s.start + i * s.period + run.offset + j for j in range(run.length)]
                assert set(own) <= set(run.layers)
                order += own
            assert len({kinds[layer - 5] for run in s.runs[:1] for layer in run.layers}) == 1
    assert order == list(range(5, 5 + len(kinds)))


@pytest.mark.parametrize("kinds", ["a" * 6, "aab" * 4 + "b", K3])
def test_order(kinds):
    """Layers run in order, and a body knows which layers it stands for."""

    def body(layer, layers, carry):
        assert not isinstance(layer, int) or layers == (layer,)
        return carry * 3 + layer

    wanted = jnp.int32(0)
    for layer in range(len(kinds)):
        wanted = wanted * 3 + layer
    assert over_layers(arrange(list(kinds)), body, jnp.int32(0)) == wanted
