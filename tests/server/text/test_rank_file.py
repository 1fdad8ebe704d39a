"""Tokenizers given as ranks."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mks.models.text.files import UnreadableFile, read_text_files
from mks.models.text.rank_file import UnreadableRanks, pattern, tokenizer_json
from mks.models.text.tokenizer import load_tokenizer

from .. import kimi
from ..kimi import RANKS, SOURCE, TOKENIZER_TEXTS


def merged(piece: bytes) -> list[int]:
    """The ids of a piece, as ranks mean it: the pair that makes the lowest token is joined first."""
    parts = [bytes([value]) for value in piece]
    while len(parts) > 1 and piece not in RANKS:
        pairs = [RANKS.get(parts[at] + parts[at + 1], len(RANKS)) for at in range(len(parts) - 1)]
        at = pairs.index(min(pairs))
        if pairs[at] == len(RANKS):
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [RANKS[piece]] if piece in RANKS else [RANKS[part] for part in parts]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(TOKENIZER_TEXTS), max_size=8).map("".join))
def test_pieces_are_merged_by_rank(word: str) -> None:
    """As an independent merging by rank does it, for words that the pattern leaves whole."""
    _, tokenizer = kimi.loaded()
    assert tokenizer.encode_plain(word) == merged(word.encode())


def test_text_goes_there_and_back() -> None:
    """Every id has its bytes; special tokens follow the ranks, named or not."""
    _, tokenizer = kimi.loaded()
    text = "Hi 🙂, message 中文 12345\n\n x"
    assert tokenizer.decode(tokenizer.encode_plain(text)) == text
    assert tokenizer.spelling(kimi.OPEN) == "<|open|>"
    assert tokenizer.spelling(kimi.BASE + 99) == f"<|reserved_token_{kimi.BASE + 99}|>"
    assert len(tokenizer.pieces) == kimi.VOCAB
    assert len(tokenizer.special) == 256


def test_a_folder_with_ranks_is_read_and_its_python_is_not_run(tmp_path: Path) -> None:
    """The pattern is taken from the source, which would fail if it were imported."""
    (tmp_path / "tiktoken.model").write_bytes(kimi.rank_file())
    (tmp_path / "tokenization_kimi.py").write_text(SOURCE)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(kimi.config()))
    tokenizer = load_tokenizer(read_text_files(tmp_path))
    assert tokenizer is not None
    assert tokenizer.encode("<|open|>message") == [kimi.OPEN, RANKS[b"message"]]

    (tmp_path / "tiktoken.model").write_bytes(b"x")
    with pytest.raises(UnreadableFile, match=r"tiktoken\.model"):
        read_text_files(tmp_path)


@pytest.mark.parametrize(
    ("ranks", "source"),
    [
        (b"YQ== 0\nYg== 2\n", SOURCE),
        (b"YQ== 0\n", SOURCE),
        (b"!! 0\n", SOURCE),
        (b"YQ== x\n", SOURCE),
        (None, "x = 1"),
        (None, "pat_str = open('/etc/passwd').read()"),
        (None, "pat_str = '|'.join(parts)"),
        (None, "pat_str = ("),
    ],
)
def test_what_is_no_rank_file_is_told(ranks: bytes | None, source: str) -> None:
    """Gaps, missing bytes, other lines, sources without a plain pattern."""
    with pytest.raises(UnreadableRanks):
        tokenizer_json(kimi.rank_file() if ranks is None else ranks, source, {})


def test_the_pattern_is_text_in_the_source() -> None:
    """A string or strings that are joined."""
    assert pattern("pat_str = 'a'") == "a"
    assert pattern("class A:\n    pat_str = '|'.join(['a', r'\\p{N}'])") == "a|\\p{N}"
    assert base64.b64decode(kimi.rank_file().split()[0]) == b"\0"
