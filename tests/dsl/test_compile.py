"""Definitions resolve to the Model and the Schedule; changed ones are refused for the right reason."""

import pytest
from helpers.definitions import NAMES, changed, codes

from mks.dsl.model import ir as m


@pytest.mark.parametrize("name", NAMES)
def test_shipped_definitions_are_clean(name: str) -> None:
    """No error and no warning, and an instance at their own sizes."""
    found = changed(name)
    assert not found.diagnostics
    assert set(found.main) <= set(found.instances)
    assert all(schedule is not None for schedule in found.schedules.values())


def test_layers_of_kimi_k3() -> None:
    """The layer table is the published one: MLA at every fourth layer and the last, dense first."""
    instance = changed("kimi_k3").instances["kimi_k3"]
    assert instance.part_layers["mla"] == (*range(3, 92, 4), 92)
    assert len(instance.part_layers["kda"]) == 69
    assert instance.part_layers["dense"] == (0,)
    assert instance.part_layers["moe"] == tuple(range(1, 93))
    assert instance.layer_parts()[92] == ("enter", "mla", "leave", "moe")


def test_parameters_of_the_models() -> None:
    """Elements of all weights: what is known of each model, from its shapes."""
    counts = {}
    for name in ("smollm2", "qwen38", "kimi_k3"):
        instance = changed(name).instances[name]
        total = 0
        for weight in instance.model.weights.values():
            elements = 1
            for length in instance.shape(weight.shape):
                elements *= length
            total += elements * len(instance.owner_layers(weight.part) or (0,))
        counts[name] = total
    # The head of SmolLM2 is tied: 134,515,008 and once more the embedding.
    assert counts["smollm2"] == 134_515_008 + 49152 * 576
    assert counts["qwen38"] == pytest.approx(26.896e9, rel=1e-3)
    assert counts["kimi_k3"] == pytest.approx(2.7799e12 - 0.45e9, rel=1e-3)


def test_values_are_rounded_where_they_are_named() -> None:
    """`f32(…)` keeps f32; everything else that is named is of the working type."""
    model = changed("qwen38").models["qwen38"]
    types = {
        n: t.dtype
        for st in model.parts["delta"].body
        if isinstance(st, m.Assign)
        for n, t in zip(st.names, st.types, strict=True)
    }
    assert types["decay"] == "f32"
    assert types["rate"] == "bf16"
    assert model.decode.types["logits"].dtype == "f32"


def test_functions_evaluate_their_arguments_once() -> None:
    """`situ(gate @ h, up @ h)` uses its first argument twice, but multiplies once."""
    from mks.dsl.model.expressions import walk

    model = changed("kimi_k3").models["kimi_k3"]
    (statement,) = model.parts["dense"].body
    assert isinstance(statement, m.Assign)
    products = [n for n in walk(statement.value) if isinstance(n, m.Call) and n.op == "matmul"]
    assert len(products) == 3


BUFFER = "banks[0 .. layer // block + 1]"


@pytest.mark.parametrize(
    ("name", "old", "new", "code"),
    [
        ("kimi_k3", BUFFER, "banks[0 .. layer // block + 2]", "E125"),
        ("kimi_k3", "banks[layer // block] = x", "banks[layer // block + 1] = x", "E125"),
        ("kimi_k3", "mix(banks[0 .. (layer + block - 1) // block], x", "mix(banks, x", "E125"),
        ("kimi_k3", "size block     = 12", "size block     = 0", "E113"),
        ("qwen38", "size k_heads  = 16 ", "size k_heads  = 15 ", "E126"),
        ("qwen38", "size layers   = 64 ", "size layers   = 5000 ", "E124"),
        ("smollm2", "size q_heads  = 9 ", "size q_heads  = 7 ", "E113"),
        ("smollm2", "size head     = d / q_heads", "size head     = head + 1", "E111"),
        ("qwen38", "mesh tp = 8", "mesh tp = 4", "E203"),
        ("qwen38", "kv_heads (repeat)", "kv_heads", "E213"),
        ("qwen38", "shard tp : q_heads, ", "shard tp : ", "E207"),
        ("kimi_k3", "size experts   = 896", "size experts   = 897", "E213"),
        ("dspark", "verify  = 7 drafts", "verify  = 6 drafts", "E212"),
        ("dspark", "size vocab    = 163840", "size vocab    = 163841", "E212"),
        ("kimi_k3", "ffn, shared, vocab", "ffn, shared, vocab, block", "E207"),
        ("kimi_k3", "(moe.s_gate, moe.s_up), moe.s_down\n}", "moe.z_up\n}", "E211"),
        ("qwen38", "(wq, wk, wv, wz, wb, wa), wo", "(wq, wk, wv, wz, wb, wa, wo)", "E209"),
        ("qwen38", "(gate, up), down", "(gate, up), down, norm", "E208"),
    ],
)
def test_changed_definitions_are_refused(name: str, old: str, new: str, code: str) -> None:
    """One change, one cause: the first error has the code that names it."""
    found = changed(name, (old, new))
    assert code in codes(found)
    assert all(d.primary is not None for d in found.diagnostics)


def test_a_change_in_one_place_gives_one_error() -> None:
    """Uses of a name whose statement failed are not reported again."""
    edit = ("q  = silu(causal_conv(wq @ x, cq, pq))", "q  = silu(causal_conv(wq @ x2, cq, pq))")
    assert codes(changed("qwen38", edit)) == ["E101"]
    assert codes(changed("qwen38", ("size d        = ", "size dd       = "))) == ["E101"]


def test_every_diagnostic_of_a_file_comes_at_once() -> None:
    """Errors in a part, in the step and in the layer table, in the order of the text."""
    heads = ("wk @ x, kv_heads", "wk @ x, k_heads")
    edits = (("sigmoid(wb @ x)", "sigmod(wb @ x)"), heads, ("    mlp\n  ", "    mpl\n  "))
    found = changed("qwen38", *edits)
    assert codes(found) == ["E105", "E107", "E115"]
