"""A part of a model while it is drawn: its text, and what a schedule can say of it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from attrs import define, field, frozen

from .profile import Profile

# Words that kernels, references and Programs use themselves.
AWKWARD = (
    "positions",
    "ids",
    "chosen",
    "at",
    "tokens",
    "kept",
    "scalars",
    "layers_",
    "logits_",
    "out_",
    "begins",
    "core",
)


@frozen
class Together:
    """Sizes that are sharded over the same axes of the mesh; cores may hold the same entries of those in `repeats`.

    `pairs` are lengths of heads that share others: a core's must read what it has.
    """

    sizes: tuple[str, ...]
    repeats: frozenset[str] = frozenset()
    pairs: tuple[tuple[str, str], ...] = ()


@frozen
class Sum:
    """A value that is partial where one of `sizes` is sharded; `alone` if it may stay scattered.

    One that is `of_scattered` is partial also where another of its part is left so.
    """

    value: str
    sizes: tuple[str, ...]
    alone: bool = False
    of_scattered: bool = False


@frozen
class Rows:
    """A weight whose product's rows may be shared out, and the values that its statement names."""

    weight: str
    values: tuple[str, ...]


@define
class Part:
    """`weights`, `kept` (states and caches) and `body` are lines; `groups` are products in the order of use.

    `inputs` reads what the part reads, `constructs` are words for what is in it.
    """

    name: str
    weights: list[str] = field(factory=list)
    kept: list[str] = field(factory=list)
    body: list[str] = field(factory=list)
    groups: list[tuple[str, ...]] = field(factory=list)
    shared: list[Together] = field(factory=list)
    sums: list[Sum] = field(factory=list)
    rows: list[Rows] = field(factory=list)
    has: set[str] = field(factory=set)
    experts: tuple[str, ...] = ()
    codec: str = ""

    def text(self) -> str:
        """Its lines."""
        own = [f'    weights "{{layer}}.{self.name}." {{', *(f"      {line}" for line in self.weights), "    }"]
        return "\n".join([f"  part {self.name} {{", *own, *(f"    {line}" for line in (*self.kept, *self.body)), "  }"])


@define
class Sketch:
    """A model while it is drawn.

    With `banks` the layers' sums are kept in blocks, and parts read the norm of a mixture; else they read a norm of
    their own, of a stream that is f32 if it is `wide`. `tied` heads are the embedding. `runs` are the parts of a layer,
    each with the one in its place in other layers, or nothing.
    """

    pick: Random
    profile: Profile
    sizes: dict[str, int] = field(factory=dict)
    parts: dict[str, Part] = field(factory=dict)
    constructs: set[str] = field(factory=set)
    banks: bool = False
    wide: bool = False
    tied: bool = False
    halves: bool = False
    names: dict[str, str] = field(factory=dict)
    runs: list[tuple[str, str]] = field(factory=list)

    def maybe(self, chance: float) -> bool:
        """Whether something is so."""
        return self.pick.random() < chance

    def one[T](self, of: Sequence[T]) -> T:
        """One of these."""
        return self.pick.choice(of)

    def size(self, name: str, length: int) -> str:
        """A new size by this name; numbered if there is one already."""
        number = 2
        first = name
        while name in self.sizes:
            name, number = f"{first}{number}", number + 1
        self.sizes[name] = length
        return name

    def name(self, plain: str) -> str:
        """What a value is called: mostly as it is."""
        if plain not in self.names:
            free = [word for word in AWKWARD if word not in self.names.values()]
            awkward = self.maybe(0.06) and free
            self.names[plain] = self.one(free) if awkward else plain
            if awkward:
                self.constructs.add("awkward names")
        return self.names[plain]

    def part(self, kind: str) -> Part:
        """A new part of this name, numbered if there is one already, which begins with the norm of what it reads."""
        name = kind if kind not in self.parts else f"{kind}{len(self.parts)}"
        made = self.parts[name] = Part(name)
        if not self.banks:
            gain = self.one(("norm", "1 + norm", "1"))
            made.weights += ['norm : bf16[d] "norm"'] * (gain != "1")
            made.body.append(f"{self.read} = rms_norm({self.stream}, {gain}, {self.by_layer('1e-5', '1e-2', 0.15)})")
        return made

    @property
    def stream(self) -> str:
        """The carried value that parts add to."""
        return self.name("h")

    @property
    def read(self) -> str:
        """What a part's products read."""
        return self.stream if self.banks else self.name("x") + ("2" if self.halves else "")

    def adds_up(self, value: str) -> str:
        """The statement that makes this the stream."""
        return f"{self.stream} = {f'f32({value})' if self.wide else value}"

    def by_layer(self, usual: str, other: str, chance: float = 0.1) -> str:
        """A number, in some layers perhaps another one."""
        if not self.maybe(chance):
            return usual
        self.constructs.add("option by layer")
        return f"({other} when {self.one(('layer % 2 == 1', 'layer == 0', 'layer in some'))} else {usual})"

    def adds(self, part: Part, value: str, sizes: tuple[str, ...], mixer: bool) -> None:
        """The statement that ends a part: what it adds to the stream, perhaps with a norm of its own before."""
        if self.banks:
            name = self.name("a") if mixer else self.name("b")
            part.body.append(f"{name} = {value if mixer else f'{name} + {value}'}")
            part.sums.append(Sum(f"{part.name}.{name}", sizes))
            return
        kind = self.pick.random() if not part.sums else 0
        if kind < 0.7:
            part.body.append(self.adds_up(f"{self.stream} + {value}"))
            part.sums.append(Sum(f"{part.name}.{self.stream}", sizes))
        elif kind < 0.85:
            self.constructs.add("norm after a sum")
            part.weights.append('post : bf16[d] "post"')
            part.body.append(self.adds_up(f"{self.stream} + rms_norm({value}, post, 1e-5)"))
            part.sums.append(Sum(f"{part.name}.{self.stream}", sizes))
        else:
            self.constructs.add("sum with a name")
            part.body += [f"r = {value}", self.adds_up(f"{self.stream} + r * 0.5")]
            part.sums.append(Sum(f"{part.name}.r", sizes))
