"""Programs that follow the grammar, every construct of it, written with any spaces, line ends and comments."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import strategies as st

END = "\n"
# After one of these, and inside brackets, a line may end.
_GOES_ON = frozenset(", = : -> + - * / // % ** @ == != <= >= < > or and not in when else from with at over {".split())
_BINARY = "or and == != <= >= < > in + - * / // % @ **".split()


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
            self.add(self.pick.choice(_BINARY[9:]))
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
        self.add(self.pick.choice(_BINARY[2:9]))
        self.expr(0)
        if self.maybe(0.3):
            self.add(self.pick.choice(["and", "or"]))
            self.dotted()

    # models

    def keys(self) -> None:
        """`from a.b or c`."""
        if self.maybe(0.6):
            self.add("from")
            self.dotted()
            while self.maybe(0.3):
                self.add("or")
                self.dotted()

    def size(self) -> None:
        """`size`, `const`."""
        self.add(self.pick.choice(["size", "const"]), self.name(), "=")
        self.expr()
        self.keys()

    def list(self) -> None:
        """`list`."""
        self.add("list", self.name(), "=")
        self.some(self.item)
        before = len(self.out)
        self.keys()
        if len(self.out) > before and self.maybe():
            self.add("where")
            self.text()

    def item(self) -> None:
        """`a`, `a .. b by c`."""
        self.expr(1)
        if self.maybe():
            self.add("..")
            self.expr(1)
            if self.maybe():
                self.add("by")
                self.expr(0)

    def require(self) -> None:
        """`require`."""
        self.add("require")
        self.dotted()
        self.add("==")
        kind = self.pick.randrange(4)
        if kind == 0:
            self.add("-")
        if kind < 2:
            self.number()
        elif kind == 2:
            self.text()
        else:
            self.add("true")
        if self.maybe():
            self.add("or", "absent")

    def taps(self) -> None:
        """`taps`."""
        self.add("taps", self.name(), "=")
        self.dotted()
        self.add("before", self.name())

    def function(self) -> None:
        """`function`."""
        self.add("function", self.name(), "(")
        self.names()
        self.add(")", "=")
        self.expr()

    def declared(self) -> None:
        """`a, b : int4 group 128[n, d]`."""
        self.names()
        self.add(":", self.pick.choice(["bf16", "f32", "mxfp4"]))
        kind = self.pick.randrange(5)
        if kind == 0:
            self.add(self.pick.choice(["group", "block"]), "128")
        elif kind == 1:
            self.add("by", "column")
        self.add("[")
        self.some(lambda: self.expr(1))
        self.add("]")

    def weight(self) -> None:
        """One line of a weights block."""
        self.declared()
        self.place()
        while self.maybe(0.4):
            self.add("or")
            self.place()

    def place(self) -> None:
        """A tensor's name with its options, or a weight."""
        if self.maybe(0.2):
            self.add(self.name())
            return
        if self.maybe(0.2):
            self.add("rounded")
        self.text()
        if self.maybe():
            self.add("rows")
            self.expr(1)
            self.add("..")
        for word in ("scale", "global"):
            if self.maybe(0.3):
                self.add(word)
                self.text()

    def weights(self) -> None:
        """`weights`."""
        self.add("weights")
        if self.maybe():
            self.text()
        self.body(self.weight)

    def states(self) -> None:
        """`state`, `cache`, `buffer`."""
        kind = self.pick.choice(["state", "cache", "buffer"])
        self.add(kind)
        if kind == "cache" and self.maybe():
            self.add("last", *self.pick.choice([["w"], ["8"], ["(", "a", "+", "1", ")"]]))
        self.body(self.declared)

    def assign(self) -> None:
        """`a, b[c] = d when e`."""
        self.some(self.target, 2)
        self.add("=")
        self.expr()
        if self.maybe(0.3):
            self.add("when")
            self.condition()
            if self.maybe():
                self.add("else")
                self.expr()

    def target(self) -> None:
        """`a.b`, `a[i]`."""
        self.dotted()
        if self.maybe(0.3):
            self.add("[")
            self.expr(1)
            self.add("]")

    def run(self) -> None:
        """`part when a else b`."""
        self.add(self.name())
        if self.maybe():
            self.add("when")
            self.condition()
            if self.maybe():
                self.add("else", self.name())

    def loop(self) -> None:
        """`for`."""
        self.add("for", self.name(), "in")
        self.expr(1)
        self.add("..")
        self.expr(1)
        self.body(self.assign, self.run)

    def part(self) -> None:
        """`part`."""
        self.add("part", self.name())
        self.body(self.weights, self.states, self.assign, self.assign, self.run, self.loop, most=5)

    def step(self) -> None:
        """`step`."""
        self.add("step")
        if self.maybe():
            self.add(self.name())
        if self.maybe():
            self.add("on", self.name())
        if self.maybe():
            self.add("->")
            self.names()
        self.body(self.assign, self.run, self.loop)

    def model(self) -> None:
        """`model`."""
        self.add("model", self.name())
        if self.maybe(0.2):
            self.add("drafts", self.name())
        items = (self.size, self.size, self.list, self.require, self.taps, self.function)
        self.body(*items, self.weights, self.states, self.part, self.step, most=6)

    # schedules

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
    writer = Writer(pick)
    writer.file()
    text = Typist(pick, pick.choice([0, 1, 1])).write(writer.out)
    return text.replace("\n", "\r\n") if pick.random() < 0.2 else text


programs = st.randoms(use_true_random=False).map(program)
