"""Reading compiled HLO: what a kernel used of VMEM, and what XLA copies round it."""

from __future__ import annotations

import re
from math import prod

from attrs import frozen

# What moves or rewrites a whole array. Views (`bitcast`, `get-tuple-element`) and updates in place are none of these.
MOVES = frozenset(
    "copy copy-start slice-start dynamic-slice-start transpose reshape reverse convert concatenate pad".split()
)

_INSTRUCTION = re.compile(r"^[ \t]*(?:ROOT )?%(\S+) = ", re.MULTILINE)
_COMPUTATION = re.compile(r"^(ENTRY )?%(\S+) \(.*\{$", re.MULTILINE)
_OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(")
_ARRAY = re.compile(r"\b([a-z][a-z0-9]*)\[([\d,]*)\](?:\{([^}]*)\})?")
_SPACE = re.compile(r"S\((\d+)\)")
_OPERAND = re.compile(r"%([^\s,()]+)")
_USED = re.compile(r'"used_scoped_memory_configs":\[([^\]]*)\]')
_VMEM = re.compile(r'"memory_space":"1","offset":"\d+","size":"(\d+)"')
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_PARAMETER = re.compile(r"parameter\((\d+)\)")
_INDEX = re.compile(r"\bindex=(\d+)")
_CALLED = re.compile(r"\b(?:calls|to_apply)=%([^\s,()]+)")
_ALIASED = re.compile(r"\{([\d, ]*)\}: \((\d+), \{")

# What is its first operand's buffer, or the same numbers elsewhere.
_SAME = MOVES - {"concatenate"} | frozenset(
    "bitcast copy-done slice-done dynamic-slice-done dynamic-update-slice optimization-barrier while".split()
)


@frozen
class Array:
    """A type in HLO. `space` 0 is HBM, 1 is VMEM; `nbytes` is without padding."""

    dtype: str
    shape: tuple[int, ...]
    space: int

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return -(-prod(self.shape) * _bits(self.dtype) // 8)


@frozen
class Instruction:
    """One instruction: `results` are the arrays of its type, in order; `source` is JAX's name of the operation.

    `root` is whether it is what its computation gives, `entry` whether that is where the program begins.
    """

    name: str
    opcode: str
    computation: str
    root: bool
    entry: bool
    results: tuple[Array, ...]
    operands: tuple[str, ...]
    source: str
    text: str


@frozen
class Move:
    """An array that XLA moves or rewrites, and where in the program.

    `operand` is JAX's name of the program's operand whose buffer it is, and `whole` that buffer as it was given.
    """

    opcode: str
    array: Array
    computation: str
    name: str
    source: str
    operand: str = ""
    whole: Array | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that are written."""
        return self.array.nbytes

    def __str__(self) -> str:
        where = " into VMEM" if self.array.space == 1 else ""
        shape = ",".join(map(str, self.array.shape))
        return f"{self.opcode} of {self.array.dtype}[{shape}]{where}, {self.nbytes} bytes, in {self.computation}"


@frozen
class Kernel:
    """A Mosaic kernel's call. `vmem` is what the compiler used of VMEM for it, in bytes; `operands` as it gets them."""

    name: str
    vmem: int
    communicates: bool
    operands: tuple[Array, ...]
    source: str

    @property
    def promoted(self) -> tuple[Array, ...]:
        """Operands that XLA placed in VMEM before the call."""
        return tuple(array for array in self.operands if array.space == 1)


def instructions(text: str) -> tuple[Instruction, ...]:
    """All instructions of all computations, also those inside fusions and asynchronous calls."""
    heads = [(m.start(), m[2], m[1] is not None) for m in _COMPUTATION.finditer(text)]
    starts = [*_INSTRUCTION.finditer(text)]
    ends = [m.start() for m in starts[1:]] + [len(text)]
    result, at, computation, entry = [], 0, "", False
    for match, end in zip(starts, ends, strict=True):
        while at < len(heads) and heads[at][0] < match.start():
            _, computation, entry = heads[at]
            at += 1
        body = text[match.end() : end]
        opcode = _OPCODE.search(" " + body)
        if opcode is None:
            continue
        types, rest = body[: opcode.start()], body[opcode.end() - 1 :]
        source = _OP_NAME.search(rest)
        result.append(
            Instruction(
                match[1],
                opcode[1],
                computation,
                "ROOT " in match[0],
                entry,
                _arrays(types),
                tuple(_OPERAND.findall(rest.partition(")")[0])),
                source[1] if source else "",
                body,
            )
        )
    return tuple(result)


def moves(text: str) -> tuple[Move, ...]:
    """Everything that is copied, transposed, converted or otherwise written anew as a whole, outside kernels."""
    listed = instructions(text)
    buffers, moved = _Buffers(listed), []
    for each in listed:
        if each.opcode in MOVES and each.results:
            origin = buffers.origin(each.computation, each.operands[0]) if each.operands else None
            name, whole = (origin.source, origin.results[0]) if origin is not None else ("", None)
            moved.append(Move(each.opcode, each.results[0], each.computation, each.name, each.source, name, whole))
    return tuple(moved)


class _Buffers:
    """Which operand of the program a value is, moved or not, updated or not."""

    def __init__(self, listed: tuple[Instruction, ...]) -> None:
        self._defined = {(each.computation, each.name): each for each in listed}
        self._roots = {each.computation: each for each in listed if each.root}
        self._callers = {called: each for each in listed for called in _CALLED.findall(each.text)}

    def origin(self, computation: str, name: str, part: int | None = None) -> Instruction | None:
        """The parameter, or `None` where the numbers are others; `part` of a tuple."""
        each = self._defined.get((computation, name))
        if each is None:
            return None
        if each.opcode == "parameter":
            return each if each.entry else self._given(each, part)
        if each.opcode == "get-tuple-element":
            index = _INDEX.search(each.text)
            return self.origin(computation, each.operands[0], int(index[1]) if index else None)
        if each.opcode == "tuple" and part is not None:
            return self.origin(computation, each.operands[part])
        if each.opcode in ("fusion", "call"):
            called = _CALLED.search(each.text)
            root = self._roots.get(called[1]) if called else None
            return self.origin(root.computation, root.name, part) if root is not None else None
        if each.opcode == "custom-call":
            aliased = {out: int(operand) for out, operand in _ALIASED.findall(each.text)}
            operand = aliased.get("" if part is None else str(part))
            return self.origin(computation, each.operands[operand]) if operand is not None else None
        if each.opcode in _SAME and each.operands:
            return self.origin(computation, each.operands[0], part if each.opcode == "while" else None)
        return None

    def _given(self, parameter: Instruction, part: int | None) -> Instruction | None:
        """What a fused or called computation is given."""
        caller, number = self._callers.get(parameter.computation), _PARAMETER.search(parameter.text)
        if caller is None or number is None or int(number[1]) >= len(caller.operands):
            return None
        return self.origin(caller.computation, caller.operands[int(number[1])], part)


def copies_at_least(text: str, nbytes: int) -> list[Move]:
    """The moves of arrays of `nbytes` bytes or more, largest first: for a step none as large as a weight or a cache."""
    return sorted((move for move in moves(text) if move.nbytes >= nbytes), key=lambda move: -move.nbytes)


def kernels(text: str) -> tuple[Kernel, ...]:
    """The calls of Mosaic kernels, in the order of the text."""
    listed = instructions(text)
    defined = {(each.computation, each.name): each for each in listed}
    calls = []
    for each in listed:
        if each.opcode == "custom-call" and 'custom_call_target="tpu_custom_call"' in each.text:
            sources = (defined.get((each.computation, name)) for name in each.operands)
            operands = tuple(source.results[0] for source in sources if source is not None and source.results)
            used = _USED.search(each.text)
            vmem = sum(map(int, _VMEM.findall(used[1]))) if used else 0
            communicates = '"has_communication":true' in each.text
            calls.append(Kernel(each.name, vmem, communicates, operands, each.source))
    return tuple(calls)


def _arrays(types: str) -> tuple[Array, ...]:
    arrays = []
    for dtype, shape, layout in _ARRAY.findall(types):
        space = _SPACE.search(layout)
        arrays.append(Array(dtype, tuple(int(n) for n in shape.split(",") if n), int(space[1]) if space else 0))
    return tuple(arrays)


def _bits(dtype: str) -> int:
    width = re.search(r"\d+", dtype)
    return int(width[0]) if width else 8  # `pred` and `token` name no width
