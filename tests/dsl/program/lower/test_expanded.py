"""A latent cache that is kept expanded: what its Program holds and moves, beside that of the latent form."""

from __future__ import annotations

import pytest
from helpers.definitions import changed
from helpers.schedules import EXPANDED

from mks.backends.timeline.summary import predict
from mks.dsl.program import ir as p
from mks.dsl.program.analysis.memory import bill
from mks.dsl.program.analysis.traffic import reads
from mks.dsl.program.lower.lower import lower
from mks.dsl.program.print.json import numerics
from mks.dsl.program.verify.prove import prove

LAYERS, CONTEXT, HEADS, KEY, VALUE = 24, 4096, 3, 192, 128


def kimi(form: str = EXPANDED, rows: int = 8, consecutive: bool = False) -> p.Program:
    """Kimi K3 as shipped, with a line more."""
    found = changed("kimi_k3", ("  fetch moe.experts", f"  {form}  fetch moe.experts"))
    assert not found.failed, [d.message for d in found.diagnostics]
    (key,) = found.own_schedules
    schedule = found.schedules[key]
    assert schedule is not None
    return lower(schedule, found.instances["kimi_k3"], rows, consecutive=consecutive)


def test_what_is_read() -> None:
    """Keys of every head with their padding to whole lanes, and values; no latents."""
    lines = {line.name: line.bytes for line in reads(kimi())}
    positions = LAYERS * 8 * CONTEXT * HEADS

    assert lines["caches"] == positions * (KEY + VALUE) * 2
    assert lines["padding of caches"] == positions * 64 * 2


def test_what_is_held() -> None:
    """Latents as well: they are lines of the bill of HBM, and have no tiles."""
    program, latent = kimi(), kimi("")
    held = {line.name: line.bytes for line in bill(program).hbm}

    assert held["keys of mla.cache"] == LAYERS * 8 * HEADS * CONTEXT * 256 * 2
    assert held["values of mla.cache"] == LAYERS * 8 * HEADS * CONTEXT * VALUE * 2
    assert held["mla.lat"] == next(line.bytes for line in bill(latent).hbm if line.name == "mla.lat")
    assert [program.arrays[p.ModelCacheRef(name)].kind for name in ("mla.lat", "mla.com")] == ["latents"] * 2
    assert {ref.label for ref in program.buffers if isinstance(ref, p.PartRef) and ref.role is p.Role.TILES} == {
        "tiles of keys of mla.cache",
        "tiles of values of mla.cache",
    }


def test_the_weight_is_one_product() -> None:
    """In its own order, and the tape is as long as in two pieces."""
    program, latent = kimi(), kimi("")
    (made,) = (product for product in program.products.values() if "mla.kv_b" in product.weights)
    pieces = [product for product in latent.products.values() if "mla.kv_b" in product.weights]

    assert (made.piece, made.widths) == ("", (HEADS * (128 + VALUE),))
    assert made.tiling.rows == sum(product.tiling.rows for product in pieces)
    assert ("form", "mla.cache = expanded") in numerics(program)


@pytest.mark.parametrize("consecutive", [False, True])
def test_the_proof_holds(consecutive: bool) -> None:
    """Of rows, and of tokens of one sequence, which share a row of the caches."""
    program = kimi(consecutive=consecutive)

    assert prove(program) == []
    assert program.arrays[p.ExpandedRef("mla", "keys")].shape[1] == (1 if consecutive else 8)


def test_the_prediction_moves_as_much_more() -> None:
    """Its bytes differ from the latent form's by what the two read of caches and write of entries."""
    expanded, latent = kimi(rows=1), kimi("", rows=1)
    more = 2 * HEADS * (256 + VALUE) - 2 * (512 + 128)

    found = [predict(program, CONTEXT - 1, savings=False).bytes for program in (expanded, latent)]
    assert found[0] - found[1] == LAYERS * (CONTEXT * more + 2 * HEADS * (256 + VALUE))
