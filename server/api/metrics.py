"""Counts and times for Prometheus, under vLLM's names where they mean the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from ..engine.engine import Engine
from ..engine.observer import Observer
from ..engine.sequence import Running

# Each series would be told twice, the second time with when it began.
disable_created_metrics()

_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160)
_NEXT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10)
_WHOLE = (0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000)
_ENDS = ("stop", "length", "abort", "error")


class Metrics(Observer):
    """An observer of the engine, with a registry of its own. What is running is asked of the engine, never counted."""

    def __init__(self, model: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._model = model
        self._prompt = self._counter("prompt_tokens", "Prompt tokens, including those found in the prefix cache.")
        self._generated = self._counter("generation_tokens", "Generated tokens.")
        self._preempted = self._counter("num_preemptions", "Preempted sequences (always 0: none is preempted).")
        self._queries = self._counter("prefix_cache_queries", "Prompt tokens that were looked up in the prefix cache.")
        self._hits = self._counter("prefix_cache_hits", "Prompt tokens that were found in the prefix cache.")
        ended = Counter(
            "vllm:request_success",
            "Finished sequences, by finish reason.",
            ["model_name", "finished_reason"],
            registry=self.registry,
        )
        self._ended = {how: ended.labels(model, how) for how in _ENDS}
        self._responses = Counter(
            "mks:http_responses", "HTTP responses, by status.", ["status"], registry=self.registry
        )
        self._first = self._histogram(
            "time_to_first_token_seconds", "Seconds from queueing to the first token.", _FIRST
        )
        self._between = self._histogram("inter_token_latency_seconds", "Seconds from one token to the next.", _NEXT)
        self._mean = self._histogram(
            "request_time_per_output_token_seconds", "Mean seconds for each token of an answer.", _NEXT
        )
        self._whole = self._histogram("e2e_request_latency_seconds", "Seconds from queueing to the end.", _WHOLE)
        self._queued = self._histogram("request_queue_time_seconds", "Seconds in the queue.", _WHOLE)
        self._reading = self._histogram(
            "request_prefill_time_seconds", "Seconds from the start of the prefill to the first token.", _WHOLE
        )
        self._writing = self._histogram(
            "request_decode_time_seconds", "Seconds from the first token to the last.", _WHOLE
        )
        self._inference = self._histogram(
            "request_inference_time_seconds", "Seconds from the start of the prefill to the end.", _WHOLE
        )
        self._prompts = self._histogram("request_prompt_tokens", "Tokens in a prompt.", _TOKENS)
        self._answers = self._histogram("request_generation_tokens", "Tokens in an answer.", _TOKENS)
        self._copies = self._histogram("request_params_n", "Requested choices (`n`).", (1, 2, 5, 10, 20, 50, 100))
        self._limits = self._histogram("request_params_max_tokens", "Requested limit of tokens in an answer.", _TOKENS)
        self._passes = self._histogram("iteration_tokens_total", "Tokens in one call of the decoder.", _TOKENS)

    def watch(self, engine: Engine) -> None:
        """Show what an engine is doing."""
        shown = {
            "vllm:num_requests_running": ("Running sequences.", lambda: engine.running),
            "vllm:num_requests_waiting": ("Waiting sequences.", lambda: engine.waiting),
            "vllm:kv_cache_usage_perc": ("Fraction of the KV cache that is in use, from 0 to 1.", lambda: engine.usage),
            "mks:rows": ("Limit of running sequences.", lambda: engine.decoder.rows),
            "mks:kept_prefixes": ("Prompt prefixes in the cache.", lambda: len(engine.store or ())),
            "mks:kept_bytes": (
                "Bytes of the prompt prefixes in the cache.",
                lambda: engine.store.nbytes if engine.store else 0,
            ),
        }
        for name, (about, value) in shown.items():
            Gauge(name, about, ["model_name"], registry=self.registry).labels(self._model).set_function(value)

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(f"vllm:{name}", about, ["model_name"], registry=self.registry).labels(self._model)

    def _histogram(self, name: str, about: str, buckets: Sequence[float]) -> Histogram:
        histogram = Histogram(f"vllm:{name}", about, ["model_name"], buckets=buckets, registry=self.registry)
        return histogram.labels(self._model)

    def asked(self, n: int, limits: Iterable[int]) -> None:
        """A request was taken."""
        self._copies.observe(n)
        for limit in limits:
            self._limits.observe(limit)

    def began(self, run: Running) -> None:
        """A prompt is being read."""
        self._prompt.inc(len(run.task.prompt))
        self._queries.inc(len(run.task.prompt))
        self._hits.inc(run.cached)
        self._queued.observe(run.admitted - run.queued)

    def passed(self, tokens: int) -> None:
        """A call of the decoder came back."""
        self._passes.observe(tokens)

    def took(self, run: Running, now: float) -> None:
        """A token."""
        self._generated.inc()
        if run.latest:
            self._between.observe(now - run.latest)
        else:
            self._first.observe(now - run.queued)
            self._reading.observe(now - run.admitted)

    def ended(self, run: Running, how: str, now: float) -> None:
        """A sequence is over; times are of those that ended well."""
        self._ended.get(how, self._ended["stop"]).inc()
        if how not in ("stop", "length") or not run.first:
            return
        self._whole.observe(now - run.queued)
        self._writing.observe(run.latest - run.first)
        self._inference.observe(now - run.admitted)
        self._prompts.observe(len(run.task.prompt))
        self._answers.observe(run.emitted)
        if run.emitted > 1:
            self._mean.observe((run.latest - run.first) / (run.emitted - 1))

    def responded(self, record: dict[str, Any]) -> None:
        """A response was given."""
        self._responses.labels(str(record["status"])).inc()

    def render(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)
