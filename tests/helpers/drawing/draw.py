"""What a seed gives."""

from __future__ import annotations

from random import Random

from attrs import evolve, field, frozen

from mks.dsl.diagnostics import Diagnostic, MksError
from mks.dsl.frontend import check_source
from mks.dsl.model.instance import Instance
from mks.dsl.program.ir import Program
from mks.dsl.program.lower.lower import lower
from mks.dsl.schedule.ir import Schedule
from mks.dsl.source import Source

from .model import model, written
from .profile import TINY, Profile
from .scheduling import plan

NAME = "drawn"


@frozen
class Opened:
    """A draw's schedule and model; its `working` type is the instance's."""

    schedule: Schedule
    instance: Instance
    rows: int
    consecutive: bool

    def lower(self, *, traced: bool = False) -> Program:
        """Its Program. Raises `MksError` where lowering refuses it."""
        return lower(self.schedule, self.instance, self.rows, consecutive=self.consecutive, traced=traced)


@frozen
class Drawn:
    """A definition with one schedule, and how it is run; `constructs` are words for what is in it.

    `rows` sequences are decoded together, or so many tokens of one where they are `consecutive`; they are at
    `positions`, with these `tokens`.
    """

    seed: int
    text: str
    rows: int
    consecutive: bool
    working: str
    cores: int
    tokens: tuple[int, ...] = field(converter=tuple)
    positions: tuple[int, ...] = field(converter=tuple)
    constructs: frozenset[str] = field(default=frozenset(), converter=frozenset)

    def open(self) -> Opened | tuple[Diagnostic, ...]:
        """The checker's schedule and model, or what is wrong with them."""
        found = check_source(Source(f"drawn{self.seed}.mks", self.text))
        (key,) = found.own_schedules
        schedule = found.schedules[key]
        if found.failed or schedule is None:
            return tuple(d for d in found.diagnostics if d.severity == "error")
        return Opened(schedule, evolve(found.instances[key[0]], working=self.working), self.rows, self.consecutive)

    def lowered(self, *, traced: bool = False) -> Program | tuple[Diagnostic, ...]:
        """The Program, or what the checker or lowering refuses."""
        opened = self.open()
        if not isinstance(opened, Opened):
            return opened
        try:
            return opened.lower(traced=traced)
        except MksError as e:
            return tuple(e.diagnostics)


def draw(seed: int, profile: Profile = TINY, cores: tuple[int, ...] = (1, 2, 2, 4, 4, 8)) -> Drawn:
    """What a seed gives, always the same."""
    pick = Random(seed)
    sketch = model(pick, profile)
    count = pick.choice(cores)
    target = pick.choice([name for name, own in profile.topologies.items() if count in own])
    rows, working = pick.choice((1, 1, 2, 3, 4, 5, 7, 8)), pick.choice(("f32", "bf16"))
    consecutive = rows > 1 and sketch.maybe(0.25)
    made = plan(sketch, count, rows)
    text = written(sketch, NAME)
    held = [f"span {rows} (keep = every row)"] if consecutive else [f"rows {rows}"]
    lines = [f"target {target} {profile.topologies[target][count]}", *held, *made.lines]
    text += f"\nschedule {NAME} for {NAME} {{\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n"
    tokens = tuple(pick.randrange(sketch.sizes["vocab"] - 7) for _ in range(rows))
    context = next(int(line.split()[1]) for line in made.lines if line.startswith("context"))
    at = pick.choice((0, pick.randrange(context - rows), context - rows, 125))
    positions = (
        [at + i for i in range(rows)]
        if consecutive
        else [at, *(pick.choice((0, pick.randrange(context), context - 1)) for _ in range(rows - 1))]
    )
    if pick.random() < 0.15:
        # Of a table that ends before, the last entry is taken.
        tokens = (sketch.sizes["vocab"] + pick.choice((0, 3, 1000)), *tokens[1:])
        sketch.constructs.add("an id beyond the table")
    constructs = {
        *sketch.constructs,
        working,
        f"{count} cores" if count > 1 else "1 core",
        *({"span"} if consecutive else {f"{rows} rows" if rows > 1 else "1 row"}),
    }
    return Drawn(seed, text, rows, consecutive, working, count, tokens, tuple(positions), frozenset(constructs))
