"""The spec is complete: each op, each thing and each op that lowering puts into expressions has a row."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

from mks.dsl.model import ops as registry
from mks.dsl.program import ir as p
from mks.dsl.program import lower as lowering
from mks.dsl.program.ir import lowered_ops
from mks.dsl.program.ir.op_labels import LABELS
from mks.dsl.program.ir.spec import OPS
from mks.dsl.program.ir.spec_resources import RESOURCES
from mks.dsl.program.verify.computed_ops import MAKES
from mks.dsl.program.verify.op_terms import MEANING

FOLDER = Path(lowering.__file__).parent
# Each part is followed by itself, so what runs them has no meaning of its own.
HOLD = {p.LayerSwitch, p.LayerLoop}
# What a Program has beside things.
BESIDE = {"schedule", "instance", "shares", "of", "phases"}


def test_every_op_has_a_row() -> None:
    """What it touches, what it is about, and what it makes of what it reads."""
    ops = set(p.Op.__value__.__args__)

    assert set(OPS) == ops
    assert set(LABELS) == ops
    assert set(MAKES) == ops - HOLD


def test_everything_has_a_row() -> None:
    """Buffers are what those say that read and write them."""
    assert set(RESOURCES) == {field.name for field in attrs.fields(p.Program)} - BESIDE - {"buffers"}


def test_every_op_of_expressions_has_a_meaning() -> None:
    """Those that lowering makes, and no registry has."""
    made: set[str] = set()
    for path in FOLDER.glob("*.py"):
        made.update(re.findall(r'm\.Call\(\s*"(\w+)"', path.read_text("utf-8")))
        made.update(f"view_{name}" for name in re.findall(r'(?:_part|[^\w]view)\("(\w+)"', path.read_text("utf-8")))
    assert {"over_root_mean", "view_by_head", "view_keys_values"} <= made

    assert {name for name in made if registry.find(name) is None} == set(lowered_ops.table)
    # Values side by side are regions of a buffer, which `computed_ops` follows.
    assert set(lowered_ops.table) - {"side_by_side"} == set(MEANING) - set(registry.table)
