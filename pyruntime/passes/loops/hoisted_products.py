"""Products leave loops: one product of all steps replaces a product in each step.

A product whose left operand depends on the number of the step alone, such as x[n] · W, is computed before the loop, for
all steps at once. The kernels that make its operand are recorded again with a leading axis for the step. The body
reads its slice. Products that steps only add up follow the loop (sunk_products.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from pyruntime.codegen.provider import Routine
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import cast, index
from pyruntime.ir.kernel import Block, Call, Kernel, Loop, Map, Reduce
from pyruntime.ir.rewriting import take_over
from pyruntime.passes.loops.lifted_kernels import Lifting
from pyruntime.passes.loops.sunk_products import sink_products


def hoist_products(block: Block, routines: Mapping[str, Routine], sums: bool) -> None:
    """Move products out of the loops of this block and its inner blocks. sums: also long sums that no routine claims,
    because a GPU computes all steps of these at once"""
    kernels: list[Kernel] = []
    for kernel in block.kernels:
        for inner in kernel.blocks:
            hoist_products(inner, routines, sums)
        after: list[Kernel] = []
        if isinstance(kernel, Loop) and kernel.is_counted and kernel.limit is not None and not kernel.enters:
            lifting = Lifting(kernel, routines)
            _hoist(lifting, sums)
            after = sink_products(lifting)
            kernels += lifting.before
        kernels += [kernel, *after]
    block.kernels = kernels


def _hoist(lifting: Lifting, sums: bool) -> None:
    body = lifting.loop.body
    for n, k in enumerate(body.kernels):
        if isinstance(k, Call) and lifting.moves(k) or sums and isinstance(k, Reduce) and lifting.is_long_sum(k):
            whole = lifting.lift(k.out)
            place = cast(lifting.number.at(), I32)
            view = Map(whole.at(place, *[index(a) for a in range(k.out.rank)]))
            take_over(view, k)
            body.kernels[n] = view
