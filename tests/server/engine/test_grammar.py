"""Grammars: masks that hold, and hostile ones that are refused in time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from mks.models.text.tokenizer import Tokenizer
from mks.server.engine.grammar import MAX_SIZE, GrammarError, Grammars, json_rule
from mks.server.engine.sampling import Sampler
from mks.server.engine.sampling_params import Sampling

ENDS = (2, 0)
VOCAB = 864
DRAFT = "http://json-schema.org/draft-07/schema#"

THING = {
    "type": "object",
    "properties": {"kind": {"enum": ["red", "green"]}, "n": {"type": "integer"}, "ok": {"type": "boolean"}},
    "required": ["kind", "n", "ok"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    """For the tiny vocabulary."""
    return Grammars(tokenizer, ENDS, VOCAB)


def noise(position: int) -> np.ndarray:
    """Logits that favour nothing."""
    return np.random.default_rng(position).standard_normal(VOCAB, dtype=np.float32) * 4


def generate(sampling: Sampling, count: int = 400, logits: Callable[[int], np.ndarray] = noise) -> list[int]:
    """Tokens up to the end, which is not given."""
    sampler, out = Sampler(sampling, VOCAB), []
    for at in range(count):
        out.append(sampler.choose(logits(at)))
        if out[-1] in ENDS:
            return out[:-1]
    pytest.fail("no end")


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.0},
        {"temperature": 2.0, "seed": 5},
        {"logit_bias": ((5, 100.0), (2, 100.0))},
        {"logit_bias": tuple((token, -100.0) for token in range(VOCAB))},
        {"presence_penalty": 2.0, "frequency_penalty": 2.0},
        {"repetition_penalty": 50.0},
        {"top_p": 1e-6},
        {"min_tokens": 300, "end_ids": ENDS},
    ],
)
def test_every_way_of_sampling_keeps_to_the_grammar(
    grammars: Grammars, tokenizer: Tokenizer, change: dict[str, Any]
) -> None:
    """Whatever the other parameters wish, the answer is what the schema says, and it ends."""
    schema = {**THING, "properties": {**THING["properties"], "n": {"enum": [1, 25]}}}  # type: ignore[dict-item]
    grammar = grammars.build("start: " + json_rule(schema))
    value = json.loads(tokenizer.decode(generate(evolve(Sampling(grammar=grammar), **change))))

    assert value["kind"] in ("red", "green")
    assert value["n"] in (1, 25)
    assert type(value["ok"]) is bool


def test_without_the_mask_the_same_sampling_does_not_keep_to_it(tokenizer: Tokenizer) -> None:
    """The check above can fail."""
    with pytest.raises(json.JSONDecodeError):
        json.loads(tokenizer.decode(generate(Sampling(temperature=2.0, seed=5, logit_bias=((2, 8.0),)))))


def test_sequences_have_their_own_place(grammars: Grammars, tokenizer: Tokenizer) -> None:
    """Interleaved sequences of one grammar are what they are alone, seed for seed."""
    grammar = grammars.build("start: " + json_rule(THING))
    alone = [generate(Sampling(seed=seed, grammar=grammar, temperature=1.5)) for seed in range(4)]
    samplers = [Sampler(Sampling(seed=seed, grammar=grammar, temperature=1.5), VOCAB) for seed in range(4)]
    together: list[list[int]] = [[] for _ in samplers]
    for at in range(max(map(len, alone))):
        for seed, sampler in enumerate(samplers):
            if at < len(alone[seed]):
                together[seed].append(sampler.choose(noise(at)))

    assert together == alone
    assert len({tuple(one) for one in alone}) > 1


def test_a_draft_can_be_rolled_back(grammars: Grammars, tokenizer: Tokenizer) -> None:
    """A mask for each position of a draft, and the same masks again after it was undone."""
    mask = grammars.build("start: " + json_rule(THING)).start()
    draft = tokenizer.encode('{"kind": "red", "n": 12', add_special_tokens=False)
    masks = []
    for token in draft:
        masks.append(mask.allowed())
        assert masks[-1][token]
        mask.take(token)
    for keep in range(len(draft)):
        mask.roll_back(len(draft) - keep)
        for token, expected in zip(draft[keep:], masks[keep:], strict=True):
            assert np.array_equal(mask.allowed(), expected)
            mask.take(token)
    assert len({masked.tobytes() for masked in masks}) > 3


def test_white_space_is_bounded(grammars: Grammars, tokenizer: Tokenizer) -> None:
    """A model that loves spaces cannot fill the answer with them."""
    grammar = grammars.build("start: " + json_rule(THING))
    blanks = [at for at, piece in enumerate(tokenizer.pieces) if piece and not piece.strip()]
    loved = np.zeros(VOCAB, dtype=np.float32)
    loved[blanks] = 50

    text = tokenizer.decode(generate(Sampling(temperature=0, grammar=grammar), logits=lambda at: noise(at) + loved))
    assert json.loads(text)
    assert max(len(run) for run in "".join(c if c.isspace() else "x" for c in text).split("x")) <= 17


@pytest.mark.parametrize("schema", [{}, True, {"type": "object"}, {"title": "t", "default": 1, "$schema": DRAFT}])
def test_open_schemas_give_json(grammars: Grammars, tokenizer: Tokenizer, schema: Any) -> None:
    """Annotations are no constraints."""
    mask = grammars.build("start: " + json_rule(schema)).start()
    for token in tokenizer.encode('{"a": [1, null]}', add_special_tokens=False):
        assert mask.allowed()[token]
        mask.take(token)
    assert np.flatnonzero(mask.allowed()).tolist() == sorted(ENDS)


def nested(depth: int) -> dict[str, Any]:
    """Objects in objects."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def chain(count: int, link: Callable[[dict[str, str]], dict[str, Any]]) -> dict[str, Any]:
    """Definitions, each of which names the next."""
    defs = {f"d{at}": link({"$ref": f"#/$defs/d{at + 1}"}) for at in range(count)}
    return {"$defs": {**defs, f"d{count}": {"type": "null"}}, "$ref": "#/$defs/d0"}


REFUSED: dict[str, Any] = {
    "no type of JSON": {"type": "nonsense"},
    "properties of no kind": {"properties": 5},
    "nested": nested(300),
    "itself": {"$ref": "#"},
    "a circle": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "nothing there": {"$ref": "#/$defs/x"},
    "another host": {"$ref": "http://127.0.0.1:9/x.json"},
    "a file": {"$ref": "file:///etc/passwd"},
    "what is not understood": {"not": {"type": "string"}},
    "a wish to be lenient": {"not": {"type": "string"}, "x-guidance": {"lenient": True}},
    "unique items": {"type": "array", "uniqueItems": True},
    "an unknown format": {"type": "string", "format": "foo"},
    "no pattern": {"type": "string", "pattern": "("},
    "many brackets": {"type": "string", "pattern": "(" * 500},
    "looking ahead": {"type": "string", "pattern": "(?=a)b"},
    "looking back": {"type": "string", "pattern": r"(a)\1"},
    "many stars": {"type": "string", "pattern": "a*b*" * 5000},
    "many patterns": {"allOf": [{"type": "string", "pattern": f"(.*{char}){{7}}"} for char in "abcdefghijklmnop"]},
    "many properties": {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(5000)}},
    "many values": {"enum": [f"value{at}" for at in range(200_000)]},
    "a product of choices": {
        "allOf": [{"anyOf": [{"properties": {f"k{a}_{b}": {}}} for a in range(10)]} for b in range(8)]
    },
    "remainders": {"anyOf": [{"type": "integer", "multipleOf": prime} for prime in (997, 991, 983, 977, 971)]},
    "ten megabytes": {"description": "x" * 10_000_000},
    "a chain that overflows the stack": chain(3000, lambda ref: {"allOf": [ref]}),
    "another": chain(2500, lambda ref: {"type": "array", "minItems": 1, "items": ref}),
    "everything is everything": {
        "$defs": {
            f"d{a}": {"anyOf": [{"type": "array", "items": {"$ref": f"#/$defs/d{b}"}} for b in range(30)]}
            for a in range(30)
        },
        "$ref": "#/$defs/d0",
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_or_wrong_schema_is_refused_in_time(grammars: Grammars, tokenizer: Tokenizer, name: str) -> None:
    """It is told why, and the next one is built as ever."""
    begun = time.process_time()
    with pytest.raises(GrammarError) as refused:
        grammars.build("start: " + json_rule(REFUSED[name]))

    assert time.process_time() - begun < 10
    assert 5 < len(str(refused.value)) < 400
    assert grammars.build('start: "a"').start().allowed().sum() >= 1


HARMLESS: dict[str, Any] = {
    "a catastrophe elsewhere": {"type": "string", "pattern": "^(a+)+$"},
    "a huge array": {"type": "array", "minItems": 10**9, "items": {"type": "null"}},
    "repeated repetition": {"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"},
    "a long string": {"type": "string", "minLength": 10**9},
    "doubling": chain(40, lambda ref: {"anyOf": [ref, ref]}),
    "recursion": {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_looks_hostile_but_is_bounded_has_quick_steps(grammars: Grammars, name: str) -> None:
    """Neither building nor any step takes long."""
    begun = time.process_time()
    mask = grammars.build("start: " + json_rule(HARMLESS[name])).start()
    for _ in range(100):
        allowed = np.flatnonzero(mask.allowed())
        if allowed[-1] in ENDS:
            break
        mask.take(int(allowed[-1]))
    assert time.process_time() - begun < 5


def test_a_grammar_is_built_once(grammars: Grammars) -> None:
    """The same text gives the same grammar."""
    assert grammars.build('start: "abc"') is grammars.build('start: "abc"')
    with pytest.raises(GrammarError, match=str(MAX_SIZE)):
        grammars.build("x" * (MAX_SIZE + 1))


def test_a_vocabulary_without_an_end_has_no_grammars(tokenizer: Tokenizer) -> None:
    """An answer could never end."""
    with pytest.raises(GrammarError, match="no token that ends"):
        Grammars(tokenizer, (), VOCAB).build('start: "a"')
