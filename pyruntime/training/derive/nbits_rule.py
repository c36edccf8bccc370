"""The gradient of a product with weights of few bits."""

from __future__ import annotations

from pyruntime.frontend.own_gradients import Cotangents
from pyruntime.ir.expr import Expr, index, rewrite
from pyruntime.ir.kernel import Call, Reduce, Tensor
from pyruntime.training.derive.backward_walk import Walk


def matmul_nbits(walk: Walk, call: Call, g: Tensor) -> Cotangents | None:
    """a: g · W; the codes are integers and have no cotangent.

    Routine "matmul_nbits_gradient": args and attrs of "matmul_nbits", with g (*A, N) instead of a -> (*A, K)"""
    a, t, meaning = call.operand(0), walk.t, call.meaning
    if not walk.is_active(a) or any(x is not None and walk.is_active(x) for x in call.args[1:]):
        return None
    assert isinstance(meaning, Reduce)
    last = a.rank - 1
    turn = {last: index(a.rank), a.rank: index(last)}  # output n and input k take turns
    weight = rewrite(meaning.expr.args[1], lambda x: turn.get(x.value) if x.op == "index" else None)
    g = t.cast(g, weight.dtype)

    def body(*i: Expr) -> Expr:
        return g.at(*i[:last], index(a.rank)) * weight

    whole = t.reduce_compute("sum", a.shape, (call.attrs["N"],), body)
    y = t.call("matmul_nbits_gradient", (g, *call.args[1:]), whole, **call.attrs)
    return [(a, t.cast(y, a.dtype))]
