"""Makes kernels read repeated tensors through reshapes, so that heads share keys and values without copies.

An Alias (reshape) needs its tensor in memory, so an Expand before it (`[batch, shared, heads, …]` to
`[batch, shared · heads, …]`) would be a copy. This pass reads the tensor before the Expand instead, and splits the
joined index by divisions. It runs for GPUs only: there a load with divisions costs less than the copy, while routines
on the CPU need strides (`shared_operands` does it for them).
"""

from __future__ import annotations

from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.expr import Expr, rewrite, walk
from pyruntime.ir.kernel import Block, Map, Reduce, Tensor
from pyruntime.passes.loads import sources


def read_repeated(block: Block) -> None:
    """Rewrite loads in this block and its inner blocks. Visits readers before the maps that they read, so that these
    are still views."""
    for kernel in reversed(list(all_kernels(block))):
        if isinstance(kernel, (Map, Reduce)):
            kernel.expr = rewrite(kernel.expr, _before_repetition)


def _before_repetition(e: Expr) -> Expr | None:
    """A load through reshapes and views as a load of the tensor that one of them repeats. None if none repeats."""
    t = e.value
    for source in sources(e):
        if isinstance(t.kernel, Map) and _repeats(t, t.kernel):
            return source
        t = source.value
    return None


def _repeats(t: Tensor, view: Map) -> bool:
    """Whether a view holds elements of its source several times: some axis does not occur in the source's indices."""
    used = {x.value for x in walk(view.expr) if x.op == "index"}
    return any(d != 1 and n not in used for n, d in enumerate(t.shape))
