"""The ops, by the names of the registry. An installed package adds some through the entry-point group `mks.pallas`.

An op is a plain function that runs inside a kernel: values are f32 `[B, *shape]` of B rows, vectors of weights
`[1, n]`, scalars Python numbers by name. One that updates states takes those of its rows, and returns its value and
then their new values. Elementwise ops are those of `reference`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dsl.model import ops as registry
from ...reference import ops as reference
from ...reference.ops import brought
from ...reference.ops.mask import mask
from . import views
from .argmax import argmax
from .causal_conv import causal_conv
from .concat import concat
from .flat import flat
from .heads import heads
from .l2_norm import l2_norm
from .rms_norm import rms_norm
from .rope import rope
from .softmax import softmax
from .split import split

table: dict[str, Callable[..., Any]] = {
    name: reference.table[name] for name, row in registry.table.items() if row.elementwise and name in reference.table
}
table |= {
    f.__name__: f
    for f in (argmax, causal_conv, concat, flat, heads, l2_norm, mask, rms_norm, rope, softmax, split, *views.OPS)
}


def find(name: str) -> Callable[..., Any]:
    """An op's implementation; installed packages are asked only for what is not built in. Raises `KeyError`."""
    found = table.get(name) or brought(registry.PALLAS, name)
    if found is None and registry.is_elementwise(name):
        found = reference.find(name)
    if found is None:
        raise KeyError(name)
    return found
