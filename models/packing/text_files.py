"""The files of a checkpoint that a packed model keeps: how text becomes tokens, and the configs."""

from __future__ import annotations

import json
from pathlib import Path

from ...dsl.diagnostics import Diagnostic, MksError
from ..checkpoint.tensors import Checkpoint
from .layout import JOURNAL, MANIFEST

_PATTERNS = (
    "config.json",
    "generation_config.json",
    "chat_template*",
    "tokenizer*",
    "tokenization_*.py",
    "tiktoken.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
)


def text_files(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Their names and contents; a GGUF file's metadata as the files that it was made from.

    Raises `MksError` (E416) where a GGUF file has a tokenizer that is not read.
    """
    if checkpoint.path.suffix == ".gguf":
        return _from_gguf(checkpoint)
    return {path.name: path.read_bytes() for path in kept_files(checkpoint.path)}


def kept_files(folder: Path) -> list[Path]:
    """Those of a folder that a packed model keeps, or has."""
    files = {path for pattern in _PATTERNS for path in folder.glob(pattern) if path.is_file()}
    return sorted(path for path in files if path.name not in (MANIFEST, JOURNAL))


def _from_gguf(checkpoint: Checkpoint) -> dict[str, bytes]:
    from gguf import GGUFReader

    from ..checkpoint import gguf_tokenizer as made

    fields = GGUFReader(checkpoint.path).fields
    try:
        contents = {
            "config.json": dict(checkpoint.config or {}),
            "generation_config.json": made.generation_config(fields),
            "tokenizer_config.json": made.tokenizer_config(fields),
            "tokenizer.json": made.tokenizer_json(fields),
        }
    except made.UnreadableTokenizer as e:
        message = f"`{checkpoint.path}` is a GGUF file that cannot be read: {e}"
        raise MksError([Diagnostic("E416", message)]) from None
    return {name: json.dumps(value, ensure_ascii=False).encode() for name, value in contents.items()}
