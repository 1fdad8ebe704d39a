"""Faults that kernels once had, made again in a process of their own: the tests of values must see each."""

from __future__ import annotations

from collections.abc import Callable


def share_alone() -> None:
    """A norm or softmax over an axis of which each core has a share is of the share alone."""
    from mks.dsl.program.lower import body

    body.whole_along = lambda call, frame: call


def first_layer() -> None:
    """Of options that depend on the layer, the first one's are taken for all."""
    from mks.dsl.program.lower import options

    every = options.options_by_layer
    options.options_by_layer = lambda call, frame: every(call, frame)[:1]


def ranks_of_all() -> None:
    """What is shared out over some axes of a mesh is ranked by all of them."""
    from mks.backends.pallas.emit.context import Core

    Core.rank = lambda self, axes: self.cores.rank() if axes else 0  # type: ignore[method-assign]


def positive_weights() -> None:
    """A row that chose an expert by a negative weight did not choose it."""
    from mks.backends.pallas.emit import moe as routing

    routing.chose = lambda weight: weight > 0


def partial_experts() -> None:
    """What an experts' body makes of a product is made of each core's share of its sum."""
    from mks.dsl.program.lower import moe as experts
    from mks.dsl.program.lower.sharded_value import whole

    experts.partial_product = lambda build, weight, local: whole(local)


def any_entry() -> None:
    """A table is read at whatever index there is."""
    from mks.backends.pallas.emit import transfers

    transfers.nearest = lambda index, count: index


FAULTS: dict[str, Callable[[], None]] = {
    made.__name__: made
    for made in (share_alone, first_layer, ranks_of_all, positive_weights, partial_experts, any_entry)
}
