"""Programs that follow the grammar, every construct of it, written with any spaces, line ends and comments."""

from __future__ import annotations

from random import Random

from helpers.expressions import END
from helpers.models import ModelWriter
from hypothesis import strategies as st

# After one of these, and inside brackets, a line may end.
_GOES_ON = frozenset(", = : -> + - * / // % ** @ == != <= >= < > or and not in when else from with at over {".split())


class ProgramWriter(ModelWriter):
    """Writes schedules and whole files."""

    def setting(self) -> None:
        """`rows`, `span`, `context`."""
        self.add(self.pick.choice(["rows", "span", "context"]))
        self.some(self.number)
        self.options(0.4)

    def options(self, chance: float) -> None:
        """`(a = 2 MiB, b)`."""
        if self.maybe(chance):
            self.add("(")
            self.some(lambda: self.option(True))
            self.add(")")

    def option(self, flag: bool = False) -> None:
        """`a = 2 MiB`, `a = every row`, perhaps `a`."""
        self.add(self.name())
        if flag and self.maybe(0.2):
            return
        self.add("=")
        if self.maybe(0.6):
            self.number()
            self.add(*self.pick.choice([[], ["MiB"], ["tokens"]]))
        else:
            self.add(*self.pick.choice([["two_level"], ["every", "row"]]))

    def machine(self) -> None:
        """`target`, `mesh`, `shard`, `split`."""
        kind = self.pick.randrange(4)
        if kind == 0:
            self.add("target", "tpu7x", self.pick.choice(["2x2x1", "1x1"]))
        elif kind == 1:
            self.add("mesh")
            self.some(lambda: self.add(self.name(), "=", "8"))
        elif kind == 2:
            self.add("shard")
            self.names()
            self.add(":")
            self.some(lambda: self.add(self.name(), *self.pick.choice([[], ["(", "repeat", ")"]])))
        else:
            self.add("split")
            self.dotteds()
            self.add("over")
            self.names()

    def stream(self) -> None:
        """`stream`."""
        self.add("stream", self.name())
        self.body(self.option, self.stream_line, most=5)

    def stream_line(self) -> None:
        """`part : (a, b), c`."""
        self.add(self.name(), ":")
        self.some(self.group)

    def group(self) -> None:
        """`a` or `(a, b)`."""
        if self.maybe():
            self.add("(")
            self.dotteds()
            self.add(")")
        else:
            self.dotted()

    def movement(self) -> None:
        """`fetch`, `prefetch`, `gather`, `reduce`, `overlap`, `form`, `store`."""
        word = self.pick.choice(["fetch", "prefetch", "gather", "reduce", "overlap", "form", "store"])
        self.add(word)
        if word == "gather":
            self.add("(")
            self.dotteds()
            self.add(")")
        elif word == "overlap":
            self.add(self.pick.choice(["gather", "reduce"]))
            self.dotteds()
            self.add("with")
            self.some(self.group)
        elif word == "form":
            self.dotted()
            self.add("=", self.name())
        elif word == "store":
            self.dotteds()
            self.add("as", "fp8", *self.pick.choice([[], ["block", "256"], ["by", "column"]]))
        elif word == "reduce":
            self.dotteds()
            self.options(0.7)
        else:
            self.dotted()
            if word == "prefetch":
                self.add("at")
                self.some(self.point)
            self.options(0.7)

    def point(self) -> None:
        """`previous a.b`."""
        self.add(*self.pick.choice([[], ["previous"], ["before"], ["after"]]))
        self.dotted()

    def schedule(self) -> None:
        """`schedule`."""
        self.add("schedule", self.name(), "for", self.name())
        self.body(self.setting, self.machine, self.stream, self.movement, self.movement, most=8)

    def speculate(self) -> None:
        """`speculate`."""
        self.add("speculate", self.name())
        self.body(self.option, lambda: self.add("target", "=", self.name(), "on", self.name()))

    def use(self) -> None:
        """`use`."""
        self.add("use", '"kimi_k3.mks"')

    def file(self) -> None:
        """A whole file."""
        self.add("mks", "1")
        for _ in range(self.pick.randrange(4)):
            self.add(END)
            self.pick.choice((self.use, self.model, self.model, self.schedule, self.schedule, self.speculate))()
        if self.maybe(0.8):
            self.add(END)


class Typist:
    """Puts tokens on lines with any spaces, empty lines and comments that the language allows."""

    def __init__(self, pick: Random, tidy: float) -> None:
        self.pick, self.tidy = pick, tidy
        self.comments = 0

    def write(self, tokens: list[str]) -> str:
        """The text."""
        out, depth, before = self.lines(0.1), 0, END
        for token in tokens:
            if token == END:
                out += self.lines(1)
            else:
                if before != END:
                    out += self.gap(before, token, depth > 0 or before in _GOES_ON)
                elif self.pick.random() < self.tidy:
                    out += " " * self.pick.randrange(5)
                out += token
                depth += (token in ("(", "[")) - (token in (")", "]"))
            before = token
        return out + self.pick.choice(["", "  ", "  # the end"])

    def gap(self, before: str, after: str, may_break: bool) -> str:
        """What stands between two tokens."""
        if may_break and self.pick.random() < 0.1 * self.tidy:
            return self.lines(1)
        touching = all(c.isalnum() or c in '_"' for c in (before[-1], after[0])) or before[-1] + after[0] in _SIGNS
        return self.pick.choice([" ", "   ", "\t", *([] if touching else [""])])

    def lines(self, chance: float) -> str:
        """A line's end, perhaps behind a comment, perhaps with more comments and empty lines below."""
        if self.pick.random() >= chance:
            return ""
        out = self.comment() + "\n"
        while self.pick.random() < 0.25 * self.tidy:
            out += " " * self.pick.randrange(4) + self.comment() + "\n"
        return out

    def comment(self) -> str:
        """Perhaps a comment, with its number, so that their order can be seen."""
        if self.pick.random() >= 0.3 * self.tidy:
            return ""
        self.comments += 1
        return f'{self.pick.choice(["", " "])}#{self.pick.choice(["", " ", "# "])}{self.comments} {{ ( " 注'


_SIGNS = frozenset("** // .. -> == != <= >= *: :=".split())


def program(pick: Random) -> str:
    """The text of a program."""
    writer = ProgramWriter(pick)
    writer.file()
    text = Typist(pick, pick.choice([0, 1, 1])).write(writer.out)
    return text.replace("\n", "\r\n") if pick.random() < 0.2 else text


programs = st.randoms(use_true_random=False).map(program)
