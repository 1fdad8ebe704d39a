"""What functions of packages give inside a kernel is looked at: on one core, and of some columns of a value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest

from mks.backends.pallas.emit import evaluate
from mks.backends.reference.ops import Brought
from mks.dsl.diagnostics import MksError
from mks.dsl.model import ir as m
from mks.dsl.model import ops as registry
from mks.dsl.model.rules import same
from mks.dsl.model.shapes import Poly
from mks.dsl.source import Source, Span

SPAN = Span(Source("a.mks", "x"), 0, 1)
VECTOR = m.Type("f32", (Poly.of(8),))
ROWS = {"wave": registry.elementwise("wave", ("x",), "a wave"), "roll": registry.Op("roll", ("x",), same)}


@pytest.mark.parametrize(
    ("op", "width", "refused"),
    [("wave", 8, None), ("wave", 4, None), ("roll", 8, None), ("roll", 4, "gives float32[3, 4], and not [8]")],
)
@pytest.mark.parametrize("wrong", [False, True])
def test_shapes(op: str, width: int, refused: str | None, wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An elementwise op gives what it is given; any other what its rule says of this core's share."""
    core: Any = SimpleNamespace(rows=3, program=SimpleNamespace(shares=SimpleNamespace(shape=lambda shape: (8,))))
    monkeypatch.setattr(registry, "find", ROWS.get)
    monkeypatch.setattr(evaluate.ops, "find", lambda name: Brought(name, "zz:f", lambda x: x[:, 1:] if wrong else x))
    monkeypatch.setattr(evaluate, "read", lambda node, core: jnp.zeros((3, width)))
    core.scope = {}
    call = m.Call(op, (m.Local("x", VECTOR, SPAN),), (), (VECTOR,), SPAN)
    if not wrong and refused is None:
        assert evaluate.evaluate(call, core).shape == (3, width)
        return
    with pytest.raises(MksError, match=f"`zz:f`, which computes `{op}`") as raised:
        evaluate.evaluate(call, core)
    if refused is not None and not wrong:
        assert refused in raised.value.diagnostics[0].message
