"""The ops, by the names of the registry. An installed package adds some through the entry-point group `mks.reference`.

A plain op takes its parameters in order and its scalars by name. One that updates states takes them as `[B, ...]` of
its rows and `lengths` by name, and returns its value and then their new values. One that reads caches takes them as
`Cache` and `position` and `lengths` by name; `POSITION_AXES` of its module says where positions stand in an entry.
Those that treat each element alone, `elementwise`, are both backends'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....dsl.model import ops as registry
from . import elementwise
from .argmax import argmax
from .attend import POSITION_AXES as _ATTEND
from .attend import attend
from .attend_block import POSITION_AXES as _ATTEND_BLOCK
from .attend_block import attend_block
from .attend_latent import POSITION_AXES as _ATTEND_LATENT
from .attend_latent import attend_latent
from .brought import Brought, brought
from .causal_conv import causal_conv
from .concat import concat
from .delta_rule import delta_rule
from .flat import flat
from .heads import heads
from .index import index
from .l2_norm import l2_norm
from .mask import mask
from .matmul import matmul
from .mix import mix
from .rms_norm import rms_norm
from .rope import rope
from .route import route
from .softmax import softmax
from .split import split

__all__ = ["Brought", "brought", "find", "position_axes", "table"]

table: dict[str, Callable[..., Any]] = {
    name: getattr(elementwise, name) for name, row in registry.table.items() if row.elementwise and name != "bf16"
}
table |= {
    f.__name__: f
    for f in (
        argmax,
        attend,
        attend_block,
        attend_latent,
        causal_conv,
        concat,
        delta_rule,
        flat,
        heads,
        index,
        l2_norm,
        mask,
        matmul,
        mix,
        rms_norm,
        rope,
        route,
        softmax,
        split,
    )
}

# Where positions stand in a cache's entry, by op and parameter.
position_axes: dict[str, Mapping[str, int]] = {
    "attend": _ATTEND,
    "attend_latent": _ATTEND_LATENT,
    "attend_block": _ATTEND_BLOCK,
}


def find(name: str) -> Callable[..., Any]:
    """An op's implementation; installed packages are asked only for what is not built in. Raises `KeyError`."""
    found = table.get(name) or brought(registry.REFERENCE, name)
    if found is None:
        raise KeyError(name)
    return found
