"""Products of few rows and a constant matrix, on GPUs: a workgroup computes one sum (workgroup_reduction.py).

A register tile gives each invocation some columns and the whole sum. For a token of a decoder that is too few
invocations to fill a GPU. If the number of rows is known at run time only, a Program has both kernels, and a run skips
one of them.
"""

from __future__ import annotations

from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import is_constant
from pyruntime.ir.expr import walk
from pyruntime.ir.kernel import Loops, Map, Reduce
from pyruntime.ir.shape import AnyDim

from ..adapter import Adapter
from .packed_steps import shared_by_steps
from .register_tile import Side, contraction
from .vec4_access import aligned

# Not measured on a GPU yet
FEW = 4  # rows
STEPS = 128  # of the sum, at least
COLUMNS = 1 << 16  # at most: a register tile of more fills a GPU, too


def has_few_rows(kernel: Map | Reduce | Loops, adapter: Adapter) -> AnyDim:
    """1 if this is such a product, 0 if not; else a dim that is 1 or 0 in a run. Neighbouring invocations must read
    neighbouring elements of the matrix, which therefore is contiguous along the sum."""
    if adapter.software or not isinstance(kernel, Reduce):
        return 0
    found = contraction(kernel, 1)
    if found is None:
        return 0
    nest, sides = found
    axis, groups = nest.inner[-1].axis, [*nest.outer, *nest.inner]

    def is_matrix(side: Side) -> bool:
        at = side.factor.args[0] if side.factor.op == "cast" else side.factor
        follows = (
            shared_by_steps(side.factor, axis) is not None or at.op == "at" and aligned(at, groups, axis, adapter.f16)
        )
        return follows and all(is_constant(t) for t in side.factor.tensors())

    matrix = next((s for s in sides if s.group is not None and is_matrix(s)), None)
    if matrix is None:
        return 0
    own = {x.value for x in walk(matrix.factor) if x.op == "index"}
    rows, columns = (sh.size([g.extent for g in nest.outer if (g.axis in own) == has]) for has in (False, True))
    if sh.estimate(sh.size(kernel.extents)) < STEPS or sh.estimate(columns) > COLUMNS:
        return 0
    return sh.compare("le", rows, FEW)
