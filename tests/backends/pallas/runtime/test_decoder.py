"""The decoder of kernels, interpreted, against independent implementations and against itself."""

from __future__ import annotations

import json
import sys
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pytest
from helpers import children
from helpers.decoding import TESTS, outcomes
from helpers.schedules import kimi
from helpers.tiers import thorough_but

FAMILIES = {"qwen3_tiny": ("qwen3", 1e-4), "qwen38_tiny": ("qwen38", 5e-4)}
NAMES = thorough_but(("qwen3_tiny",), FAMILIES)
CHUNK, CONTEXT, ROWS = 8, 40, 3

type Calls = list[list[Any]]


@cache
def oracle(name: str) -> dict[str, np.ndarray]:
    with np.load(TESTS / "data" / name / "oracle.npz") as file:
        return {
            key: value.reshape(-1, value.shape[-1]) if key == "logits" else value.reshape(-1)
            for key, value in file.items()
        }


def reads(row: int, ids: list[int], start: int = 0) -> Calls:
    """Calls that read `ids` by chunks."""
    return [["prefill", row, ids[i : i + CHUNK], start + i, True] for i in range(0, len(ids), CHUNK)]


def decodes(*rows: tuple[int, int, int]) -> list[Any]:
    """A call for row, token and position of each live row."""
    tokens, positions, live = [7] * ROWS, [3] * ROWS, [False] * ROWS
    for row, token, position in rows:
        tokens[row], positions[row], live[row] = token, position, True
    return ["decode", tokens, positions, live]


def several(rows: list[tuple[int, int, int]], count: int, ends: list[int]) -> list[Any]:
    return ["steps", *decodes(*rows)[1:], count, ends]


def calls(name: str) -> dict[str, Calls]:
    """What each test wants to see; a row that one begins is not looked at by those before it."""
    ids, gen = ([int(i) for i in oracle(name)[key]] for key in ("ids", "gen"))
    stopped = gen.index(gen[21], 17)
    found: dict[str, Calls] = {
        "facts": [["vocab"], ["cuts"]],
        "greedy": [*reads(1, gen[:16]), *(decodes((1, gen[i], i)) for i in range(16, 22))],
        "alone": [*reads(0, ids[:5]), *(decodes((0, ids[i], i)) for i in range(5, 7))],
        "beside": [
            *reads(2, ids[:11]),
            *reads(0, ids[:5]),
            *(decodes((0, ids[i], i), (2, ids[i + 6], i + 6)) for i in range(5, 7)),
        ],
        "idle": [decodes((1, gen[22], 22))],
        "resumed": [
            *reads(0, ids[:6]),
            decodes((0, ids[6], 6)),
            decodes((0, ids[7], 7)),
            *reads(0, ids[8:16], 8),
            decodes((0, ids[16], 16)),
        ],
        "saved": [
            *reads(0, ids[:13]),
            ["save", 0],
            ["restore", 2, 0, 13],
            decodes((0, ids[13], 13), (2, ids[13], 13)),
            ["save", 0],
        ],
        "again": [*reads(0, ids[:13])],
        "cut": [["restore", 1, 0, 8], *reads(1, ids[8:13], 8)],
        "several": [
            *reads(0, gen[:16]),
            *reads(2, gen[:18]),
            several([(0, gen[16], 16), (2, gen[18], 18)], 5, [gen[21]]),
        ],
        "after several": [decodes((0, gen[stopped], stopped))],
    }
    if name == "qwen3_tiny":
        found |= {
            "wrong": [
                ["restore", 1, 0, 14],
                ["restore", 3, 0, 8],
                ["save", -1],
                ["prefill", 0, ids[:4], CONTEXT - 3],
                ["prefill", 1, ids[:4], 9],
                decodes((0, 1, CONTEXT)),
                decodes((1, 2**31, 0)),
                ["step", [[1], [], []], [0, 0, 0], [3]],
                several([(1, 1, 0)], 0, []),
            ],
            "full": [*reads(1, gen[:38]), several([(1, gen[38], 38)], 7, [])],
            "lost": [["lose"], ["reset"], ["reset"], *reads(1, gen[:16])],
        }
    return found


@cache
def answers(name: str) -> dict[str, list[Any]]:
    """What one decoder answered to all of them."""
    wanted = calls(name)
    made = {
        "folder": name,
        "definition": FAMILIES[name][0],
        "context": CONTEXT,
        "rows": ROWS,
        "chunk": CHUNK,
        "span": CHUNK,
    }
    found = iter(outcomes(made, list(chain(*wanted.values()))))
    return {part: [next(found) for _ in each] for part, each in wanted.items()}


def close(name: str, found: Any, position: int) -> None:
    wanted = oracle(name)["logits"][position]
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=FAMILIES[name][1])


@pytest.mark.parametrize("name", NAMES)
def test_greedy(name: str) -> None:
    """A prompt read by chunks and six steps of the kernel give the oracle's greedy ids."""
    *_, read, a, b, c, d, e, f = answers(name)["greedy"]
    found = [np.argmax(read[-1]), *(np.argmax(logits[1]) for logits in (a, b, c, d, e, f))]
    assert found == oracle(name)["gen"][16:23].tolist()


@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_disturb_each_other(name: str) -> None:
    """A row beside another at another position gives its own bits, and one that idles keeps what it holds."""
    alone, beside = answers(name)["alone"], answers(name)["beside"]
    assert [logits[0] for logits in alone[-2:]] == [logits[0] for logits in beside[-2:]]
    for i in range(2):
        close(name, beside[-2:][i][0], 5 + i)
        close(name, beside[-2:][i][2], 11 + i)
    assert np.argmax(answers(name)["idle"][0][1]) == oracle(name)["gen"][23]


@pytest.mark.parametrize("name", NAMES)
def test_reading_goes_on_after_decoding(name: str) -> None:
    """And decoding after that, with the oracle's logits all along."""
    for found, position in zip(answers(name)["resumed"], (5, 6, 7, 15, 16), strict=True):
        close(name, found[0], position)


@pytest.mark.parametrize("name", NAMES)
def test_saved_rows(name: str) -> None:
    """A restored row goes on with the same bits; rows that the kernel wrote to are not saved."""
    saved = answers(name)["saved"]
    *_, number, nothing, logits, after = saved
    assert (number, nothing, after) == (0, None, None)
    assert logits[0] == logits[2]
    close(name, logits[0], 13)


def test_a_part_of_what_was_saved() -> None:
    """Caches can be cut, and read on with the same bits."""
    caches = answers("qwen3_tiny")
    assert caches["facts"] == [256, True]
    assert caches["cut"][0] is None
    assert caches["cut"][1] == caches["again"][1] == caches["saved"][1]


@pytest.mark.thorough
def test_states_cannot_be_cut() -> None:
    """Recurrent ones are restored whole, or not at all."""
    assert answers("qwen38_tiny")["facts"] == [256, False]
    assert answers("qwen38_tiny")["cut"][0] == {"error": "cannot restore 8 tokens of 13"}


def test_wrong_calls() -> None:
    """More than was saved, rows and tokens that there are not, positions beyond the context or not where a row ends."""
    vocab = answers("qwen3_tiny")["facts"][0]
    assert [each["error"] for each in answers("qwen3_tiny")["wrong"]] == [
        "cannot restore 14 tokens of 13",
        "row: there is no row 3, they are 0 to 2",
        "row: there is no row -1, they are 0 to 2",
        "cannot read 4 ids at 37 into row 0: it takes 1 to 8 in a call, and has 40 positions",
        "row 1 cannot go on at position 9: it holds 13 tokens",
        "cannot read 1 ids at 40 into row 0 of 40 positions",
        f"the tokens of row 1: there is no token 2147483648, ids are 0 to {vocab - 1}",
        "the rows whose logits are wanted: there is no row 3, they are 0 to 2",
        "count must be 1 or more, not 0",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_several_steps(name: str) -> None:
    """One call gives the ids that steps one by one give; a row ends with a stop id, and the others go on."""
    gen = oracle(name)["gen"].tolist()
    found = np.asarray(answers(name)["several"][-1])
    assert found.shape == (5, ROWS)
    assert (found[:, 1] == -1).all()
    for row, first in ((0, 17), (2, 19)):
        wanted = gen[first : gen.index(gen[21], first) + 1][:5]
        assert found[:, row].tolist() == wanted + [-1] * (5 - len(wanted))
    assert np.argmax(answers(name)["after several"][0][0]) == gen[gen.index(gen[21], 17) + 1]


def test_several_steps_to_the_end_of_the_context() -> None:
    """The last position is used, and then the row ends; no step is made without a live row."""
    found = np.asarray(answers("qwen3_tiny")["full"][-1])[:, 1]
    np.testing.assert_array_equal(found, [oracle("qwen3_tiny")["gen"][39], found[1], *[-1] * 5])
    assert found[1] >= 0


def test_reset() -> None:
    """After a call that lost the states all rows are empty, which is told once, and can be used again."""
    *_, lost, reset, again, first, second = answers("qwen3_tiny")["lost"]
    assert (lost, reset, again) == (None, False, True)
    assert [first, second] == answers("qwen3_tiny")["greedy"][:2]


@pytest.mark.thorough
def test_two_cores() -> None:
    """Shares are joined for reading and cut up again for the kernel: the oracle's logits from both."""
    name = "qwen38_tp8"
    ids = oracle(name)["ids"].tolist()
    made = {"folder": name, "definition": "qwen38", "context": 32, "rows": 1, "chunk": CHUNK, "span": CHUNK, "tp": 2}
    script = [
        ["prefill", 0, ids[:8], 0, True],
        ["decode", [ids[8]], [8], [True]],
        ["prefill", 0, ids[9:16], 9, True],
        ["decode", [ids[16]], [16], [True]],
    ]
    for found, position in zip(outcomes(made, script, devices=2, seconds=180), (7, 8, 15, 16), strict=True):
        np.testing.assert_allclose(found[0], oracle(name)["logits"][position], rtol=0, atol=5e-4)


@pytest.mark.thorough
def test_a_cache_that_is_kept_expanded() -> None:
    """Prompts are read with the latents, steps with the keys and values made of them: the oracle's logits from both."""
    name, ids = "kimi_k3_tiny", [int(i) for i in oracle("kimi_k3_tiny")["ids"]]
    made = {
        "folder": name,
        "definition": "kimi_k3",
        "context": 32,
        "rows": 2,
        "chunk": CHUNK,
        "span": CHUNK,
        "form": "expanded",
    }
    script: Calls = [
        ["prefill", 0, ids[:8], 0, True],
        ["decode", [ids[8], 0], [8, 0], [True, False]],
        ["prefill", 0, ids[9:14], 9, True],
        ["prefill", 1, ids[:8], 0, True],
        ["save", 1],
        ["reset"],
        ["restore", 0, 0, 8],
        ["decode", [ids[8], ids[8]], [8, 8], [True, True]],
    ]
    first, second, third, alone, number, _, nothing, (restored, beside) = outcomes(made, script, seconds=180)
    assert (number, nothing) == (0, None)
    assert restored == beside
    for found, position in ((first[0], 7), (second[0], 8), (third[0], 13), (alone[0], 7), (restored, 8)):
        np.testing.assert_allclose(found, oracle(name)["logits"][position], rtol=0, atol=5e-4)


@pytest.mark.thorough
def test_positions_of_two_cores() -> None:
    """A prompt, steps of the kernel and more of a prompt, over blocks of both cores: as if it were all one prompt."""
    lines, count = kimi(1, 2, positions="tp", context=1024), 511
    ids = [int(i) for i in np.random.default_rng(2).integers(0, 256, count + 3)]
    made = {
        "folder": "kimi_k3_mxfp4_tp8",
        "definition": "kimi_k3",
        "context": 1024,
        "rows": 2,
        "chunk": 128,
        "span": 128,
        "lines": lines,
    }
    step = [["decode", [7, ids[i]], [3, i], [False, True]] for i in (count, count + 1)]
    prompts = [["prefill", row, ids[i : min(i + 128, count)], i, True] for row in (1, 0) for i in range(0, count, 128)]
    last = [["prefill", row, ids[i:], i, False] for row, i in ((1, count + 2), (0, count))]
    *_, first, second, third, whole = outcomes(made, [*prompts, *step, *last], devices=2, seconds=900)
    found = np.stack([first[1], second[1], third[0]])
    np.testing.assert_allclose(found, np.asarray(whole), rtol=0, atol=5e-4)
    assert np.abs(found[:-1] - found[1:]).max() > 0.1


def run(*options: str, seconds: float = 180) -> list[int]:
    """The ids that `mks run smollm2` gives."""
    main = "from mks.dsl.commands.cli import main; raise SystemExit(main())"
    line = [sys.executable, "-c", main, "run", "smollm2", "--json", "--ignore-eos", *options]
    done = children.run(line, capture_output=True, text=True, seconds=seconds)
    assert done.returncode == 0, done.stderr[-3000:]
    if "pallas" in options:
        assert "interpreted" in done.stderr
    return json.loads(done.stdout)["output_ids"]


@pytest.mark.thorough
def test_real_weights() -> None:
    """One layer of SmolLM2 gives the reference's ids, from the command line on."""
    same = ["--size", "layers=1", "--ids", "1,9690,198", "--max-tokens", "3"]
    assert run(*same, "--backend", "pallas") == run(*same)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [4, 30])
def test_more_real_weights(layers: int) -> None:
    """More layers, and all of them."""
    same = ["--size", f"layers={layers}", "--prompt", "What is the capital of France?", "--max-tokens", "5"]
    assert run(*same, "--backend", "pallas") == run(*same)
