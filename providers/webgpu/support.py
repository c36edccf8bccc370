"""Whether a kernel can run on a GPU, and if not, why not.

int64 and uint64 are computed in 32 bits: what may need more is refused (wide.py).
"""

from __future__ import annotations

import math

from pyruntime import shape as sh
from pyruntime.crossing import root
from pyruntime.expr import Expr, walk
from pyruntime.kernel import Call, For, Kernel, Loops, Map, Reduce, Stmt, Tensor, When, While
from pyruntime.loopcode import children, expressions

from . import wide
from .adapter import Adapter
from .fours import by_fours
from .layout import element_bytes, is_pattern, storable
from .printer import GROUP
from .quads import WIDTH
from .ranges import Ranges
from .reduction import cooperates


def reason(kernel: Kernel, adapter: Adapter, ranges: Ranges | None = None) -> str:
    """Empty if the kernel can run, else a sentence."""
    if not isinstance(kernel, Map | Reduce | Loops | Call):
        return f"{type(kernel).__name__} runs on the host"
    kernel = kernel.definition() if isinstance(kernel, Call) else kernel
    tensors = [*kernel.outputs, *kernel.inputs, *(kernel.scratch if isinstance(kernel, Loops) else ())]
    for t in tensors:
        why = _tensor(t, adapter)
        if why:
            return why
    buffers = len({root(t).uid for t in tensors})
    if buffers > adapter.storage_buffers:
        return f"{buffers} tensors in one kernel, the adapter binds {adapter.storage_buffers}"
    count = _iterations(kernel) if adapter.iterations else 0.0
    if isinstance(kernel, Reduce) and cooperates(kernel, adapter):
        count /= GROUP
    if isinstance(kernel, Reduce) and count > adapter.iterations and by_fours(kernel, adapter) is not None:
        count /= WIDTH
    if count > adapter.iterations:
        return f"{count:.0f} loop iterations in one invocation, the adapter stops after {adapter.iterations}"
    seen: set[int] = set()
    for e in _expressions(kernel):
        for x in walk(e, seen):
            why = _node(x)
            if why:
                return why
    return wide.reason(kernel, ranges or Ranges())


def _tensor(t: Tensor, adapter: Adapter) -> str:
    if not storable(t.dtype):
        return f"{t.dtype} has no place on the GPU"
    size = sh.size(t.shape)
    if isinstance(size, int) and size * element_bytes(t.dtype) > adapter.binding_bytes:
        return f"a tensor of {size * element_bytes(t.dtype)} bytes, the adapter binds {adapter.binding_bytes}"
    return ""


def _iterations(kernel: Map | Reduce | Loops) -> float:
    """Iterations of all loops of one invocation, symbols taken at their hint; infinity where that cannot be said."""
    if isinstance(kernel, Loops):
        body = kernel.body
        if len(body) == 1 and isinstance(body[0], For) and body[0].kind == "parallel":
            body = body[0].body
        return _rounds(body)
    total = 0.0
    for d in reversed(kernel.extents if isinstance(kernel, Reduce) else ()):
        total = sh.estimate(d) * (1 + total)
    return total


def _rounds(body: list[Stmt]) -> float:
    total = 0.0
    for s in body:
        if isinstance(s, For):
            known = s.extent.op in ("const", "dim")
            total += (sh.estimate(s.extent.value) if known else math.inf) * (1 + _rounds(s.body))
        elif isinstance(s, While):
            return math.inf
        elif isinstance(s, When):
            total += max(_rounds(s.then), _rounds(s.orelse))
    return total


def _expressions(kernel: Map | Reduce | Loops) -> list[Expr]:
    if isinstance(kernel, Map):
        return [kernel.expr]
    if isinstance(kernel, Reduce):
        return [kernel.expr, *([kernel.epilogue] if kernel.epilogue is not None else [])]
    out: list[Expr] = []
    stack: list[Stmt] = list(kernel.body)
    while stack:
        s = stack.pop()
        out += expressions(s)
        for inner in children(s):
            stack += inner
    return out


def _node(x: Expr) -> str:
    if x.dtype is None:
        return ""
    if x.dtype.is_float and x.dtype.size == 8:
        return "float64 arithmetic"
    if is_pattern(x.dtype) and x.op not in ("at", "bitcast", "const", "select", "guard", "var"):
        return f"{x.op} of {x.dtype}"
    return ""


__all__ = ["reason"]
