"""A drafter's steps, and the values that a target gives it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.oracles import DATA, answers, loaded, read

from mks.backends.reference import ReferenceDecoder, Weights
from mks.backends.reference import step as steps
from mks.backends.reference.loading import layout
from mks.backends.reference.states import plan
from mks.dsl.frontend import check_source
from mks.dsl.model.instantiate import instantiate
from mks.dsl.source import Source


@pytest.fixture(scope="module")
def drafter():
    """The drafter, room for two rows, and its steps as `run(name, states, tokens, start, lengths, row, given)`."""
    model = read("dspark", DATA / "dspark_tiny")
    instance, places = model.instance, model.weights.slices
    room = plan(instance, 2, 64, 16)

    def run(name, states, tokens, start, lengths, row, given):
        def traced(arrays, states, tokens, start, lengths, given):
            at = steps.decode_pass(instance, Weights(arrays, places), room, tokens, start, lengths, row)
            return steps.run(at, instance.model.steps[name], states, given)

        numbers = (jnp.asarray(a, jnp.int32) for a in (tokens, start, lengths))
        return jax.jit(traced)(model.weights.arrays, states, *numbers, given)

    return room, run


def remember(drafter, row, pieces):
    """States after context features of the oracle were read into a row, in pieces."""
    room, run = drafter
    aux, states, start = answers("dspark_tiny")["aux"][0], room.empty(), 0
    for count in pieces:
        features = jnp.asarray(aux[None, start : start + count]).reshape(1, count, 3, -1)
        _, states = run("context", states, np.zeros((1, count)), [start], [count], row, {"aux": features})
        start += count
    return states


@pytest.mark.parametrize("pieces", [(25 - 16, 16), (1, 8, 8, 8)])
def test_draft(drafter, pieces):
    """Context, then a block: hidden values, logits, tokens and confidences of an independent implementation."""
    wanted = answers("dspark_tiny")
    anchor = int(wanted["anchor"])
    assert sum(pieces) == anchor
    states = remember(drafter, 1, pieces)
    tokens = np.full((1, 8), wanted["ids"][0, anchor])
    names, _ = drafter[1]("draft", states, tokens, [anchor], [8], 1, {})
    np.testing.assert_allclose(names["n"], wanted["hidden"], rtol=0, atol=2e-5)
    np.testing.assert_allclose(names["base"], wanted["logits"], rtol=0, atol=2e-5)
    np.testing.assert_array_equal(names["proposed"][0], wanted["tokens"])
    np.testing.assert_allclose(names["sure_of"][0, :, 0], wanted["conf"], rtol=0, atol=1e-5)


def test_taps():
    """A carried value before the layers asked for; before the one after the last is after all."""
    model, wanted, layers = loaded("kimi_k3_tiny"), answers("kimi_k3_tiny"), (0, 2, 3, 5, 7)
    serving = ReferenceDecoder(model.instance, model.weights, rows=1, context=64, chunk=40, taps={"aux": ("x", layers)})
    serving.prefill(0, list(wanted["ids"]), 0, last_only=True)
    found = serving.tapped["aux"][0]
    assert found.shape == (40, len(layers), 96)
    for i, layer in enumerate(layers):
        if layer:
            np.testing.assert_allclose(found[:, i], wanted["aux"][layer - 1], rtol=0, atol=5e-4)


LOOP = """mks 1

model big {
  size d     = 8
  size vocab = 16
  weights { embed : f32[vocab, d]  "embed" }
  step { logits = f32(embed @ embed[token]) }
}

model small drafts big {
  size d      = 8
  size vocab  = 16
  size block  = 4
  size layers = 2
  weights { embed : f32[vocab, d]  "embed" }
  part chain {
    weights "{layer}." { mixing : f32[d, d]  "mixing" }
    last = f32(h)
    for row in 0 .. block {
      last = f32(mixing @ (h + last) * (2 when row == 1 else 1))
      kept = f32(last)
    }
    h = f32(h + kept)
  }
  step draft on block -> h {
    h = f32(embed[token])
    for layer in 0 .. layers { chain }
  }
}
"""


def test_a_part_loops_over_the_rows_of_a_block():
    """What goes from row to row begins as the first row's value, in every layer, with that layer's weights."""
    found = check_source(Source("loop.mks", LOOP))
    assert not found.failed
    instance, _ = instantiate(next(model for model in found.models.values() if model.drafts is not None))
    places, shapes = layout(instance)
    rng = np.random.default_rng(1)
    arrays = {key: rng.normal(size=shape).astype(dtype) for key, (shape, dtype) in shapes.items()}
    numbers = (jnp.asarray(a, jnp.int32) for a in ([[3, 1, 4, 1]], [0], [4]))
    room = plan(instance, 1, 64, 16)
    at = steps.decode_pass(instance, Weights(arrays, places), room, *numbers, 0)
    names, _ = steps.run(at, instance.model.steps["draft"], room.empty())

    h = arrays["embed"][[3, 1, 4, 1]]
    for mixing in arrays["chain.mixing"]:
        last, kept = h[0], []
        for row in range(4):
            last = mixing @ (h[row] + last) * (2 if row == 1 else 1)
            kept.append(last)
        h = h + np.stack(kept)
    np.testing.assert_allclose(names["h"][0], h, rtol=1e-5)
