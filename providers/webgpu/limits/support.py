"""Decides whether a kernel can run on a GPU, and if not, why.

int64 and uint64 are computed in 32 bits: kernels that may need more are refused (int64_fits.py).
"""

from __future__ import annotations

import math

from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import Call, For, Kernel, Loops, Map, Reduce, Stmt, Tensor, When, While, root
from pyruntime.ir.statements import expressions_of

from ..adapter import Adapter
from ..printer.loops import GROUP
from ..printer.storage import element_bytes, is_pattern, storable
from ..schedules import workgroup_procedure, workgroup_rows
from ..schedules.vec4 import vectorized
from ..schedules.vec4_access import WIDTH
from ..schedules.workgroup_reduction import cooperates
from . import int64_fits
from .integer_ranges import ExpressionRanges, Range, Ranges, of_type


def reason(kernel: Kernel, adapter: Adapter, ranges: Ranges | None = None) -> str:
    """ "" if the kernel can run, else the reason as a sentence."""
    if not isinstance(kernel, (Map, Reduce, Loops, Call)):
        return f"{type(kernel).__name__} runs on the host"
    kernel = kernel.definition() if isinstance(kernel, Call) else kernel
    ranges = ranges or Ranges()
    tensors = [*kernel.outputs, *kernel.inputs, *(kernel.scratch if isinstance(kernel, Loops) else ())]
    if why := next(filter(None, (_tensor(t, adapter) for t in tensors)), ""):
        return why
    buffers = len({root(t).uid for t in tensors}) + _checks(kernel)
    if buffers > adapter.storage_buffers:
        return f"{buffers} tensors in one kernel, the GPU allows {adapter.storage_buffers}"
    count = _iterations(kernel, ranges, adapter) if adapter.iterations else 0.0
    if isinstance(kernel, Reduce) and cooperates(kernel, adapter):
        count /= GROUP
    if isinstance(kernel, Reduce) and count > adapter.iterations and vectorized(kernel, adapter) is not None:
        count /= WIDTH
    if count > adapter.iterations:
        return f"{count:.0f} loop iterations in one invocation, the GPU stops after {adapter.iterations}"
    seen: set[int] = set()
    for e in expressions_of(kernel):
        if why := next(filter(None, map(_node, walk(e, seen))), ""):
            return why
    return int64_fits.reason(kernel, ranges)


def _checks(kernel: Map | Reduce | Loops) -> bool:
    """Whether a kernel checks indices, so that it needs the fault record."""
    seen: set[int] = set()
    return any(x.op == "checked" for e in expressions_of(kernel) for x in walk(e, seen))


def _tensor(t: Tensor, adapter: Adapter) -> str:
    if not storable(t.dtype):
        return f"{t.dtype} cannot be stored on the GPU"
    size = sh.size(t.shape)
    if isinstance(size, int) and size * element_bytes(t.dtype) > adapter.binding_bytes:
        return f"a tensor of {size * element_bytes(t.dtype)} bytes, the GPU allows {adapter.binding_bytes}"
    return ""


def _iterations(kernel: Map | Reduce | Loops, ranges: Ranges, adapter: Adapter) -> float:
    """Loop iterations of one invocation, with an estimate for symbols; infinity if unknown."""
    if isinstance(kernel, Loops):
        body, bounds = kernel.body, ExpressionRanges(ranges, kernel, lambda d: Range(sh.estimate(d), sh.estimate(d)))
        if len(body) == 1 and isinstance(body[0], For) and body[0].kind == "parallel":
            int64_fits.learn(body[0], bounds)
            body = body[0].body
        if kernel.unit_is_row and workgroup_rows.cooperates(kernel, adapter):
            return _rounds(body, bounds, False) / GROUP
        return _rounds(body, bounds, workgroup_procedure.cooperates(kernel))
    total = 0.0
    for d in reversed(kernel.extents if isinstance(kernel, Reduce) else ()):
        total = sh.estimate(d) * (1 + total)
    return total


def _rounds(body: list[Stmt], bounds: ExpressionRanges, together: bool) -> float:
    total = 0.0
    for s in body:
        int64_fits.learn(s, bounds)
        found = workgroup_procedure.shares(s, set()) if together and isinstance(s, For) else []
        if isinstance(s, For):
            extents = [math.prod(_extent(x, bounds) for x in share.loops) for share in found]
            for share, count in zip(found, extents, strict=True):
                total += (count // GROUP + 1) * (1 + _rounds(share.body, bounds, False))
            if not found:
                total += _extent(s, bounds) * (1 + _rounds(s.body, bounds, together))
        elif isinstance(s, While):
            return math.inf
        elif isinstance(s, When):
            total += max(_rounds(s.then, bounds, together), _rounds(s.orelse, bounds, together))
    return total


def _extent(s: For, bounds: ExpressionRanges) -> float:
    """An upper bound of a loop's extent; the largest integer if there is none."""
    high = bounds.of(s.extent).high
    return math.inf if high >= of_type(I32).high else max(high, 0)


def _node(x: Expr) -> str:
    if x.dtype is None:
        return ""
    if x.dtype.is_float and x.dtype.size == 8:
        return "float64 arithmetic"
    if is_pattern(x.dtype) and x.op not in ("at", "bitcast", "const", "select", "guard", "var"):
        return f"{x.op} of {x.dtype}"
    return ""
