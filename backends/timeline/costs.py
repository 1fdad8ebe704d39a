"""How many bundles an op takes, estimated from its shape. A bundle issues in one cycle when nothing stalls.

A register holds `[8, 128]` 32-bit numbers; of a row alone it holds an eighth. The estimates were set against whole
parts of compiled kernels; what an op shares with its neighbours, the compiler's overlap of them, is in the figures.
"""

from __future__ import annotations

from math import prod

from ...dsl.collectives.collective import CollectivePlan
from ...dsl.model import ir as m
from ...dsl.model import ops as registry
from ...dsl.model.expressions import walk
from ...dsl.program import ir as p
from ...dsl.program.analysis.traffic import chosen_once
from ...dsl.program.layout.expert_layout import ExpertProduct
from ...dsl.program.layout.tiling import ROW_BYTES
from ...dsl.targets.lanes import LANES, SUBLANES
from ...dsl.targets.target import TILE, Target

START, WAIT, BRANCH = 5.0, 1.5, 25.0  # bundles: a transfer's descriptor, a semaphore, a layer's choice of a part
_STORE = 8.0  # a statement's way through memory
ROPE_TABLES = 200.0  # cosines and sines of a step's positions
ARGMAX_OF_CORES = 60.0  # the largest of all cores' largest logits

_HEAD_STEP = 3.4  # bundles for each register of a head's state in the delta rule
_MIXED = 3.3  # bundles for each register of a stream that is mixed with banks
_BANK, _BANK_REGISTER = 45.0, 1.95  # of a bank, which is read for its weight and for the sum
_ROUTE, _ROUTE_ROW = 500.0, 150.0
_ATTEND, _ATTEND_ROW = 60.0, 30.0
_ATTENDED = 256 * LANES  # numbers of a block of keys or values
_EIGHT_HEADS = 36.0  # bundles of a tile of latents for each further eight heads of queries
_LATENTS = 256 * (512 + 512 + LANES)  # numbers of such a tile: latents as keys and as values, common channels


def registers(shape: tuple[int, ...]) -> int:
    """How many registers hold f32 values of a shape, the last two axes in sublanes and lanes."""
    *leading, rows, columns = (1, 1, *shape)
    return prod(leading) * -(-rows // SUBLANES) * -(-columns // LANES)


def dot(product: p.Product, run: int, rows: int, target: Target) -> float:
    """One iteration of a product's run: the tiles that arrived are pushed into the matrix units."""
    run_tiles = product.tiling.runs[run]
    weights = sum(run_tiles.rows) * ROW_BYTES
    return weights / TILE * target.compute.tile[product.tiling.bits].value + _many(rows, weights, target)


def _many(rows: int, weights: int, target: Target) -> float:
    """More than 16 rows stream through as well."""
    return max(0, rows - 16) / 128 * weights / TILE * target.compute.tile[16].value


def expert_dot(product: ExpertProduct, rows: int, target: Target) -> float:
    """One product of a routed expert; for codes of four bits each row of the operand is spread over eight."""
    weights = product.tiling.rows * ROW_BYTES
    bundles = (target.compute.block if product.codec.name == "fp8" else target.compute.tile[product.tiling.bits]).value
    if product.codec.name == "mxfp4":
        bundles += target.compute.code_row.value * (rows - 1)
    return weights / TILE * bundles + 60


def expert_sum(shape: tuple[int, ...]) -> float:
    """What an expert made is added to the others', by the rows' weights."""
    return 20 + 0.5 * registers(shape)


def chosen_dot(bank: p.ExpertPool, number: int, program: p.Program, target: Target) -> float:
    """The same as kernels do it: an expert that a single row chose is multiplied for that one alone."""
    product = bank.layout.products[number]
    rows = program.rows_at(bank.part)
    every = expert_dot(product, rows, target)
    if rows == 1 or program.instance.working == "f32" or product.codec.name != "mxfp4":
        return every
    share = chosen_once(program, bank)
    return BRANCH + share * expert_dot(product, 1, target) + (1 - share) * every


def compute(op: p.Compute | p.Put | p.Keep, rows: int, program: p.Program, layer: int | None) -> float:
    """A statement's expression, without the products that were taken out of it."""
    outputs = [program.buffers[name].shape for name in getattr(op, "outputs", ()) if name in program.buffers]
    stored = sum(registers(shape) for shape in outputs)
    return _STORE + stored + sum(_node(node, rows, program, layer) for node in walk(op.node))


def _node(node: m.Node, rows: int, program: p.Program, layer: int | None) -> float:
    if not isinstance(node, m.Call):
        return 0.0
    shape = program.shares.shape(node.type.shape)
    if node.op == "delta_rule":
        heads, width = shape[0], program.shares.shape(node.args[0].type.shape)[-1]
        return 150 + rows * heads * _HEAD_STEP * registers((width, shape[-1]))
    if node.op == "mix":
        return _mix(node, shape, rows, program, layer)
    row = registry.find(node.op)
    bundles = registry.Bundles() if row is None else row.bundles
    whole = (*((rows,) if len(shape) < 2 else (rows, *shape[:-1])), shape[-1]) if shape else (1, 1)
    return bundles.once + bundles.register * registers(whole)


def _mix(node: m.Call, shape: tuple[int, ...], rows: int, program: p.Program, layer: int | None) -> float:
    """Banks that are used are read twice; one row alone fills its registers."""
    banks, count = node.args[0], 0.0
    if isinstance(banks, m.Slice):
        count = program.instance.number(banks.stop, layer)
    elif isinstance(banks, m.StateRef):
        count = program.buffers[p.ModelBufferRef(banks.name)].shape[0]
    row = (-(-shape[-1] // LANES), LANES) if rows == 1 else (rows, *shape)
    return _MIXED * registers(row) + count * (_BANK + _BANK_REGISTER * registers(row))


def route(program: p.Program, bank: p.ExpertPool) -> float:
    """The choice of experts by ranks, and the list of this core's."""
    return _ROUTE + _ROUTE_ROW * program.rows_at(bank.part) + bank.count / 32


def attend_tile(op: p.Attend | p.AttendBlock, program: p.Program, target: Target) -> float:
    """One tile of a cache: scores, the running softmax, the values' sum. Latents are keys and values.

    Tokens of one sequence see it together; where positions are sharded, one after the other.
    """
    ring = program.caches[op.ring]
    shapes = [program.buffers[name].shape[1:] for name in ring.buffers]
    latent = len(op.queries) > 1
    numbers = sum(map(prod, shapes)) + (prod(shapes[0]) if latent else 0)
    once = target.compute.attend.value * numbers / _ATTENDED
    heads, kv = program.buffers[op.queries[0]].shape[1], shapes[0][0]
    phase = program.phase_of(ring.part)
    if not phase.consecutive:
        return once + (_more(heads) * _EIGHT_HEADS if latent else 0)
    if ring.axes:  # one token after the other
        return phase.rows * (once + _more(heads) * _EIGHT_HEADS)
    # The tokens' heads stand together as those of one row.
    each = _EIGHT_HEADS if latent else _EIGHT_HEADS * numbers / kv / _LATENTS
    return once + kv * _more(heads // kv * phase.rows) * each


def _more(heads: int) -> int:
    """Further eights of heads."""
    return -(-heads // SUBLANES) - 1


def attend_row(rows: int) -> float:
    """Each row's own entry, and its result."""
    return _ATTEND + _ATTEND_ROW * rows


def send(plan: CollectivePlan, number: int = 0) -> float:
    """What is sent is stored as it travels, and each message started."""
    stored = registers((plan.rows, plan.width)) * plan.kind.stored(plan)
    return 20 + stored + START * plan.rounds[number].peers


def between(plan: CollectivePlan) -> float:
    """Of a round that has come: its parts are added up or joined, and the next messages started."""
    return 30 + registers((plan.rows, plan.width)) * plan.kind.combined(plan)


def greedy(shape: tuple[int, ...]) -> float:
    """The largest of the logits, and its id."""
    return 150 + 1.5 * registers(shape)
