"""Checkpoints with known answers, ready for the reference backend."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen
from helpers.definitions import FOLDER

from mks.backends.reference import Weights, load
from mks.dsl.frontend import load_definition
from mks.dsl.model.instance import Instance
from mks.models.checkpoint.load import load as load_checkpoint
from mks.models.checkpoint.read import read_all

DATA = Path(__file__).parents[1] / "data"

# Folder of the data, its definition, and how far logits may be off.
FAMILIES = {
    "qwen3_tiny": ("qwen3", 1e-4),
    "qwen38_tiny": ("qwen38", 5e-4),
    "qwen38_tp8": ("qwen38", 5e-4),
    "kimi_k3_tiny": ("kimi_k3", 5e-4),
    "kimi_k3_mxfp4_tiny": ("kimi_k3", 5e-4),
    "kimi_k3_mxfp4_tp8": ("kimi_k3", 5e-4),
}


@frozen
class Loaded:
    """A definition at a checkpoint's sizes, working in f32, and the weights."""

    instance: Instance
    weights: Weights


def read(definition: str, path: Path, *, fuse: bool = True) -> Loaded:
    """A checkpoint for a shipped definition, its sizes taken from the config."""
    found = load_definition(FOLDER / f"{definition}.mks")
    binding, diagnostics = load_checkpoint(found.models[found.main[0]], path, adopt=True)
    assert binding is not None, diagnostics
    instance = evolve(binding.instance, working="f32")
    values = ((entry.weight, entry.layer, array) for entry, array in read_all(binding))
    return Loaded(instance, load(instance, values, binding.same, fuse=fuse))


@cache
def loaded(name: str) -> Loaded:
    """One of `FAMILIES`."""
    return read(FAMILIES[name][0], DATA / name)


@cache
def answers(name: str) -> dict[str, np.ndarray[Any, Any]]:
    """A folder's right answers; the greedy continuation, prompt included, under `gen`."""
    with np.load(DATA / name / "oracle.npz") as file:
        found = dict(file)
    if "greedy" in found:
        found["gen"] = found.pop("greedy")
    return found
