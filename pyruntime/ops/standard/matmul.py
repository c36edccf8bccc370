"""Matrix products. All of them call the routine "matmul" (see `product`)."""

from __future__ import annotations

from typing import Any

from pyruntime.frontend.registry import attributes_of, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.broadcasting import broadcast
from pyruntime.ir.dtype import F64, DType
from pyruntime.ir.expr import Expr, X, Y, cast, index
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import sum_type


def product(t: Tracer, a: Tensor, b: Tensor, dtype: DType | None = None) -> Tensor:
    """out[…, m, n] = Σk a[…, m, k] · b[…, k, n]; batch dims broadcast.

    Routine "matmul": args (a, b), which may be strided (transposed) views. Sums are in `dtype` (default: the operands'
    type, float32 for half floats)."""
    t.require_equal(a.shape[-1], b.shape[-2], "inner dims of the product differ")
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    rank = len(shape)
    r = index(rank)
    lead = [index(n) for n in range(len(batch))]
    left = _row(t, a, batch, lead, index(rank - 2), r)
    right = _row(t, b, batch, lead, r, index(rank - 1))
    dtype = dtype or sum_type(a.dtype)
    meaning = t.reduce_compute("sum", shape, (a.shape[-1],), lambda *_: cast(left, dtype) * cast(right, dtype))
    return t.call("matmul", (a, b), meaning)


def _row(t: Tracer, x: Tensor, batch: sh.Shape, lead: list[Expr], i: Expr, j: Expr) -> Expr:
    return t.aligned(x, (*batch, *x.shape[-2:]), [*lead, i, j])


@op("MatMul", since=1)
def matmul(t: Tracer, a: Tensor, b: Tensor) -> Tensor:
    """numpy.matmul. Shapes: (…, M, K) × (…, K, N) -> (…, M, N); a 1-D operand gains an axis that the result loses.
    Spec: https://onnx.ai/onnx/operators/onnx__MatMul.html"""
    if a.rank == 0 or b.rank == 0:
        raise t.shape_error("operands must have at least one axis")
    x = t.unsqueeze(a, [0]) if a.rank == 1 else a
    y = t.unsqueeze(b, [1]) if b.rank == 1 else b
    out = t.cast(product(t, x, y), a.dtype)
    added = [-2] * (a.rank == 1) + [-1] * (b.rank == 1)
    return t.squeeze(out, added) if added else out


@op("Gemm", since=7)
def gemm(
    t: Tracer, a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    """alpha · a' · b' + beta · c; integer results are truncated at the end. Shapes: (M, K) × (K, N) + broadcastable (M,
    N) -> (M, N).
    Spec: https://onnx.ai/onnx/operators/onnx__Gemm.html"""
    a = t.transpose(a, [1, 0]) if transA else a
    b = t.transpose(b, [1, 0]) if transB else b
    y = t.cast(product(t, a, b), a.dtype)
    if not (a.dtype.is_float or float(alpha).is_integer() and float(beta).is_integer()):
        scaled = cast(X, F64) * alpha
        if c is None:
            return t.map(cast(scaled, a.dtype), y)
        return t.map_onto(cast(scaled + cast(Y, F64) * beta, a.dtype), y, c)
    if alpha != 1.0:
        y = t.map(X * constant_of(alpha, a.dtype), y)
    if c is None:
        return y
    return t.map_onto(X + Y if beta == 1.0 else X + Y * constant_of(beta, c.dtype), y, c)


@op("Gemm", since=1)
@attributes_of(gemm)
def gemm_1(t: Tracer, a: Tensor, b: Tensor, c: Tensor, *, broadcast: int = 0, **of_gemm: Any) -> Tensor:
    """Opset 1 and 6: c broadcasts only if `broadcast` is set. NumPy's rule covers all shapes that were allowed then."""
    return gemm(t, a, b, c, **of_gemm)


def constant_of(value: float, dtype: DType) -> Any:
    return value if dtype.is_float else int(value)
