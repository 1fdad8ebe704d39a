"""What other packages bring: taken where it is whole, and what it lacks is said where it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import pytest
from attrs import evolve, frozen

from mks.dsl import installed
from mks.dsl.collectives import kinds
from mks.dsl.collectives.collective import CollectiveKind, Operation
from mks.dsl.diagnostics import Diagnostic
from mks.dsl.frontend import check_source
from mks.dsl.model import ops
from mks.dsl.model.brought import faults
from mks.dsl.model.ir import Type
from mks.dsl.model.ops import Bundles, elementwise
from mks.dsl.model.rules import same
from mks.dsl.model.shapes import Poly
from mks.dsl.program.analysis.check_program import check_program
from mks.dsl.source import Source
from mks.dsl.targets.check_target import faults as target_faults
from mks.dsl.targets.target import Figure
from mks.dsl.targets.targets import targets


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


@pytest.mark.parametrize(
    ("kinds_", "said"),
    [
        ({"RING": Ring(), "HOLLOW": Ring(name="hollow")}, "kinds of the same `by`: `ring`, `hollow`"),
        ({"RING": Ring(wires=("f32",))}, "`tests:RING` fails: `wires` is ('f32',); it must be a tuple of `Wire`"),  # type: ignore[arg-type]
        ({"RING": Ring(operation="sum")}, "`tests:RING` fails: `operation` is 'sum'; it must be of type `Operation`"),  # type: ignore[arg-type]
    ],
)
def test_kinds_that_cannot_be_right(kinds_: dict[str, Ring], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is taken."""
    for name, kind in kinds_.items():
        monkeypatch.setitem(globals(), name, kind)
    (told,) = found("sign", "ring")
    assert (told.code, told.notes) == ("E206", (said,))


def entry(name: str, value: str, monkeypatch: pytest.MonkeyPatch, *more: str) -> installed.Installed[object]:
    """What a group holds in which a name is given once or several times."""
    points = [metadata.EntryPoint(name, each, "mks.ops") for each in (value, *more)]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points)
    return installed.installed("mks.ops", object)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("zz:R", "yy:R"), "two packages bring it: `zz:R` and `yy:R`"),
        (("zz:R", "yy:R", "xx:R"), "3 packages bring it: `zz:R`, `yy:R` and `xx:R`"),
        (("zz R!!",), "`zz R!!` is no `module:object`"),
        (("ends:R",), "`ends:R` fails: SystemExit: 3"),
    ],
)
def test_what_cannot_be_loaded(values: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No package is taken silently, and none ends the command."""

    def load(self: metadata.EntryPoint) -> object:
        raise SystemExit(3)

    monkeypatch.setattr(metadata.EntryPoint, "load", load)
    found = entry("R", values[0], monkeypatch, *values[1:])
    assert (found.good, found.bad) == ({}, {"R": said})


def test_the_same_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """One meaning is no doubt."""
    found = entry("hollow", "tests:HOLLOW", monkeypatch, "tests:HOLLOW")
    assert (found.good, found.bad) == ({"hollow": 5}, {})


ROW: Any = ops.Op("cube", ("x",), same, scalars=("n",), defaults={"n": 1})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parameters": "x"}, "`parameters` is 'x'; it must be a tuple of names"),
        ({"parameters": ("x", "x")}, "`parameters` has `x` twice"),
        ({"parameters": ("a b",)}, "`parameters` has 'a b', which is no name"),
        ({"scalars": ("x", "n")}, "`x` is a parameter and a scalar"),
        ({"matrix": frozenset({"w"})}, "`matrix` has 'w', which is no parameter"),
        ({"updates": ("x",)}, "`updates` is ('x',); it must be a frozenset of parameters"),
        ({"caches": frozenset({"x"}), "updates": frozenset({"x"})}, "`x` is in `updates` and in `caches`"),
        ({"defaults": {"m": 1}}, "`defaults` has 'm', which is no scalar"),
        ({"defaults": {"n": "1"}}, "the default of `n` is '1'; it must be a finite number"),
        ({"scalars": (), "defaults": {}, "repeats": True}, "`repeats` is set, and there is no scalar"),
        ({"rule": None}, "`rule` is None; it must be a function"),
        ({"flops": 3}, "`flops` is 3; it must be a function"),
        ({"bundles": 3}, "`bundles` is 3; it must be of type `Bundles`"),
        ({"bundles": Bundles(-1)}, "`bundles.once` is -1; it must be of 0 or more"),
        ({"bundles": Bundles(1, float("nan"))}, "`bundles.register` is nan; it must be a finite number of 0 or more"),
    ],
)
def test_rows_that_cannot_be_right(changes: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused where they are named."""
    monkeypatch.setitem(globals(), "CUBE", evolve(ROW, **changes))
    (found,) = found_of("cube")
    assert found.code == "E105"
    assert found.notes[0].startswith(f"`tests:CUBE` fails: {said}")


def found_of(op: str) -> list[Diagnostic]:
    """What is said of a definition with an op, of which nothing is kept."""
    ops._brought.cache_clear()
    return found(op)


def broken(_: ops.Operands) -> Any:
    """A function of a row that fails."""
    raise KeyError("y")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rule": broken}, "`sign`'s rule fails: KeyError: 'y'"),
        ({"rule": lambda o: Type("f32")}, "`sign`'s rule fails: TypeError: 'Type' object is not iterable"),
        ({"rule": lambda o: (Type("f64"),)}, "`sign`'s rule gives (f64[]), not types of values"),
        ({"rule": lambda o: ()}, "`sign`'s rule gives (), not types of values"),
        (
            {"rule": lambda o: (Type("f32", (Poly.of("zz"),)),)},
            "`sign`'s row gives a length of `zz`, which is no size",
        ),
        ({"along": broken}, "`sign`'s `along` fails: KeyError: 'y'"),
        ({"along": lambda o: ("d",)}, "`sign`'s `along` gives ('d',), not lengths of axes (`Poly`)"),
        ({"flops": broken}, "`sign`'s `flops` fails: KeyError: 'y'"),
        ({"flops": lambda o: 5}, "`sign`'s `flops` gives 5, not a `Poly`"),
    ],
)
def test_functions_of_rows_that_fail(
    changes: dict[str, Callable[..., Any]], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the package's fault, said at the call."""
    monkeypatch.setitem(globals(), "SIGN", evolve(SIGN, **changes))
    (found,) = found_of("sign")
    assert (found.code, found.message.startswith(said)) == ("E105", True), found.message
    assert found.primary is not None
    assert found.primary.span.text == "sign(up @ h)"


def test_flops_see_scalars(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the rule does."""
    row = evolve(SIGN, scalars=("n",), flops=lambda o: o.scalars["n"][0])
    monkeypatch.setitem(globals(), "SIGN", row)
    ops._brought.cache_clear()
    assert found("sign", "direct") != []
    text = DEFINITION.replace("OP(up @ h)", "sign(up @ h, 3)").replace("BY", "direct")
    read = check_source(Source("tiny.mks", text))
    (schedule,) = read.schedules.values()
    assert schedule is not None
    assert check_program(schedule, read.instances["tiny"], lines=False) == []


KEEP = ops.Op("keep", ("x", "past"), lambda o: (Type("f32", o.shape("x")),), updates=frozenset({"past"}))
KEEPS = """mks 1

model tiny {
  size layers = 2
  size d      = 128
  size vocab  = 512
  weights {
    embed : bf16[vocab, d]  "embed"
  }
  part block {
    weights "layers.{layer}." {
      up : bf16[d, d]  "up"
    }
    state {
      past : f32[d]
    }
    h = h + keep(up @ h, past)
  }
  step {
    h = embed[token]
    for layer in 0 .. layers {
      block
    }
    logits = f32(embed @ h)
  }
}

schedule one for tiny {
  target v5e 1x1
  context 256
  SPAN
}
"""


@pytest.mark.parametrize(
    ("span", "said"),
    [
        ("", []),
        ("span 1, 8", ["kernels cannot do this yet: `keep` of a package, which updates states, for a span of tokens"]),
    ],
)
def test_states_of_packages_in_spans(span: str, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel gives them the tokens of a span one after the other."""
    for group in ("mks.ops", "mks.reference", "mks.pallas"):
        monkeypatch.setitem(POINTS, group, ("keep",))
    read = check_source(Source("tiny.mks", KEEPS.replace("SPAN", span)))
    assert read.diagnostics == ()
    (schedule,) = read.schedules.values()
    assert schedule is not None
    assert [each.message for each in check_program(schedule, read.instances["tiny"], lines=False)] == said


V5E: Any = targets["v5e"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cores": 0}, "`cores` is 0; it must be an integer of 1 or more"),
        ({"topology_rank": 2.0}, "`topology_rank` is 2.0; it must be an integer of 1 or more"),
        ({"memory": None}, "`memory` is None; it must be of type `Memory`"),
        ({"chips": Figure(2.5, "")}, "`chips` is 2.5; it must be a whole number"),
        ({"chips": 4}, "`chips` is 4; it must be of type `Figure`"),
        (
            {"memory": evolve(V5E.memory, hbm_rate=Figure(0, ""))},
            "the value of `memory.hbm_rate` is 0; it must be above 0",
        ),
        (
            {"compute": evolve(V5E.compute, clock=Figure(float("inf"), ""))},
            "the value of `compute.clock` is inf; it must be a finite number above 0",
        ),
        (
            {"compute": evolve(V5E.compute, tile={16: Figure(1, "")})},
            "`compute.tile` has 16; it must have 32, 16, 8, 4",
        ),
        (
            {"links": evolve(V5E.links, chip_setup=Figure(1e-6, 3))},
            "the source of `links.chip_setup` is 3; it must be of type `str`",
        ),
        ({"spills": evolve(V5E.spills, heads=-1)}, "`spills.heads` is -1; it must be of 0 or more"),
    ],
)
def test_targets_that_cannot_be_right(changes: dict[str, Any], said: str) -> None:
    """The shipped ones can."""
    assert next(target_faults(evolve(V5E, **changes))) == said
    assert [list(target_faults(row)) for row in targets.values()] == [[]] * len(targets)


def test_shipped_ops_can_be_right() -> None:
    """By what is asked of other packages' rows."""
    assert [fault for row in ops.table.values() for fault in faults(row)] == []
