"""A made-up checkpoint with Kimi K3's markers: every byte and a few merges as ranks."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from mks.models.text.files import TextFiles
from mks.models.text.rank_file import tokenizer_json
from mks.models.text.tokenizer import Tokenizer, load_tokenizer
from mks.server.dialects.kimi_k3 import KimiDialect, dialect_of

WORDS = "th in think re sp on response me ss ag mes message ro le role us er user as si st assistant to ol tool".split()
RANKS: dict[bytes, int] = {}
MERGED = [*(word.encode() for word in WORDS), b'="', b'="&', b"\xf0\x9f"]
for token in [*(bytes([value]) for value in range(256)), *MERGED]:
    RANKS.setdefault(token, len(RANKS))
BASE = len(RANKS)
# Parts of words that are cut at merges only.
TOKENIZER_TEXTS = ["th", "i", "n", "k", "me", "ss", "age", "r", "ole", "us", "er", "as", "sist", "ant", "ü", "mes", "s"]

NAMES = {0: "[BOS]", 1: "[EOS]", 2: "<|end_of_msg|>", 3: "<|open|>", 4: "<|close|>", 5: "<|sep|>", 254: "[UNK]"}
EOS, END, OPEN, CLOSE, SEP = (BASE + offset for offset in (1, 2, 3, 4, 5))
VOCAB = BASE + 256

SOURCE = '''
import evil
class T:
    pat_str = "|".join([r"""[\\p{Han}]+""", r"""[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}&&[^\\p{Han}]]+""",
                        r"""\\p{N}{1,3}""",
                        r""" ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*""", r"""\\s+"""])
'''


def rank_file() -> bytes:
    """The file's content."""
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in RANKS.items())


def config() -> dict[str, object]:
    """The content of `tokenizer_config.json`."""
    names = {str(BASE + offset): {"content": name, "special": True} for offset, name in NAMES.items()}
    return {"added_tokens_decoder": names, "eos_token": "<|end_of_msg|>"}


def text_files() -> TextFiles:
    """The checkpoint's text files."""
    tokenizer = tokenizer_json(rank_file(), SOURCE, config())
    return TextFiles(tokenizer=tokenizer, tokenizer_config=config(), generation_config={"eos_token_id": [EOS, END]})


def loaded() -> tuple[KimiDialect, Tokenizer]:
    """Its dialect and tokenizer."""
    tokenizer = load_tokenizer(text_files())
    assert tokenizer is not None
    dialect = dialect_of(tokenizer)
    assert dialect is not None
    return dialect, tokenizer


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of an answer in which markers are spelled out."""
    return tokenizer.encode(text, add_special_tokens=False)


def spelled(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Ids as text, markers spelled out."""
    return tokenizer.decode(ids, skip_special_tokens=False)
