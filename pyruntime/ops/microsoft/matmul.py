"""FusedMatMul."""

from __future__ import annotations

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.expr import X
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.standard.matmul import constant_of, matmul


@op("FusedMatMul", domain=MICROSOFT)
def fused_matmul(
    t: Tracer, a: Tensor, b: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0, transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:  # fmt: skip
    """alpha · a' · b'. trans swaps the last two axes; transBatch moves axis 0 after the other batch axes."""
    a, b = _arranged(t, a, transA, transBatchA), _arranged(t, b, transB, transBatchB)
    y = matmul(t, a, b)
    return y if alpha == 1.0 else t.map(X * constant_of(alpha, y.dtype), y)


def _arranged(t: Tracer, x: Tensor, trans: int, batch: int) -> Tensor:
    if x.rank < 2:
        return x
    order = list(range(x.rank))
    if batch and x.rank > 2:
        order = [*order[1:-1], 0, order[-1]]
    if trans:
        order[-2:] = [order[-1], order[-2]]
    return t.transpose(x, order)
