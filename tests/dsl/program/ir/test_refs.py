"""References: what a definition names and what kernels make of it live in spaces of their own."""

from __future__ import annotations

import pytest
from helpers.definitions import FOLDER

from mks.dsl.frontend import check_source, load_definition
from mks.dsl.program import ir as p
from mks.dsl.program.analysis.traffic import operands
from mks.dsl.program.lower.lower import lower
from mks.dsl.program.verify.prove import prove
from mks.dsl.source import Source

# `squares` is a value whose sum the schedule speaks of, and what the norm of shares exchanges beside it.
NAMED = """mks 1

model names {
  size d      = 256
  size f      = 256
  size layers = 2
  weights {
    embed : bf16[256, d]  "e"
  }
  part p {
    weights "{layer}." {
      up   : bf16[f, d]  "u"
      down : bf16[d, f]  "o"
      gain : bf16[f]     "g"
    }
    wide    = up @ x
    squares = down @ rms_norm(wide, gain, eps = 1e-5)
    x = x + squares
  }
  step {
    x = embed[token]
    for layer in 0 .. layers {
      p
    }
    logits = f32(embed @ x)
  }
}

schedule one for names {
  target v6e 2x1
  mesh tp = 2
  shard tp : f
  rows 2
  context 256
  reduce p.squares  (by = scatter_gather, wire = bf16)
}
"""


def test_a_value_may_be_called_as_a_message() -> None:
    """A line about the sum of `squares` says nothing of a norm's squares, which the same part exchanges."""
    found = check_source(Source("named.mks", NAMED))
    assert not found.failed, [d.message for d in found.diagnostics]
    schedule = found.schedules["names", "one"]
    made = lower(schedule, found.instances["names"], 2)

    summed = made.exchanges[p.SumRef("p", "squares")]
    (norm,) = (each for ref, each in made.exchanges.items() if isinstance(ref, p.OfOpRef))
    assert str(norm.name).startswith(str(summed.name))
    assert (summed.kind.by, summed.wire, norm.kind.by, norm.wire) == ("scatter_gather", "bf16", "direct", "f32")
    assert prove(made) == []


def test_labels_tell_nothing_apart() -> None:
    """References are the same if they are of one class and of the same thing, whatever they are called."""
    alike = [p.ValueRef("", "keys"), p.ModelBufferRef("keys"), p.SmallWeightRef("keys"), p.ModelCacheRef("keys")]
    assert {str(ref) for ref in alike} == {"keys"}
    assert len(set(alike)) == len(alike)
    assert p.ValueRef("p", "keys") == p.ValueRef("p", "keys") != p.ValueRef("", "p.keys")
    assert p.SumRef("p", "x") != p.GatherRef(p.ProductRef("p", ("p.x",)))


@pytest.mark.parametrize("name", ["qwen38", "kimi_k3"])
def test_files_know_arrays_by_their_labels(name: str) -> None:
    """So no two of what a core holds have the same."""
    definition = load_definition(FOLDER / f"{name}.mks")
    (schedule,) = (s for s in definition.schedules.values() if s.name == definition.own_schedules[0][1])
    made = lower(schedule, definition.instances[name], 1)
    held = [*(a.name for a in operands(made)), *(a.name for a in made.arrays.values() if a.kind in ("state", "cache"))]
    assert len({ref.label for ref in held}) == len(held) > 5
