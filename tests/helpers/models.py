"""Random models that follow the grammar, every construct of them."""

from __future__ import annotations

from helpers.expressions import Writer


class ModelWriter(Writer):
    """Writes models."""

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
            self.pick.choice([self.text, self.number])()

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

    def ignore(self) -> None:
        """`ignore`."""
        self.add("ignore")
        self.some(self.text, 2)

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
        items = (self.size, self.size, self.list, self.require, self.ignore, self.taps, self.function)
        self.body(*items, self.weights, self.states, self.part, self.step, most=6)
