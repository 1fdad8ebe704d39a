"""The recipes of `docs/extending.md`, each a package outside of the tree, executed as they are printed, to the end."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from attrs import frozen
from helpers import children

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
FILE = re.compile(r"^`([\w./-]+)`\n\n```(?:\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@frozen
class Recipe:
    """A section of the page: files by name, and commands."""

    files: Mapping[str, str]
    commands: tuple[str, ...]


def sections() -> dict[str, Recipe]:
    """Those of the page that have commands."""
    found = {}
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        commands = tuple(line for block in COMMANDS.findall(section) for line in block.splitlines())
        if commands:
            found[section.partition("\n")[0]] = Recipe(dict(FILE.findall(section)), commands)
    return found


def written(recipe: Recipe, folder: Path) -> None:
    """The package's files, and what `pip install` would leave of its `pyproject.toml`."""
    for name, text in recipe.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    project = tomllib.loads(recipe.files["pyproject.toml"])["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(metadata, "utf-8")
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("\n".join(groups), "utf-8")


WEIGHTS = """
import sys
from pathlib import Path
import numpy as np
from safetensors.numpy import save_file
from mks.dsl.frontend import check_source
from mks.dsl.source import Source
path = Path(sys.argv[1])
found = check_source(Source(path.name, path.read_text("utf-8")))
assert found.diagnostics == (), found.diagnostics
(instance,) = found.instances.values()
rng = np.random.default_rng(0)
tensors = {}
for weight in instance.model.weights.values():
    for layer in instance.owner_layers(weight.part) or (None,):
        for place in weight.tensors:
            shape = instance.shape(weight.shape)
            tensors[place.name.replace("{layer}", str(layer))] = rng.normal(size=shape, scale=0.3).astype(np.float32)
(path.parent / "weights").mkdir()
save_file(tensors, path.parent / "weights" / "model.safetensors")
"""


def run(line: list[str], folder: Path, site: Path) -> str:
    """The output of a command in a folder, which sees the packages in `site`."""
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(site),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    done = children.run(line, 120, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(line)}\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sections())
def test_recipe(name: str, tmp_path: Path) -> None:
    """Each command ends well, both backends answer the same, and each part's kernel gives the reference's values."""
    recipe, mks = sections()[name], str(Path(sys.executable).with_name("mks"))
    written(recipe, tmp_path)
    (definition,) = (file for file in recipe.files if file.endswith(".mks"))
    run([sys.executable, "-c", WEIGHTS, definition], tmp_path, tmp_path)
    said = {}
    for command in recipe.commands:
        program, *arguments = shlex.split(command)
        assert program == "mks"
        said[command] = run([mks, *arguments], tmp_path, tmp_path)

    answers = [json.loads(text)["output_ids"] for command, text in said.items() if command.startswith("mks run")]
    assert len(answers) == 2
    assert answers[0] == answers[1] != []
    (times,) = (text for command, text in said.items() if "--time" in command)
    assert "ms a step, predicted" in times
    assert all("N901" not in text for text in said.values())
