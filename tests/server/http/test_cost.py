"""What serving costs beside the model: processor time of the server's process for a token, eight streams at a time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

STREAMS, TOKENS, VOCAB = 8, 400, 49152

# Seconds a token. Quiet machines need a third of it; this is to find what became several times as slow.
MOST = 450e-6


def stream(port: int, body: dict[str, Any], events: list[int]) -> None:
    """Read one stream; adds how many events it had."""
    data = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "stream": True, "ignore_eos": True, **body})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(data)}\r\n\r\n"
    seen = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plug:
        plug.sendall((head + data).encode())
        while part := plug.recv(2**16):
            seen += part
    assert b"data: [DONE]" in seen
    events.append(seen.count(b"data: "))


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1}], ids=["greedy", "sampled"])
def test_a_token_costs_little(sampling: dict[str, Any]) -> None:
    """With a model that costs nothing and a vocabulary of 49152, from the engine to the socket."""
    source = Path(__file__).parents[1].joinpath("free_decoder.py")
    command = [sys.executable, str(source), str(VOCAB), "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())

        def used() -> float:
            fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        def run(tokens: int) -> list[int]:
            events: list[int] = []
            body = {"max_tokens": tokens, **sampling}
            threads = [threading.Thread(target=stream, args=(port, body, events)) for _ in range(STREAMS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            return events

        run(20)
        before = used()
        events = run(TOKENS)
        cost = (used() - before) / STREAMS / TOKENS
    # Not many tokens in few events.
    assert len(events) == STREAMS
    assert min(events) > TOKENS / 2
    print(f"{cost * 1e6:.0f} us a token")
    assert cost < MOST
