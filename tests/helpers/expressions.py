"""Random expressions that follow the grammar, as lists of tokens."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

END = "\n"
BINARY = "or and == != <= >= < > in + - * / // % @ **".split()


class Writer:
    """Writes tokens; all choices come from `pick`."""

    def __init__(self, pick: Random) -> None:
        self.pick = pick
        self.out: list[str] = []

    def add(self, *tokens: str) -> None:
        """Write tokens."""
        self.out += tokens

    def maybe(self, chance: float = 0.4) -> bool:
        """Yes or no."""
        return self.pick.random() < chance

    def name(self) -> str:
        """A name that is no word of the language."""
        return self.pick.choice("a b2 _c wq norm x y z layer 注意 é q_heads".split())

    def dotted(self) -> None:
        """`a`, `a.b`."""
        self.add(self.name())
        while self.maybe(0.3):
            self.add(".", self.name())

    def number(self) -> None:
        """A number in one of its forms."""
        self.add(self.pick.choice(["0", "12", "1.5", "1e-5", "2E+3", "007"]))

    def text(self) -> None:
        """A text in quotes."""
        self.add(self.pick.choice(['"a"', '""', '"model.{layer}.w # no comment"', '"注 { ( ["']))

    def some(self, write: Callable[[], None], most: int = 3) -> None:
        """One or more, with commas."""
        write()
        for _ in range(self.pick.randrange(most)):
            self.add(",")
            write()

    def names(self) -> None:
        """`a, b`."""
        self.some(lambda: self.add(self.name()))

    def dotteds(self) -> None:
        """`a.x, b`."""
        self.some(self.dotted)

    def body(self, *kinds: Callable[[], None], most: int = 3) -> None:
        """Braces with statements."""
        self.add("{")
        for i in range(self.pick.randrange(most + 1)):
            if i:
                self.add(END)
            self.pick.choice(kinds)()
        if self.maybe():
            self.add(END)
        self.add("}")

    # expressions

    def expr(self, depth: int = 2) -> None:
        """Any expression."""
        kind = self.pick.randrange(9 if depth else 3)
        if kind < 2:
            self.dotted()
        elif kind == 2:
            self.number()
        elif kind == 3:
            self.expr(0)
            self.add(self.pick.choice(BINARY[9:]))
            self.expr(depth - 1)
        elif kind == 4:
            self.add("-")
            self.expr(0)
        elif kind == 5:
            self.add("(")
            if self.maybe(0.2):
                self.condition()
            else:
                self.expr(depth - 1)
            if self.maybe(0.3):
                self.add("when")
                self.condition()
                self.add("else")
                self.expr(0)
            self.add(")")
        elif kind == 6:
            self.dotted()
            self.add("[")
            self.expr(depth - 1)
            if self.maybe(0.3):
                self.add("..")
                if self.maybe(0.5):
                    self.expr(0)
            self.add("]")
        else:
            self.call(depth - 1)

    def call(self, depth: int) -> None:
        """`f(a, b = c) { e -> … }`."""
        self.dotted()
        self.add("(")
        if self.maybe(0.9):
            self.some(lambda: self.argument(depth))
        self.add(")")
        if self.maybe(0.2):
            self.add("{", self.name(), "->")
            self.expr(depth)
            self.add("}")

    def argument(self, depth: int) -> None:
        """Plain or named."""
        if self.maybe(0.3):
            self.add(self.name(), "=")
        self.expr(depth)

    def condition(self) -> None:
        """`a in b and not c == d`."""
        if self.maybe(0.3):
            self.add("not")
        self.dotted()
        self.add(self.pick.choice(BINARY[2:9]))
        self.expr(0)
        if self.maybe(0.3):
            self.add(self.pick.choice(["and", "or"]))
            self.dotted()
