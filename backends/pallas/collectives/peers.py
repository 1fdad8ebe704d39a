"""The cores that a kernel talks to: ranks, remote copies and the barrier that comes before the first of them."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from attrs import frozen
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

type Ref = Any  # a reference to VMEM or semaphores, inside a kernel
type Scalar = int | jax.Array

SEND, RECEIVE = 0, 1


@frozen
class Cores:
    """Those along `axes` of a mesh of `(name, size)` axes, ranked with the last axis fastest.

    Raises:
        ValueError: `axes` are not axes of the mesh in the mesh's order.
    """

    mesh: tuple[tuple[str, int], ...]
    axes: tuple[str, ...]

    def __attrs_post_init__(self) -> None:
        if self.axes != tuple(name for name, _ in self.mesh if name in self.axes) or not self.axes:
            raise ValueError(f"{self.axes} are no axes of the mesh {self.mesh}, in its order")

    @property
    def count(self) -> int:
        """How many there are."""
        return prod(size for name, size in self.mesh if name in self.axes)

    @property
    def paired(self) -> bool:
        """Whether `rank ^ 1` is the neighbour in the mesh: on a chip of two cores, the other one."""
        name, size = next((axis for axis in reversed(self.mesh) if axis[1] > 1), self.mesh[-1])
        return self.axes[-1] == name and size % 2 == 0

    def rank(self) -> jax.Array:
        """This core's, an int32 scalar."""
        return jnp.int32(lax.axis_index(self.axes))

    def address(self, rank: Scalar) -> dict[tuple[str, ...], Scalar]:
        """The device of a rank; its place on the other axes is this core's."""
        return {self.axes: rank}

    def peers(self, rank: jax.Array) -> list[jax.Array]:
        """All ranks but one's own, the farthest first, each core in another order so that no link is crowded."""
        return others(rank, self.count)


def others(rank: jax.Array, count: int) -> list[jax.Array]:
    """The ranks below `count` that are not `rank`; the neighbour comes last."""
    if count & (count - 1) == 0:
        return [rank ^ step for step in range(count - 1, 0, -1)]
    ahead = (rank + step for step in range(count - 1, 0, -1))
    return [jnp.where(peer >= count, peer - count, peer) for peer in ahead]


def send(source: Ref, target: Ref, semaphores: Ref, parity: Scalar, address: dict[tuple[str, ...], Scalar]) -> None:
    """Start the copy of a whole `source` here to `target` there; `semaphores` are one round's, `[2, 2]`."""
    pltpu.make_async_remote_copy(
        source, target, semaphores.at[SEND, parity], semaphores.at[RECEIVE, parity], address
    ).start()


def wait(like: Ref, semaphores: Ref, parity: Scalar, direction: int) -> None:
    """Wait for as many bytes as `like` has; nothing is copied.

    Semaphores of transfers count bytes, so that one wait serves all messages of a round.
    """
    pltpu.make_async_copy(like, like, semaphores.at[direction, parity]).wait()


def barrier(cores: Cores) -> None:
    """Wait until all cores have entered the kernel; only then may anything be sent to them.

    A core's VMEM is another program's until it has entered. The semaphore outlives the kernel, so a core must not
    enter the next one while another still waits here: the last collective of a kernel with a barrier is over all cores
    of the barrier.
    """
    if cores.count == 1:
        return
    semaphore = pltpu.get_barrier_semaphore()
    _signal(semaphore, (cores.address(peer) for peer in cores.peers(cores.rank())))
    pl.semaphore_wait(semaphore, cores.count - 1)


def _signal(semaphore: Ref, addresses: Iterable[dict[tuple[str, ...], Scalar]]) -> None:
    for address in addresses:
        pl.semaphore_signal(semaphore, 1, device_id=address)


def collective_id(cores: Cores, kernel: int) -> int | None:
    """For the compiler's parameters: one number for each kernel of a program, and none where there is no barrier."""
    return kernel if cores.count > 1 else None
