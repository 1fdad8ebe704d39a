"""Tensors that nothing reads are told by pattern and count, unless the definition says that it means so."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.definitions import FOLDER
from helpers.oracles import DATA
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from mks.dsl.commands.cli import main
from mks.dsl.diagnostics import Diagnostic
from mks.dsl.frontend import check_source
from mks.dsl.model.ir import Model
from mks.dsl.source import Source
from mks.models.checkpoint.load import load
from mks.models.checkpoint.name_patterns import fold, grouped

type Make = Callable[..., Path]
type Compile = Callable[..., Model]


def found(model: Model, folder: Path, **options: Any) -> list[Diagnostic]:
    """What loading says."""
    binding, diagnostics = load(model, folder, **options)
    assert (binding is None) == any(d.severity == "error" for d in diagnostics)
    return list(diagnostics)


def extra(**tensors: tuple[int, ...]) -> Callable[[dict[str, np.ndarray]], None]:
    """More tensors, named with `__` for points."""
    return lambda arrays: arrays.update(
        {name.replace("__", "."): np.ones(shape, np.float32) for name, shape in tensors.items()}
    )


def test_each_pattern_is_told_with_its_count(toy: Model, make: Make) -> None:
    """Layers are folded, a tower is one line, and what lies beside them is named."""
    more = {f"layers__{i}__w__bias": (8,) for i in range(2)} | {f"vision__{i}__a": (3,) for i in range(3)}
    folder = make(extra(**more, vision__b=(2,)))
    (told,) = found(toy, folder)

    assert told.code == "E437"
    assert told.message == f"6 tensors are in `{folder}` but not read by `toy`"
    assert told.notes == ("`layers.{0..1}.w.bias (2)`", "`vision.* (4)`")
    assert told.helps == (
        "`layers.0.w.bias` lies beside `mlp.w`: is a line missing?",
        '`ignore "layers.*.w.bias", "vision.*"` in the model declares that they are not read',
    )


def test_a_definition_that_lacks_norms() -> None:
    """The likeliest mistake of all: a model without norms of queries and keys for a checkpoint that has them."""
    text = (FOLDER / "qwen3.mks").read_text("utf-8")
    text = text.replace('      q_norm, k_norm : bf16[head]                "self_attn.{name}.weight"\n', "")
    text = text.replace(", q_norm, eps)", ", 1, eps)").replace(", k_norm, eps)", ", 1, eps)")
    definition = check_source(Source("llama.mks", text))
    assert not definition.failed, definition.diagnostics
    (told,) = found(definition.models["qwen3"], DATA / "qwen3_tiny", adopt=True, working="f32")

    assert told.code == "E437"
    assert told.notes == (
        "`model.layers.{0..3}.self_attn.k_norm.weight (4)`",
        "`model.layers.{0..3}.self_attn.q_norm.weight (4)`",
    )


@pytest.mark.parametrize(
    "words",
    [
        "check FILE --adopt",
        "plan FILE --adopt",
        "run FILE --sizes config --ids 1 --max-tokens 1",
        "serve FILE --sizes config --port 0",
        "pack FILE --sizes config -o OUT",
        "verify FILE --sizes config",
    ],
)
def test_every_command_that_takes_a_checkpoint(words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It refuses a model that is read in part."""
    text = (FOLDER / "qwen38.mks").read_text("utf-8").replace('  ignore "model.visual.*"\n', "")
    (tmp_path / "m.mks").write_text(text)
    places = {"FILE": str(tmp_path / "m.mks"), "OUT": str(tmp_path / "out")}
    argv = [places.get(word, word) for word in words.split()] + ["--checkpoint", str(DATA / "qwen38_tp8")]

    assert main(argv) == 1
    said = "".join(capfd.readouterr())
    assert "error[E437]" in said
    assert "model.visual.* (33)" in said
    assert not (tmp_path / "out").exists()


def test_a_folder_without_weights_is_only_compared_by_its_config(tmp_path: Path) -> None:
    """So is one that `mks pack` wrote."""
    shutil.copy(DATA / "qwen38_tp8" / "config.json", tmp_path)
    assert main(["check", str(FOLDER / "qwen38.mks"), "--checkpoint", str(tmp_path), "--adopt"]) == 0


def test_ignore_says_what_is_meant(toy_text: str, compile_text: Compile, make: Make) -> None:
    """`*` is any text, `{size}` a size's value; a pattern may cover nothing, also in a type that is not read."""
    lines = '  ignore "vision.*", "nothing.*"\n  ignore "layers.{layers}.*"\n  weights {\n    embed'
    model = compile_text(toy_text.replace("  weights {\n    embed", lines))
    folder = make(
        lambda arrays: arrays.update(
            {
                "vision.x": np.zeros(3, np.int64),
                "layers.2.eh": np.ones(2, np.float32),
                "layers.2.w.weight": np.ones((8, 8), np.float32),
            }
        )
    )
    assert found(model, folder) == []
    make(extra(layers__3__w__weight=(8, 8)))
    (told,) = found(model, folder)
    assert (told.code, told.notes) == ("E437", ("`layers.3.* (1)`",))


def test_ignore_of_what_is_read(toy_text: str, compile_text: Compile, make: Make) -> None:
    """One of the two lines is a mistake."""
    model = compile_text(toy_text.replace("  weights {\n    embed", '  ignore "layers.*"\n  weights {\n    embed'))
    (told,) = found(model, make())

    assert (told.code, told.message) == ("E438", '`ignore "layers.*"` covers tensors that are read')
    assert told.notes == ("`layers.0.norm.weight` is read by `mlp.norm`", "… and 3 more")


def test_ignore_names_sizes(toy_text: str) -> None:
    """Anything else between braces is a mistake of the definition."""
    text = toy_text.replace("  weights {\n    embed", '  ignore "layers.{layer}.*"\n  weights {\n    embed')
    (told,) = check_source(Source("toy.mks", text)).diagnostics

    assert (told.code, told.helps) == ("E121", ("did you mean `layers`?",))


def test_what_needs_no_line(toy: Model, make: Make) -> None:
    """A second copy of a tied head is compared, and frequencies follow from the config."""

    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays["lm_head.weight"] = arrays["embed.weight"]
        arrays["layers.1.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)

    assert found(toy, make(change, tie_word_embeddings=True)) == []


def test_layers_left_out_by_hand(toy: Model, make: Make) -> None:
    """`--size layers=1` means it; a config that says so, and one that is silent, do not."""
    folder = make()
    (told,) = found(toy, folder, overrides={"layers": 1})
    assert (told.code, told.notes) == ("W415", ("2 tensors are not read",))
    assert told.message == "the checkpoint's layers 1 are left out, as `layers` = 1 was asked for"
    make(extra(layers__1__w__bias=(8,)))
    assert [d.code for d in found(toy, folder, overrides={"layers": 1})] == ["E437", "W415"]
    make(num_hidden_layers=1)
    (told,) = found(toy, folder, adopt=True)
    assert (told.code, told.notes) == ("E437", ("`layers.1.* (2)`",))


def test_what_another_message_proposes_is_not_told_twice(toy: Model, make: Make) -> None:
    """A name that nearly fits is the help of the weight that is absent."""

    def change(arrays: dict[str, np.ndarray]) -> None:
        for layer in range(2):
            arrays[f"layers.{layer}.nrm.weight"] = arrays.pop(f"layers.{layer}.norm.weight")

    (told,) = found(toy, make(change))
    assert (told.code, told.helps) == ("E420", ("did you mean `layers.0.nrm.weight`?",))


@pytest.mark.parametrize(
    ("definition", "data"),
    [
        ("qwen3", "qwen3_tiny"),
        ("qwen38", "qwen38_tiny"),
        ("kimi_k3", "kimi_k3_mxfp4_tiny"),
        ("dspark", "dspark_tiny"),
    ],
)
def test_shipped_definitions_read_all_but_what_they_name(definition: str, data: str, tmp_path: Path) -> None:
    """What real checkpoints hold besides is passed over, and one tensor more is not."""
    named = {
        "qwen38": ["model.visual.blocks.0.attn.qkv.bias", "mtp.fc.weight", "mtp.layers.0.mlp.up_proj.weight"],
        "kimi_k3": ["vision_tower.encoder.blocks.0.wo.weight", "mm_projector.proj.0.weight"],
    }
    model = check_source(Source(str(path := FOLDER / f"{definition}.mks"), path.read_text("utf-8"))).models[definition]
    shutil.copy(DATA / data / "config.json", tmp_path)
    arrays = load_file(DATA / data / "model.safetensors") | {
        name: np.ones(3, np.float32) for name in named.get(definition, [])
    }
    save_file(arrays, tmp_path / "model.safetensors")
    assert found(model, tmp_path, adopt=True, working="f32") == []
    save_file(arrays | {"layers.0.other.weight": np.ones(3, np.float32)}, tmp_path / "model.safetensors")
    assert [d.code for d in found(model, tmp_path, adopt=True, working="f32")] == ["E437"]


def test_folding() -> None:
    """Ranges of what varies, by position."""
    assert fold(["a.3.b"]) == "a.3.b"
    assert fold([f"l.{i}.e.{j}.w" for i in (1, 2, 5) for j in range(9)]) == "l.{1..2, 5}.e.{0..8}.w"
    assert fold([f"l.{i}.w" for i in range(3, 64, 4)]) == "l.{3, 7, 11, … 63}.w"


texts = st.lists(st.sampled_from(["a", "b", "0", "1", "12", "w", "#", "{a}", "*", ""]), min_size=1, max_size=4).map(
    ".".join
)


@settings(deadline=None)
@given(st.sets(texts, min_size=1), st.sets(texts))
def test_groups_hold_each_name_once(names: set[str], others: set[str]) -> None:
    """And what they propose to ignore covers all of a group."""
    from re import escape, fullmatch

    groups = grouped(sorted(names - others), others)
    assert sorted(name for group in groups for name in group.names) == sorted(names - others)
    for group in groups:
        patterns = [".*".join(map(escape, text.split("*"))) for text in group.covering]
        assert all(any(fullmatch(text, name) for text in patterns) for name in group.names)
        assert f"({len(group.names)})" in group.shown


def test_muse_spark_by_its_config(tmp_path: Path) -> None:
    """Layers without positions are those whose theta is 0, whatever kind of attention they have."""
    model = check_source(Source("m.mks", (FOLDER / "muse_spark.mks").read_text("utf-8"))).models["muse_spark"]
    config: Mapping[str, Any] = json.loads((DATA / "muse_spark_tiny" / "config.json").read_text())
    text = dict(config["text_config"]) | {"layer_rope_theta": [0.0, 5e5, 5e5, 0, 5e5, 5e5]}
    from mks.dsl.model.instantiate import instantiate

    instance, wrong = instantiate(model, config={"text_config": text}, adopt=True)
    assert instance is not None, wrong
    assert (instance.values["still"], instance.values["full"]) == ((0, 3), (1, 5))
    assert instance.values["used"] == 160
    assert instantiate(model)[0].values["used"] == 201818
