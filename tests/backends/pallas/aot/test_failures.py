"""The compiler's refusals in plain words, from kernels that it refuses."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from mks.backends.pallas.aot.failures import Failure, diagnose, explain_failure
from mks.dsl.codes import pages
from mks.dsl.source import Source, Span

pytest.importorskip("libtpu")
from helpers.ahead import HBM, SMEM, VMEM, compile_local, fetch, local, pinned, shaped

OUT = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def refused(kernel, *arguments, **options):
    """What the compiler's refusal of a kernel means."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        compile_local(lambda *given: local(kernel, OUT, *given, **options), *arguments)
    return explain_failure(caught.value)


def ends(x, out, held, semaphore):
    """Fetch a whole array and use both ends."""
    fetch(x, held, semaphore)
    out[...] = held[pl.ds(0, 8), :] + held[pl.ds(held.shape[0] - 8, 8), :]


@pytest.mark.parametrize(
    ("rows", "limit", "needed", "allowed"),
    [
        (80 << 10, None, "40.00M", "32.00M"),
        (80 << 10, 36 << 20, "40.00M", "36.00M"),
        (400 << 10, 60 << 20, "209,715,200 bytes", "67,108,864 bytes"),
    ],
)
def test_too_much_vmem(rows, limit, needed, allowed):
    """Above the limit of a kernel, or above the core's memory: the figures are those of the compiler."""

    def pinning(x):
        return local(
            ends,
            OUT,
            pinned(x),
            specs=[HBM],
            limit=limit,
            scratch=[pltpu.VMEM((rows, 128), jnp.float32), pltpu.SemaphoreType.DMA],
        )

    with pytest.raises(Exception) as caught:  # noqa: PT011
        compile_local(pinning, shaped((rows, 128)))
    failure = explain_failure(caught.value)

    assert failure.kind == "vmem"
    assert failure.message == f"the program needs {needed} of VMEM, {allowed} is the limit"


def test_too_much_smem():
    """Scalar memory is another one."""

    def kernel(x, out, held):
        held[0] = 1
        out[...] = x[...] + held[0]

    failure = refused(kernel, shaped((8, 128)), scratch=[pltpu.SMEM((1 << 20,), jnp.int32)])
    assert failure.kind == "smem"
    assert "4,194,304 bytes of SMEM" in failure.message


def test_too_much_hbm():
    """Arguments that a core cannot hold."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        compile_local(lambda x: jnp.sort(x.T) @ x, shaped((100_000, 100_000)))
    failure = explain_failure(caught.value)

    assert failure.kind == "hbm"
    assert "94.74G is the limit" in failure.message


def test_unaligned_store():
    """A store to lanes at a position that is not known to be a multiple of 128."""

    def kernel(at, x, out, held):
        held[:, pl.ds(at[0], 128)] = x[...]
        out[...] = held[:, :128]

    failure = refused(
        kernel,
        shaped((8,), jnp.int32),
        shaped((8, 128)),
        specs=[SMEM, VMEM],
        scratch=[pltpu.VMEM((8, 512), jnp.float32)],
    )
    assert failure.kind == "unsupported op"
    assert failure.message.endswith("whose index 1 is not known to be a multiple of 128")
    assert failure.note.startswith("E2003")


def test_missing_operation():
    """An operation that kernels do not have, by its name; nobody is sent to another project."""

    def kernel(x, out):
        out[...] = jnp.cumsum(x[...], -1)

    failure = refused(kernel, shaped((8, 128)))
    assert failure.kind == "unsupported op"
    assert "`cumsum`" in failure.message
    assert "issue" not in failure.note


def test_refused_types():
    """An operation that exists, on types for which it does not."""

    def kernel(count, x, out):
        mask = jax.lax.fori_loop(0, count[0], lambda _, mask: mask & (x[...] > 0), x[...] > 1)
        out[...] = mask.astype(jnp.float32)

    failure = refused(kernel, shaped((8,), jnp.int32), shaped((8, 128)), specs=[SMEM, VMEM])
    assert failure.kind == "unsupported op"
    assert "`scf.for`" in failure.message


def test_our_own_mistakes():
    """A mistake in a kernel of ours, and whatever is not known, is internal."""

    def kernel(x, out):
        out[...] = x[...] @ x[...]

    failure = refused(kernel, shaped((8, 128)))
    assert failure.kind == "internal"
    assert failure.message == "building the kernel failed"
    assert "contracting" in failure.note
    unknown = explain_failure(jax.errors.JaxRuntimeError("INTERNAL: something\nat somewhere"))
    assert unknown == Failure("internal", "the TPU compiler failed", "something")
    assert explain_failure(KeyError()) == Failure("internal", "building the kernel failed", "KeyError")


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("vmem", "E503"),
        ("smem", "E503"),
        ("hbm", "E503"),
        ("unsupported op", "E504"),
        ("internal", "E505"),
    ],
)
def test_diagnostics(kind, code):
    """A refusal becomes a diagnostic at a place, which says whose fault it is and has a page."""
    span = Span(Source("model.mks", "x = sort(x)\n"), 4, 8)
    found = diagnose(Failure(kind, "no", "the compiler's words"), span, "attention")

    assert found.code == code
    assert found.code in pages()
    assert found.message == "no, in `attention`"
    assert found.primary is not None
    assert found.primary.span == span
    assert found.notes[0] == "the compiler: the compiler's words"
    assert ("bill" in found.notes[1]) == (code == "E503")
