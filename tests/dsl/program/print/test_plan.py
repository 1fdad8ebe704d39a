"""`mks plan`: what it says of the shipped definitions, word for word, and how it answers what cannot be planned."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import children
from helpers.definitions import FOLDER, changed, text

from mks.dsl.commands import cli
from mks.dsl.frontend import check_source
from mks.dsl.program import ir
from mks.dsl.program.analysis.memory import bill
from mks.dsl.program.analysis.traffic import reads, tapes, writes
from mks.dsl.program.ir import Op, Program
from mks.dsl.program.ir.walk import walk
from mks.dsl.program.lower.lower import lower
from mks.dsl.program.print.json import numerics, record
from mks.dsl.program.print.text import WIDTH, words
from mks.dsl.source import Source

GOLDEN = Path(__file__).parents[1] / "golden"
PLANNED = ("qwen3", "qwen38", "smollm2")


def planned(name: str, rows: int = 1, *edits: tuple[str, str]) -> Program:
    """The Program of a definition's first own schedule."""
    found = changed(name, *edits)
    assert not found.failed
    key = found.own_schedules[0]
    schedule = found.schedules[key]
    assert schedule is not None
    return lower(schedule, found.instances[key[0]], rows)


def golden(name: str, said: str) -> None:
    """Compare with a file; MKS_UPDATE=1 writes it anew."""
    path = GOLDEN / name
    if os.environ.get("MKS_UPDATE"):
        path.write_text(said, "utf-8")
    assert path.is_file(), f"MKS_UPDATE=1 writes {path}"
    assert said == path.read_text("utf-8"), "MKS_UPDATE=1 writes this text into the file"


@pytest.mark.parametrize("name", [*PLANNED, "kimi_k3", "dspark"])
def test_words(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed at one row."""
    assert cli.main(["plan", str(FOLDER / f"{name}.mks"), "--rows", "1"]) == 0
    golden(f"{name}.txt", capsys.readouterr().out)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The same as one JSON object."""
    assert cli.main(["plan", str(FOLDER / "smollm2.mks"), "--rows", "1", "--json"]) == 0
    golden("smollm2.json", capsys.readouterr().out)


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("name", PLANNED)
def test_words_fit_a_terminal(name: str, rows: int) -> None:
    """No line is wider than 120 columns or ends in spaces."""
    lines = words(planned(name, rows)).splitlines()

    assert [line for line in lines if len(line) > WIDTH or line != line.rstrip()] == []


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("name", [*PLANNED, "kimi_k3"])
def test_what_vmem_holds_is_the_bill(name: str, rows: int) -> None:
    """The plan's total is that of `mks check`, and what is listed by place adds up to it."""
    program = planned(name, rows)
    lines = words(program).split("buffers in VMEM, bytes as padded\n")[1].split("\n\n")[0].splitlines()
    places = [line for line in lines if not line.startswith(" " * 4)]
    *held, total, limit = (int(line.split()[-1].replace(",", "")) for line in places)

    assert total == bill(program).total == sum(held)
    assert limit == bill(program).limit


def test_text_does_not_depend_on_hashing() -> None:
    """Processes with other seeds of their hashes print the same."""
    script = "import sys; from mks.dsl.commands.cli import main; sys.exit(main())"
    said = set()
    for seed in ("1", "2"):
        for form in ([], ["--json"]):
            child = children.run(
                [sys.executable, "-c", script, "plan", str(FOLDER / "qwen38.mks"), "--rows", "2", *form],
                capture_output=True,
                seconds=60,
                env={**os.environ, "PYTHONHASHSEED": seed},
                check=True,
            )
            said.add(child.stdout)

    assert len(said) == 2


def test_every_schedule_at_each_number_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """The list of schedules has one entry for each, which begins with what it is."""
    assert cli.main(["plan", str(FOLDER / "qwen38.mks"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)

    assert list(said) == ["schedules", "diagnostics"]
    assert [list(each)[:3] for each in said["schedules"]] == [["name", "target", "rows"]] * 4
    assert [(each["name"], each["target"], each["rows"]) for each in said["schedules"]] == [
        ("ironwood4", "tpu7x", rows) for rows in (1, 2, 4, 8)
    ]
    assert said["schedules"][0]["mesh"] == {"tp": 8}


SHAPE: dict[str, type] = {
    "name": str,
    "target": str,
    "rows": int,
    "model": str,
    "topology": str,
    "cores": int,
    "mesh": dict,
    "context": int,
    "numerics": list,
    "reads": dict,
    "writes": dict,
    "buffers": list,
    "rings": list,
    "products": list,
    "transfers": dict,
    "copies": list,
    "caches": list,
    "collectives": list,
    "arrays": list,
    "outputs": list,
    "phases": list,
}


@pytest.mark.parametrize("name", PLANNED)
def test_shape_of_the_record(name: str) -> None:
    """Keys, their order and types; names refer to what is listed, and everything is plain JSON."""
    found = record(planned(name, 1))

    assert {key: type(value) for key, value in found.items()} == SHAPE
    assert list(found) == list(SHAPE)
    assert json.loads(json.dumps(found)) == found
    held = {buffer["name"] for buffer in found["buffers"]}
    rings = {ring["name"] for ring in found["rings"]}
    assert {product["operand"] for product in found["products"]} <= held
    assert {product["ring"] for product in found["products"]} == rings == set(found["transfers"])
    assert all(buffer["padded_bytes"] > 0 for buffer in found["buffers"])
    assert all(size > 0 for size in (*found["reads"].values(), *found["writes"].values()))
    ops = list(flat(found["phases"]))
    assert {op["product"] for op in ops if op["op"] == "dot"} == {product["name"] for product in found["products"]}
    assert {op["exchange"] for op in ops if op["op"] == "send"} == {
        each["name"] for each in found["collectives"] if each["kind"] != "argmax"
    }
    computes = [op for op in ops if op["op"] == "compute"]
    assert computes
    assert all(op["text"] and "\n" not in op["text"] and op["line"] > 0 for op in computes)


def flat(ops: Any) -> Any:
    """Every op of a record, at any depth."""
    if isinstance(ops, dict):
        if "op" in ops:
            yield ops
        for each in ops.values():
            yield from flat(each)
    elif isinstance(ops, list):
        for each in ops:
            yield from flat(each)


def test_expressions_are_the_text_s_own_words() -> None:
    """A statement over several lines, with comments, is printed on one."""
    broken = ("q = rope(heads(wq @ x, q_heads),", "q = rope(  # of one token\n      heads(wq @ x, q_heads),")
    ops = flat(record(planned("smollm2", 1, broken))["phases"])

    assert [op["text"] for op in ops if op.get("outputs") == ["attention.q"]] == [
        "q = rope( heads(wq @ x, q_heads), position, theta = theta)"
    ]


def test_numerics_statements_are_listed() -> None:
    """Those that choose among evaluations, not those that move."""
    found = record(planned("qwen38"))["numerics"]

    assert [each["kind"] for each in found] == ["shard", "reduce", "reduce", "reduce"]
    assert "kv_heads (repeat)" in found[0]["text"]


@pytest.mark.parametrize("rows", [1, 8])
def test_tapes_of_qwen38_are_hardly_padded(rows: int) -> None:
    """All tapes of a core take at most 3 % more than its share of the weights that pass through them."""
    program = planned("qwen38", rows)
    made = tapes(program).values()
    d, ffn, vocab = 5120, 17408, 248320
    delta = d * (2 * 16 * 128 + 2 * 48 * 128 + 2 * 48) // 8 + 48 * 128 * d // 8
    attention = d * (24 * 2 * 256) // 8 + 2 * d * 256 + 24 * 256 * d // 8  # four kv heads over eight cores: one each
    own = 2 * (48 * delta + 16 * attention + 64 * 3 * d * ffn // 8 + vocab * d // 8)

    assert sum(tape.own for tape in made) == own
    assert own < sum(tape.bytes for tape in made) <= 1.03 * own


def test_what_a_step_reads_and_writes() -> None:
    """States and cache entries go both ways, caches only in; figures of SmolLM2 by hand."""
    found = {line.name: line.bytes for line in reads(planned("smollm2"))}
    out = {line.name: line.bytes for line in writes(planned("smollm2"))}
    d, ffn, vocab, layers = 576, 1536, 49152, 30

    assert found["weights"] == 2 * (layers * (d * (576 + 2 * 192) + d * d + 3 * d * ffn) + vocab * d)
    assert found["caches"] == found["padding of caches"] == layers * 2048 * 2 * 192 * 2  # 64 of 128 lanes
    assert found["rows of tables"] == 2 * 768  # in whole lanes of words
    assert out["entries of caches"] == layers * 2 * 3 * 128 * 2
    eight = {line.name: line.bytes for line in reads(planned("qwen38", 8))}
    one = {line.name: line.bytes for line in reads(planned("qwen38", 1))}
    assert {name for name in one if eight[name] == 8 * one[name]} == {"rows of tables", "states", "caches"}
    assert {name for name in one if eight[name] == one[name]} == {"weights", "padding of tapes", "vectors"}


def test_ops_are_counted_as_often_as_they_run() -> None:
    """A step waits for every transfer of its tape, once."""
    program = planned("qwen38")
    waits = sum(len(at.op.rows) * at.trips for at in walk(program) if isinstance(at.op, ir.Wait))

    assert waits == tapes(program)[ir.StreamRef("dense")].transfers


def test_every_op_is_shown() -> None:
    """An op of any kind has a line in words, one that has no words of its own too."""
    from attrs import frozen

    from mks.dsl.program.print.ops import happens

    @frozen
    class Strange:
        """Something new."""

        where: str
        count: int

    strange: Op = Strange("somewhere", 3)  # type: ignore[assignment]
    assert [line.split() for line in happens((strange,), 100)] == [["strange", "somewhere", "count", "=", "3"]]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["smollm2.mks", "--rows", "3"], "E008"),
        (["smollm2.mks", "--schedule", "two"], "E008"),
        (["kimi_k3.mks", "--rows", "5"], "E008"),
        (["muse_spark.mks"], "E901"),
        (["none.mks"], "E003"),
        (["qwen38.mks", "--size", "q_heads=20"], "E213"),
    ],
)
def test_what_cannot_be_planned(arguments: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 1 and a diagnostic; as JSON among the diagnostics, with an empty list of schedules."""
    path, *rest = arguments
    assert cli.main(["plan", str(FOLDER / path), *rest]) == 1
    out, err = capsys.readouterr()
    assert (out, code in err) == ("", True)
    assert cli.main(["plan", str(FOLDER / path), *rest, "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["schedules"] == []
    assert code in {each["code"] for each in said["diagnostics"]}


def test_a_file_with_errors_is_not_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its errors are said instead."""
    bad = tmp_path / "bad.mks"
    bad.write_text(text("smollm2").replace("theta = theta", "theta = thet"))

    assert cli.main(["plan", str(bad)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "E101" in err


def test_a_file_without_schedules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to plan, which is said."""
    bare = tmp_path / "bare.mks"
    bare.write_text(text("smollm2").partition("\nschedule ")[0])

    assert cli.main(["plan", str(bare)]) == 1
    assert "bare.mks has no schedule" in capsys.readouterr().err


def test_plan_at_other_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes count."""
    assert cli.main(["plan", str(FOLDER / "smollm2.mks"), "--size", "layers=2"]) == 0
    assert "layers   0 .. 2\n" in capsys.readouterr().out


def test_what_may_change_bits_is_listed() -> None:
    """Weights of one operand that are not fused, and tiles that are not whole steps of attention."""
    text = (
        "schedule odd for smollm2 {\n  target v5e 1x1\n  context 2048\n"
        "  stream s {\n    slots = 4\n    slot = 2560 KiB\n    attention : wq, (wk, wv), wo\n  }\n"
        "  prefetch attention.cache  at attention.start  (tile = 384 tokens, slots = 2)\n}\n"
    )
    path = Path(__file__).parents[4] / "models" / "smollm2.mks"
    found = check_source(Source("odd.mks", path.read_text() + text))
    schedule = found.schedules["smollm2", "odd"]
    assert schedule is not None
    assert numerics(lower(schedule, found.instances["smollm2"], 1)) == [
        ("stream", "attention : wq apart from wk+wv"),
        ("prefetch", "attention.cache (tile = 384 tokens)"),
    ]
