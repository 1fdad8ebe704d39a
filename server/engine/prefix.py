"""What earlier prompts left behind, for prompts that begin the same."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from attrs import field, frozen

from ...dsl.decoder import Saved

# Shorter beginnings are read again sooner than restored.
SHORTEST = 8


@frozen
class CachedPrefix:
    """A row after it has read `ids`; `logits` f32 `[1, vocab]` are those after the last, where they are known."""

    ids: np.ndarray = field(repr=False)
    saved: Saved = field(repr=False)
    logits: np.ndarray | None = field(default=None, repr=False)

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self.saved.nbytes + self.ids.nbytes + (0 if self.logits is None else self.logits.nbytes)


class PrefixStore:
    """Rows by what they have read, within `limit` bytes; the least recently used go first.

    With `cuts` any beginning of a kept sequence can be gone on from, else only the whole of it.
    """

    def __init__(self, limit: int, cuts: bool) -> None:
        self.limit, self.cuts = limit, cuts
        self.nbytes = 0
        self._prefixes: OrderedDict[bytes, CachedPrefix] = OrderedDict()

    def __len__(self) -> int:
        return len(self._prefixes)

    def find(self, prompt: Sequence[int]) -> tuple[CachedPrefix, int] | None:
        """What to go on from and how many tokens of `prompt` that covers; all of them only where logits are kept."""
        wanted = np.asarray(prompt, dtype=np.int32)
        best: tuple[CachedPrefix, int] | None = None
        for prefix in self._prefixes.values():
            length = self._usable(prefix, wanted)
            if length >= max(SHORTEST, 1 if best is None else best[1] + 1):
                best = prefix, length
        if best is not None:
            self._prefixes.move_to_end(best[0].ids.tobytes())
        return best

    def _usable(self, prefix: CachedPrefix, wanted: np.ndarray) -> int:
        most = min(len(prefix.ids), len(wanted))
        differ = prefix.ids[:most] != wanted[:most]
        same = int(differ.argmax()) if differ.any() else most
        if same == len(wanted) and not (same == len(prefix.ids) and prefix.logits is not None):
            same -= 1
        return same if self.cuts or same == len(prefix.ids) else 0

    def wants(self, ids: Sequence[int]) -> bool:
        """Whether this is new; if it is not, it counts as used."""
        key = np.asarray(ids, dtype=np.int32).tobytes()
        if key in self._prefixes:
            self._prefixes.move_to_end(key)
            return False
        return len(ids) >= SHORTEST

    def keep(self, ids: Sequence[int], saved: Saved, logits: np.ndarray | None) -> None:
        """Add a row, which must be new; what it makes superfluous goes, then the least recently used."""
        prefix = CachedPrefix(np.asarray(ids, dtype=np.int32), saved, logits)
        if prefix.nbytes > self.limit:
            return
        if self.cuts:
            for key, other in list(self._prefixes.items()):
                if len(other.ids) < len(prefix.ids) and np.array_equal(other.ids, prefix.ids[: len(other.ids)]):
                    self._drop(key)
        self._prefixes[prefix.ids.tobytes()] = prefix
        self.nbytes += prefix.nbytes
        while self.nbytes > self.limit:
            self._drop(next(iter(self._prefixes)))

    def clear(self) -> None:
        """Forget everything."""
        self._prefixes.clear()
        self.nbytes = 0

    def _drop(self, key: bytes) -> None:
        self.nbytes -= self._prefixes.pop(key).nbytes
