"""Real models behind the commands and the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.definitions import FOLDER

from mks.backends.opening.cannot_open import CannotOpen
from mks.backends.opening.find import find_model, find_schedule
from mks.backends.opening.load import open_model
from mks.dsl.commands.cli import main
from mks.dsl.diagnostics import MksError
from mks.server.api.build import build_service

from ..conftest import CHAT_TINY, running

CHAT = {"messages": [{"role": "user", "content": "Say some emoji."}], "temperature": 0, "max_tokens": 48}
PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}


def test_a_real_model_chats_the_same_in_every_way(capfd: pytest.CaptureFixture[str]) -> None:
    """`mks run` and the server give the same answer: whole, streamed, and beside others in the batch."""
    opened = open_model("qwen3", checkpoint=CHAT_TINY, sizes_from_config=True)
    assert (opened.name, opened.longest) == ("qwen3", 4096)
    decoder = opened.decoder(3, 256, False)
    with running(build_service(decoder, opened.files, "tiny"), decoder) as server:
        body = {**CHAT, "return_token_ids": True}
        one = server.post("/v1/chat/completions", body).json()
        several = server.post("/v1/chat/completions", {**body, "n": 3, "temperature": 0}).json()
        plain = server.post("/v1/chat/completions", {**CHAT, **PLAIN}).json()["choices"][0]["message"]["content"]
        stream = server.post("/v1/chat/completions", {**CHAT, **PLAIN, "stream": True}).text
    choice = one["choices"][0]
    assert [other["token_ids"] for other in several["choices"]] == [choice["token_ids"]] * 3
    chunks = [json.loads(line[6:]) for line in stream.split("\n\n")[:-2]]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == plain
    assert not plain.isascii()
    assert "\ufffd" not in plain.rstrip("\ufffd")

    run = ["run", "qwen3", "--checkpoint", str(CHAT_TINY), "--sizes", "config", "--max-tokens", "48", "--json"]
    assert main([*run, "--prompt", "Say some emoji."]) == 0
    got = json.loads(capfd.readouterr().out)
    assert got["prompt_ids"] == one["prompt_token_ids"]
    assert got["output_ids"] == choice["token_ids"]
    assert got["text"].endswith(choice["message"]["content"])
    assert choice["message"]["reasoning"].strip() in got["text"]


def test_a_schedule_for_a_definition_that_is_used(tmp_path: Path) -> None:
    """A file may hold nothing but a schedule: what it is for is the model, to each command alike."""
    (tmp_path / "base.mks").write_text((FOLDER / "qwen3.mks").read_text("utf-8"))
    mine = tmp_path / "mine.mks"
    mine.write_text('mks 1\n\nuse "base.mks"\n\nschedule mine for qwen3 {\n  target v5e 1x1\n  context 256\n}\n')
    definition, model, _ = find_model(str(mine))
    assert (model.name, find_schedule(definition, model, "mine").context) == ("qwen3", 256)
    assert open_model(str(mine), checkpoint=CHAT_TINY, sizes_from_config=True).name == "qwen3"


@pytest.mark.parametrize(
    ("model", "options", "text"),
    [
        ("nothing", {}, "E400"),
        ("qwen3", {"checkpoint": Path("/nowhere")}, "E401"),
        ("qwen3", {"checkpoint": CHAT_TINY}, "E410"),
        ("qwen3", {"checkpoint": CHAT_TINY, "sizes_from_config": True, "sizes": {"nothing": 1}}, "E114"),
    ],
)
def test_what_does_not_fit_is_a_diagnostic(model: str, options: dict[str, Any], text: str) -> None:
    """An unknown definition, an absent checkpoint, other sizes, an unknown size."""
    with pytest.raises(MksError, match=text):
        open_model(model, **options)


def test_what_cannot_run_by_itself_is_told() -> None:
    """A drafter, and a definition that comes without a checkpoint."""
    with pytest.raises(CannotOpen, match="drafts"):
        open_model("dspark", checkpoint=CHAT_TINY)
    with pytest.raises(CannotOpen, match="comes without a checkpoint; name one as `checkpoint`"):
        open_model("qwen38")


def test_more_rows_than_memory_holds() -> None:
    """An error that names rows and context, before anything is served."""
    opened = open_model("qwen3", checkpoint=CHAT_TINY, sizes_from_config=True)
    with pytest.raises(CannotOpen, match="10000000 rows of 4096 positions do not fit into memory"):
        opened.decoder(10_000_000, 4096, False)


def test_a_folder_for_the_logits_must_be_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Said before the model runs."""
    run = ["run", "qwen3", "--checkpoint", str(CHAT_TINY), "--sizes", "config", "--ids", "1,2", "--max-tokens", "1"]
    assert main([*run, "--logits", str(tmp_path / "nowhere" / "x.npz")]) == 1
    assert "there is no folder" in capfd.readouterr().err
