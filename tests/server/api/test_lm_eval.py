"""lm-eval runs a small task through the server, by log-probabilities of prompts and by chat."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import children

from mks.backends.opening.load import open_model
from mks.models.demo import default_checkpoint
from mks.server.api.build import build_service

from ..conftest import Running, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which(os.environ.get("LM_EVAL", "lm_eval")) is None,
        reason="no lm_eval on the path nor in LM_EVAL (pip install 'lm-eval[api]' transformers)",
    ),
]

QUESTIONS: list[dict[str, Any]] = [
    {"question": "The capital of France is", "choices": [" Paris", " Rome", " banana"], "answer": 0},
    {"question": "Two and two is", "choices": [" green", " four", " carburettor"], "answer": 1},
    {"question": "The sky is", "choices": [" blue", " seven", " carburettor"], "answer": 0},
    {"question": "Cats and", "choices": [" seven", " dogs", " carburettor"], "answer": 1},
]
TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{question}}}}"
target_delimiter: ""
{more}
"""
CHOICE = """doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list: [{metric: acc}]"""
GENERATE = """doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["."], max_gen_toks: 16, do_sample: false}
metric_list: [{metric: exact_match}]"""


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Running]:
    """SmolLM2 behind its API."""
    opened = open_model("smollm2")
    decoder = opened.decoder(2, 256, True)
    with running(build_service(decoder, opened.files, "smollm2", prefix_cache_bytes=2**26), decoder) as server:
        yield server


def evaluate(place: Path, kind: str, more: str, *options: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run one task; its results and what each question was answered."""
    data = place / "questions.jsonl"
    data.write_text("\n".join(map(json.dumps, QUESTIONS)))
    (place / "task.yaml").write_text(TASK.format(name="small", data=data, kind=kind, more=more))
    command = [os.environ.get("LM_EVAL", "lm_eval"), *options, "--tasks", "small", "--include_path", str(place)]
    command += ["--output_path", str(place / "out"), "--log_samples"]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(place / "cache")}
    ran = children.run(command, env={**os.environ, **offline}, capture_output=True, text=True, seconds=240)
    assert ran.returncode == 0, ran.stderr[-3000:]
    results = json.loads(next((place / "out").rglob("results_*.json")).read_text())["results"]["small"]
    samples = next((place / "out").rglob("samples_*.jsonl")).read_text().splitlines()
    return results, [json.loads(line) for line in samples]


def test_choices_by_log_probabilities(smollm2: Running, tmp_path: Path) -> None:
    """`local-completions` scores prompts, which needs `echo` and `logprobs`: the model prefers what makes sense."""
    tokenizer, _ = default_checkpoint("smollm2")
    arguments = f"model=smollm2,base_url={smollm2.url}/v1/completions,tokenizer_backend=huggingface"
    arguments += f",tokenizer={tokenizer},num_concurrent=4,max_retries=1"
    results, samples = evaluate(
        tmp_path, "multiple_choice", CHOICE, "--model", "local-completions", "--model_args", arguments
    )
    assert len(samples) == len(QUESTIONS)
    assert results["acc,none"] == 1.0


def test_answers_by_chat(smollm2: Running, tmp_path: Path) -> None:
    """`local-chat-completions` asks in conversations, and gets what the API says otherwise."""
    arguments = f"model=smollm2,base_url={smollm2.url}/v1/chat/completions,num_concurrent=4,max_retries=1"
    _, samples = evaluate(
        tmp_path,
        "generate_until",
        GENERATE,
        "--model",
        "local-chat-completions",
        "--apply_chat_template",
        "--model_args",
        arguments,
    )
    assert len(samples) == len(QUESTIONS)
    for sample in samples:
        message = {"role": "user", "content": sample["doc"]["question"]}
        body = {"messages": [message], "temperature": 0, "max_tokens": 16, "stop": ["."]}
        told = smollm2.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
        assert sample["resps"][0][0] == told
