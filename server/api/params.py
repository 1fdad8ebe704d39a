"""The parameters that chat and text completions share."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from ..engine.sampling_params import Sampling
from ..http.errors import bad_request, not_found, unsupported
from ..http.jsonbody import Fields
from ..text.answer import Limits

MAX_CHOICES = 128
MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
MAX_STOP_IDS = 256
MAX_ALTERNATIVES = 20

# Fields that would change the answer and are not read here, with the value that changes nothing.
_UNREAD: dict[str, Any] = {
    "suffix": "",
    "best_of": 1,
    "functions": [],
    "function_call": "none",
    "modalities": ["text"],
    "audio": {},
    "web_search_options": {},
    "use_beam_search": False,
    "length_penalty": 1,
    "bad_words": [],
    "allowed_token_ids": [],
    "prompt_embeds": [],
    "truncate_prompt_tokens": -1,
    "logits_processors": [],
    "guided_json": {},
    "guided_regex": "",
    "guided_choice": [],
    "guided_grammar": "",
    "regex": "",
    "ebnf": "",
    "structural_tag": "",
    "structured_outputs": {},
    "grammar": "",
    "typical_p": 1,
    "mirostat": 0,
    "repeat_penalty": 1,
    "dry_multiplier": 0,
    "xtc_probability": 0,
    "top_a": 0,
    "tfs_z": 1,
    "top_n_sigma": -1,
    "dynatemp_range": 0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "guidance_scale": 1,
    "negative_prompt": "",
    "thinking_token_budget": None,
    "max_length": None,
    "max_new_tokens": None,
    "n_predict": -1,
    "return_tokens_as_token_ids": False,
    "logprob_token_ids": [],
    "documents": [],
    "chat_template": "",
    "continue_final_message": False,
}


@frozen
class Rules:
    """What a request is held to: the model's bounds and what it does where nothing is said.

    `texts` is whether the checkpoint has a tokenizer.
    """

    model: str
    vocab: int
    context: int
    texts: bool
    end_ids: tuple[int, ...] = ()
    defaults: Sampling = field(factory=Sampling)


@frozen
class Params:
    """Everything in a request but its prompt, its messages and what is special to the endpoint."""

    sampling: Sampling
    limits: Limits
    # None: as many as the context has room for, or the endpoint's own default.
    max_tokens: int | None
    n: int
    stream: bool
    include_usage: bool
    continuous_usage: bool
    skip_special_tokens: bool
    return_token_ids: bool
    ignore_eos: bool
    # How many likeliest tokens are shown with each token of the prompt; None for none of them.
    prompt_logprobs: int | None

    def copy(self, number: int, room: int) -> tuple[Sampling, Limits]:
        """For the choice `number`: its own seed, and limits that end within `room` tokens."""
        return evolve(self.sampling, seed=self.sampling.seed + number), evolve(self.limits, max_tokens=room)


def check_model(fields: Fields, rules: Rules) -> None:
    """404 for a model that is not the one here; no model named is fine."""
    model = fields.text("model")
    if model is not None and model != rules.model:
        raise not_found(f"the model `{model[:200]}` does not exist", "model", "model_not_found")


def read_params(fields: Fields, rules: Rules, *, max_tokens_field: str, lowest_max_tokens: int) -> Params:
    """Read and check all shared fields. Raises `ApiError` 400."""
    refuse_unread(fields.raw)
    for name in ("user", "prompt_cache_key", "safety_identifier", "service_tier"):
        fields.text(name)
    stream = fields.boolean("stream")
    options = _stream_options(fields, stream)
    ignore_eos = fields.boolean("ignore_eos")
    ends = () if ignore_eos else rules.end_ids
    stop_ids = _token_ids(fields, "stop_token_ids", rules.vocab)
    min_tokens = fields.integer("min_tokens", 0) or 0
    max_tokens = fields.integer(max_tokens_field, lowest_max_tokens)
    if max_tokens is not None and min_tokens > max_tokens:
        raise fields.wrong("min_tokens", f"no more than `{max_tokens_field}`, which is {max_tokens}")
    return Params(
        sampling=_sampling(fields, rules, min_tokens, (*ends, *stop_ids)),
        limits=Limits(
            max_tokens=0,
            end_ids=frozenset(ends),
            stop_ids=frozenset(stop_ids),
            stops=_stops(fields, rules),
            min_tokens=min_tokens,
            include_stop=fields.boolean("include_stop_str_in_output"),
        ),
        max_tokens=max_tokens,
        n=fields.integer("n", 1, MAX_CHOICES) or 1,
        stream=stream,
        include_usage=options.boolean("include_usage"),
        continuous_usage=options.boolean("continuous_usage_stats") and options.boolean("include_usage"),
        skip_special_tokens=fields.boolean("skip_special_tokens", True),
        return_token_ids=fields.boolean("return_token_ids") or not rules.texts,
        ignore_eos=ignore_eos,
        prompt_logprobs=_prompt_logprobs(fields, stream),
    )


def _prompt_logprobs(fields: Fields, stream: bool) -> int | None:
    wanted = fields.integer("prompt_logprobs", 0, MAX_ALTERNATIVES)
    if wanted is not None and stream:
        raise bad_request("`prompt_logprobs` is not for `stream: true`", "prompt_logprobs")
    return wanted


def refuse_unread(raw: Mapping[str, Any]) -> None:
    """400 for a field that would change the answer but is not read."""
    for name, neutral in _UNREAD.items():
        value = raw.get(name)
        same = value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
        if value is not None and not same:
            raise unsupported(name)


def _sampling(fields: Fields, rules: Rules, min_tokens: int, end_ids: tuple[int, ...]) -> Sampling:
    defaults = rules.defaults
    seed = fields.integer("seed", -(2**63))
    top_k = fields.integer("top_k", -1)
    return Sampling(
        temperature=fields.number("temperature", 0, 2, defaults.temperature),
        top_k=defaults.top_k if top_k is None else max(top_k, 0),
        top_p=fields.number("top_p", 0, 1, defaults.top_p, above=True),
        min_p=fields.number("min_p", 0, 1, defaults.min_p),
        seed=secrets.randbits(63) if seed is None else seed,
        logit_bias=_logit_bias(fields, rules.vocab),
        presence_penalty=fields.number("presence_penalty", -2, 2, 0),
        frequency_penalty=fields.number("frequency_penalty", -2, 2, 0),
        repetition_penalty=fields.number("repetition_penalty", 0, 1000, 1, above=True),
        min_tokens=min_tokens,
        end_ids=end_ids,
    )


def _stream_options(fields: Fields, stream: bool) -> Fields:
    options = fields.mapping("stream_options")
    if fields.get("stream_options") is not None and not stream:
        raise bad_request("`stream_options` is only for `stream: true`", "stream_options")
    return Fields(options, "stream_options.")


def _stops(fields: Fields, rules: Rules) -> tuple[str, ...]:
    value = fields.get("stop")
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise fields.wrong("stop", "a string or a list of strings")
    if len(stops) > MAX_STOPS:
        raise bad_request(f"`stop` has {len(stops)} strings; at most {MAX_STOPS} are taken", "stop")
    if not all(0 < len(stop) <= MAX_STOP_LENGTH for stop in stops):
        raise bad_request(f"a string in `stop` must have 1 to {MAX_STOP_LENGTH} characters", "stop")
    if stops and not rules.texts:
        raise bad_request("`stop` needs a tokenizer, which this checkpoint has not; use `stop_token_ids`", "stop")
    return tuple(stops)


def _token_ids(fields: Fields, name: str, vocab: int) -> tuple[int, ...]:
    ids = fields.array(name) or []
    if len(ids) > MAX_STOP_IDS:
        raise bad_request(f"`{name}` has {len(ids)} ids; at most {MAX_STOP_IDS} are taken", name)
    return check_ids(ids, vocab, name)


def check_ids(ids: list[Any], vocab: int, name: str) -> tuple[int, ...]:
    """Token ids of a request. Raises `ApiError` 400 naming the first that is none."""
    if set(map(type, ids)) - {int}:
        raise bad_request(f"`{name}` must hold whole numbers only", name)
    if ids and not (min(ids) >= 0 and max(ids) < vocab):
        wrong = next(token for token in ids if not 0 <= token < vocab)
        raise bad_request(f"`{name}` holds {wrong}; token ids run from 0 to {vocab - 1}", name)
    return tuple(ids)


def _logit_bias(fields: Fields, vocab: int) -> tuple[tuple[int, float], ...]:
    given = fields.mapping("logit_bias")
    biases = Fields(given, "logit_bias.")
    pairs: dict[int, float] = {}
    for key in given:
        token = int(key) if key.isascii() and key.isdigit() and len(key) <= 10 else -1
        if not 0 <= token < vocab:
            raise bad_request(f"`logit_bias` names the token {key[:40]!r}; ids run from 0 to {vocab - 1}", "logit_bias")
        pairs[token] = biases.number(key, -100, 100, 0)
    return tuple(pairs.items())


def default_sampling(generation_config: Mapping[str, Any]) -> Sampling:
    """What a checkpoint recommends where a request says nothing; values that make no sense are passed over."""
    ranges = {"temperature": (0, 2), "top_p": (1e-9, 1), "top_k": (0, 2**31), "min_p": (0, 1)}
    good = {
        name: generation_config[name]
        for name, (low, high) in ranges.items()
        if isinstance(generation_config.get(name), int | float) and low <= generation_config[name] <= high
    }
    return Sampling(**good)
