"""What `/metrics` says, and that it says the truth whichever way a request ends."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ..conftest import Running, wait_for

ASK: dict[str, Any] = {"prompt": "Hello", "max_tokens": 5, "temperature": 0, "ignore_eos": True}
NAMES = """
vllm:num_requests_running vllm:num_requests_waiting vllm:kv_cache_usage_perc vllm:prompt_tokens_total
vllm:generation_tokens_total vllm:request_success_total vllm:num_preemptions_total
vllm:time_to_first_token_seconds_bucket vllm:inter_token_latency_seconds_bucket
vllm:request_time_per_output_token_seconds_bucket vllm:e2e_request_latency_seconds_bucket
vllm:request_queue_time_seconds_bucket vllm:request_prefill_time_seconds_bucket
vllm:request_decode_time_seconds_bucket vllm:request_prompt_tokens_bucket vllm:request_generation_tokens_bucket
vllm:request_params_n_bucket vllm:request_params_max_tokens_bucket vllm:iteration_tokens_total_bucket
""".split()


def metrics(server: Running) -> dict[str, float]:
    """All samples, by name and by name with how a request ended."""
    response = server.http.get(server.url + "/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    out: dict[str, float] = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            how = sample.labels.get("finished_reason") or sample.labels.get("status")
            out[sample.name if how is None else f"{sample.name}/{how}"] = sample.value
            if sample.name.startswith("vllm:"):
                assert sample.labels["model_name"] == "tiny"
    return out


def idle(server: Running) -> None:
    """Nothing runs and nothing waits."""
    now = metrics(server)
    assert (now["vllm:num_requests_running"], now["vllm:num_requests_waiting"]) == (0, 0)
    assert now["vllm:kv_cache_usage_perc"] == 0


def test_the_usual_names_are_there(own_server: Running) -> None:
    """As dashboards for vLLM ask for them."""
    found = metrics(own_server)
    assert set(NAMES) <= {name.split("/")[0] for name in found}
    assert not [name for name in found if name.endswith("_created")]
    assert found["mks:rows"] == 2


def test_an_answer_is_counted(own_server: Running) -> None:
    """Its tokens, times and parameters, streamed or not."""
    server = own_server
    usage = server.post("/v1/completions", {**ASK, "n": 2}).json()["usage"]
    server.post("/v1/completions", {**ASK, "stream": True})
    found = metrics(server)
    assert found["vllm:request_success_total/length"] == 3
    assert found["vllm:generation_tokens_total"] == 15
    assert found["vllm:prompt_tokens_total"] == 3 * usage["prompt_tokens"]
    assert found["vllm:time_to_first_token_seconds_count"] == 3
    assert found["vllm:inter_token_latency_seconds_count"] == 12
    assert found["vllm:request_time_per_output_token_seconds_count"] == 3
    assert found["vllm:request_generation_tokens_sum"] == 15
    assert found["vllm:request_params_n_sum"] == 3
    assert found["vllm:request_params_max_tokens_sum"] == 15
    assert found["vllm:iteration_tokens_total_sum"] == 3 * usage["prompt_tokens"] + 12
    idle(server)
    wait_for(lambda: metrics(server).get("mks:http_responses_total/200", 0) >= 2)  # counted after it is sent


def test_gauges_show_what_runs_and_waits(own_server: Running) -> None:
    """While it does."""
    server = own_server
    server.decoder.gate.clear()
    given = {"json": ASK, "timeout": None}
    threads = [
        threading.Thread(target=httpx.post, args=(server.url + "/v1/completions",), kwargs=given) for _ in range(3)
    ]
    engine = server.service.engine
    threads[0].start()
    # While a step hangs nobody else is admitted.
    wait_for(lambda: any(name == "step" for name, _ in server.decoder.calls))
    for thread in threads[1:]:
        thread.start()
    wait_for(lambda: engine.running == 1 and engine.waiting == 2)
    found = metrics(server)
    assert (found["vllm:num_requests_running"], found["vllm:num_requests_waiting"]) == (1, 2)
    wait_for(lambda: metrics(server)["vllm:kv_cache_usage_perc"] > 0)
    server.decoder.gate.set()
    for thread in threads:
        thread.join(20)
    idle(server)


@pytest.mark.parametrize("way", ["stop", "length", "abort", "abort queued", "error", "refused", "stopping"])
@pytest.mark.parametrize("stream", [False, True])
def test_whichever_way_a_request_ends(own_server: Running, way: str, stream: bool) -> None:
    """It is counted once, under the right name, and nothing is left running or waiting."""
    server, engine = own_server, own_server.service.engine
    body = {**ASK, "stream": stream}
    if way == "stop":
        first = server.post("/v1/completions", {**ASK, "return_token_ids": True}).json()["choices"][0]["token_ids"]
        before = metrics(server)
        server.post("/v1/completions", {**body, "stop_token_ids": first[2:3]})
    elif way == "length":
        before = metrics(server)
        server.post("/v1/completions", body)
    elif way == "error":
        before = metrics(server)
        server.decoder.fail_next = 1
        assert server.post("/v1/completions", body).status_code == 500
    elif way == "refused":
        before = metrics(server)
        assert server.post("/v1/completions", {**body, "n": 0}).status_code == 400
    else:
        before = metrics(server)
        server.decoder.gate.clear()
        count = 1 if way == "abort" else 3
        with httpx.Client(timeout=0.5) as impatient:

            def ask() -> None:
                with contextlib.suppress(httpx.ReadTimeout):
                    impatient.post(server.url + "/v1/completions", json={**body, "max_tokens": 200})

            threads = [threading.Thread(target=ask) for _ in range(count)]
            for thread in threads:
                thread.start()
            wait_for(lambda: engine.running + engine.waiting == count)
            if way == "stopping":
                engine.stop(20)
            for thread in threads:
                thread.join(20)
        wait_for(lambda: engine.waiting == 0)
        server.decoder.gate.set()
        wait_for(lambda: engine.running == 0)
    after = metrics(server)
    ended = {
        name: after[f"vllm:request_success_total/{name}"] - before[f"vllm:request_success_total/{name}"]
        for name in ("stop", "length", "abort", "error")
    }
    expected = {"refused": {}, "abort queued": {"abort": 3}, "stopping": {"abort": 3}}.get(way, {way: 1})
    assert {name: count for name, count in ended.items() if count} == expected
    idle(server)


def test_tokens_known_from_before_are_counted(files: Any) -> None:
    """As the hits of a prefix cache."""
    from mks.server.api.build import build_service

    from ..conftest import running
    from ..fake import FakeDecoder

    decoder = FakeDecoder()
    body = {**ASK, "prompt": "Hello, how are you today, my old friend from the sea?"}
    with running(build_service(decoder, files, "tiny", prefix_cache_bytes=10**6), decoder) as server:
        first = server.post("/v1/completions", body).json()["usage"]
        second = server.post("/v1/completions", body).json()["usage"]
        events = server.post("/v1/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
        found = metrics(server)
    prompt = first["prompt_tokens"]
    assert first["prompt_tokens_details"] == {"cached_tokens": 0}
    assert second["prompt_tokens_details"] == {"cached_tokens": prompt}
    assert f'"cached_tokens":{prompt}' in events.text
    assert found["vllm:prefix_cache_queries_total"] == 3 * prompt
    assert found["vllm:prefix_cache_hits_total"] == 2 * prompt
    assert found["mks:kept_prefixes"] == 1
    assert found["mks:kept_bytes"] > 0
