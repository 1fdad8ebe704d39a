"""`import mks`: the page about it is run as it is printed, and a decoder opened there is the command's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import children, readme

import mks

PAGE = readme.ROOT / "docs" / "python.md"
TINY = Path(__file__).parent / "data" / "qwen3_tiny"


def page() -> list[str]:
    """What the page's Python says, run from top to bottom."""
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE))
    command = [sys.executable, "-W", "error", "-c", f"{code}\nprint(decoder.prefill(0, [504], 0).shape)"]
    ran = children.run(command, 300, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_the_page() -> None:
    """Three ids after a prompt of three, one after a step, and no complaint."""
    prompt, step, shape = page()
    assert len(prompt.strip("[]").split()) == 3
    assert re.fullmatch(r"\[\d+\]", step)
    assert shape == "(1, 49152)"


@pytest.mark.thorough
def test_the_command_says_the_same() -> None:
    """`mks run`, here as a module, goes on as the decoder of the page does."""
    command = "-m mks run smollm2 --ids 504,3575,282,7042 --max-tokens 1 --ignore-eos --json"
    ran = children.run([sys.executable, *command.split()], 300, capture_output=True, text=True)
    assert page()[1] == str(json.loads(ran.stdout)["output_ids"])


def test_importing_is_light() -> None:
    """Nothing is imported that only running or reading a model needs."""
    code = "import sys, mks; print([m for m in ('jax', 'numpy', 'rich', 'lark') if m in sys.modules], mks.__all__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == f"[] {mks.__all__}\n"


def test_what_is_opened() -> None:
    """Room as asked for, the weights of the checkpoint, and steps of several tokens."""
    decoder = mks.open("qwen3", checkpoint=TINY, sizes_from_config=True, rows=2, context=64, tokens_per_row=3)
    assert (decoder.rows, decoder.context, decoder.tokens_per_row, decoder.rewinds) == (2, 64, 3, True)
    with np.load(TINY / "oracle.npz") as file:
        ids, logits = file["ids"].reshape(-1)[:3].tolist(), file["logits"].reshape(-1, decoder.vocab)[:3]
    step = decoder.step([[], ids], [0, 0], [1]).wait()
    np.testing.assert_allclose(step.logits[1], logits, rtol=0, atol=1e-4)
    assert step.ids[1].tolist() == logits.argmax(axis=-1).tolist()


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    """Is raised, with diagnostics where there are some."""
    with pytest.raises(mks.MksError, match="nothing"):
        mks.open("nothing")
    with pytest.raises(mks.CannotOpen, match="name a model"):
        mks.open()
    with pytest.raises(mks.CannotOpen, match="the model's context is"):
        mks.open("qwen3", checkpoint=TINY, sizes_from_config=True, context=10**6)
    with pytest.raises(mks.CannotOpen, match="one token of a row"):
        mks.open("qwen38", backend="pallas", tokens_per_row=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            ({"rows": value}, "`rows` must be an integer from 1 to 2147483647")
            for value in (0, -1, 1.0, True, "2", 2**31)
        ),
        *(({"context": value}, "`context` must be an integer from 1 to 2147483647") for value in (0, -1, 64.5, 2**40)),
        *(
            ({"tokens_per_row": value}, "`tokens_per_row` must be an integer from 1 to 2147483647")
            for value in (0, -1, 1.5)
        ),
        ({"tokens_per_row": 65}, "`tokens_per_row` must be an integer from 1 to 64, the context, not 65"),
        ({"backend": "cuda"}, "`backend` must be `reference` or `pallas`, not 'cuda'"),
        *(
            ({"dtype": value}, f"`dtype` must be `f32`, `bf16` or `auto`, not {value!r}")
            for value in ("f16", "float32", "BF16", "", 1)
        ),
        *(
            ({"sizes": value}, "`sizes` must be numbers by name")
            for value in (["layers"], {"layers": "2"}, {"layers": True}, 3)
        ),
        ({"schedule": "one", "backend": "reference"}, "choose `pallas` as the backend"),
        ({"compiled": "folder", "backend": "reference"}, "choose `pallas` as the backend"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    """The argument, what it was and what is right."""
    with pytest.raises(mks.CannotOpen, match=message) as found:
        mks.open("qwen3", **{"checkpoint": TINY, "sizes_from_config": True, "context": 64, **options})
    assert "--" not in str(found.value)


def test_sizes_of_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    """Those of the definition are not taken in their place."""
    sizes = {"d": 64, "layers": 4, "ffn": 128, "vocab": 256, "q_heads": 4, "kv_heads": 2, "head": 16}
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "model.safetensors").symlink_to(next(TINY.glob("*.safetensors")))
    for given in (None, sizes):
        with pytest.raises(mks.CannotOpen, match=r"the config\.json of .* but it has none; set them by name"):
            mks.open("qwen3", checkpoint=folder, sizes_from_config=True, sizes=given)
    with pytest.warns(UserWarning, match="W414"):
        assert mks.open("qwen3", checkpoint=folder, sizes=sizes, context=64).vocab == 256
