"""From a path to bound weights: whatever a checkpoint holds, the answer is a binding or diagnostics."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mks.dsl.frontend import load_definition
from mks.dsl.model.ir import Model
from mks.models.checkpoint.load import load

ROOT = Path(__file__).parents[3]
MODEL: Model = load_definition(ROOT / "models" / "qwen38.mks").models["qwen38"]
CONFIG = json.loads((ROOT / "tests" / "data" / "qwen38_tiny" / "config.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint whose config and weights may be overwritten."""
    made = tmp_path_factory.mktemp("load") / "model"
    shutil.copytree(ROOT / "tests" / "data" / "qwen38_tiny", made)
    return made


def codes(folder: Path, config: Any, **options: Any) -> list[str]:
    """Codes of all errors with this config; without any there must be a binding."""
    (folder / "config.json").write_text(json.dumps(config))
    binding, found = load(MODEL, folder, **options)
    errors = [d.code for d in found if d.severity == "error"]
    assert (binding is None) == bool(errors)
    return errors


def test_sizes_are_compared_or_taken(folder: Path) -> None:
    """The definition's own sizes are insisted on unless the config's are to be taken."""
    assert set(codes(folder, CONFIG)) == {"E410"}
    assert codes(folder, CONFIG, adopt=True) == []


def test_one_size_that_is_not_the_tensors(folder: Path) -> None:
    """A config that promises other shapes than the file holds is told weight by weight."""
    config = CONFIG | {"text_config": CONFIG["text_config"] | {"intermediate_size": 130}}

    assert codes(folder, config, adopt=True) == ["E421"] * 3


@pytest.mark.parametrize(("layers", "code"), [(2000, "E420"), (10**8, "E124"), (10**11, "E124")])
def test_a_config_that_lies_about_layers_is_answered_at_once(folder: Path, layers: int, code: str) -> None:
    """More layers than there are tensors, or than any model may have, are not counted out one by one."""
    config = CONFIG | {"text_config": CONFIG["text_config"] | {"num_hidden_layers": layers}}

    assert codes(folder, config, adopt=True) == [code]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"rms_norm_eps": float("nan")}, "E412"),
        ({"rope_parameters": {"rope_theta": 0.0, "partial_rotary_factor": 0.25}}, "E127"),
        ({"rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 2}}, "E127"),
    ],
)
def test_numbers_that_the_ops_do_not_take(folder: Path, changed: dict[str, Any], code: str) -> None:
    """What holds of the definition's own sizes is checked again for those of the config."""
    config = CONFIG | {"text_config": CONFIG["text_config"] | changed}

    assert set(codes(folder, config, adopt=True)) == {code}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_configs_of_any_kind_never_raise(folder: Path, data: st.DataObject) -> None:
    """One key replaced by anything, at the top or inside, is a binding or diagnostics."""
    inner = data.draw(st.sampled_from([None, *sorted(CONFIG["text_config"])]))
    value = data.draw(json_values)
    if inner is None:
        config = CONFIG | {data.draw(st.sampled_from(sorted(CONFIG))): value}
    else:
        config = CONFIG | {"text_config": CONFIG["text_config"] | {inner: value}}

    codes(folder, config, adopt=True)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(at=116, patch=b"`")
@given(at=st.integers(0, 16_000), patch=st.binary(min_size=1, max_size=6))
def test_overwritten_headers_never_raise(folder: Path, at: int, patch: bytes) -> None:
    """A real header with some bytes overwritten is a binding or diagnostics."""
    path = folder / "model.safetensors"
    with path.open("r+b") as file:
        file.seek(at)
        before = file.read(len(patch))
        file.seek(at)
        file.write(patch)
    try:
        codes(folder, CONFIG, adopt=True)
    finally:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(before)
