"""The small files of a checkpoint that say how its text is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ...dsl.text.files import read_regular
from ..checkpoint.gguf_tokenizer import (
    UnreadableTokenizer,
    generation_config,
    tokenizer_config,
    tokenizer_json,
)
from . import rank_file


class UnreadableFile(ValueError):
    """A file of the checkpoint is not what its name promises."""


@frozen
class TextFiles:
    """What a checkpoint says of tokens and templates; None or empty where it says nothing."""

    tokenizer: str | None = field(default=None, repr=False)
    template: str | None = field(default=None, repr=False)
    tokenizer_config: dict[str, Any] = field(factory=dict, repr=False)
    generation_config: dict[str, Any] = field(factory=dict, repr=False)
    config: dict[str, Any] = field(factory=dict, repr=False)


def read_text_files(checkpoint: Path) -> TextFiles:
    """The text files of a Hugging Face folder, or of a GGUF file.

    Raises `UnreadableFile`, whose text names the file.
    """
    if checkpoint.suffix == ".gguf":
        return _from_gguf(checkpoint)
    template = _text(checkpoint / "chat_template.jinja")
    tokenizer_config = _object(checkpoint / "tokenizer_config.json")
    tokenizer = _text(checkpoint / "tokenizer.json")
    return TextFiles(
        tokenizer=_from_ranks(checkpoint, tokenizer_config) if tokenizer is None else tokenizer,
        template=template,
        tokenizer_config=tokenizer_config,
        generation_config=_object(checkpoint / "generation_config.json"),
        config=_object(checkpoint / "config.json"),
    )


def _text(file: Path) -> str | None:
    try:
        return read_regular(file)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"cannot read {file}: {error}") from error


def _object(file: Path) -> dict[str, Any]:
    text = _text(file)
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{file} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UnreadableFile(f"{file} does not hold a JSON object")
    return value


def _from_ranks(checkpoint: Path, config: dict[str, Any]) -> str | None:
    """The tokenizer of a folder that has ranks instead, as Kimi's do."""
    ranks, source = checkpoint / "tiktoken.model", _text(checkpoint / "tokenization_kimi.py")
    if source is None or not ranks.is_file():
        return None
    try:
        return rank_file.tokenizer_json(ranks.read_bytes(), source, config)
    except (OSError, rank_file.UnreadableRanks) as error:
        raise UnreadableFile(f"cannot read {ranks}: {error}") from error


def _from_gguf(file: Path) -> TextFiles:
    from gguf import GGUFReader

    try:
        fields = GGUFReader(file).fields
        return TextFiles(
            tokenizer=json.dumps(tokenizer_json(fields)),
            tokenizer_config=tokenizer_config(fields),
            generation_config=generation_config(fields),
        )
    except (OSError, UnreadableTokenizer, ValueError, IndexError) as error:
        raise UnreadableFile(f"cannot read the tokenizer of {file}: {error}") from error
