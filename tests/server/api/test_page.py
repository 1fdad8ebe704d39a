"""The page at `/`, used by a browser as people use it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import children

from mks.models.text.files import TextFiles
from mks.models.text.tokenizer import Tokenizer
from mks.server.api.build import build_service

from ..conftest import Running, running
from ..fake import FakeDecoder

SCRIPT = Path(__file__).parents[1].joinpath("page.cjs")


def test_the_page_brings_all_it_needs(server: Running) -> None:
    """One file, without a key, that may talk to nobody else."""
    got = server.http.get(server.url + "/")
    assert got.status_code == 200
    assert got.headers["content-type"] == "text/html; charset=utf-8"
    assert "connect-src 'self'" in got.headers["content-security-policy"]
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", got.text)
    # The drawing in the icon names the SVG namespace; nothing else points elsewhere.
    assert set(re.findall(r"https?://[\w./]+", got.text)) == {"http://www.w3.org/2000/svg"}


@pytest.fixture(scope="module")
def browser() -> None:
    """Skips where there is no browser or no means to drive it."""
    if not Path(os.environ.get("CHROMIUM", "/usr/bin/chromium")).exists():
        pytest.skip("no Chromium at /usr/bin/chromium (Debian: apt-get install chromium)")
    if shutil.which("node") is None:
        pytest.skip("no node")
    found = children.run(["node", "-e", "require('playwright-core')"], capture_output=True)
    if found.returncode:
        pytest.skip("no playwright-core where NODE_PATH points (npm install playwright-core)")


def luminance(color: str) -> float:
    """Of `rgb(r, g, b)`, as WCAG defines it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.usefixtures("browser")
@pytest.mark.parametrize("keys", [(), ("secret",)])
def test_chatting(files: TextFiles, tokenizer: Tokenizer, keys: tuple[str, ...], tmp_path: Path) -> None:
    """Send, stream, stop, errors shown and tried again, the server's state, both colour schemes, a small screen."""
    ends = [token for token in range(861) if not tokenizer.piece(token)]
    boom = tokenizer.encode("boom", add_special_tokens=False)
    decoder = FakeDecoder(rows=2, context=4096, vocab=861, chunk=64, delay=0.01)

    def logits(held: Sequence[int]) -> np.ndarray:
        """Any text but no end; a failure some tokens after a prompt that says so."""
        out = decoder.hashed(held)
        out[ends] = -np.inf
        at = next((at for at in range(len(held)) if list(held[at : at + len(boom)]) == boom), None)
        if at is not None and len(held) > at + 40:
            raise RuntimeError("boom")
        return out

    decoder._logits_of = logits
    pictures = os.environ.get("PAGE_PICTURES", str(tmp_path))
    with running(build_service(decoder, files, "tiny"), decoder, keys=keys) as server:
        ran = children.run(["node", str(SCRIPT), server.url, pictures], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        seen: dict[str, Any] = json.loads(ran.stdout)
        engine = server.service.engine
        assert (engine.running, engine.waiting) == (0, 0)
    assert seen["errors"] == []
    assert seen.get("asked_for_key", False) == bool(keys)
    assert seen["title"] == "tiny"
    assert seen["rows"] == "0 of 2"
    assert seen["send_disabled"]
    assert seen["user"] == "<img src=x onerror=alert(1)> Hello"
    assert seen["images"] == 0
    assert len(seen["answer"]) > 20
    assert seen["pieces"] > 10
    assert re.fullmatch(r"\d+ tokens · [\d.]+ tokens/s · first after \d+ ms · cut at the limit", seen["meta"])
    assert re.fullmatch(r"[\d.]+ tokens/s", seen["speed"])
    assert re.fullmatch(r"\d+ ms", seen["first"])
    assert (seen["button_while_busy"], seen["button_after"]) == ("Stop", "Send")
    assert seen["stopped"].endswith("stopped")
    # S4.
    assert seen["left_out"] == "stopped · left out of the conversation"
    assert seen["sent_after_stop"] == [
        "user <img src=x onerror=alert(1)> Hello",
        "assistant",
        "user slowly",
        "assistant",
        "user too hot",
    ]
    assert seen["sent_in_new"] == ["user new", "assistant", "user newer"]
    assert seen["temperature"] is None
    assert "`temperature` must be a number from 0 to 2, not 7" in seen["refusal"]
    assert seen["problems_after"] == 0
    assert seen["answers"] == 3
    assert seen["failure"] == "the model failed on this request"
    assert seen["turns_after_new"] == 0
    assert not seen["overflow"]
    light, dark = ([luminance(color) for color in seen[scheme]] for scheme in ("light", "dark"))
    assert light[0] > 0.8 > 0.2 > dark[0]
    for back, ink in (light, dark):
        assert (max(back, ink) + 0.05) / (min(back, ink) + 0.05) > 7
    assert Path(pictures, "empty-dark.png").stat().st_size > 5000
