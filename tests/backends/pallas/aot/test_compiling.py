"""`mks compile`: the folder, what is said of failures, and that nothing large is copied."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from attrs import evolve
from helpers import children
from jax.experimental import pallas as pl

from mks import models
from mks.backends.commands.compile import _count, compile_
from mks.backends.pallas.aot import measure as compiling
from mks.backends.pallas.aot.compiler import compile_ahead, meshed, read
from mks.backends.pallas.aot.measure import compile_step, copies
from mks.backends.pallas.cycles.bundles import Bundles
from mks.backends.pallas.cycles.counting import count_step
from mks.backends.pallas.emit import emitter, scopes
from mks.backends.pallas.emit.call import BuildMode
from mks.backends.pallas.emit.scopes import place_of, trips
from mks.backends.pallas.emit.shard_map import arguments, build
from mks.backends.pallas.emit.signature import StepInput
from mks.backends.pallas.layout.tape import IDLE, starting, table
from mks.dsl.diagnostics import Diagnostic, MksError
from mks.dsl.frontend import load_definition
from mks.dsl.program import ir as p
from mks.dsl.program.lower.lower import lower
from mks.dsl.targets.targets import targets
from mks.models.library import find_definition
from mks.server.commands.bench_command import bench

pytest.importorskip("libtpu")
MODELS = Path(models.__file__).parent
TOPOLOGIES = {"v5e": (1, 1), "v6e": (1, 1), "v5p": (1, 1, 1), "tpu7x": (1, 1, 1)}
COMMAND = "import sys; from mks.backends.commands.compile import compile_; sys.exit(compile_(sys.argv[1:]))"


def program(name: str, rows: int = 1, target: str | None = None) -> p.Program:
    """A shipped model's first schedule, for one core of another target if one is named."""
    definition = load_definition(str(MODELS / f"{name}.mks"))
    schedule = next(definition.schedules[key] for key in definition.own_schedules)
    assert schedule is not None
    if target is not None:
        schedule = evolve(schedule, target=targets[target], topology=TOPOLOGIES[target])
    return lower(schedule, definition.instances[schedule.model.name], rows)


def compiled(folder: Path, *arguments: str, timeout: float = 500) -> dict:
    """What `mks compile --json` says, run in a process of its own."""
    command = [sys.executable, "-c", COMMAND, *arguments, "-o", str(folder), "--json"]
    done = children.run(command, capture_output=True, text=True, seconds=timeout)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """SmolLM2's step for one core of v5e."""
    folder = tmp_path_factory.mktemp("compiled") / "smollm2"
    compiled(folder, "smollm2", "--context", "256", "--size", "layers=2")
    return folder


def test_manifest(folder):
    """It says what was compiled, with what, and what that takes."""
    said = json.loads((folder / "manifest.json").read_text())

    assert (said["format"], said["status"]) == (1, "compiled, not run")
    assert (said["model"], said["schedule"], said["rows"], said["context"]) == ("smollm2", "one", 1, 256)
    assert (said["target"], said["topology"], said["mesh"], said["cores"]) == ("v5e", [1, 1], {}, 1)
    assert said["sizes"]["layers"] == 2
    source, _ = find_definition("smollm2")
    assert source is not None
    assert said["definition"] == source.text
    assert set(said["versions"]) == {"jax", "jaxlib", "libtpu"}
    assert min(said[name] for name in ("lower_s", "compile_s")) > 0
    assert said["seconds"] > said["lower_s"] + said["compile_s"]
    assert said["copies"] == []
    assert said["bundles"] is None


@pytest.mark.parametrize(
    ("known", "asked", "counts"), [(True, False, 0), (True, True, 0), (False, False, 0), (False, True, 1)]
)
def test_bundles_are_counted_where_that_is_asked_for(tmp_path, monkeypatch, known, asked, counts):
    """And taken from where they were kept: compiling does not wait for them."""
    found = Bundles(12, 3, (), True)
    tried = []
    monkeypatch.setattr("mks.backends.pallas.cycles.bundle_cache.kept", lambda program: found if known else None)
    monkeypatch.setattr(
        "mks.backends.pallas.cycles.counting.count_step", lambda program: tried.append(program) or found
    )
    said = {"bundles": None}
    _count(tmp_path, program("smollm2"), said, asked, quiet=True)

    assert len(tried) == counts
    assert said["bundles"] == (12 if known or asked else None)


def test_memories(folder):
    """The bill is never below the compiler's figure, what is read has its padding listed, and HBM holds it."""
    said = json.loads((folder / "manifest.json").read_text())

    assert 0 < said["vmem_compiler_bytes"] <= said["vmem_bill_bytes"]
    moved = said["read_bytes"]
    assert moved["total"] == sum(size for name, size in moved.items() if name != "total")
    assert moved["padding of tapes"] < moved["weights"] * 0.03
    assert said["hbm_bytes"] > moved["weights"]


def test_other_files(folder):
    """The executable, the plan in words and as data, and the bill, whose lines add up."""
    said = json.loads((folder / "manifest.json").read_text())

    assert (folder / "step.bin").stat().st_size == said["executable_bytes"]
    assert len(read(folder / "step.bin").program) > 10_000
    assert (folder / "plan.txt").read_text().startswith("program `one` of `smollm2`: 1 row, v5e 1x1")
    [plan] = json.loads((folder / "plan.json").read_text())["schedules"]
    assert (plan["name"], plan["rows"]) == ("one", 1)
    bill = json.loads((folder / "bill.json").read_text())
    passing = max((line["bytes"] for line in bill["vmem_passing"]), default=0)
    assert sum(line["bytes"] for line in bill["vmem"]) + passing == bill["vmem_bytes"] == said["vmem_bill_bytes"]
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nothing_like_it"], 1, "no definition `nothing_like_it`"),
        (["smollm2", "--schedule", "two"], 1, "no schedule `two`"),
        (["smollm2", "--rows", "0"], 2, "'0' is not a whole number of 1 or more"),
        (["smollm2", "--adopt"], 2, "--adopt takes the sizes"),
        (["smollm2", "--rows", "8", "--context", "131072", "--size", "layers=400"], 1, "of HBM a core"),
    ],
)
def test_what_cannot_be_compiled(tmp_path, capsys, arguments, status, said):
    """Wrong usage, wrong names, and what does not fit, before anything is compiled or written."""
    try:
        found, message = compile_([*arguments, "-o", str(tmp_path / "out")]), capsys.readouterr().err
    except MksError as error:
        found, message = 1, " ".join(d.message for d in error.diagnostics)

    assert (found, said in message) == (status, True), message
    assert not (tmp_path / "out").exists()


def small() -> p.Program:
    """Two layers of SmolLM2."""
    definition = load_definition(str(MODELS / "smollm2.mks"))
    schedule = definition.schedules["smollm2", "one"]
    assert schedule is not None
    instance = definition.instances["smollm2"]
    values = instance.values | {"layers": 2}
    return lower(evolve(schedule, context=256), evolve(instance, values=values), 1)


def test_a_step_without_donation_is_refused(monkeypatch):
    """States that are not given up are copied as a whole: that is an error of ours."""

    def undonated(program, build_mode, mesh):
        return jax.jit(lambda *given: build(program, build_mode, mesh)(*given))

    monkeypatch.setattr(compiling, "jitted", undonated)
    with pytest.raises(MksError) as caught:
        compile_step(small())

    found = caught.value.diagnostics
    assert {d.code for d in found} == {"E506"}
    assert any("`attention.keys`" in d.message for d in found)


def test_copies():
    """Moves of whole caches are told from those of what leaves anyway."""
    made = small()
    here, mesh = meshed(made.schedule)
    build_mode = BuildMode(vmem=int(made.schedule.target.memory.vmem.value))
    kept = compile_ahead(build(made, build_mode, mesh), arguments(made, mesh), here, made.schedule.axes)
    given = compile_ahead(build(made, build_mode, mesh), arguments(made, mesh), here, made.schedule.axes, donate=(3,))

    assert copies(made, kept.hlo)
    assert copies(made, given.hlo) == ()


def _raises(op, core):
    raise KeyError("no such thing")


def _sums(op, core):
    ref = core.refs[op.outputs[0]]
    ref[...] = jax.lax.cumsum(ref[...].astype(jnp.float32), axis=1).astype(ref.dtype)


def _unaligned(op, core):
    ref = core.refs[op.outputs[0]]
    ref[:, pl.ds(core.given[StepInput.IDS][0], 128)] = ref[:, :128]


@pytest.mark.parametrize(
    ("fault", "code", "said", "whose"),
    [
        (_raises, "E505", "building the kernel failed", "a fault of mks or of the compiler"),
        (_sums, "E504", "the TPU compiler has no `cumsum` inside kernels", "this backend cannot do it on this target"),
        (
            _unaligned,
            "E504",
            "index 1 is not known to be a multiple of 128",
            "this backend cannot do it on this target",
        ),
    ],
)
def test_failures_name_the_statement(monkeypatch, fault, code, said, whose):
    """Of an emitter, of lowering, of the compiler: the file, the line, the part, and whose fault it is."""
    made, evaluate = small(), emitter.EMIT[p.Compute]

    def emit(op, core):
        evaluate(op, core)
        if op.outputs[0].label == "mlp.x":
            fault(op, core)

    monkeypatch.setitem(emitter.EMIT, p.Compute, emit)
    with pytest.raises(MksError) as caught:
        compile_step(made)

    [found] = caught.value.diagnostics
    assert found.code == code
    assert said in found.message
    assert found.message.endswith(", in `mlp`")
    assert any(whose in note for note in found.notes)
    assert found.primary is not None
    span = found.primary.span
    assert span.source.name.endswith("smollm2.mks")
    assert span.text == "x = rms_norm(h, norm, eps)"
    assert span.start > span.source.text.index("part mlp {")


def test_failures_without_a_place():
    """What tells nothing is about the schedule."""
    made = small()

    assert place_of(ValueError("no idea"), made).span == made.schedule.span


def test_transfers_of_each_start():
    """Every transfer of the tape is started once, in order, and what is started after them is idle."""
    made = program("qwen38")
    counts = [count for starts in starting(made).values() for count in starts.counts]
    [ring] = made.rings

    sizes_ = [rows for name, _ in made.transfers(ring) for rows in made.products[name].tiling.transfers]
    for rows in set(sizes_):
        assert sum(count[rows] for count in counts) == sizes_.count(rows)
    assert sum(count[IDLE] for count in counts) == made.rings[ring].slots
    assert sum(count.total() for count in counts) == len(table(made, ring))


def test_trips():
    """Parts run in their layers, and tiles of a full cache in each of them for each row."""
    found = trips(program("qwen38", rows=2))

    assert (found["part attention"], found["part delta"], found["layers"]) == (16, 48, 64)
    [tiles] = [times for name, times in found.items() if name.startswith("tiles of")]
    assert tiles == 16 * 2 * 4096 // 1024
    some = scopes.small(program("qwen38", rows=2))
    assert [times for name, times in some.items() if name.startswith("last tile")] == [16 * 2]


def test_bundles_that_cannot_be_counted():
    """A process that takes too long is a warning, not a failure."""
    found = count_step(small(), timeout=0.01)

    assert isinstance(found, Diagnostic)
    assert found.code == "W501"
    assert "no schedule after 0.01 s" in found.notes


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 8])
def test_qwen38(tmp_path, rows):
    """Within its times, memory, bundles and bytes; times are processor time, as other work may run meanwhile."""
    before = os.times()
    [said] = compiled(tmp_path / "out", "qwen38", "--rows", str(rows))["steps"]
    spent = os.times()

    used = sum(getattr(spent, name) - getattr(before, name) for name in ("children_user", "children_system"))
    assert used < (6 if rows == 1 else 8)
    assert said["peak_memory_bytes"] < 1.5e9
    assert said["copies"] == []
    assert said["vmem_compiler_bytes"] <= said["vmem_bill_bytes"] <= said["vmem_compiler_bytes"] * 1.05
    moved = said["read_bytes"]
    kept = moved["states"] + moved["caches"]
    assert moved["total"] - kept <= 1.03 * moved["weights"]


@pytest.mark.slow
def test_bundles_of_qwen38(tmp_path):
    """At one row and a full context of 4096 a step takes at most 1.25 million bundles; parts add up to the whole."""
    [said] = compiled(tmp_path / "out", "qwen38", "--rows", "1", "--bundles")["steps"]
    [again] = compiled(tmp_path / "again", "qwen38", "--rows", "1")["steps"]

    assert again["bundles_by_region"] == said["bundles_by_region"]
    assert 500_000 < said["bundles"] <= 1_250_000
    assert said["bundles_exact"]
    total = sum(row["bundles"] * row["times"] for row in said["bundles_by_region"])
    assert round(total) == said["bundles"]
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["bundles"] == said["bundles"]


@pytest.mark.slow
@pytest.mark.parametrize("target", list(TOPOLOGIES))
@pytest.mark.parametrize("name", ["smollm2", "qwen3"])
def test_small_models_on_every_target(name, target):
    """They compile for one core of each, and copy nothing."""
    made = compile_step(program(name, target=target))

    assert 0 < made.vmem <= made.program.schedule.target.memory.vmem.value


@pytest.mark.slow
def test_several_rows(tmp_path):
    """Each number of rows has its folder, and the manifest lists them."""
    said = compiled(tmp_path / "out", "qwen38", "--context", "1024", "--size", "layers=4")

    listed = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert listed["rows"] == [1, 2, 4, 8] == [step["rows"] for step in said["steps"]]
    for step in listed["steps"]:
        inner = json.loads((tmp_path / "out" / step["folder"] / "manifest.json").read_text())
        assert inner["rows"] == step["rows"]
        assert (tmp_path / "out" / step["folder"] / "step.bin").stat().st_size == inner["executable_bytes"]


def test_bench_usage(capsys):
    """Wrong usage and wrong names of `mks bench compile`."""
    assert bench(["compile", "qwen38", "--adopt"]) == 2
    assert "--adopt takes the sizes" in capsys.readouterr().err
    with pytest.raises(MksError, match="nothing_like_it"):
        bench(["compile", "nothing_like_it"])


@pytest.mark.slow
def test_bench(capsys):
    """Kernels compile at least five times faster than the same model as an ordinary XLA program, written out."""
    assert bench(["compile", "qwen38", "--rows", "1", "--timeout", "240", "--json"]) == 0

    said = json.loads(capsys.readouterr().out)
    assert (said["target"], said["topology"], said["rows"]) == ("tpu7x", "2x2x1", 1)
    assert said["kernels"]["stopped"] is None
    assert said["times_faster"]["unrolled"] >= 5
    assert said["times_faster"]["scanned"] >= 1
    for way in ("kernels", "scanned"):
        assert said[way]["lower_s"] + said[way]["compile_s"] == pytest.approx(said[way]["total_s"], abs=0.01)
        assert said[way]["cpu_s"] > 0.5
        assert 1e8 < said[way]["memory_bytes"] < 8e9
