"""`mks run` and `mks serve` on the command line."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from mks.backends.opening.cannot_open import CannotOpen
from mks.backends.opening.load import Opened
from mks.dsl.commands.cli import main
from mks.dsl.diagnostics import Diagnostic, MksError
from mks.models.text.files import TextFiles
from mks.models.text.tokenizer import Tokenizer
from mks.server.commands import entry as commands
from mks.server.commands import run, serve

from ..fake import FakeDecoder

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def opened(files: TextFiles, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replaces the loader; holds what it was asked for and, under `give`, what it gives or raises."""
    seen: dict[str, Any] = {}

    def decoder(rows: int, context: int, ahead: bool) -> FakeDecoder:
        seen.update(rows=rows, context=context, ahead=ahead)
        return FakeDecoder(rows=rows, context=context)

    def open_model(model: str, **options: Any) -> Opened:
        seen.update(options, model=model)
        if isinstance(seen["give"], Exception):
            raise seen["give"]
        return seen["give"]

    seen["give"] = Opened("tiny", files, 512, decoder)
    monkeypatch.setattr(run, "open_model", open_model)
    monkeypatch.setattr(serve, "open_model", open_model)
    return seen


@pytest.fixture
def go(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command; its status, stdout and stderr."""

    def command(*argv: str, name: str = "run") -> tuple[int, str, str]:
        status = getattr(commands, name)(list(argv))
        return status, *capfd.readouterr()

    return command


def test_json_has_ids_and_text(opened: dict[str, Any], go: Run, tokenizer: Tokenizer) -> None:
    """A prompt is a user's message; the answer's text is that of its ids; nothing else is printed."""
    status, out, err = go("tiny", "--prompt", "Hello 👍", "--max-tokens", "12", "--json", "--ignore-eos")
    got = json.loads(out)

    assert (status, err) == (0, "")
    assert set(got) == {"prompt_ids", "output_ids", "text", "seconds"}
    text = "<|im_start|>user\nHello 👍<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(got["prompt_ids"], skip_special_tokens=False) == text
    assert len(got["output_ids"]) == 12
    assert got["text"] == tokenizer.decode(got["output_ids"])
    assert (opened["rows"], opened["context"]) == (1, 256)


def test_text_is_printed_as_it_is(opened: dict[str, Any], go: Run, tokenizer: Tokenizer) -> None:
    """Without --json, the answer and a line's end; --raw continues a text, and greedy repeats."""
    raw = ("tiny", "--raw", "--prompt", "Hello", "--max-tokens", "8", "--ignore-eos")
    as_json = json.loads(go(*raw, "--json")[1])

    assert as_json["prompt_ids"] == tokenizer.encode("Hello")
    assert go(*raw) == (0, as_json["text"] + "\n", "")


def test_sampling_is_repeatable(opened: dict[str, Any], go: Run) -> None:
    """The same seed gives the same answer, another one another."""

    def ids(seed: str) -> list[int]:
        out = go("tiny", "--ids", "5,6", "--temperature", "1.5", "--seed", seed, "--max-tokens", "9", "--json")[1]
        return json.loads(out)["output_ids"]

    assert ids("1") == ids("1") != ids("2")


def test_logits_of_the_prompt_are_stored(opened: dict[str, Any], go: Run, tmp_path: Path) -> None:
    """f32, one row a prompt position, under the very name that was given."""
    file = tmp_path / "out.bin"
    status, *_ = go(
        "tiny", "--ids", ",".join(map(str, range(40))), "--max-tokens", "1", "--json", "--logits", str(file)
    )

    assert status == 0
    with np.load(file) as stored:
        assert stored["logits"].dtype == np.float32
        expected = [FakeDecoder().hashed(range(end)) for end in range(1, 41)]
        assert np.array_equal(stored["logits"], np.stack(expected))


def test_a_checkpoint_without_tokenizer_runs_on_ids(opened: dict[str, Any], go: Run) -> None:
    """`text` is null, without --json ids are printed; a text prompt is refused."""
    opened["give"] = evolve(opened["give"], files=TextFiles())
    got = json.loads(go("tiny", "--ids", "1,2", "--max-tokens", "3", "--json")[1])

    assert got["text"] is None
    assert go("tiny", "--ids", "1,2", "--max-tokens", "3")[1] == ",".join(map(str, got["output_ids"])) + "\n"
    status, out, err = go("tiny", "--prompt", "x")
    assert (status, out) == (1, "")
    assert "no tokenizer" in err


def test_options_reach_the_loader(opened: dict[str, Any], go: Run) -> None:
    """Names, sizes and the checkpoint are passed on."""
    go("a.mks", "--ids", "1", "--max-tokens", "1", "--checkpoint", "dir", "--sizes", "config", "--size", "layers=3")

    assert opened["model"] == "a.mks"
    assert opened["checkpoint"] == Path("dir")
    assert (opened["sizes_from_config"], opened["sizes"], opened["backend"]) == (True, {"layers": 3}, "reference")
    go("--ids", "1", "--max-tokens", "1", "--packed", "p", "--compiled", "c")
    assert (opened["model"], opened["packed"], opened["compiled"]) == (None, Path("p"), Path("c"))
    assert (opened["backend"], opened["dtype"]) == ("pallas", None)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "tiny",
        "tiny --prompt a --ids 1",
        "tiny --ids 1,x",
        "tiny --ids ,",
        "tiny --ids -1",
        "tiny --ids 1 --nope",
        "tiny --ids 1 --max-tokens 0",
        "tiny --ids 1 --temperature 3",
        "tiny --ids 1 --temperature nan",
        "tiny --ids 1 --size layers",
        "tiny --ids 1 --size layers=x",
        "tiny --ids 1 --backend gpu",
        "--ids 1",
        "tiny --ids 1 --compiled c --backend reference",
        "--packed p --ids 1 --backend reference",
    ],
)
def test_wrong_usage_is_status_2(opened: dict[str, Any], go: Run, line: str) -> None:
    """With the usage on stderr."""
    status, out, err = go(*line.split())
    assert (status, out) == (2, "")
    assert "usage: mks run" in err


@pytest.mark.parametrize("name", ["run", "serve"])
def test_help_has_examples(go: Run, name: str) -> None:
    """--help is status 0 and shows whole command lines."""
    status, out, _ = go("--help", name=name)
    assert status == 0
    assert f"mks {name} smollm2" in out


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (CannotOpen("no such model"), "error: no such model"),
        (MksError([Diagnostic("E401", "tensor `x` is absent")]), "error[E401]: tensor `x` is absent"),
        (FileNotFoundError(2, "No such file or directory", "a.mks"), "error: a.mks: No such file"),
        (RuntimeError("oops"), "bug in mks"),
    ],
)
@pytest.mark.parametrize("argv", [("run", "tiny", "--ids", "1"), ("serve", "tiny")])
def test_failures_are_told_without_traceback(
    opened: dict[str, Any], capfd: pytest.CaptureFixture[str], error: Exception, text: str, argv: tuple[str, ...]
) -> None:
    """Through `mks`: status 1 and one message on stderr."""
    opened["give"] = error
    status = main(list(argv))
    out, err = capfd.readouterr()

    assert (status, out) == (1, "")
    assert text in err
    assert "Traceback" not in err


def test_what_does_not_fit_is_told(opened: dict[str, Any], go: Run) -> None:
    """Too long a prompt, ids outside the vocabulary, a taken port, too long a context."""
    assert "512" in go("tiny", "--ids", "1", "--max-tokens", "512")[2]
    assert "860" in go("tiny", "--ids", "861", "--max-tokens", "1")[2]
    assert "512" in go("tiny", "--context", "513", name="serve")[2]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, _, err = go("tiny", "--port", str(taken.getsockname()[1]), name="serve")
    assert status == 1
    assert "in use" in err


@pytest.mark.thorough
def test_the_working_type_can_be_chosen(tmp_path: Path) -> None:
    """A bf16 checkpoint runs in f32 by default, as exact as its oracle, and in bf16 where that is asked for."""
    folder = Path(__file__).parents[2] / "data" / "qwen38_tp8"
    with np.load(folder / "oracle.npz") as oracle:
        ids, right = oracle["ids"], oracle["logits"]
    errors = {}
    for dtype in ("f32", "bf16"):
        out = tmp_path / f"{dtype}.npz"
        words = ["qwen38", "--checkpoint", str(folder), "--sizes", "config", "--max-tokens", "1", "--logits", str(out)]
        words += ["--ids", ",".join(map(str, ids)), *(["--dtype", dtype] if dtype != "f32" else [])]
        assert commands.run(words) == 0
        errors[dtype] = float(np.abs(np.load(out)["logits"] - right).max())
    assert errors["f32"] < 5e-4 < errors["bf16"]
