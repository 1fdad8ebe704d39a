"""Finding weights in checkpoints, and every way in which they do not fit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mks.dsl.diagnostics import Diagnostic
from mks.dsl.model.instantiate import instantiate
from mks.dsl.model.ir import Model
from mks.models.checkpoint.bind import bind
from mks.models.checkpoint.binding import Binding
from mks.models.checkpoint.folder import open_checkpoint
from mks.models.checkpoint.load import load
from mks.models.checkpoint.read import read
from mks.models.checkpoint.tensor_names import Names, expand, pattern, working_type

type Arrays = dict[str, np.ndarray]
type Make = Callable[..., Path]


def loaded(model: Model, path: Path) -> Binding:
    """A binding that has no errors."""
    binding, found = load(model, path)
    assert binding is not None, found
    return binding


def refused(model: Model, path: Path, **options: Any) -> list[Diagnostic]:
    """The errors; nothing may be bound."""
    binding, found = load(model, path, **options)
    assert binding is None
    return [d for d in found if d.severity == "error"]


def test_binds_and_reads_every_weight(toy: Model, make: Make, toy_arrays: Arrays) -> None:
    """Each weight is read from its name, layer by layer, bit for bit, in the working type."""
    binding = loaded(toy, make())

    assert binding.instance.working == "bf16"
    assert not binding.aliases
    assert np.array_equal(read(binding, "out"), toy_arrays["lm_head.weight"])
    for layer in range(2):
        norm, w = read(binding, "mlp.norm", layer), read(binding, "mlp.w", layer)
        assert (norm.dtype, w.dtype) == (np.float32, ml_dtypes.bfloat16)
        assert np.array_equal(norm, toy_arrays[f"layers.{layer}.norm.weight"])
        assert np.array_equal(w, toy_arrays[f"layers.{layer}.w.weight"])


def test_entries_cover_all_bytes_in_reading_order(toy: Model, make: Make) -> None:
    """What is to be read is listed, the model's weights first, then layer by layer."""
    entries = loaded(toy, make()).entries()

    assert [(e.weight, e.layer) for e in entries] == [
        ("embed", None),
        ("out", None),
        ("mlp.norm", 0),
        ("mlp.w", 0),
        ("mlp.norm", 1),
        ("mlp.w", 1),
    ]
    assert [e.nbytes for e in entries] == [256, 256, 32, 128, 32, 128]


# Absence


def test_absent_tensors_are_listed_weight_by_weight(toy: Model, make: Make) -> None:
    """A weight that is absent in both layers is one error at the weight, with both names."""

    def change(arrays: Arrays) -> None:
        for layer in range(2):
            arrays.pop(f"layers.{layer}.w.weight")
        arrays.pop("embed.weight")

    found = refused(toy, make(change))

    assert [(d.code, d.message) for d in found] == [
        ("E420", "`embed` is not in the checkpoint"),
        ("E420", "`mlp.w` is not in the checkpoint"),
    ]
    assert found[1].notes == ("absent: `layers.0.w.weight`", "absent: `layers.1.w.weight`")
    assert found[1].primary is not None
    assert found[1].primary.span.text == "w"


def test_absent_tensors_suggest_near_names(toy: Model, make: Make) -> None:
    """The nearest name is suggested with this layer's number; where only a number is absent, there is none."""

    def change(arrays: Arrays) -> None:
        for layer in range(2):
            arrays[f"layers.{layer}.wx.weight"] = arrays.pop(f"layers.{layer}.w.weight")

    (found,) = refused(toy, make(change))
    assert found.helps == ("did you mean `layers.0.wx.weight`?",)

    (found,) = refused(toy, make(lambda a: a.pop("layers.1.w.weight")))
    assert found.helps == ()


def test_many_absent_tensors_are_cut_short(compile_text: Callable[..., Model], toy_text: str, make: Make) -> None:
    """Of twelve absent layers five are named and seven counted."""
    model = compile_text(toy_text.replace("layers = 2 ", "layers = 14"))

    found = refused(model, make(num_hidden_layers=14))

    assert [d.code for d in found] == ["E420", "E420"]
    assert len(found[0].notes) == 6
    assert found[0].notes[-1] == "… and 7 more"


def test_a_checkpoint_of_another_model_is_one_error(toy: Model, make: Make) -> None:
    """Where no name matches, names of both sides are shown once."""

    def change(arrays: Arrays) -> None:
        for name in list(arrays):
            arrays["transformer." + name] = arrays.pop(name)

    (found,) = refused(toy, make(change))

    assert found.code == "E420"
    assert "holds none of the tensors of `toy`" in found.message
    assert "`embed.weight`" in found.notes[0]
    assert "`transformer.embed.weight`" in found.notes[1]


def test_absence_in_a_damaged_checkpoint_is_not_repeated(toy: Model, make: Make, save_file: Any) -> None:
    """A missing shard is said once, and other faults are still found."""
    folder = make(lambda a: a.update({"layers.0.norm.weight": np.zeros(9, np.float32)}))
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")

    assert [d.code for d in refused(toy, folder)] == ["E407", "E421"]


# Shapes and types


@pytest.mark.parametrize("shape", [(8, 9), (64,), (8, 8, 2), (2, 4, 8), ()])
def test_wrong_shape(toy: Model, make: Make, shape: tuple[int, ...]) -> None:
    """Another shape is refused even if it has as many elements."""
    (found,) = refused(toy, make(lambda a: a.update({"layers.1.w.weight": np.zeros(shape, ml_dtypes.bfloat16)})))

    assert found.code == "E421"
    assert found.notes == (f"`layers.1.w.weight` is {list(shape)}; [8, 8] is needed",)
    assert found.primary is not None
    assert found.primary.text == "bf16[d, d]"


@pytest.mark.parametrize("shape", [(1, 8, 8), (8, 1, 8), (8, 8, 1, 1)])
def test_axes_of_length_one_count_for_nothing(toy: Model, make: Make, toy_arrays: Arrays, shape: Any) -> None:
    """A stored axis of length 1 is dropped wherever it is."""
    name = "layers.1.w.weight"

    binding = loaded(toy, make(lambda a: a.update({name: a[name].reshape(shape)})))

    assert np.array_equal(read(binding, "mlp.w", 1), toy_arrays[name])


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int8, ml_dtypes.float8_e4m3fn])
def test_wrong_type(toy: Model, make: Make, dtype: Any) -> None:
    """Integers, and numbers that only mean something with a scale, are no plain weight."""
    (found,) = refused(toy, make(lambda a: a.update({"layers.1.w.weight": np.zeros((8, 8), dtype)})))

    assert found.code == "E422"
    assert "`layers.1.w.weight` is " in found.notes[0]


def test_shape_and_type_and_absence_are_said_together(toy: Model, make: Make) -> None:
    """All weights are looked at before anything is refused."""

    def change(arrays: Arrays) -> None:
        arrays["layers.0.w.weight"] = np.zeros((8, 8), np.int64)
        arrays["layers.1.w.weight"] = np.zeros((8, 7), ml_dtypes.bfloat16)
        arrays.pop("layers.0.norm.weight")

    assert sorted(d.code for d in refused(toy, make(change))) == ["E420", "E421", "E422"]


def test_config_and_files_are_said_together(toy: Model, make: Make) -> None:
    """A config that disagrees is listed beside a broken file."""
    folder = make(hidden_size=9)
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-1])

    assert sorted(d.code for d in refused(toy, folder)) == ["E403", "E410"]


def test_sizes_from_the_config(toy: Model, make: Make, toy_arrays: Arrays) -> None:
    """With `adopt` a checkpoint of fewer layers loads."""
    folder = make(lambda a: [a.pop(name) for name in list(a) if name.startswith("layers.1.")], num_hidden_layers=1)

    assert [d.code for d in refused(toy, folder)] == ["E410"]
    binding, found = load(toy, folder, adopt=True)
    assert binding is not None, found
    assert ("mlp.w", 1) not in binding.sources


# Conversions


def bound(model: Model, path: Path, working: str) -> list[str]:
    """The codes when `bf16` means `working`."""
    checkpoint, _ = open_checkpoint(path)
    assert checkpoint is not None
    instance, _ = instantiate(model, config=checkpoint.config, working=working)
    assert instance is not None
    binding, found = bind(instance, checkpoint)
    assert (binding is None) == bool(found)
    return [d.code for d in found]


@pytest.mark.parametrize(
    ("weight", "stored", "working", "codes"),
    [
        ("w", np.float32, "bf16", ["E423"]),
        ("w", np.float16, "bf16", ["E423"]),
        ("w", np.float64, "bf16", ["E423"]),
        ("w", ml_dtypes.bfloat16, "bf16", []),
        ("w", np.float32, "f32", []),
        ("w", np.float16, "f32", []),
        ("w", ml_dtypes.bfloat16, "f32", []),
        ("w", np.float64, "f32", ["E423"]),
        ("norm", ml_dtypes.bfloat16, "bf16", []),
        ("norm", np.float16, "bf16", []),
        ("norm", np.float32, "bf16", []),
        ("norm", np.float64, "bf16", ["E423"]),
    ],
)
def test_only_conversions_that_keep_every_bit(
    toy: Model, make: Make, weight: str, stored: Any, working: str, codes: list[str]
) -> None:
    """A conversion that loses bits is refused, one that loses none is made."""
    name = f"layers.1.{weight}.weight"

    assert bound(toy, make(lambda a: a.update({name: a[name].astype(stored)})), working) == codes


def test_rounded_allows_a_loss(compile_text: Callable[..., Model], toy_text: str, make: Make) -> None:
    """A place that is written `rounded` takes wider numbers, rounded to nearest even."""
    model = compile_text(toy_text.replace('"w.weight"', 'rounded "w.weight"'))
    values = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    folder = make(lambda a: a.update({f"layers.{i}.w.weight": values for i in range(2)}))

    binding = loaded(model, folder)

    assert binding.instance.working == "bf16"
    assert np.array_equal(read(binding, "mlp.w", 0), values.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize(
    ("name", "stored", "working"),
    [
        ("layers.1.w.weight", np.float32, "f32"),
        ("layers.0.w.weight", np.float16, "f32"),
        ("embed.weight", np.float32, "f32"),
        ("layers.1.norm.weight", np.float32, "bf16"),
        ("vision.w.weight", np.float32, "bf16"),
    ],
)
def test_working_type_follows_the_checkpoint(toy: Model, make: Make, name: str, stored: Any, working: str) -> None:
    """One weight of the working type that bf16 would cut makes it f32; what is f32 anyway does not."""
    folder = make(lambda a: a.update({name: a.get(name, np.zeros(3)).astype(stored)}))

    checkpoint, _ = open_checkpoint(folder)

    assert checkpoint is not None
    assert working_type(toy, checkpoint) == working


# Tied embeddings


def tie(arrays: Arrays) -> None:
    """Store the embedding as head too."""
    arrays["lm_head.weight"] = arrays["embed.weight"]


def drop(arrays: Arrays) -> None:
    """Store no head."""
    arrays.pop("lm_head.weight")


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("says", "change", "codes", "aliased"),
    [
        (True, drop, [], True),
        (False, None, [], False),
        (False, drop, ["E425"], None),
        (True, None, ["E426"], None),
        (True, tie, [], True),
        (False, tie, [], False),
        (None, drop, [], True),
        (None, None, [], False),
    ],
)
def test_tied_and_untied_embeddings(
    toy: Model, make: Make, nested: bool, says: bool | None, change: Any, codes: list[str], aliased: bool | None
) -> None:
    """The config and the tensors must agree on whether the head is the embedding."""
    folder = make(
        change, tie_word_embeddings=None, **({"text_config": {"tie_word_embeddings": says}} if nested else {})
    )
    if not nested:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": says}))

    binding, found = load(toy, folder)

    assert [d.code for d in found] == codes
    assert (binding is None) == bool(codes)
    if binding is not None:
        assert (("out", None) in binding.aliases) == aliased
        assert read(binding, "out").shape == (16, 8)
        assert np.array_equal(read(binding, "out"), read(binding, "embed")) == (aliased or change is tie)


def test_a_tie_that_the_config_contradicts_itself_about_decides_nothing(toy: Model, make: Make) -> None:
    """Two answers in one config leave it to the tensors."""
    loaded(toy, make(drop, tie_word_embeddings=False, text_config={"tie_word_embeddings": True}))


CHAIN = (
    'out   : bf16[vocab, d]  "lm_head.weight" or embed',
    'out   : bf16[vocab, d]  "lm_head.weight" or second\n    second : bf16[vocab, d]  "second.weight" or {}',
)


def test_aliases_are_followed(compile_text: Callable[..., Model], toy_text: str, make: Make) -> None:
    """A weight that shares one that shares another is read from where the numbers are; a circle is absence."""
    text = toy_text.replace("out @ h", "out @ h + second @ h")
    folder = make(drop, tie_word_embeddings=True)

    binding = loaded(compile_text(text.replace(CHAIN[0], CHAIN[1].format("embed"))), folder)
    assert binding.aliases == {("out", None): ("embed", None), ("second", None): ("embed", None)}

    found = refused(compile_text(text.replace(CHAIN[0], CHAIN[1].format("out"))), folder)
    assert [(d.code, d.notes) for d in found] == [
        ("E420", ("absent: `lm_head.weight`",)),
        ("E420", ("absent: `second.weight`",)),
    ]


# Rows, stacks and layouts


STACKED = """mks 1

model toy {
  size d = 8
  size layers = 1
  size vocab = 16
  size experts = 3
  size half = 4
  weights {
    embed : bf16[vocab, d]  "embed.weight"
  }
  part moe {
    weights "layers.{layer}." {
      router : bf16[experts, d]        "gate.weight"
      bias   : f32[experts]            "bias" rows 0 ..
      g      : bf16[experts, half, d]  "experts.gate_up" rows 0 ..
      u      : bf16[experts, half, d]  "experts.gate_up" rows half ..
      down   : bf16[experts, d, half]  "experts.{experts}.w2.weight"
      v      : bf16[half, d]           "qkv" rows 2 * half ..
      t      : f32[d]                  "taps" rows 1 ..
    }
    s = f32(sigmoid(router @ h))
    chosen = route(s, bias, 2)
    y = experts(h, chosen) { e -> down[e] @ (silu(g[e] @ h) * (u[e] @ h)) }
    z = h * t
    o = v @ h
    h = y + z + experts(h, chosen) { e -> down[e] @ o }
  }
  step {
    h = embed[token]
    for layer in 0 .. layers {
      moe
    }
    logits = f32(embed @ h)
  }
}
"""


@pytest.fixture
def stacked() -> Arrays:
    """Tensors for the definition with experts."""
    rng = np.random.default_rng(1)
    shapes = {
        "embed.weight": (16, 8),
        "layers.0.gate.weight": (3, 8),
        "layers.0.bias": (1, 1, 5, 1),
        "layers.0.experts.gate_up": (3, 8, 8),
        "layers.0.qkv": (12, 1, 8),
        "layers.0.taps": (9,),
    }
    shapes |= {f"layers.0.experts.{e}.w2.weight": (8, 4) for e in range(3)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_rows_stacks_and_placeholders(
    compile_text: Callable[..., Model], stacked: Arrays, tmp_path: Path, save_file: Any
) -> None:
    """`rows` counts a matrix's rows, also in a stack of them; `{experts}` stacks tensors along its axis."""
    save_file(tmp_path / "model.safetensors", stacked)

    binding = loaded(compile_text(STACKED), tmp_path)

    gate_up = stacked["layers.0.experts.gate_up"]
    assert np.array_equal(read(binding, "moe.g", 0), gate_up[:, :4])
    assert np.array_equal(read(binding, "moe.u", 0), gate_up[:, 4:])
    assert np.array_equal(read(binding, "moe.bias", 0), stacked["layers.0.bias"].reshape(5)[:3])
    assert np.array_equal(read(binding, "moe.v", 0), stacked["layers.0.qkv"].reshape(12, 8)[8:])
    assert np.array_equal(read(binding, "moe.t", 0), stacked["layers.0.taps"][1:])
    down = read(binding, "moe.down", 0)
    assert down.shape == (3, 8, 4)
    for expert in range(3):
        assert np.array_equal(down[expert], stacked[f"layers.0.experts.{expert}.w2.weight"])


def test_one_absent_expert_is_named(
    compile_text: Callable[..., Model], stacked: Arrays, tmp_path: Path, save_file: Any
) -> None:
    """A stack with a hole names the hole."""
    stacked.pop("layers.0.experts.1.w2.weight")
    save_file(tmp_path / "model.safetensors", stacked)

    (found,) = refused(compile_text(STACKED), tmp_path)

    assert (found.code, found.notes) == ("E420", ("absent: `layers.0.experts.1.w2.weight`",))


def test_more_experts_than_tensors(
    compile_text: Callable[..., Model], stacked: Arrays, tmp_path: Path, save_file: Any
) -> None:
    """A stack that no checkpoint could hold is an absence with a few names, not a hundred million."""
    save_file(tmp_path / "model.safetensors", stacked)

    found = refused(compile_text(STACKED), tmp_path, overrides={"experts": 10**8})

    (absent,) = [d for d in found if d.code == "E420"]
    assert absent.notes[0] == "absent: `layers.0.experts.3.w2.weight`"
    assert len(absent.notes) == 6


def test_rows_beyond_the_tensor(
    compile_text: Callable[..., Model], stacked: Arrays, tmp_path: Path, save_file: Any
) -> None:
    """Rows that the stored tensor does not have are a shape error that says from which row."""
    stacked["layers.0.qkv"] = np.zeros((11, 8), np.float32)
    save_file(tmp_path / "model.safetensors", stacked)

    (found,) = refused(compile_text(STACKED), tmp_path)

    assert (found.code, found.notes) == ("E421", ("`layers.0.qkv` is [11, 8]; [4, 8] from row 8 on is needed",))


def test_shipped_layers_are_bound_by_kind(compile_text: Callable[..., Model]) -> None:
    """A real definition binds each part only in the layers that run it."""
    from mks.dsl.frontend import load_definition

    root = Path(__file__).parents[3]
    model = load_definition(root / "models" / "qwen38.mks").models["qwen38"]
    binding, found = load(model, root / "tests" / "data" / "qwen38_tiny", adopt=True)

    assert binding is not None, found
    assert ("attention.wq", 3) in binding.sources
    assert ("attention.wq", 2) not in binding.sources
    assert ("delta.wq", 2) in binding.sources


# Names


def test_expansion_and_patterns() -> None:
    """Placeholders are filled outermost first; numbers between points are what a pattern leaves open."""
    from mks.models.checkpoint.tensor_names import Run

    over = (Run(0, "a", 2), Run(1, "b", 2))
    assert expand("l.{layer}.{a}.{b}", 7, over) == ["l.7.0.0", "l.7.0.1", "l.7.1.0", "l.7.1.1"]
    assert expand("x", None, ()) == ["x"]
    assert pattern("layers.12.w2.weight") == pattern("layers.{layer}.w2.weight") == "layers.#.w2.weight"


def test_suggestions_are_quick_on_half_a_million_names() -> None:
    """Near names are sought among patterns, not among all names."""
    names = {f"layers.{i}.experts.{e}.w{k}.weight": 0 for i in range(90) for e in range(896) for k in (1, 2, 3)}

    assert Names(names).near("layers.3.expert.5.w2.weight") == ("did you mean `layers.3.experts.5.w2.weight`?",)
