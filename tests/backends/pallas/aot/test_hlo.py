"""Reading compiled programs."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec

from mks.backends.pallas.aot.compiler import compile_ahead
from mks.backends.pallas.aot.hlo import copies_at_least, kernels, moves

pytest.importorskip("libtpu")
from helpers.ahead import HBM, VMEM, compile_local, described, fetch, local, pinned, shaped

CACHE = jax.ShapeDtypeStruct((4096, 1024), jnp.float32)
WEIGHT = (1024, 2048)
SEMAPHORE = pltpu.SemaphoreType.DMA


def patch(cache):
    """Update eight rows of a cache in place."""

    def kernel(_, out, rows, semaphore):
        fetch(out.at[pl.ds(0, 8)], rows, semaphore)
        rows[...] += 1
        fetch(rows, out.at[pl.ds(0, 8)], semaphore)

    scratch = [pltpu.VMEM((8, 1024), jnp.float32), SEMAPHORE]
    return local(kernel, CACHE, pinned(cache), specs=[HBM], out_spec=HBM, scratch=scratch, input_output_aliases={0: 0})


def product(x, weight, pin=True):
    """A product with a weight that the kernel fetches itself."""

    def kernel(x, weight, out, held, semaphore):
        fetch(weight, held, semaphore)
        out[...] = jnp.dot(x[...], held[...], preferred_element_type=jnp.float32)

    scratch = [pltpu.VMEM(WEIGHT, jnp.bfloat16), SEMAPHORE]
    out = jax.ShapeDtypeStruct((8, WEIGHT[1]), jnp.float32)
    return local(kernel, out, x, pinned(weight) if pin else weight, specs=[VMEM, HBM], scratch=scratch)


def compiled_product(function, shape=WEIGHT, dtype=jnp.bfloat16):
    """The text of a product with a weight of some shape."""
    return compile_local(function, shaped((8, 1024), jnp.bfloat16), shaped(shape, dtype)).hlo


def test_donation():
    """A donated cache is updated in place; without donation the whole of it is copied."""
    assert copies_at_least(compile_local(patch, shaped(CACHE.shape), donate=(0,)).hlo, 1 << 20) == []
    [copy] = copies_at_least(compile_local(patch, shaped(CACHE.shape)).hlo, 1 << 20)
    assert (copy.opcode, copy.array.shape, copy.nbytes) == ("copy", CACHE.shape, 16 << 20)
    assert str(copy).startswith("copy of f32[4096,1024], 16777216 bytes, in main")


def test_reading_the_old_value_copies():
    """A cache that is updated twice from its old value is copied once, though it was donated."""
    text = compile_local(lambda cache: (patch(cache), patch(cache)), shaped(CACHE.shape), donate=(0,)).hlo
    assert [copy.nbytes for copy in copies_at_least(text, 1 << 20)] == [16 << 20]


@pytest.mark.parametrize(
    ("function", "shape", "dtype", "opcode"),
    [
        (product, WEIGHT, jnp.bfloat16, None),
        (lambda x, w: product(x, w.T), WEIGHT[::-1], jnp.bfloat16, "copy"),
        (lambda x, w: product(x, w.reshape(WEIGHT)), (1024, 16, 128), jnp.bfloat16, "copy"),
        (lambda x, w: product(x, w.astype(jnp.bfloat16)), WEIGHT, jnp.float32, "convert"),
        (lambda x, w: product(x, w, pin=False), WEIGHT, jnp.bfloat16, "copy-start"),
    ],
    ids=["as it is", "transposed", "another layout", "another type", "not pinned"],
)
def test_weights(function, shape, dtype, opcode):
    """A weight that the kernel does not take as it is, or that XLA may move, is found; small operands are not."""
    text = compiled_product(function, shape, dtype)

    found = copies_at_least(text, 1 << 20)
    assert [move.opcode for move in found] == ([opcode] if opcode else [])
    assert [(move.operand, move.whole.shape) for move in found if move.whole] == [("given[1]", shape)] * len(found)
    assert any(move.nbytes == 8 * 1024 * 2 for move in moves(text))


def test_inside_fusions():
    """Moves inside fused computations count too."""

    def function(x, weight):
        return product(x, jnp.concatenate([weight[512:] * 2, weight[:512] + 1]))

    text = compiled_product(function)
    found = copies_at_least(text, 1 << 20)
    assert found
    assert any("main" not in move.computation for move in found)


TRACED = """
%fused (param.0: f32[8,128]) -> f32[8,128] {
  %param.0 = f32[8,128]{1,0} parameter(0)
  ROOT %turned = f32[8,128]{1,0} copy(%param.0)
}

ENTRY %main (a: f32[8,128], b: f32[8,128]) -> f32[8,128] {
  %a = f32[8,128]{1,0} parameter(0), metadata={op_name="values[3][\\'a\\']"}
  %b = f32[8,128]{1,0} parameter(1), metadata={op_name="values[3][\\'b\\']"}
  %view = f32[1,8,128]{2,1,0} bitcast(%a)
  %moved = f32[1,8,128]{2,1,0} copy(%view)
  %call = (f32[8,128]{1,0}, f32[8,128]{1,0}) custom-call(%a, %b), custom_call_target="x", output_to_operand_aliasing={{1}: (1, {})}
  %fresh = f32[8,128]{1,0} get-tuple-element(%call), index=0
  %same = f32[8,128]{1,0} get-tuple-element(%call), index=1
  %out = f32[8,128]{1,0} copy(%fresh)
  %home = f32[8,128]{1,0} fusion(%same), kind=kLoop, calls=%fused
  ROOT %sum = f32[8,128]{1,0} add(%out, %home)
}
"""  # noqa: E501


def test_whose_buffer_is_moved():
    """An operand's, through views, calls that write in place, and fusions; a call's own result is no operand's."""
    found = {move.name: move.operand for move in moves(TRACED)}
    assert found == {"turned": r"values[3][\'b\']", "moved": r"values[3][\'a\']", "out": ""}


def test_kernels():
    """What a kernel used of VMEM is the compiler's figure: two buffers, one of them padded."""

    def kernel(x, out, a, b, semaphore):
        fetch(x.at[pl.ds(0, 9)], a, semaphore)
        fetch(x.at[pl.ds(9, 8)], b, semaphore)
        out[...] = a[pl.ds(1, 8), :] + b[...]

    scratch = [pltpu.VMEM((9, 128), jnp.float32), pltpu.VMEM((8, 128), jnp.float32), SEMAPHORE]
    out = jax.ShapeDtypeStruct((8, 128), jnp.float32)
    text = compile_local(
        lambda x: local(kernel, out, pinned(x), specs=[HBM], scratch=scratch), shaped((100_000, 128))
    ).hlo

    [found] = kernels(text)
    assert found.vmem >= 8192 + 4096
    assert found.vmem <= 8192 + 4096 + 4096  # the result may be in VMEM too
    assert not found.communicates
    assert [(array.dtype, array.shape, array.space) for array in found.operands] == [("f32", (100_000, 128), 0)]


def test_promotions():
    """An operand that XLA moved into VMEM is seen at the kernel."""
    [kept] = kernels(compiled_product(product))
    [moved] = kernels(compiled_product(lambda x, w: product(x, w, pin=False)))

    assert [array.shape for array in kept.promoted] == [(8, 1024)]
    assert [array.shape for array in moved.promoted] == [(8, 1024), WEIGHT]


def test_communicating_kernels_copy_what_they_alias():
    """On several devices an aliased operand of a kernel with remote copies is copied; one that it only reads is not."""
    machine = described("tpu7x", (1, 1, 1))
    axes, split = {"x": 2}, PartitionSpec("x")
    state = shaped((2 * 4096, 1024), on=machine.mesh(axes), spec=split)

    def kernel(held, *refs):
        out, got, rows, semaphore, sent, received = refs[-6:]
        other = 1 - jax.lax.axis_index("x")
        fetch(held.at[pl.ds(0, 8)], rows, semaphore)
        copy = pltpu.make_async_remote_copy(rows, got, sent, received, device_id=(other,))
        copy.start()
        copy.wait()
        fetch(got, out.at[pl.ds(0, 8)], semaphore)

    def build(aliased):
        def inner(held):
            rows = pltpu.VMEM((8, 1024), jnp.float32)
            out = CACHE if aliased else jax.ShapeDtypeStruct((8, 1024), jnp.float32)
            new = local(
                kernel,
                out,
                pinned(held),
                specs=[HBM],
                out_spec=HBM,
                scratch=[rows, rows, SEMAPHORE, SEMAPHORE, SEMAPHORE],
                input_output_aliases={0: 0} if aliased else {},
            )
            return new if aliased else (held, new)

        out_specs = split if aliased else (split, split)
        return lambda held: jax.shard_map(inner, in_specs=split, out_specs=out_specs, check_vma=False)(held)

    aliased = compile_ahead(build(True), [state], machine, axes, donate=(0,)).hlo
    reading = compile_ahead(build(False), [state], machine, axes, donate=(0,)).hlo

    assert [found.communicates for found in kernels(aliased) + kernels(reading)] == [True, True]
    assert [copy.nbytes for copy in copies_at_least(aliased, 1 << 20)] == [16 << 20, 16 << 20]
    assert copies_at_least(reading, 1 << 20) == []
