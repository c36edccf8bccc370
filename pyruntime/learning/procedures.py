"""The gradients of procedures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_

from pyruntime.ir.expr import Expr, guard
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.learning.derivative import contributions, zero_like
from pyruntime.learning.walk import Given, Walk


def scatter_add(
    walk: Walk, g: Tensor, value: Expr, coords: Sequence[Expr], extents: Sequence[AnyDim], inside: Sequence[Expr]
) -> Given:
    """A gather."""
    flow = g.at(*coords)
    if inside:
        flow = guard(reduce(and_, inside), flow, zero_like(flow))
    return walk.into_loads(contributions(value, flow, walk.is_active), extents)


RULES: dict[str, Callable[..., Given]] = {"scatter_add": scatter_add}
