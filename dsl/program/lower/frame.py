"""One part or step while its statements become ops."""

from __future__ import annotations

from collections.abc import Callable, Container

from attrs import field

from ...model import ir as m
from ...model.facts import names_of
from ...model.ir import Node, Type
from ...records import define, frozen
from .. import ir as p
from .build import Build
from .sharded_value import ShardedValue


@frozen
class Mark:
    """A point in time: the place's `start`, or `before` or `after` what sets a value or uses a weight."""

    relation: str
    name: str


type Ops = list[p.Op | Mark]


@define
class Frame:
    """One place being lowered; `ops` grow as its statements are.

    `split` lowers a node; `groups` are the place's products, `done` the weights that were multiplied, `loaded` the
    states that have arrived, `scattered` the values of which each core holds some columns of the sum; `late` are the
    ops that wait for those, put off until a statement reads them. In a loop over rows, `rows` are the names of which
    all rows are kept.
    """

    build: Build
    place: str
    groups: dict[str, tuple[str, ...]]
    split: Callable[[Node, Frame], ShardedValue]
    statements: tuple[m.Assign | m.Write, ...]
    rows: frozenset[str] = frozenset()
    ops: Ops = field(factory=list)
    done: set[str] = field(factory=set)
    loaded: set[p.StateRef] = field(factory=set)
    scattered: set[str] = field(factory=set)
    late: dict[str, Ops] = field(factory=dict)
    parameter: str | None = None
    value: str = ""
    count: int = 0

    @property
    def statement(self) -> m.Assign | m.Write:
        """The statement that sets the value at hand."""
        return next(s for s in self.statements if self.value in names_of(s))

    def full(self, name: str) -> p.ValueRef:
        """By what name all know a value that a statement here sets."""
        return self.build.full(name, self.build.home(self.place) if name in self.rows else self.place)

    def fresh(self, what: str) -> p.TempRef:
        """A name that this place has not used."""
        return p.TempRef(self.place, what, self.next_number())

    def next_number(self) -> int:
        """One that tells apart what this place makes."""
        self.count += 1
        return self.count

    def compute[R: p.BufferRef](self, name: R, shape: tuple[int, ...], dtype: str, node: Node) -> R:
        """A buffer of this place, and its value."""
        self.build.held(name, shape, dtype, self.place, node.span)
        self.ops.append(p.Compute((name,), node, None, node.span))
        return name

    def arrive(self, names: Container[str]) -> None:
        """Wait for the values among these that are still on their way."""
        for name in [name for name in self.late if name in names]:
            self.ops += self.late.pop(name)

    def exchange(self, made: p.Collective, late: str | None = None) -> None:
        """A collective here; it is waited for at once, or where a statement reads the value `late`."""
        self.build.exchanges[made.name] = made
        self.ops.append(p.Send(made.name))
        if late is None:
            self.ops.append(p.Receive(made.name))
        else:
            self.late[late] = [p.Receive(made.name)]

    def read(self, ref: m.Ref, type_: Type, like: Node) -> m.Read:
        """A node that reads a buffer."""
        return m.Read(ref, type_, like.span)

    def buffer_of(self, node: Node) -> p.BufferRef | None:
        """The buffer that holds just this node's value, if there is one."""
        view = self.view_of(node)
        return view.buffer if view is not None and view.buffer == self.build.ref_of(node, self.place) else None

    def view_of(self, node: Node) -> p.View | None:
        """Where a name or a read lies."""
        ref = self.build.ref_of(node, self.place)
        return None if ref is None else self.build.views.get(ref)
