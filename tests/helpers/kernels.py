"""Whole steps of megakernels, interpreted on virtual cores beside the reference, by a child process.

It writes to a file what came of each case; behind one that hangs, another child goes on.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import asdict, frozen
from helpers import children
from helpers.cases import Array, Case, Step, lowered, model_of, values

if TYPE_CHECKING:
    from mks.dsl.program.ir import Program

MODES = ("on_wait", "eager")


@frozen
class Found:
    """What a step gave, and what the reference gives from the same states.

    `ids` `[rows]`, `logits` and `wanted` `[rows, vocab]`; `held` and `before` are the kernel's arrays by name, as
    words; `states` and `wanted_states` the whole ones of live rows, f32, by `row name`.
    """

    ids: Array
    logits: Array
    wanted: Array
    held: dict[str, Array]
    before: dict[str, Array]
    states: dict[str, Array]
    wanted_states: dict[str, Array]


# What came of a case: its steps, or in a word or two why there are none.
type Outcome = list[Found] | str


def run(cases: Sequence[Case], devices: int = 1, seconds: float = 120) -> list[Outcome]:
    """What comes of each case; one that fails says how.

    One that takes more than `seconds` of a processor is `hangs`, as is one whose threads all wait.
    """
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        while len(found) < len(cases):
            found += _run(cases[len(found) :], devices, seconds, Path(folder))
    return found


def _run(cases: Sequence[Case], devices: int, seconds: float, folder: Path) -> list[Outcome]:
    """What comes of the first cases, up to one that hangs."""
    for old in folder.iterdir():
        old.unlink()

    def done() -> int:
        return len(list(folder.glob("*.npz")))

    try:
        given = [asdict(case) for case in cases]
        children.call("helpers.kernels:answer", given, str(folder), seconds=seconds, devices=devices, progress=done)
        last = []
    except children.Hangs:
        last = ["hangs"]
    return ([_read(folder / f"{i}.npz") for i in range(done())] + last)[: len(cases)]


def _read(path: Path) -> Outcome:
    with np.load(path) as file:
        if "error" in file:
            return str(file["error"])
        steps: list[dict[str, Any]] = [{} for _ in range(int(file["steps"]))]
        for key, value in file.items():
            number, _, rest = key.partition("/")
            if not rest:
                continue
            field, _, name = rest.partition("/")
            if name:
                steps[int(number)].setdefault(field, {})[name] = value
            else:
                steps[int(number)][field] = value
    empty: dict[str, dict[str, Array]] = {name: {} for name in ("held", "before", "states", "wanted_states")}
    return [Found(**(empty | step)) for step in steps]


def elsewhere(found: Found, positions: Sequence[int], ways: int = 1) -> list[str]:
    """The arrays in which a step changed more than the live rows' states, and their entries at their positions.

    Caches may be shared out over so many neighbouring cores by blocks of positions.
    """
    wrong = []
    for name, after in found.held.items():
        changed = after != found.before[name]
        for row, position in enumerate(positions):
            if position >= 0:
                block, rest = divmod(position, 256)
                at = block // ways * 256 + rest if ways > 1 else position
                state = name.startswith("state ")
                mine = changed[:, :, row] if state else changed[block % ways :: ways, :, row, :, at]
                mine[...] = False
        if changed.any():
            wrong.append(name)
    return wrong


def same(a: Sequence[Found], b: Sequence[Found]) -> list[str]:
    """What is not bit for bit the same in two runs: of each step ids, logits, states and caches."""
    wrong = []
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        one, other = ({"ids": each.ids, "logits": each.logits, **each.held} for each in (x, y))
        assert one.keys() == other.keys()
        wrong += [f"{name} after step {i}" for name in one if one[name].tobytes() != other[name].tobytes()]
    return wrong


def wrong(outcome: Outcome, within: float = 2e-5) -> list[str]:
    """What is not as the reference has it: each step's logits, ids and states."""
    if isinstance(outcome, str):
        return [outcome]
    found = []
    for i, step in enumerate(outcome):
        own, other = (np.where(np.isneginf(each), 0, each) for each in (step.logits, step.wanted))
        if (np.isneginf(step.logits) != np.isneginf(step.wanted)).any():
            found.append(f"masked logits of step {i}")
        if not np.abs(own - other).max() <= within * np.abs(other).max():
            found.append(f"logits of step {i}")
        if (step.ids != step.wanted.argmax(-1)).any():
            found.append(f"ids of step {i}")
        for name, value in step.states.items():
            if not np.abs(value - step.wanted_states[name]).max() <= within:
                found.append(f"{name} after step {i}")
    return found


# What follows runs in the child.


def answer(cases: Sequence[dict[str, Any]], folder: str) -> None:
    """All cases, one after the other, each into a file of the folder."""
    for number, case in enumerate(map(_case, cases)):
        path = Path(folder) / f"{number}.npz"
        with path.with_suffix(".part").open("wb") as file:
            np.savez(file, **_outcome(case))
        path.with_suffix(".part").rename(path)


def _case(given: dict[str, Any]) -> Case:
    steps = tuple((tuple(tokens), tuple(positions)) for tokens, positions in given["steps"])
    return Case(**given | {"steps": steps, "sizes": tuple(map(tuple, given["sizes"]))})


def _outcome(case: Case) -> dict[str, Any]:
    from jax.experimental.pallas import tpu as pltpu

    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            found = _steps(case)
        return {"error": "semaphores"} if "Semaphore" in said.getvalue() else found
    except Exception as e:
        if not case.fault:
            raise
        pltpu.reset_tpu_interpret_mode_state()
        return {"error": "race" if "race" in str(e).lower() else repr(e)[:500]}


def _steps(case: Case) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    from jax.experimental.pallas import tpu as pltpu
    from jax.sharding import Mesh

    from mks.backends.pallas.emit import shard_map as sharded
    from mks.backends.pallas.emit.call import BuildMode
    from mks.backends.pallas.emit.signature import states
    from mks.backends.pallas.runtime.row_state import rows as layout_of

    program, weights, packed = _made(case)
    axes = program.schedule.axes
    mesh = Mesh(np.array(jax.devices()[: program.schedule.cores]).reshape(tuple(axes.values())), tuple(axes))
    by_core = sharded.by_core(program, mesh)
    given = {name: jax.device_put(np.stack([core[name] for core in packed]), by_core) for name in packed[0]}
    layout = layout_of(program, case.rows if case.consecutive else 1)
    held = {name: jnp.zeros((mesh.size, *a.shape), a.dtype) for name, a in states(program).items()}
    if case.filled:
        held = _filled(layout, held, given, 1 if case.consecutive else case.rows)
    held = jax.device_put(held, by_core)
    mode = pltpu.InterpretParams(dma_execution_mode=case.mode, detect_races=True, uninitialized_memory="nan")
    step = jax.jit(sharded.build(program, BuildMode(interpret=mode), mesh))
    found: dict[str, Any] = {"steps": len(case.steps)}
    for i, (tokens, positions) in enumerate(case.steps):
        before = held
        chosen, logits, held = step(jnp.asarray(tokens, jnp.int32), jnp.asarray(positions, jnp.int32), given, held)
        found |= {f"{i}/ids": chosen, f"{i}/logits": logits}
        found |= {f"{i}/held/{name}": _words(value) for name, value in held.items()}
        found |= {f"{i}/before/{name}": _words(value) for name, value in before.items()}
        found |= _reference(program, weights, layout, case.steps[i], before, held, f"{i}/", logits.shape)
        found |= _expanded(program, layout, given, case.steps[i][1], held, f"{i}/")
    return {name: np.asarray(value) for name, value in found.items()}


def _words(value: Any) -> Array:
    array = np.asarray(value)
    return array.view({2: np.uint16, 4: np.uint32}[array.dtype.itemsize])


def _filled(layout: Any, held: Any, given: Any, rows: int) -> Any:
    """Whatever sequences left: the kernel reads of it what is before a row's position."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(5)
    write = jax.jit(layout.write)
    for row in range(rows):
        drawn = {
            key: jnp.asarray(rng.normal(size=value.shape) * 0.5, value.dtype)
            for key, value in layout.room.empty().items()
        }
        held = write(held, jnp.int32(row), drawn, given)
    return held


def _reference(
    program: Program,
    weights: Any,
    layout: Any,
    step: Step,
    before: Any,
    after: Any,
    prefix: str,
    shape: tuple[int, int],
) -> dict[str, Any]:
    """The reference's logits and states of each live row, and the kernel's states in the same form."""
    import jax
    import jax.numpy as jnp

    from mks.backends.reference import step as steps

    # On one device: its arithmetic is what counts.
    before, after = ({name: jnp.asarray(np.asarray(a)) for name, a in each.items()} for each in (before, after))

    @jax.jit
    def several(tokens: Any, position: Any, held: Any) -> Any:
        count = jnp.full(1, tokens.shape[0], jnp.int32)
        at = steps.decode_pass(program.instance, weights, layout.room, tokens[None], position[None], count, 0)
        names, left = steps.run(at, program.instance.model.decode, held)
        return names["logits"][0], left

    def one(token: Any, position: Any, held: Any) -> Any:
        logits, left = several(token[None], position, held)
        return logits[0], left

    found: dict[str, Any] = {}
    wanted = np.zeros(shape, np.float32)
    if program.consecutive:
        tokens, positions = map(jnp.asarray, step)
        wanted, left = several(tokens, positions[0], layout.read(before, 0))
        # States are kept after each token; there is one row of the caches.
        own, last = layout.read(after, program.rows - 1), f"{program.rows - 1} "
        found |= {f"{prefix}wanted_states/{last}{key}": np.asarray(a, np.float32) for key, a in left.items()}
        found |= {f"{prefix}states/{last}{key}": np.asarray(own[key], np.float32) for key in left}
        return found | {f"{prefix}wanted": wanted}
    for row, (token, position) in enumerate(zip(*step, strict=True)):
        if position < 0:
            continue
        wanted[row], left = one(jnp.int32(token), jnp.int32(position), layout.read(before, row))
        found |= {f"{prefix}wanted_states/{row} {key}": np.asarray(value, np.float32) for key, value in left.items()}
        own = layout.read(after, row)
        found |= {f"{prefix}states/{row} {key}": np.asarray(own[key], np.float32) for key in left}
    return found | {f"{prefix}wanted": wanted}


def _expanded(
    program: Program, layout: Any, given: Any, positions: Sequence[int], after: Any, prefix: str
) -> dict[str, Any]:
    """Keys and values of live rows that are kept expanded, and what the latents beside them make."""
    import jax
    import jax.numpy as jnp

    names = [ref.label for ring in program.caches.values() if ring.expanded is not None for ref in ring.caches]
    again = jax.jit(lambda row, held, given: layout.write(held, row, layout.read(held, row), given))
    found: dict[str, Any] = {}
    for row in (row for row, position in enumerate(positions) if names and position >= 0):
        wanted = again(jnp.int32(row), after, given)
        for key, arrays in (("states", after), ("wanted_states", wanted)):
            found |= {f"{prefix}{key}/{row} {name}": np.asarray(arrays[name][:, :, row], np.float32) for name in names}
    return found


def _made(case: Case) -> tuple[Program, Any, list[dict[str, Array]]]:
    """The program, the reference's weights, and what each core reads."""
    from mks.backends import reference
    from mks.models.packing import operands

    model = model_of(case)
    weights = reference.load(model.instance, values(model), model.same)
    program = lowered(case)
    return program, weights, [operands.packed(program, model.stored, core) for core in range(program.schedule.cores)]
