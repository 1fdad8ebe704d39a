"""Decode speed of SmolLM2-135M in f32 on this CPU, one row, against transformers with torch.

Both sides read the same converted checkpoint, continue the same prompt greedily and are timed in turns, so that what
else the machine does meets both; the ratio is that of the medians. The torch side runs in an interpreter of its own:

    python3.11 -m venv .venv-torch && .venv-torch/bin/pip install torch transformers safetensors
    .venv/bin/python tests/benchmarks/decode_cpu.py --torch-python .venv-torch/bin/python
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

PROMPT = "Write a Python function that adds two numbers."

TORCH = """
import json, sys, time, torch, transformers
folder, threads, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(threads)
model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
for line in sys.stdin:
    ids = json.loads(line)
    with torch.inference_mode():
        found = model(torch.tensor([ids]), use_cache=True)
        past, out = found.past_key_values, [int(found.logits[0, -1].argmax())]
        start = time.perf_counter()
        for _ in range(count - 1):
            found = model(torch.tensor([out[-1:]]), past_key_values=past, use_cache=True)
            past = found.past_key_values
            out.append(int(found.logits[0, -1].argmax()))
        seconds = time.perf_counter() - start
    print(json.dumps({"ids": out, "rate": (count - 1) / seconds, "torch": torch.__version__,
                      "transformers": transformers.__version__}), flush=True)
"""


def ours(decoder: Any, ids: list[int], count: int) -> tuple[list[int], float]:
    """Greedy ids and tokens a second of the decode steps."""
    out = [int(decoder.prefill(0, ids, 0)[-1].argmax())]
    start = time.perf_counter()
    for position in range(len(ids), len(ids) + count - 1):
        out.append(int(decoder.step([[out[-1]]], [position]).wait().ids[0, 0]))
    return out, (count - 1) / (time.perf_counter() - start)


def first_token() -> float:
    """Seconds from starting `mks run` to its end after one token; the compilation cache is warm."""
    command = [str(Path(sys.executable).with_name("mks")), "run", "smollm2", "--prompt", PROMPT, "--max-tokens", "1"]
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return time.perf_counter() - start


def main() -> None:
    """Measure and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch-python", metavar="PATH", help="an interpreter with torch and transformers")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    from mks.backends.opening.load import open_model
    from mks.models.demo import default_checkpoint

    folder, found = default_checkpoint("smollm2")
    assert folder is not None, found
    start = time.perf_counter()
    decoder = open_model("smollm2").decoder(1, 2048, True)
    loaded = time.perf_counter() - start
    ids = json.loads(Path(__file__).parents[1].joinpath("data/smollm2/greedy.json").read_text())[1]["prompt_ids"]
    ours(decoder, ids, 8)
    torch = None
    if args.torch_python:
        command = [args.torch_python, "-c", TORCH, str(folder), str(os.cpu_count()), str(args.tokens)]
        torch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    rates: list[float] = []
    theirs: list[dict[str, Any]] = []
    for _ in range(args.runs):
        out, rate = ours(decoder, ids, args.tokens)
        rates.append(rate)
        if torch is not None:
            assert torch.stdin is not None
            assert torch.stdout is not None
            torch.stdin.write(json.dumps(ids) + "\n")
            torch.stdin.flush()
            theirs.append(json.loads(torch.stdout.readline()))
            assert theirs[-1]["ids"] == out, "the two sides disagree"
    if torch is not None:
        torch.communicate()
    result = {
        "mks_tokens_per_second": median(rates),
        "load_and_compile_seconds": loaded,
        "first_token_seconds": median(first_token() for _ in range(args.runs)),
        "transformers_tokens_per_second": median(t["rate"] for t in theirs) if theirs else None,
    }
    if theirs:
        result |= {
            "ratio": result["mks_tokens_per_second"] / result["transformers_tokens_per_second"],
            "torch": theirs[0]["torch"],
            "transformers": theirs[0]["transformers"],
        }
    if args.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:32} {value:.2f}" if isinstance(value, float) else f"{name:32} {value}")


if __name__ == "__main__":
    main()
