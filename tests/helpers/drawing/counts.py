"""How many draws with each construct were compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def counts(compared: Iterable[frozenset[str]], refused: Iterable[frozenset[str]]) -> dict[str, tuple[int, int]]:
    """Of each construct, in how many draws that were compared it is, and in how many that were refused."""
    one, other = (Counter(word for words in draws for word in words) for draws in (compared, refused))
    return {word: (one[word], other[word]) for word in sorted(one | other)}
