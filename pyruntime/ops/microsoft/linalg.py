"""Distances, inverses, and products of complex numbers, which are pairs (real, imaginary) on the last axis."""

from __future__ import annotations

from math import prod

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, X, const, select, sqrt
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import sum_type
from pyruntime.ops.lib.matrices import inverted
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.standard.matmul import product


@op("CDist", domain=MICROSOFT)
def cdist(t: Tracer, a: Tensor, b: Tensor, *, metric: str = "sqeuclidean") -> Tensor:
    """Distances between rows: Σ (a - b)², or its root for "euclidean". Shapes: a (M, N), b (K, N) -> (M, K)"""
    if metric not in ("sqeuclidean", "euclidean"):
        raise t.unsupported(f'metric "{metric}" is not known')
    t.require_equal(a.shape[1], b.shape[1], "rows of the two inputs differ in length")

    def square(m: Expr, k: Expr, n: Expr) -> Expr:
        distance = a.at(m, n) - b.at(k, n)
        return distance * distance

    squares = t.reduce_compute("sum", (a.shape[0], b.shape[0]), (a.shape[1],), square)
    return squares if metric == "sqeuclidean" else t.map(sqrt(X), squares)


@op("SparseToDenseMatMul", domain=MICROSOFT)
def sparse_to_dense_matmul(
    t: Tracer, a: Tensor, b: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0
) -> Tensor:
    """alpha · a' · b'. The sparse a is fed as the dense matrix that it represents. Shapes: (M, K), (K, N) -> (M, N)"""
    if alpha != 1.0 and a.dtype is not F32:
        raise t.unsupported(f"alpha {alpha} for {a.dtype} is not implemented", "ONNX Runtime reads it for float32 only")
    y = product(t, t.transpose(a, [1, 0]) if transA else a, t.transpose(b, [1, 0]) if transB else b)
    return y if alpha == 1.0 else t.map(X * alpha, y)


@op("Inverse", domain=MICROSOFT)
def inverse(t: Tracer, x: Tensor) -> Tensor:
    """The inverse of each matrix, by Gauss-Jordan elimination with row exchanges. Shapes: (*B, n, n) -> the same"""
    n = x.shape[-1]
    t.require_equal(x.shape[-2], n, "an inverse needs square matrices")
    matrices = t.reshape(t.cast(x, sum_type(x.dtype)), [prod(x.shape[:-2]), n, n])
    return t.cast(t.reshape(inverted(t, matrices), x.shape), x.dtype)


def _complex_product(t: Tracer, a: Tensor, b: Tensor, sign: float) -> Tensor:
    """(ar + i·ai) · (br + sign · i·bi); leading axes broadcast."""
    shape = t.broadcast(a, b)

    def body(*i: Expr) -> Expr:
        (ar, ai), (br, bi) = (
            [t.aligned(x, shape, [*i[:-1], const(part, i[-1].dtype)]) for part in (0, 1)] for x in (a, b)
        )
        return select(i[-1] == 0, ar * br - ai * bi * sign, ar * bi * sign + ai * br)

    return t.compute(shape, body, a.dtype)


@op("ComplexMul", domain=MICROSOFT)
def complex_mul(t: Tracer, a: Tensor, b: Tensor) -> Tensor:
    """a · b of complex numbers (real, imaginary) on the last axis."""
    return _complex_product(t, a, b, 1.0)


@op("ComplexMulConj", domain=MICROSOFT)
def complex_mul_conj(t: Tracer, a: Tensor, b: Tensor) -> Tensor:
    """a · conj(b) of complex numbers (real, imaginary) on the last axis."""
    return _complex_product(t, a, b, -1.0)
