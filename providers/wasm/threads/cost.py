"""An estimate of the cost of kernels, to decide which calls are worth a second thread."""

from __future__ import annotations

from pyruntime.codegen.operations import statements, weight
from pyruntime.codegen.step_ranges import as_work_units, steps_of
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Call, Kernel, Loops, Map, Reduce
from pyruntime.ir.shape import AnyDim

# Operations per nanosecond on Zen 5: in four lanes; scalar; multiply-adds of a register tile.
LANES, SCALAR, TILE = 4, 1, 20
SPLIT = 4000  # nanoseconds from which a second thread saves more than its two waits cost (0.3 us each)
WAKE = 50_000  # nanoseconds from which waking a sleeping thread pays
RANGE = 1 << 22  # operations of a range of steps, about a millisecond: runs can be stopped between ranges


def pays(kernel: Kernel, work: AnyDim, consecutive: AnyDim = 1) -> AnyDim:
    """Whether to share a call of the kernel with `work` units: 0 no, 1 with threads that are awake, 3 with all.
    consecutive: work units that one thread must run"""
    several = sh.compare("le", 2 * consecutive, work)
    try:
        operations, speed = amount(kernel)
    except sh.Undecided:  # more factors than a dim may have
        return sh.select(several, 3, 0)
    level = sh.compare("le", SPLIT * speed, operations) + 2 * sh.compare("le", WAKE * speed, operations)
    return sh.select(several, level, 0)


def in_ranges(kernel: Loops) -> tuple[Loops, AnyDim]:
    """A procedure with ranges of its steps as work units, and the number of ranges."""
    steps = steps_of(kernel)
    if steps is None:
        return kernel, 1
    try:
        length = sh.maximum(sh.floordiv(RANGE, sh.maximum(statements(steps.loop.body), 1)), 1)
        return as_work_units(kernel, length)
    except sh.Undecided:
        return as_work_units(kernel, 1)


def amount(kernel: Kernel) -> tuple[AnyDim, int]:
    """Return the number of operations, and the rate in operations per nanosecond."""
    meaning = kernel.meaning if isinstance(kernel, Call) else kernel
    if isinstance(meaning, Map):
        return sh.size(kernel.outputs[0].shape) * weight(meaning.expr), LANES
    if isinstance(meaning, Reduce):
        elements = sh.size((*kernel.outputs[0].shape, *meaning.extents))
        return (elements, TILE) if isinstance(kernel, Call) else (elements * weight(meaning.expr), LANES)
    return (statements(meaning.body), SCALAR) if isinstance(meaning, Loops) else (0, SCALAR)
