"""Functions of ops that packages bring: what they do wrong is said with their name, in both backends."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from mks.backends.reference import ReferenceDecoder
from mks.backends.reference.ops import Brought, brought
from mks.dsl import installed
from mks.dsl.diagnostics import MksError
from mks.dsl.frontend import check_source
from mks.dsl.model import ops
from mks.dsl.model.instantiate import instantiate
from mks.dsl.model.rules import same
from mks.dsl.source import Source

ROWS = {"wave": ops.elementwise("wave", ("x",), "a wave"), "roll": ops.Op("roll", ("x",), same)}
DEFINITION = """mks 1
model toy {
  size d = 4
  size vocab = 4
  weights {
    embed : bf16[vocab, d] "embed"
  }
  step {
    logits = f32(OP(embed[token]))
  }
}
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a definition with an op and its function of a package, on the reference backend."""
    functions: dict[str, object] = {}

    def clear() -> None:
        for kept in (ops._brought, installed.points, brought):
            kept.cache_clear()

    def points(group: str) -> list[metadata.EntryPoint]:
        names = {ops.GROUP: ROWS, ops.REFERENCE: functions}.get(group, {})
        return [metadata.EntryPoint(name, f"zz:{name}", group) for name in names]

    def load(self: metadata.EntryPoint) -> object:
        return {ops.GROUP: ROWS, ops.REFERENCE: functions}[self.group][self.name]

    def answer(op: str, function: object) -> list[list[float]]:
        clear()
        functions[op] = function
        found = check_source(Source("toy.mks", DEFINITION.replace("OP", op)))
        assert not found.diagnostics
        instance, _ = instantiate(found.models["toy"])
        decoder = ReferenceDecoder(instance, [("embed", None, np.eye(4) * 2)], rows=1, context=8)
        return decoder.step([[2]], [0], [0]).wait().logits[0].tolist()

    monkeypatch.setattr(metadata, "entry_points", points)
    monkeypatch.setattr(metadata.EntryPoint, "load", load)
    yield answer
    clear()


@pytest.mark.parametrize("op", ROWS)
def test_what_is_right(op: str, run: Callable[..., list[list[float]]]) -> None:
    """A value of the operand's shape is taken."""
    assert run(op, lambda x: x + 1) == [[1, 1, 3, 1]]


def fails(x: object) -> object:
    """A function with a fault."""
    raise ZeroDivisionError("no")


@pytest.mark.parametrize("op", ROWS)
@pytest.mark.parametrize(
    ("function", "said"),
    [
        (fails, "fails: ZeroDivisionError: no"),
        (lambda x: x[..., :2], "gives float32[1, 1, 2], and not [4] behind the tokens' [1, 1]"),
        (lambda x: None, "gives NoneType, and not [4] behind the tokens' [1, 1]"),
        (lambda x: (x, x), "gives (float32[1, 1, 4], float32[1, 1, 4]), and not 1 values of [4]"),
        (lambda x: x[:, :, None], "gives float32[1, 1, 1, 4], and not [4] behind the tokens' [1, 1]"),
    ],
)
def test_what_is_wrong(op: str, function: object, said: str, run: Callable[..., list[list[float]]]) -> None:
    """The function, its op and the shapes are named."""
    with pytest.raises(MksError) as raised:
        run(op, function)
    (found,) = raised.value.diagnostics
    assert (found.code, found.message) == ("E105", f"`zz:{op}`, which computes `{op}` of float32[1, 1, 4], {said}")


def test_no_function(run: Callable[..., list[list[float]]]) -> None:
    """What cannot be called is refused before."""
    with pytest.raises(MksError) as raised:
        run("wave", 5)
    (found,) = raised.value.diagnostics
    assert found.notes == ("in `mks.reference`, `zz:wave` is no function, but int",)


def test_two_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is taken."""
    points = [metadata.EntryPoint("wave", value, ops.REFERENCE) for value in ("zz:f", "yy:f")]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points)
    with pytest.raises(MksError) as raised:
        brought.__wrapped__(ops.REFERENCE, "wave")
    (found,) = raised.value.diagnostics
    assert (found.code, found.notes) == (
        "E105",
        ("in `mks.reference`, two packages bring it: `zz:f` and `yy:f`",),
    )


def test_new_states() -> None:
    """Each has the shape that it had."""
    state, x = jnp.zeros((1, 3)), jnp.zeros((1, 1, 4))
    function = Brought("wave", "zz:wave", max)
    function.check_updated((x, state), [state], [x, state])
    for result, said in (
        (x, "gives float32[1, 1, 4], and not a value and then 1 new states"),
        ((x, state[:, :2]), "gives float32[1, 2] for a state that is float32[1, 3]"),
    ):
        with pytest.raises(MksError, match="zz:wave") as raised:
            function.check_updated(result, [state], [x, state])
        assert raised.value.diagnostics[0].message.endswith(said)
