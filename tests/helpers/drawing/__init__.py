"""Random definitions on random schedules: of every construct of the language, each drawn from a seed.

Profiles say how large they are: `TINY` ones are interpreted in a few seconds, `WIDE` ones are for the compiler. What is
drawn may be refused by the checker or by lowering, with a diagnostic.
"""

from .draw import Drawn, Opened, draw
from .profile import FULL, TINY, WIDE, Profile

__all__ = ["FULL", "TINY", "WIDE", "Drawn", "Opened", "Profile", "draw"]
