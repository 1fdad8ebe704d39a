"""What other packages bring: taken where it is whole, and what it lacks is said where it is named."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata

import pytest
from attrs import frozen

from mks.dsl import installed
from mks.dsl.collectives import kinds
from mks.dsl.collectives.collective import CollectiveKind, Operation
from mks.dsl.diagnostics import Diagnostic
from mks.dsl.frontend import check_source
from mks.dsl.model import ops
from mks.dsl.model.ops import elementwise
from mks.dsl.model.rules import same
from mks.dsl.program.analysis.check_program import check_program
from mks.dsl.source import Source


@frozen
class Ring(CollectiveKind):
    """A way to sum of which there is no code."""

    name: str = "ring"
    operation: Operation = Operation.SUM
    by: str = "ring"


SIGN = elementwise("sign", ("x",), "the sign")
CUBE = elementwise("cube", ("x",), "the third power")
ROLL = ops.Op("roll", ("x",), same, summary="rolled by one")
RING = Ring()
HOLLOW = 5
# `sign` and `roll` are computed, `cube` is not; `roll` has no kernel, and `ring` none either.
POINTS = {
    "mks.ops": ("sign", "cube", "roll", "hollow"),
    "mks.reference": ("sign", "roll"),
    "mks.collectives": ("ring", "hollow"),
}

DEFINITION = """mks 1

model tiny {
  size d     = 128
  size ffn   = 512
  size vocab = 512
  weights {
    embed : bf16[vocab, d]  "embed"
    up    : bf16[ffn, d]    "up"
    down  : bf16[d, ffn]    "down"
  }
  step {
    h      = embed[token]
    x      = down @ OP(up @ h)
    logits = f32(embed @ x)
  }
}

schedule one for tiny {
  target v5e 2x2
  context 256

  mesh tp = 4
  shard tp : vocab, ffn

  reduce step.x (by = BY)
}
"""


@pytest.fixture(autouse=True)
def _brought(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that brings them."""

    def clear() -> None:
        for kept in (ops._brought, kinds._brought, installed.points):
            kept.cache_clear()

    def points(group: str) -> list[metadata.EntryPoint]:
        return [metadata.EntryPoint(name, f"tests:{name.upper()}", group) for name in POINTS.get(group, ())]

    monkeypatch.setattr(metadata, "entry_points", points)
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda self: globals()[self.name.upper()])
    clear()
    yield
    clear()


def found(op: str, by: str = "direct") -> list[Diagnostic]:
    """What is said of a definition with an op and a way to sum."""
    read = check_source(Source("tiny.mks", DEFINITION.replace("OP", op).replace("BY", by)))
    if read.diagnostics:
        return list(read.diagnostics)
    (schedule,) = read.schedules.values()
    assert schedule is not None
    return check_program(schedule, read.instances["tiny"], lines=False)


def test_what_is_whole_is_taken() -> None:
    """An elementwise op needs one function: kernels take it too."""
    assert found("sign") == []
    assert ops.has_kernel("sign")


def test_an_op_that_nothing_computes() -> None:
    """A row alone is not enough."""
    (said,) = found("cube")
    assert (said.code, said.message) == ("E105", "nothing computes `cube`")
    assert "none a function for it in `mks.reference`" in said.notes[0]


def test_an_op_without_a_kernel() -> None:
    """The reference runs it, and check says that no kernel does."""
    (said,) = found("roll")
    assert (said.code, said.message) == (
        "N901",
        "kernels cannot do this yet: `roll`, for which no package has a kernel",
    )
    assert said.primary is not None
    assert said.helps == ("the entry-point group `mks.pallas` brings one",)


def test_a_row_of_another_type() -> None:
    """It is an unknown op, with the reason."""
    (said,) = found("hollow")
    assert (said.code, said.notes) == ("E105", ("`tests:HOLLOW` is no `Op`, but int",))


def test_a_kind_without_code() -> None:
    """Schedules may name it, and check says that no kernel does it."""
    (said,) = found("sign", "ring")
    assert (said.code, said.message) == (
        "N901",
        "kernels cannot do this yet: sum by ring, for which no package has a kernel",
    )
    assert said.helps == ("the entry-point group `mks.pallas_collectives` brings one",)


@pytest.mark.parametrize(("by", "notes"), [("hollow", ("`tests:HOLLOW` is no `CollectiveKind`, but int",)), ("x", ())])
def test_an_unknown_way(by: str, notes: tuple[str, ...]) -> None:
    """Those of other packages are listed with ours."""
    (said,) = found("sign", by)
    assert (said.code, said.notes) == ("E206", notes)
    assert said.message == "`by` is one of direct, scatter_gather, two_level, scatter, ring"
