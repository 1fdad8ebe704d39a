"""A schedule for what was drawn: shares, streams, collectives and the rest."""

from __future__ import annotations

from attrs import define, field

from .model import shared_by_all
from .parts import Part, Sketch, Sum, Together

_MESHES = {1: ((),), 2: ((2,), (2, 1), (1, 2)), 4: ((4,), (2, 2), (2, 2)), 8: ((8,), (2, 4), (4, 2), (2, 2, 2))}


@define
class Plan:
    """A schedule while it is drawn: `mesh` by name, in order; `cut` are the axes of sharded sizes."""

    sketch: Sketch
    rows: int
    cores: int
    mesh: dict[str, int]
    lines: list[str] = field(factory=list)
    cut: dict[str, tuple[str, ...]] = field(factory=dict)
    streamed: set[str] = field(factory=set)

    def ways(self, axes: tuple[str, ...]) -> int:
        """How many shares these axes make."""
        found = 1
        for axis in axes:
            found *= self.mesh[axis]
        return found

    def over(self, sizes: tuple[str, ...]) -> tuple[str, ...]:
        """The mesh's axes of more than one core, in its order, that some of the sizes are shared out over."""
        used = {axis for size in sizes for axis in self.cut.get(size, ())}
        return tuple(axis for axis, length in self.mesh.items() if axis in used and length > 1)

    @property
    def over_all(self) -> tuple[str, ...]:
        """All that tell cores apart."""
        return tuple(axis for axis, length in self.mesh.items() if length > 1)


def plan(sketch: Sketch, cores: int, rows: int) -> Plan:
    """All lines but the target's."""
    pick = sketch.pick
    lengths = sketch.one(_MESHES[cores])
    names = pick.sample(("tp", "ep", "a", "b", "z"), len(lengths))
    made = Plan(sketch, rows, cores, dict(zip(names, lengths, strict=True)))
    context = sketch.one(sketch.profile.contexts)
    made.lines.append(f"context {context}")
    if lengths:
        made.lines.append("mesh " + ", ".join(f"{name} = {length}" for name, length in made.mesh.items()))
    if cores > 1:
        sketch.constructs.add(f"mesh of {len(made.over_all)} {'axis' if len(made.over_all) == 1 else 'axes'}")
        _shards(made)
        _splits(made)
    _streams(made)
    _moves(made, context)
    if cores > 1:
        _reduces(made)
    return made


def _shards(made: Plan) -> None:
    """Every sharded size over a subset of the axes, in any order; each axis is used."""
    sketch, every = made.sketch, shared_by_all(made.sketch)
    for part in sketch.parts.values():
        taken: set[str] = set()
        for each in part.shared:
            if not sketch.maybe(0.85):
                continue
            free = [axis for axis in made.over_all if not (part.has & {"experts"} and axis in taken)]
            axes = _subset(made, free)
            repeats = _fits(each, axes, made) if axes else None
            if repeats is not None:
                _shard(made, each, axes, repeats)
                taken |= set(axes) if part.has & {"experts"} else set()
    if sketch.maybe(0.8):
        _shard(made, every[-1], _subset(made, list(made.over_all)), frozenset())
    unused = [axis for axis in made.over_all if all(axis not in axes for axes in made.cut.values())]
    if unused:
        _unshard(made, "vocab")
        _shard(made, every[-1], (*made.cut.pop("vocab", ()), *unused), frozenset())
    _positions(made)


def _unshard(made: Plan, size: str) -> None:
    made.lines = [line for line in made.lines if not (line.startswith("shard") and line.endswith(f": {size}"))]


def _subset(made: Plan, free: list[str]) -> tuple[str, ...]:
    """Some of the axes, in any order."""
    pick = made.sketch.pick
    return tuple(pick.sample(free, pick.randint(1, len(free)))) if free else ()


def _fits(each: Together, axes: tuple[str, ...], made: Plan) -> frozenset[str] | None:
    """Which of the sizes must repeat, if they can be shared out over so many cores."""
    sizes, ways = made.sketch.sizes, made.ways(axes)
    repeats = frozenset(size for size in each.repeats if sizes[size] < ways)
    if any(ways % sizes[size] for size in repeats):
        return None
    if "experts" in each.sizes[0] and sizes[each.sizes[0]] % ways:
        return None
    for many, few in each.pairs:
        heads, shared = sizes[many], sizes[few]
        group = heads // shared
        for core in range(ways):
            mine = {h // group for h in _share(core, ways, heads, False)}
            if not mine <= set(_share(core, ways, shared, few in repeats)):
                return None
    return repeats


def _share(core: int, ways: int, length: int, repeat: bool) -> range:
    if repeat:
        at = core // (ways // length)
        return range(at, at + 1)
    each = -(-length // ways)
    return range(min(core * each, length), min((core + 1) * each, length))


def _shard(made: Plan, each: Together, axes: tuple[str, ...], repeats: frozenset[str]) -> None:
    items = ", ".join(f"{size} (repeat)" if size in repeats else size for size in each.sizes)
    made.lines.append(f"shard {', '.join(axes)} : {items}")
    made.cut |= dict.fromkeys(each.sizes, axes)
    sketch, ways = made.sketch, made.ways(axes)
    sketch.constructs |= {"heads that repeat"} if repeats else set()
    if set(axes) < set(made.over_all):
        sketch.constructs.add("a subset of the axes")
    if list(axes) != [axis for axis in made.mesh if axis in axes]:
        sketch.constructs.add("axes in another order")
    if any(sketch.sizes[size] % ways for size in each.sizes) and not repeats:
        sketch.constructs.add("shares with padding")


def _positions(made: Plan) -> None:
    """Caches shared out by positions, where all that attend have latents, and their heads are shared out alike."""
    sketch = made.sketch
    attending = [part for part in sketch.parts.values() if "cache" in part.has]
    if not attending or any("heads" in part.has for part in attending) or not sketch.maybe(0.5):
        return
    over = [
        axis for axis in made.over_all if all(axis in made.cut.get(part.shared[0].sizes[0], ()) for part in attending)
    ]
    if over:
        made.lines.append(f"shard {', '.join(_subset(made, over))} : position")
        sketch.constructs.add("positions shared out")


def _splits(made: Plan) -> None:
    """Rows of products that are whole on each core; their values travel together, over another product."""
    sketch = made.sketch
    for part in sketch.parts.values():
        own = [size for each in part.shared for size in each.sizes if size.startswith("experts") and size in made.cut]
        open_ = [rows for rows in part.rows if not (rows.weight == "router" and own)]
        if not open_ or not sketch.maybe(0.5):
            continue
        chosen = [rows for rows in open_ if sketch.maybe(0.75)] or open_[:1]
        axes = _subset(made, list(made.over_all))
        made.lines.append(f"split {', '.join(f'{part.name}.{rows.weight}' for rows in chosen)} over {', '.join(axes)}")
        values = [f"{part.name}.{value}" for rows in chosen for value in rows.values]
        sketch.constructs.add("split rows")
        if len(chosen) > 1 and sketch.maybe(0.6):
            made.lines.append(f"gather ({', '.join(values)})")
            sketch.constructs.add("gathered together")
        later = [group for group in part.groups if group in (("wg",), ("s_gate", "s_up"))]
        if later and sketch.maybe(0.6):
            made.lines.append(
                f"overlap gather {', '.join(values)} with ({', '.join(f'{part.name}.{w}' for w in later[0])})"
            )
            sketch.constructs.add("overlapped gather")


def _streams(made: Plan) -> None:
    """No stream, one, or two, of all products or some of them."""
    sketch = made.sketch
    count = sketch.one((0, 1, 1, 2, 2))
    sketch.constructs.add(("unstreamed", "one stream", "two streams")[count])
    lines: list[list[str]] = [[] for _ in range(count)]
    for part in sketch.parts.values():
        if not count or not part.groups or sketch.maybe(0.1):
            continue
        groups = [*part.groups]
        cut = sketch.pick.randint(1, len(groups)) if count == 2 and sketch.maybe(0.5) else len(groups)
        first = sketch.pick.randrange(count)
        for number, own in ((first, groups[:cut]), (1 - first, groups[cut:])):
            if own:
                lines[number].append(f"{part.name} : " + ", ".join(_group(group) for group in own))
                made.streamed |= {f"{part.name}.{weight}" for group in own for weight in group}
    if count and sketch.maybe(0.5):
        lines[-1].append(f"step : {'embed' if sketch.tied else 'out'}")
    for name, own in zip(("dense", "second"), lines, strict=False):
        if own:
            made.lines += [
                f"stream {name} {{",
                f"  slots = {sketch.one(sketch.profile.slots)}",
                "  slot = 2560 KiB",
                *(f"  {line}" for line in own),
                "}",
            ]


def _group(weights: tuple[str, ...]) -> str:
    return weights[0] if len(weights) == 1 else f"({', '.join(weights)})"


def _moves(made: Plan, context: int) -> None:
    """What is fetched and prefetched, and how it is kept."""
    sketch, maybe = made.sketch, made.sketch.maybe
    for part in sketch.parts.values():
        if "experts" in part.has and maybe(0.6):
            made.lines.append(f"fetch {part.name}.experts (slots = {sketch.one((1, 2, 3, 4))})")
            sketch.constructs.add("fetched experts")
        if part.codec == "mxfp4" and maybe(0.4):
            kept = [name for name in part.experts if maybe(0.7)] or [part.experts[0]]
            names = ", ".join(f"{part.name}.{name}" for name in kept)
            made.lines.append(f"store {names} as fp8 block {sketch.one((32, 64, 256))}")
            sketch.constructs.add("experts mxfp4 kept as fp8")
        if "cache" in part.has and maybe(0.6):
            tile = sketch.one([t for t in sketch.profile.tiles if t <= context])
            made.lines.append(
                f"prefetch {part.name}.cache at {part.name}.start "
                f"(tile = {tile} tokens, slots = {sketch.one((1, 2, 3))})"
            )
            sketch.constructs.add("prefetched cache")
        if "latents" in part.has and not any("position" in line for line in made.lines) and maybe(0.4):
            made.lines.append(f"form {part.name}.cache = expanded")
            sketch.constructs.add("expanded latents")
        if "state" in part.has and maybe(0.5):
            before = ", ".join(f"previous {name}.{_last(sketch)}" for name in sketch.runs[-1] if name)
            at = sketch.one((f"{part.name}.start", before))
            made.lines.append(f"prefetch {part.name}.state at {at}")
            sketch.constructs.add("prefetched state")
        loose = [w for group in part.groups for w in group if f"{part.name}.{w}" not in made.streamed]
        if loose and maybe(0.2):
            made.lines.append(f"prefetch {part.name}.{sketch.one(loose)} at {part.name}.start")
            sketch.constructs.add("prefetched weight")
    if maybe(0.5):
        made.lines.append(f"prefetch vectors at previous {sketch.one(('part', 'layer'))}")
        sketch.constructs.add("prefetched vectors")


def _last(sketch: Sketch) -> str:
    return sketch.name("b") if sketch.banks else sketch.stream


def _reduces(made: Plan) -> None:
    """How sums are completed, and in what they travel."""
    sketch = made.sketch
    for part in sketch.parts.values():
        scattered = _scattered(part, made)
        for value in scattered:
            made.lines.append(f"reduce {value} (by = scatter, wire = f32)")
            sketch.constructs.add("left scattered")
        told: set[str] = set()
        for each in part.sums:
            over = made.over(each.sizes)
            columns = each.of_scattered and any(value.endswith(".y") for value in scattered)
            if each.value in {*scattered, *told} or not (over or columns):
                continue
            told.add(each.value)
            _reduce(made, each, over, bool(scattered) and each.of_scattered)


def _scattered(part: Part, made: Plan) -> list[str]:
    """Sums over all cores that are left scattered; all that are, or none."""
    if not made.sketch.maybe(0.5):
        return []
    return [each.value for each in part.sums if each.alone and made.over(each.sizes) == made.over_all]


def _reduce(made: Plan, each: Sum, over: tuple[str, ...], columns: bool) -> None:
    sketch = made.sketch
    if columns:
        kinds = ["scatter_gather"]
    elif sketch.maybe(0.3):
        return
    else:
        kinds = ["direct", "scatter_gather"]
        if over[-1:] == made.over_all[-1:] and made.mesh[over[-1]] % 2 == 0 and not each.of_scattered:
            kinds.append("two_level")
    values = [each.value]
    by, wire = sketch.one(kinds), sketch.one(("f32", "f32", "bf16"))
    made.lines.append(f"reduce {', '.join(values)} (by = {by}, wire = {wire})")
    sketch.constructs |= {f"sum by {by}", f"{wire} on the wire"}
