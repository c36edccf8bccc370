"""Decides whether a kernel can run on a GPU, and if not, why.

int64 and uint64 are computed in 32 bits: kernels that may need more are refused (int64_fits.py).
"""

from __future__ import annotations

from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import Call, Kernel, Loops, Map, Reduce, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ir.statements import expressions_of

from ..adapter import Adapter
from ..printer.storage import element_bytes, is_pattern, storable
from ..schedules.vec4 import vectorized
from ..schedules.vec4_access import WIDTH
from . import int64_fits, iterations
from .integer_ranges import Ranges
from .iterations import main_part, parts


def reason(kernel: Kernel, adapter: Adapter, ranges: Ranges | None = None) -> str:
    """ "" if the kernel can run, else the reason as a sentence."""
    if not isinstance(kernel, (Map, Reduce, Loops, Call)):
        return f"{type(kernel).__name__} runs on the host"
    definition = kernel.definition() if isinstance(kernel, Call) else kernel
    assert isinstance(definition, (Map, Reduce, Loops))
    return next(filter(None, (_part(part, adapter, ranges or Ranges()) for part in parts(definition, adapter))), "")


def _part(kernel: Kernel, adapter: Adapter, ranges: Ranges) -> str:
    assert isinstance(kernel, (Map, Reduce, Loops))
    tensors = [*kernel.outputs, *kernel.inputs, *(kernel.scratch if isinstance(kernel, Loops) else ())]
    if why := next(filter(None, (_tensor(t, adapter) for t in tensors)), ""):
        return why
    buffers = iterations.buffers(kernel)
    if buffers > adapter.storage_buffers:
        return f"{buffers} tensors in one kernel, the GPU allows {adapter.storage_buffers}"
    if adapter.iterations and (why := _loops(kernel, adapter, ranges)):
        return why
    seen: set[int] = set()
    for e in expressions_of(kernel):
        if why := next(filter(None, map(_node, walk(e, seen))), ""):
            return why
    return int64_fits.reason(kernel, ranges)


def _loops(kernel: Map | Reduce | Loops, adapter: Adapter, ranges: Ranges) -> str:
    count = iterations.estimated(kernel, ranges, adapter)
    if isinstance(kernel, Reduce) and count > adapter.iterations and vectorized(kernel, adapter) is not None:
        count /= WIDTH
    if count > adapter.iterations:
        return f"{count:.0f} loop iterations in one invocation, the GPU stops after {adapter.iterations}"
    if iterations.at_most(kernel, adapter) is None:
        return f"an unknown number of loop iterations in one invocation, the GPU stops after {adapter.iterations}"
    return ""


def conditions(kernel: Kernel, adapter: Adapter) -> list[tuple[AnyDim, str]]:
    """What dims must fulfil in a run of a kernel, as dims that must not be 0, each with a message."""
    kernel = main_part(kernel.definition() if isinstance(kernel, Call) else kernel, adapter)
    if not adapter.iterations or not isinstance(kernel, (Map, Reduce, Loops)):
        return []
    count = iterations.at_most(kernel, adapter)
    fits = 0 if count is None else sh.compare("le", count, adapter.iterations)
    static = isinstance(count, int)  # `reason` has decided
    text = f"over {adapter.iterations} loop iterations in one invocation, at which this GPU stops; use WebAssembly"
    return [] if static or fits == 1 else [(fits, text)]


def _tensor(t: Tensor, adapter: Adapter) -> str:
    if not storable(t.dtype):
        return f"{t.dtype} cannot be stored on the GPU"
    size = sh.size(t.shape)
    if isinstance(size, int) and size * element_bytes(t.dtype) > adapter.binding_bytes:
        return f"a tensor of {size * element_bytes(t.dtype)} bytes, the GPU allows {adapter.binding_bytes}"
    return ""


def _node(x: Expr) -> str:
    if x.dtype is None:
        return ""
    if x.dtype.is_float and x.dtype.size == 8:
        return "float64 arithmetic"
    if is_pattern(x.dtype) and x.op not in ("at", "bitcast", "const", "select", "guard", "var"):
        return f"{x.op} of {x.dtype}"
    return ""
