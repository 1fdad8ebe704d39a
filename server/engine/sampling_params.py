"""What a sequence's tokens are drawn by, and what holds an answer to a form."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from attrs import field, frozen

# Below this, dividing by the temperature overflows; the choice is greedy.
COLD = 1e-5


class Mask(Protocol):
    """Where one sequence is in a grammar.

    For the positions of a draft: `allowed`, `take` its token, and so on, then `roll_back` what was not accepted.
    """

    def allowed(self) -> np.ndarray:
        """Which tokens may come next, bool `[vocab]`, at least one; at the grammar's end only end tokens."""

    def take(self, token: int) -> None:
        """Go on by a token that is allowed."""

    def roll_back(self, count: int) -> None:
        """Undo the last `count` tokens."""


class Grammar(Protocol):
    """What an answer is held to."""

    def start(self) -> Mask:
        """The mask of a new sequence."""


@frozen
class Sampling:
    """The parameters of one sequence; the defaults leave the model's distribution as it is."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    # These tokens are not chosen among the first `min_tokens`.
    min_tokens: int = 0
    end_ids: tuple[int, ...] = ()
    grammar: Grammar | None = field(default=None, repr=False)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature < COLD or self.top_k == 1 or self.min_p >= 1.0
