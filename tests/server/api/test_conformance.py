"""The conformance suite against real servers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from helpers import children

from ..conftest import CHAT_TINY, Running, wait_for

SUITE = Path(__file__).parents[1] / "conformance" / "test_openai_conformance.py"

TINY = ("qwen3", "--checkpoint", str(CHAT_TINY), "--sizes", "config")
NO_THINKING = '{"chat_template_kwargs": {"enable_thinking": false}}'

# What must not have been left out.
CHECKS = {
    "test_tool_choice_forces_a_call[required]",
    "test_tool_call_stream_equals_non_stream[auto]",
    "test_json_object_gives_json",
    "test_stop_versus_max_tokens_for_every_budget",
    "test_parallel_mixed_params_are_isolated",
    "test_responses_api_or_clean_404",
    "test_completions_echo_logprobs_scores_the_prompt",
}


@contextlib.contextmanager
def serving(*options: str) -> Iterator[tuple[str, int]]:
    """A server's address and process; ended after the test if the suite has not done it."""
    source = "import sys; from mks.dsl.commands.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", source, "serve", *options, "--port", "0", "--access-log", os.devnull]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        # Somebody must read all of it, or the server waits for that.
        rest = threading.Thread(target=process.stderr.read)
        try:
            url = next(line for line in process.stderr if "http://" in line).split("http://")[1].split("/")[0]
            rest.start()
            wait_for(lambda: httpx.get(f"http://{url}/health", timeout=60).is_success, 600)
            yield f"http://{url}/v1", process.pid
            process.terminate()
            process.wait(30)
        finally:
            process.kill()
            if rest.is_alive():
                rest.join(10)


def run(url: str, tmp_path: Path, *arguments: str, seconds: int = 280, **settings: str) -> dict[str, list[str]]:
    """The names of the suite's checks by how they ended."""
    report = tmp_path / "report"
    environment = {**os.environ, **settings, "OAI_BASE_URL": url, "OAI_REPORT": str(report), "OAI_TIMEOUT": "600"}
    options = ["-q", "-c", os.devnull, "--confcutdir", str(SUITE.parent), "-p", "no:cacheprovider", "--timeout", "1200"]
    command = [sys.executable, "-m", "pytest", *options, *arguments, str(SUITE)]
    done = children.run(command, env=environment, seconds=seconds, text=True, capture_output=True)
    out: dict[str, list[str]] = {"passed": [], "skipped": [], "failed": []}
    for line in report.read_text().splitlines():
        result = json.loads(line)
        out[result["status"]].append(result["test"])
    assert bool(out["failed"]) == (done.returncode == 1), done.stdout[-3000:]
    return out


@pytest.mark.thorough
@pytest.mark.parametrize(
    "settings",
    [
        {"OAI_CHAT_EXTRA": NO_THINKING, "OAI_API_KEY": "secret", "OAI_EXPECT_AUTH": "1"},
        {"OAI_REASONING": "1"},
    ],
    ids=["keys", "reasoning"],
)
def test_a_tiny_chat_model_passes(tmp_path: Path, settings: dict[str, str]) -> None:
    """All of it, with tools; then the server drains on SIGTERM."""
    keys = ("--api-key", settings["OAI_API_KEY"]) if "OAI_API_KEY" in settings else ()
    with serving(*TINY, *keys) as (url, process):
        found = run(url, tmp_path, OAI_TRAINED="1", OAI_TOOLS="1", OAI_SIGTERM_PID=str(process), **settings)
    assert found["failed"] == []
    assert len(found["passed"]) > 220
    assert set(found["passed"]) >= CHECKS
    assert "test_metrics_running_gauge_returns_to_zero" in found["passed"]
    asked = (
        "test_reasoning_cut_by_length_is_not_content"
        if "OAI_REASONING" in settings
        else "test_auth_error_is_openai_shaped"
    )
    assert asked in found["passed"]


@pytest.mark.thorough
def test_a_real_model_passes(tmp_path: Path) -> None:
    """SmolLM2: what every client depends on, but for the longest checks."""
    long = "every_budget or fills_the_context or mixed_params or under_load or json_object"
    with serving("smollm2", "--context", "512") as (url, _):
        found = run(url, tmp_path, "-m", "must", "-k", f"not ({long})", OAI_TRAINED="1", OAI_CONCURRENCY="8")
    assert found["failed"] == []
    assert len(found["passed"]) > 150


def test_a_server_that_does_not_do_what_it_must_is_found_out(server: Running, tmp_path: Path) -> None:
    """The suite can fail: this server asks for no key."""
    found = run(server.url + "/v1", tmp_path, "-k", "auth_missing", OAI_EXPECT_AUTH="1")
    assert len(found["failed"]) > 3
