"""Two passes over consecutive tokens of an oracle's prompt by an interpreted kernel, in a child process."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from attrs import evolve
from helpers.oracles import DATA, FAMILIES
from jax.experimental.pallas import tpu as pltpu

from mks.backends.pallas.emit import call, signature
from mks.dsl.frontend import check_source
from mks.dsl.program.lower.lower import lower
from mks.dsl.schedule.ir import Form, Point, Prefetch, bare
from mks.dsl.targets.targets import targets
from mks.models.checkpoint.load import load
from mks.models.library import find_definition
from mks.models.packing import operands


def errors(folder: str, tokens: int, kept: int, mode: str, tile: int, form: str) -> list[list[float]]:
    """The largest error of each token's logits, pass by pass."""
    source, _ = find_definition(FAMILIES[folder][0])
    assert source is not None
    definition = check_source(source)
    model = definition.models[definition.main[0]]
    binding, _ = load(model, DATA / folder, adopt=True, working="f32")
    assert binding is not None
    schedule = bare(model, targets["tpu7x"], 256)
    parts = [name for name in ("attention", "mla") if name in model.parts]
    early = [
        Prefetch("cache", name, (Point("at", f"{name}.start", model.span),), tile, 2, model.span) for name in parts
    ]
    forms = (Form("mla", form, model.span),) if form else ()
    schedule = evolve(schedule, prefetches=tuple(early), forms=forms)
    program = lower(schedule, binding.instance, tokens, operands.plain(binding), consecutive=True)
    weights = {name: jnp.asarray(a) for name, a in operands.packed(program, operands.stored(binding), 0).items()}
    held = {name: jnp.zeros(a.shape, a.dtype) for name, a in signature.states(program).items()}
    how = pltpu.InterpretParams(dma_execution_mode=mode, detect_races=True, uninitialized_memory="nan")
    step = jax.jit(partial(call.step, program, call.BuildMode(interpret=how)))
    with np.load(DATA / folder / "oracle.npz") as oracle:
        ids, wanted = oracle["ids"].reshape(-1), oracle["logits"].reshape(-1, oracle["logits"].shape[-1])
    found, first, state = [], 0, 0
    for _ in range(2):
        last = min(first + tokens, len(ids))
        taken = np.resize(ids[first:last], tokens)
        places = np.where(np.arange(tokens) < last - first, first + np.arange(tokens), -1)
        _, logits, held = step(jnp.asarray(taken, jnp.int32), jnp.asarray(places, jnp.int32), weights, held, state)
        error = np.abs(np.asarray(logits)[: last - first, : wanted.shape[1]] - wanted[first:last])
        found.append([float(each) for each in error.max(axis=1)])
        first, state = first + kept + 1, kept
    return found
