"""What the TPU compiler's refusals mean."""

from __future__ import annotations

import re
from typing import Literal

import jax
from attrs import frozen

from ....dsl.diagnostics import Diagnostic, Label
from ....dsl.source import Span

Kind = Literal["vmem", "smem", "hbm", "unsupported op", "internal"]

_SCOPED = re.compile(r"Scoped allocation with size (\S+) and limit (\S+) exceeded scoped vmem limit")
_TOTAL = re.compile(r"Allocation \(size=(\d+)\) would exceed memory \(size=(\d+)\)(?:.*?space=(vmem|smem|hbm))?", re.S)
_USED = re.compile(r"Used (\S+) of (\S+) (vmem|smem|hbm)", re.I)
_HBM = re.compile(r"total memory required for [^(]*\((\S+?)\) exceeds available HBM \((\S+?)\)")
_PRIMITIVE = re.compile(r"Unimplemented primitive in Pallas TPU lowering[^:]*: (\w+)")
_ALIGNMENT = re.compile(r"cannot statically prove that index in dimension (\d+) is a multiple of (\d+)")
_LEGALIZE = re.compile(r"failed to legalize operation '([\w.]+)'")
# Sentences that say "not this operation on these types or shapes", in Mosaic's and Pallas's words.
_UNSUPPORTED = re.compile(
    r"not implemented|unimplemented|unsupported|not supported|E20\d\d|verification error|must be aligned|multiple of",
    re.I,
)
_CODES = {"vmem": "E503", "smem": "E503", "hbm": "E503", "unsupported op": "E504", "internal": "E505"}
_PREFIX = re.compile(r"^(?:INTERNAL: |RESOURCE_EXHAUSTED: )?(?:Mosaic failed to compile TPU kernel with .*?: )?")


@frozen
class Failure:
    """A refusal: `message` says what in one line, `note` is what the compiler said, without its advice."""

    kind: Kind
    message: str
    note: str


def explain_failure(exception: BaseException) -> Failure:
    """Sort what lowering or compiling a kernel raised; anything unknown is `internal`."""
    text = str(exception)
    shown = _message_of(exception, text)
    if match := _SCOPED.search(text):
        return _exceeded("vmem", match[1], match[2], match[0])
    if match := _HBM.search(text):
        return _exceeded("hbm", match[1], match[2], shown)
    if match := _TOTAL.search(text):
        return _exceeded(match[3] or "vmem", f"{int(match[1]):,} bytes", f"{int(match[2]):,} bytes", shown)
    if match := _USED.search(text):
        return _exceeded(match[3].lower(), match[1], match[2], shown)
    if match := _PRIMITIVE.search(text):
        return Failure("unsupported op", f"the TPU compiler has no `{match[1]}` inside kernels", shown)
    if match := _ALIGNMENT.search(text):
        what = f"an access whose index {match[1]} is not known to be a multiple of {match[2]}"
        return Failure("unsupported op", f"the TPU compiler refuses {what}", shown)
    if match := _LEGALIZE.search(text):
        return Failure("unsupported op", f"the TPU compiler cannot do `{match[1]}` on these types", shown)
    if isinstance(exception, NotImplementedError) or _UNSUPPORTED.search(shown):
        return Failure("unsupported op", "the TPU compiler cannot do an operation of this kernel", shown)
    compiling = isinstance(exception, jax.errors.JaxRuntimeError) or "Mosaic failed" in text
    return Failure("internal", f"{'the TPU compiler' if compiling else 'building the kernel'} failed", shown)


def diagnose(failure: Failure, at: Span | None = None, part: str = "") -> Diagnostic:
    """The refusal as a diagnostic at a place of the definition; says whose fault it is."""
    fault = {
        "unsupported op": "the definition may be right: this backend cannot do it on this target",
        "internal": "the definition may be right: this is a fault of mks or of the compiler",
    }.get(failure.kind, "the checker accepted it: the bill of mks is too low, please report it")
    where = f", in `{part}`" if part else ""
    return Diagnostic(
        _CODES[failure.kind],
        failure.message + where,
        None if at is None else Label(at),
        notes=(f"the compiler: {failure.note}", fault),
        helps=("`--debug` shows where",),
    )


def _exceeded(space: str, needed: str, limit: str, message: str) -> Failure:
    kinds: dict[str, Kind] = {"vmem": "vmem", "smem": "smem", "hbm": "hbm"}
    return Failure(kinds[space], f"the program needs {needed} of {space.upper()}, {limit} is the limit", message)


def _message_of(exception: BaseException, text: str) -> str:
    """The first line that tells something, without a request to file an issue elsewhere."""
    lines = (_PREFIX.sub("", line.strip()).partition(" Please file an issue")[0] for line in text.splitlines())
    kept_lines = [line for line in lines if line and not line.endswith("Oom:")]
    return kept_lines[0][:300] if kept_lines else type(exception).__name__
