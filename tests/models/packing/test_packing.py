"""A packed folder is what kernels read, and whatever interrupts the packing, the same folder comes out."""

import json
import os
import resource
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers import children
from helpers.definitions import FOLDER
from helpers.oracles import DATA
from helpers.packs import TEXT, content, in_memory, pack, prepared

from mks.dsl.diagnostics import MksError
from mks.dsl.program.ir import ExpertPoolRef
from mks.dsl.source import Source
from mks.models.packing import checksums
from mks.models.packing import operands as operand_module
from mks.models.packing import pack as packing
from mks.models.packing.layout import core_file, operands, pieces
from mks.models.packing.packed import Packed, open_packed, verify

SOURCE = Source("toy.mks", TEXT)


def shipped(name: str) -> Source:
    """A shipped definition."""
    path = FOLDER / f"{name}.mks"
    return Source(str(path), path.read_text("utf-8"))


@pytest.fixture
def checkpoint(tmp_path: Path, save_file: Callable[[Path, Mapping[str, np.ndarray]], None]) -> Path:
    """A checkpoint of the small model, `out` tied."""
    rng = np.random.default_rng(3)
    arrays = {"embed": rng.normal(size=(200, 64))}
    arrays |= {f"l.{i}.{n}": rng.normal(size=(96, 64)) for i in range(3) for n in ("gate", "up")}
    arrays |= {f"l.{i}.down": rng.normal(size=(64, 96)) for i in range(3)}
    arrays |= {f"l.{i}.norm": rng.normal(size=64) for i in range(3)}
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    save_file(folder / "model.safetensors", {n: a.astype(ml_dtypes.bfloat16) for n, a in arrays.items()})
    (folder / "config.json").write_text('{"d": 64, "ffn": 96, "layers": 3, "vocab": 200}')
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
        (folder / name).write_text("{}")
    (folder / "notes.md").write_text("not of use")
    return folder


def equal(packed: Packed, made: Any) -> None:
    """Every core's file is what `operands.packed` makes in memory."""
    for core in range(packed.schedule.cores):
        here, there = in_memory(made, core), packed.arrays(core)
        assert here.keys() == there.keys()
        for name, array in here.items():
            assert (there[name].dtype, there[name].shape) == (array.dtype, array.shape)
            assert np.array_equal(there[name].view(np.int32), array.view(np.int32)), name


@pytest.mark.parametrize(
    ("definition", "data", "working"),
    [("qwen3", "qwen3_tiny", "f32"), ("qwen38", "qwen38_tp8", "bf16"), ("qwen38", "qwen38_tp8", "f32")],
)
def test_files_hold_what_kernels_read(definition: str, data: str, working: str, tmp_path: Path) -> None:
    """One core, and the eight of four chips: the definition, its sizes and all arrays come back."""
    made = prepared(shipped(definition), DATA / data, working=working)
    summary = pack(made, tmp_path / "packed")
    packed = open_packed(tmp_path / "packed")

    equal(packed, made)
    assert verify(packed) == []
    assert packed.instance.values == made[2].instance.values
    assert packed.instance.working == working
    assert (packed.schedule.name, packed.schedule.cores) == (made[2].schedule.name, summary.cores)
    assert summary.nbytes == summary.written == packed.nbytes
    assert not summary.resumed
    assert (tmp_path / "packed" / "config.json").read_bytes() == (DATA / data / "config.json").read_bytes()


def kimi() -> Source:
    """Kimi K3's definition on eight cores, with a schedule for one beside it."""
    text = shipped("kimi_k3").text
    at = text.index("schedule ironwood16")
    few = text[at:].replace("schedule ironwood16", "schedule few").replace("2x2x4", "2x2x1")
    few = few.replace("ep = 2, tp = 16", "ep = 4, tp = 2")
    one = "schedule one for kimi_k3 {\n  target v5e 1x1\n  rows 1\n  context 256\n}\n"
    return Source("kimi_k3.mks", f"{text[:at]}{few}\n{one}")


@pytest.mark.parametrize(
    ("data", "schedule", "working"),
    [("kimi_k3_mxfp4_tp8", "few", "f32"), ("kimi_k3_tiny", "one", "f32"), ("kimi_k3_mxfp4_tiny", "one", "f32")],
)
def test_experts_are_packed_as_they_are_stored(data: str, schedule: str, working: str, tmp_path: Path) -> None:
    """Four bits where the checkpoint has them, plain numbers where it has these, and the manifest says which."""
    made = prepared(kimi(), DATA / data, schedule, working=working)
    pack(made, tmp_path / "packed")
    packed = open_packed(tmp_path / "packed")

    equal(packed, made)
    assert verify(packed) == []
    (codec,) = {product.codec.name for product in made[2].banks[ExpertPoolRef("moe")].layout.products}
    held = {"moe.gate", "moe.up", "moe.down"}
    assert (packed.plain, codec) == ((frozenset(), "mxfp4") if "mxfp4" in data else (held, working))
    assert all(packed.operand("bank moe", core).any() for core in range(packed.schedule.cores))


def test_experts_packed_in_two_runs(tmp_path: Path) -> None:
    """Interrupted among a layer's experts, the same folder comes out, and less is written the second time."""
    made = prepared(kimi(), DATA / "kimi_k3_mxfp4_tiny", "one")
    pack(made, tmp_path / "whole")
    experts = [i for i, piece in enumerate(pieces(made[2])) if piece.array == "bank moe"]
    with pytest.raises(Stopped):
        pack(made, tmp_path / "halted", stopping(experts[len(experts) // 2] + 1))
    summary = pack(made, tmp_path / "halted")

    assert summary.resumed
    assert 0 < summary.written < summary.nbytes
    assert content(tmp_path / "halted") == content(tmp_path / "whole")


def test_one_expert_is_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one piece, whose pages are dropped before the next: a layer of experts may be larger than memory."""
    made = prepared(kimi(), DATA / "kimi_k3_mxfp4_tp8", "few")
    held: set[tuple[Any, ...]] = set()
    most = 0
    read_expert, release_expert = operand_module.read_expert, operand_module.release_expert

    def reading(binding: Any, *key: Any) -> Any:
        nonlocal most
        held.add(key)
        most = max(most, len(held))
        return read_expert(binding, *key)

    def releasing(binding: Any, *key: Any) -> None:
        held.remove(key)
        release_expert(binding, *key)

    monkeypatch.setattr(operand_module, "read_expert", reading)
    monkeypatch.setattr(operand_module, "release_expert", releasing)
    pack(made, tmp_path / "packed")

    assert not held
    assert most == 3 * 4  # of each of the four shares of experts one, and its three matrices


def test_any_tool_reads_the_files(checkpoint: Path, tmp_path: Path) -> None:
    """They are safetensors, and the tapes begin at whole pages."""
    from safetensors.numpy import load_file

    made = prepared(SOURCE, checkpoint, "two")
    pack(made, tmp_path / "packed")
    for core in range(2):
        file = tmp_path / "packed" / core_file(core)
        read = load_file(file)
        assert {n: a.tobytes() for n, a in read.items()} == {n: a.tobytes() for n, a in in_memory(made, core).items()}
        assert (8 + int.from_bytes(file.read_bytes()[:8], "little")) % 4096 == 0


def test_what_a_server_needs_is_there(checkpoint: Path, tmp_path: Path) -> None:
    """The text files are copied, others are not, and nothing of the work remains."""
    pack(prepared(SOURCE, checkpoint, "two"), tmp_path / "packed")

    assert sorted(content(tmp_path / "packed")) == [
        "chat_template.jinja",
        "config.json",
        "core-000.safetensors",
        "core-001.safetensors",
        "generation_config.json",
        "manifest.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_pieces_fill_every_array_once(checkpoint: Path) -> None:
    """One after the other, without gaps, so that a checksum can go on where it stopped."""
    _, _, program = prepared(SOURCE, checkpoint, "two")
    ends = dict.fromkeys((a.name for a in operands(program)), 0)
    for piece in pieces(program):
        assert piece.begin == ends[piece.array]
        ends[piece.array] += piece.nbytes

    assert ends == {a.name: a.nbytes for a in operands(program)}


def test_a_definition_that_uses_another_file_is_kept_whole(checkpoint: Path, tmp_path: Path) -> None:
    """The folder needs neither of the two files."""
    text, schedules = TEXT.split("schedule two")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "model.mks").write_text("# what it is\nmks 1\n" + text.removeprefix("mks 1\n"))
    main = f'mks 1\n\nuse "model.mks"\n\nmodel other {{\n  size d = 1\n}}\n\nschedule two{schedules}'
    from mks.models.packing.manifest import self_contained

    whole = self_contained(Source(str(tmp_path / "one" / "main.mks"), main))
    made = prepared(Source("main.mks", whole.replace("model other {\n  size d = 1\n}", "")), checkpoint, "two")
    shutil.rmtree(tmp_path / "one")
    pack(made, tmp_path / "packed")

    equal(open_packed(tmp_path / "packed"), made)


class Stopped(Exception):
    """The work was interrupted."""


def stopping(after: int) -> Callable[[int, int], None]:
    """Progress that interrupts the work after so many calls."""
    calls = iter(range(after))

    def progress(done: int, total: int) -> None:
        if next(calls, None) is None:
            raise Stopped

    return progress


def test_interrupted_work_goes_on(checkpoint: Path, tmp_path: Path) -> None:
    """Wherever it stopped, the folder is not taken for a finished one, and in the end it is the same, byte for byte."""
    made = prepared(SOURCE, checkpoint, "two")
    pack(made, tmp_path / "whole")
    written: list[int] = []
    for after in range(12):
        folder = tmp_path / f"after{after}"
        with pytest.raises(Stopped):
            pack(made, folder, stopping(after))
        with pytest.raises(MksError, match="E430"):
            open_packed(folder)
        summary = pack(made, folder)
        assert content(folder) == content(tmp_path / "whole")
        written.append(summary.written)

    assert written == sorted(written, reverse=True)
    assert len(set(written)) == 5
    assert (written[0], written[-1]) == (summary.nbytes, 0)


def test_interrupted_within_pieces(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checksums go on where they stopped, wherever in a piece that is."""
    monkeypatch.setattr(checksums, "PIECE", 20_000)
    made = prepared(SOURCE, checkpoint, "two")
    pack(made, tmp_path / "whole")
    with pytest.raises(Stopped):
        pack(made, tmp_path / "halted", stopping(9))
    assert pack(made, tmp_path / "halted").resumed

    assert content(tmp_path / "halted") == content(tmp_path / "whole")
    assert verify(open_packed(tmp_path / "halted")) == []


def test_a_torn_journal(checkpoint: Path, tmp_path: Path) -> None:
    """A line that was not written to its end does not count, also where it is the first."""
    made = prepared(SOURCE, checkpoint, "two")
    pack(made, tmp_path / "whole")
    with pytest.raises(Stopped):
        pack(made, tmp_path / "torn", stopping(9))
    journal = (tmp_path / "torn" / "journal").read_bytes()
    ends = [i for i, byte in enumerate(journal) if byte == 10]
    for cut in (0, 5, ends[0], ends[0] + 1, ends[1] - 3, ends[1] + 1, len(journal) - 1):
        folder = tmp_path / f"cut{cut}"
        shutil.copytree(tmp_path / "torn", folder)
        (folder / "journal").write_bytes(journal[:cut])
        pack(made, folder)
        assert content(folder) == content(tmp_path / "whole"), cut


CHILD = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from helpers.packs import TEXT, pack, prepared
from mks.dsl.source import Source

calls = 0

def progress(done, total):
    global calls
    calls += 1
    if calls == 8:
        os.kill(os.getpid(), signal.SIGKILL)

pack(prepared(Source("toy.mks", TEXT), Path(sys.argv[2]), "two"), Path(sys.argv[3]), progress)
"""


def test_a_killed_process(checkpoint: Path, tmp_path: Path) -> None:
    """kill -9 in the middle of a layer: what was finished is kept, the rest is done by the next process."""
    tests = str(Path(__file__).parents[2])
    made = prepared(SOURCE, checkpoint, "two")
    pack(made, tmp_path / "whole")
    run = children.run([sys.executable, "-c", CHILD, tests, str(checkpoint), str(tmp_path / "killed")], seconds=60)
    assert run.returncode == -9
    assert not (tmp_path / "killed" / "manifest.json").exists()

    summary = pack(made, tmp_path / "killed")

    assert summary.resumed
    assert 0 < summary.written < summary.nbytes
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


def test_lost_files_are_made_again(checkpoint: Path, tmp_path: Path) -> None:
    """A journal whose files are gone or cut counts for nothing."""
    made = prepared(SOURCE, checkpoint, "two")
    pack(made, tmp_path / "whole")
    for harm in (Path.unlink, lambda path: os.truncate(path, 5000)):
        with pytest.raises(Stopped):
            pack(made, tmp_path / "lost", stopping(9))
        harm(tmp_path / "lost" / core_file(1))
        assert not pack(made, tmp_path / "lost").resumed
        assert content(tmp_path / "lost") == content(tmp_path / "whole")
        shutil.rmtree(tmp_path / "lost")


def test_a_finished_folder_is_left_as_it_is(checkpoint: Path, tmp_path: Path) -> None:
    """The same job again writes nothing, and takes away a journal that was left behind."""
    made = prepared(SOURCE, checkpoint, "two")
    pack(made, tmp_path / "packed")
    before = content(tmp_path / "packed")
    (tmp_path / "packed" / "journal").write_text("left behind")
    summary = pack(made, tmp_path / "packed", stopping(0))

    assert (summary.written, summary.resumed) == (0, True)
    assert content(tmp_path / "packed") == before


def test_a_finished_folder_with_a_damaged_manifest(checkpoint: Path, tmp_path: Path) -> None:
    """It is not said to be done."""
    made = prepared(SOURCE, checkpoint, "two")
    pack(made, tmp_path / "packed")
    path = tmp_path / "packed" / "manifest.json"
    path.write_text(path.read_text().replace('"tokenizer.json": "', '"tokenizer.json": "0'))

    assert refused(made, tmp_path / "packed") == ("E433", "its `manifest.json` is damaged")


def refused(made: Any, folder: Path) -> tuple[str, str]:
    """The code, and what is said beside the message; nothing may have been touched."""
    before = content(folder)
    with pytest.raises(MksError) as caught:
        pack(made, folder)
    (found,) = caught.value.diagnostics
    assert content(folder) == before
    return found.code, "; ".join(found.notes)


@pytest.mark.parametrize("unfinished", [False, True])
def test_another_job_is_refused(checkpoint: Path, tmp_path: Path, unfinished: bool) -> None:
    """Another definition, schedule, size, type or checkpoint, and what differs is said."""
    folder = tmp_path / "packed"
    if unfinished:
        with pytest.raises(Stopped):
            pack(prepared(SOURCE, checkpoint, "two"), folder, stopping(9))
    else:
        pack(prepared(SOURCE, checkpoint, "two"), folder)

    code, told = refused(prepared(SOURCE, checkpoint, "also"), folder)
    assert code == "E433"
    assert "schedule: there two, here also" in told
    assert "other sizes: `layers` is 3, here 2" in refused(prepared(SOURCE, checkpoint, "two", layers=2), folder)[1]
    assert "dtype: there bf16, here f32" in refused(prepared(SOURCE, checkpoint, "two", working="f32"), folder)[1]
    changed = Source("toy.mks", TEXT.replace("1e-5", "1e-6"))
    assert refused(prepared(changed, checkpoint, "two"), folder) == ("E433", "another definition")
    other = tmp_path / "other"
    shutil.copytree(checkpoint, other)
    data = bytearray((other / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (other / "model.safetensors").write_bytes(data)
    assert "another checkpoint" in refused(prepared(SOURCE, other, "two"), folder)[1]


def test_a_checkpoint_that_changed_meanwhile_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    """Its files' sizes and times are remembered, as not all of it is compared."""
    with pytest.raises(Stopped):
        pack(prepared(SOURCE, checkpoint, "two"), tmp_path / "packed", stopping(9))
    os.utime(checkpoint / "model.safetensors", ns=(1, 1))

    code, told = refused(prepared(SOURCE, checkpoint, "two"), tmp_path / "packed")

    assert (code, told) == ("E433", "the checkpoint's files were changed meanwhile")


def test_a_folder_with_other_files_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    """Nothing is written beside what is somebody else's; a manifest of another kind is not ours either."""
    made = prepared(SOURCE, checkpoint, "two")
    assert refused(made, checkpoint) == ("E433", "`chat_template.jinja` and 6 more")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "manifest.json").write_text("[]")
    assert refused(made, tmp_path / "web")[0] == "E433"
    (tmp_path / "web" / "manifest.json").unlink()
    (tmp_path / "web" / "journal").write_text("dear diary\n")
    assert refused(made, tmp_path / "web")[0] == "E433"


def test_no_room(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said before anything is written where the disk is too small, and else when the room is taken."""
    made = prepared(SOURCE, checkpoint, "two")
    with monkeypatch.context() as patch:
        patch.setattr(packing.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6, 1000))
        assert refused(made, (tmp_path / "small").mkdir() or tmp_path / "small")[0] == "E434"

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(MksError) as caught:
            pack(made, tmp_path / "limited")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (found,) = caught.value.diagnostics
    assert found.code == "E434"
    assert "no room" in found.message
    with pytest.raises(MksError, match="E430"):
        open_packed(tmp_path / "limited")
    pack(made, tmp_path / "limited")
    equal(open_packed(tmp_path / "limited"), made)


def test_a_folder_that_cannot_be_made(checkpoint: Path, tmp_path: Path) -> None:
    """A file in the way is a diagnostic."""
    (tmp_path / "file").write_text("")
    with pytest.raises(MksError, match="E434"):
        pack(prepared(SOURCE, checkpoint, "two"), tmp_path / "file" / "packed")


MEASURED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from helpers.packs import pack, prepared
from mks.dsl.source import Source

def memory(kind):
    return int(Path("/proc/self/status").read_text().split(kind + ":")[1].split()[0]) << 10

source = Path(sys.argv[2], "big.mks")
made = prepared(Source(str(source), source.read_text()), Path(sys.argv[2]), "two", working=sys.argv[4])
before = memory("RssAnon")
anonymous = shared = 0

def progress(done, total):
    global anonymous, shared
    anonymous, shared = max(anonymous, memory("RssAnon")), max(shared, memory("RssFile"))

from mks.models.packing import pack as packing
put = packing._put
packing._put = lambda *given: (progress(0, 0), put(*given))[1]
print(pack(made, Path(sys.argv[3]), progress).nbytes, anonymous - before, shared)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell a process its memory")
@pytest.mark.parametrize("working", ["bf16", "f32"])
def test_memory_of_packing(tmp_path: Path, working: str) -> None:
    """A layer at most is held, not the model: 230 MB are packed, once as they are and once widened."""
    d, ffn, layers, vocab = 2048, 4096, 4, 8192
    shapes = {"embed": [vocab, d]}
    for i in range(layers):
        shapes |= {f"l.{i}.norm": [d], f"l.{i}.gate": [ffn, d], f"l.{i}.up": [ffn, d], f"l.{i}.down": [d, ffn]}
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    (tmp_path / "config.json").write_text(json.dumps({"d": d, "ffn": ffn, "layers": layers, "vocab": vocab}))
    (tmp_path / "big.mks").write_text(TEXT)
    tests = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", MEASURED, tests, str(tmp_path), str(tmp_path / "packed"), working]
    run = children.run(command, capture_output=True, text=True, seconds=120)
    assert run.returncode == 0, run.stderr
    packed, anonymous, shared = map(int, run.stdout.split())
    width = {"bf16": 2, "f32": 4}[working]
    layer = 3 * d * ffn * width

    assert packed > at * width // 2 > 110 << 20
    assert anonymous < layer + (32 << 20)
    assert shared < at // 2
