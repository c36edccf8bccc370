"""Makes kernels read repeated tensors through reshapes, so that heads share keys and values without copies.

An Alias (reshape) needs its tensor in memory, so an Expand before it (`[batch, shared, heads, …]` to
`[batch, shared · heads, …]`) would be a copy. This pass reads the tensor before the Expand instead, and splits the
joined index by divisions. It runs for GPUs only: there a load with divisions costs less than the copy, while routines
on the CPU need strides (`shared_operands` does it for them).
"""

from __future__ import annotations

from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.expr import Expr, is_view, rewrite, substitute, walk
from pyruntime.ir.kernel import Block, Map, Reduce, Tensor
from pyruntime.passes.loads import Joined, in_base


def read_repeated(block: Block) -> None:
    """Rewrite loads in this block and its inner blocks. Visits readers before the maps that they read, so that these
    are still views."""
    for kernel in reversed(list(all_kernels(block))):
        if isinstance(kernel, (Map, Reduce)):
            kernel.expr = rewrite(kernel.expr, lambda e: _before_repetition(e, {}))


def _before_repetition(e: Expr, joined: Joined) -> Expr | None:
    """A load through reshapes and views as a load of the tensor that one of them repeats. None if none repeats."""
    if e.op != "at":
        return None
    t = e.value
    if isinstance(t.kernel, Map) and t.kernel.expr.op == "at" and is_view(t.kernel.expr):
        inner = substitute(t.kernel.expr, e.args)
        return inner if _repeats(t) else _before_repetition(inner, joined)
    base = in_base(e, joined)
    return None if base is None else _before_repetition(base, joined)


def _repeats(t: Tensor) -> bool:
    """Whether a view holds elements of its source several times: some axis does not occur in the source's indices."""
    assert isinstance(t.kernel, Map)
    used = {x.value for x in walk(t.kernel.expr) if x.op == "index"}
    return any(d != 1 and n not in used for n, d in enumerate(t.shape))
