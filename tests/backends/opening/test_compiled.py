"""`--compiled`: what `mks compile` left, compared with what is served, and loaded; there is no TPU to run it."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest
from helpers import children
from jax.sharding import Mesh

from mks.backends.commands import compile as compiling
from mks.backends.opening.artifact import EXECUTABLE, MANIFEST, identity
from mks.backends.opening.compiled import Compiled
from mks.backends.opening.compiled_folder import open_compiled
from mks.backends.opening.load import Opened, open_model
from mks.backends.pallas.runtime.executable import load_step
from mks.dsl.commands.cli import main
from mks.dsl.diagnostics import MksError
from mks.dsl.program.analysis.capacity import lower_fitting
from mks.server.commands import run

CHAT_TINY = Path(__file__).parents[2] / "data" / "chat_tiny"

CONTEXT = 256
TPU = (SimpleNamespace(device_kind="TPU v5 lite"),)

# A host with the TPU, but that the executable is the same step, interpreted.
PRETENDED = """
import sys
import jax
from jax.experimental.pallas import tpu as pltpu
from mks.backends.pallas.emit import shard_map as sharded
from mks.backends.pallas.runtime import device as machine
from mks.backends.pallas.runtime import executable as loaded
from mks.backends.pallas.emit.call import BuildMode
from mks.dsl.commands.cli import main

real = loaded.load_step

def pretended(path, program, mesh):
    def loader(saved, devices):
        print(f"loaded {len(saved.program) > 1000} for {len(devices)}", file=sys.stderr)
        return sharded.jitted(program, BuildMode(interpret=pltpu.InterpretParams()), mesh)
    return real(path, program, mesh, loader)

machine.attached = lambda: tuple(jax.devices("cpu"))
loaded.load_step = pretended
sys.exit(main())
"""
PLAIN = "import sys; from mks.dsl.commands.cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of four layers, `packed` and `compiled` for one row."""
    place = tmp_path_factory.mktemp("made")
    sizes = ["--checkpoint", str(CHAT_TINY)]
    assert main(["pack", "qwen3", *sizes, "--sizes", "config", "--dtype", "bf16", "-o", str(place / "packed")]) == 0
    rows = ["--rows", "1", "--context", str(CONTEXT)]
    assert main(["compile", "qwen3", *sizes, "--adopt", *rows, "-o", str(place / "compiled")]) == 0
    return place


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of what was compiled, to be changed."""
    return shutil.copytree(made / "compiled", tmp_path / "compiled")


def changed(folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """The folder with another manifest."""
    path = folder / MANIFEST
    said = json.loads(path.read_text("utf-8"))
    change(said)
    path.write_text(json.dumps(said), "utf-8")
    return folder


def opened(made: Path, folder: Path) -> Opened:
    return open_model(None, packed=made / "packed", backend="pallas", compiled=folder)


def compiled(made: Path, folder: Path) -> Compiled:
    found = opened(made, folder).compiled
    assert found is not None
    return found


def refused(work: Callable[[], Any]) -> str:
    """The codes and texts of all that it says."""
    with pytest.raises(MksError) as error:
        work()
    return "\n".join(" ".join((d.code, d.message, *d.notes, *d.helps)) for d in error.value.diagnostics)


def test_what_agrees_is_taken(made: Path, folder: Path) -> None:
    """Rows and context are those of the step, whether they are asked for or not."""
    found = compiled(made, folder)
    assert found.check(None, None, TPU) == found.check(1, CONTEXT, TPU) == (1, CONTEXT)
    assert found.executable(1) == folder / EXECUTABLE


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda said: said.update(definition=said["definition"].replace("context 4096", "context 512")),
            "another definition than the one that is served line {line} there: `context 512` "
            "line {line} here: `context 4096`",
        ),
        (lambda said: said.update(model="qwen4"), "model qwen4, and what is served has qwen3"),
        (lambda said: said.update(schedule="two"), "schedule two, and what is served has one"),
        (lambda said: said.update(dtype="f32"), "working type f32, and what is served has bf16"),
        (lambda said: said["sizes"].update(layers=9), "size layers 9, and what is served has"),
        (lambda said: said.update(rows=2), "rows 2, and what is served has 1"),
        (lambda said: said.update(context=512), "context 512, and what is served has 256"),
        (lambda said: said.update(target="v6e"), "target v6e, and what is served has v5e"),
        (lambda said: said.update(topology=[2, 1]), "topology 2x1, and what is served has 1x1"),
        (lambda said: said.update(mesh={"tp": 2}), "mesh tp=2, and what is served has of one core"),
        (lambda said: said.update(layout="0" * 64), "another weight layout than the one that is served layout 000"),
        (lambda said: said["versions"].update(jax="0.1"), f"with jax 0.1, and this host has {jax.__version__}"),
        (lambda said: said["versions"].pop("libtpu"), "with libtpu None, and this host has"),
    ],
)
def test_each_difference_is_told_with_a_remedy(
    made: Path, folder: Path, change: Callable[[dict[str, Any]], Any], text: str
) -> None:
    """Both sides, and the command that compiles what is served."""
    said = refused(lambda: compiled(made, changed(folder, change)).check(1, CONTEXT, TPU))
    definition = json.loads((made / "compiled" / MANIFEST).read_text("utf-8"))["definition"].splitlines()
    line = 1 + next(at for at, text in enumerate(definition) if "context 4096" in text)
    assert said.split()[0] == "E508"
    assert text.format(line=line) in said
    assert len(said.splitlines()) == 1
    assert f"`mks compile qwen3 --checkpoint {made / 'packed'} --adopt --schedule one --rows 1 --context 256 -o" in said


def test_all_differences_are_told_at_once(made: Path, folder: Path) -> None:
    """Those of the step, of the versions and of the host."""
    found = compiled(made, changed(folder, lambda said: said["versions"].update(jaxlib="0.1")))
    said = refused(lambda: found.check(3, 512, ()))
    assert [line.split()[0] for line in said.splitlines()] == ["E508"] * 3 + ["E509"]
    assert "rows 1, and what is served has 3" in said
    assert "--rows 3 --context 512" in said


def test_the_remedy_makes_what_is_served(made: Path, folder: Path) -> None:
    """The command, parsed, is of the same Program; sizes that no config has are among its words."""
    for served in (
        compiled(made, folder).served,
        open_model(
            "qwen3",
            checkpoint=CHAT_TINY,
            sizes_from_config=True,
            sizes={"layers": 1},
            backend="pallas",
            compiled=folder,
        ).compiled.served,
    ):
        words = shlex.split(served.command(folder, 2, 512))
        assert words[:2] == ["mks", "compile"]
        args = compiling._parsed(words[2:])
        _, schedule, instance = compiling.chosen(args)
        assert identity(lower_fitting(schedule, instance, 2)) == identity(served.program(2, 512))
        assert args.output == folder


def test_a_folder_for_several_numbers_of_rows(made: Path, tmp_path: Path) -> None:
    """The most rows are taken unless fewer are asked for; a single prompt takes the fewest."""
    whole = tmp_path / "whole"
    for rows in (2, 1):
        place = shutil.copytree(made / "compiled", whole / f"rows{rows}")
        changed(place, lambda said, rows=rows: said.update(rows=rows))
    steps = [{"rows": rows, "folder": f"rows{rows}"} for rows in (2, 1)]
    (whole / MANIFEST).write_text(json.dumps({"format": 1, "rows": [2, 1], "steps": steps}))

    found = compiled(made, whole)
    assert found.check(None, None, TPU) == (2, CONTEXT)
    assert found.check(1, None, TPU) == (1, CONTEXT)
    assert found.fewest.rows == 1
    assert found.executable(2) == whole / "rows2" / EXECUTABLE
    assert "rows 1, 2, and what is served has 4" in refused(lambda: found.check(4, None, TPU))


def test_a_prompt_that_does_not_fit_the_step(made: Path, folder: Path) -> None:
    """The context that it needs is asked for."""
    said = refused(lambda: run._room(opened(made, folder), CONTEXT + 1))
    assert "context 256, and what is served has 512" in said


def test_what_is_not_said_is_what_was_compiled(made: Path, folder: Path) -> None:
    """Schedule and working type; whoever names others is told."""
    options: dict[str, Any] = {"checkpoint": CHAT_TINY, "sizes_from_config": True, "backend": "pallas"}
    found = open_model("qwen3", **options, compiled=folder).compiled
    assert found is not None
    assert found.check(None, None, TPU) == (1, CONTEXT)
    other = open_model("qwen3", **options, compiled=folder, dtype="f32").compiled
    assert other is not None
    said = refused(lambda: other.check(None, None, TPU))
    assert "working type bf16, and what is served has f32" in said
    assert "`--dtype bf16`" in said


def test_hosts_without_the_tpus(made: Path, folder: Path) -> None:
    """None, and too few."""
    found = compiled(made, changed(folder, lambda said: said.update(cores=4)))
    said = refused(lambda: found.check(1, CONTEXT, ()))
    assert said.split()[0] == "E509"
    assert "4 cores of v5e, and this host has no TPU" in said
    assert "this host has 1 of `TPU v5 lite`" in refused(lambda: found.check(1, CONTEXT, TPU))


@pytest.mark.parametrize("command", [["run", "--ids", "1,2", "--max-tokens", "4"], ["serve", "--port", "0"]])
def test_without_a_tpu_the_commands_say_so(
    made: Path, folder: Path, command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Status 1 before anything is loaded, and no traceback."""
    assert main([*command, "--packed", str(made / "packed"), "--compiled", str(folder)]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "error[E509]" in err
    assert "1 error" in err
    assert "this host has no TPU" in err
    assert "Traceback" not in err
    assert "interpreted, to check" not in err


def test_folders_that_are_none(made: Path, tmp_path: Path, folder: Path) -> None:
    """An empty one, a packed model, another version's, and manifests of which a part is gone."""
    assert refused(lambda: open_compiled(tmp_path)).startswith("E507 ")
    assert "name it as `packed`" in refused(lambda: open_compiled(made / "packed"))
    assert "without `layout`" in refused(lambda: open_compiled(changed(folder, lambda said: said.pop("layout"))))
    assert "without `rows`" in refused(
        lambda: open_compiled(changed(folder, lambda said: said.update(layout="", rows=0)))
    )
    assert "`steps`" in refused(lambda: open_compiled(changed(folder, lambda said: said.update(steps=[1]))))
    assert "format 0; this version reads 1" in refused(
        lambda: open_compiled(changed(folder, lambda said: said.update(format=0)))
    )
    (folder / MANIFEST).write_text("[")
    assert "is not JSON" in refused(lambda: open_compiled(folder))
    (folder / MANIFEST).write_text("[]")
    assert "format None" in refused(lambda: open_compiled(folder))


def test_executables(made: Path, folder: Path) -> None:
    """The loader gets the program and the mesh's devices; a damaged file, other arguments and a refusal are told."""
    served = compiled(made, folder).served
    program, devices = served.program(1, CONTEXT), jax.devices("cpu")[:1]
    mesh = Mesh(devices, ("core",))
    seen: list[Any] = []

    def loader(saved: Any, devices: Any) -> Any:
        seen.extend((len(saved.program), devices))
        return "step"

    def refusing(saved: Any, devices: Any) -> Any:
        raise RuntimeError("INVALID_ARGUMENT: another chip\nat a place")

    path = folder / EXECUTABLE
    assert load_step(path, program, mesh, loader) == "step"
    assert seen[0] > 1000
    assert seen[1] == tuple(devices)
    said = refused(lambda: load_step(path, program, mesh, refusing))
    assert said.startswith("E509 ")
    assert "compiled for 1 of v5e 1x1; here are 1 of `cpu` the runtime: RuntimeError: INVALID_ARGUMENT: another" in said
    said = refused(lambda: load_step(path, served.program(2, CONTEXT), mesh, loader))
    assert said.split()[0] == "E508"
    assert "is int32[1] there, and int32[2] here" in said
    path.write_bytes(b"nothing")
    said = refused(lambda: load_step(path, program, mesh, loader))
    assert said.split()[0] == "E507"


@pytest.mark.thorough
def test_a_loaded_step_decodes(made: Path) -> None:
    """On a host that passes for one with the TPU, the loaded step is what decodes, and gives the ids of its kernel."""
    found = []
    packed = ["--packed", str(made / "packed"), "--ids", "5,6,7", "--max-tokens", "2", "--ignore-eos", "--json"]
    for script, options in ((PRETENDED, ["--compiled", str(made / "compiled")]), (PLAIN, [])):
        done = children.run(
            [sys.executable, "-c", script, "run", *packed, *options], capture_output=True, text=True, seconds=120
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert ("loaded True for 1" in done.stderr) == bool(options)
        found.append(json.loads(done.stdout)["output_ids"])
    assert found[0] == found[1]
    assert len(found[0]) == 2
