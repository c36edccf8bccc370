"""The gradient of a product with weights of few bits. Weights are dequantised in each step, a panel after the other, so
that no whole matrix of floats is in memory: a panel takes as much as codes of 4 bits.

Letters: M rows, N outputs and K inputs of the product."""

from __future__ import annotations

from pyruntime.frontend.own_gradients import Cotangents
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, X, Y, dim, index, rewrite, substitute
from pyruntime.ir.kernel import Builder, Call, Reduce, Tensor
from pyruntime.ops.standard.matmul import product
from pyruntime.training.derive.backward_walk import Walk

PANELS = 8
LEAST = 64  # outputs of a panel


def matmul_nbits(walk: Walk, call: Call, g: Tensor) -> Cotangents | None:
    """a: g · W; the codes are integers and have no cotangent."""
    a, t, meaning = call.operand(0), walk.t, call.meaning
    if not walk.is_active(a) or any(x is not None and walk.is_active(x) for x in call.args[1:]):
        return None
    assert isinstance(meaning, Reduce)
    turn = {a.rank - 1: index(0), a.rank: index(1)}
    weight = rewrite(meaning.expr.args[1], lambda x: turn.get(x.value) if x.op == "index" else None)
    n, k = call.attrs["N"], call.attrs["K"]
    rows = t.reshape(t.cast(g, weight.dtype), (sh.size(g.shape[:-1]), n))
    height = max(LEAST, -(-n // PANELS))
    total: Tensor | None = None
    for low in range(0, n, height):
        count = min(height, n - low)
        part = product(t, t.slice(rows, 1, low, count), _panel(walk, rows, weight, low, (count, k)))
        total = part if total is None else t.map(X + Y, total, part)
    assert total is not None
    return [(a, t.cast(t.reshape(total, a.shape), a.dtype))]


def _panel(walk: Walk, rows: Tensor, weight: Expr, low: int, shape: tuple[int, int]) -> Tensor:
    """Rows of W from `low`. It takes `rows` as an argument, which it does not read, since a kernel of constants alone
    would run once and keep its result."""

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(shape[0])) as n, k.loop(dim(shape[1]), "vector") as c:
            k.store(out, (n, c), substitute(weight, {0: n + low, 1: c}))

    args = tuple(dict.fromkeys([rows, *weight.tensors()]))
    (panel,) = walk.t.loops("dequantise", args, [(shape, weight.dtype)], body)
    return walk.t.still(panel)
