"""Estimates the work of kernels."""

from __future__ import annotations

from pyruntime.ir import shape as sh
from pyruntime.ir.expr import walk
from pyruntime.ir.kernel import Alias, Block, Call, Kernel, Map, Reduce


def operations(kernel: Kernel) -> float:
    """A rough count of a kernel's operations."""
    if isinstance(kernel, Call) and isinstance(kernel.meaning, Block):
        return sum(operations(k) for k in kernel.meaning.kernels if not isinstance(k, Alias))
    kernel = kernel.definition() if isinstance(kernel, Call) else kernel
    elements = sum(sh.estimate(sh.size(t.shape)) for t in kernel.outputs)
    if isinstance(kernel, Map):
        return elements * (1 + len(walk(kernel.expr)))
    if isinstance(kernel, Reduce):
        return elements * max(sh.estimate(sh.size(kernel.extents)), 1) * 2
    return 4.0 * (elements + sum(sh.estimate(sh.size(t.shape)) for t in kernel.inputs))
