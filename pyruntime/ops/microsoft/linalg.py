"""Distances, inverses, and products of complex numbers, which are pairs (real, imaginary) on the last axis."""

from __future__ import annotations

from math import prod

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, X, const, dim, select, sqrt
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.lib.formula import sum_type
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.standard.cumulative import pivot_row
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
    wide = t.cast(x, sum_type(x.dtype))
    matrices = t.reshape(wide, [prod(x.shape[:-2]), n, n])

    def body(k: Builder, out: Tensor, a: Tensor) -> None:
        size = dim(n)
        with k.parallel(dim(matrices.shape[0])) as b:
            with k.loop(size) as i, k.loop(size, "vector") as j:
                k.store(a, (b, i, j), matrices.at(b, i, j))
                k.store(out, (b, i, j), select(i == j, const(1, wide.dtype), const(0, wide.dtype)))
            with k.loop(size) as c:
                pivot = pivot_row(k, a, b, c, size)
                for m in (a, out):
                    with k.loop(size) as j:
                        upper, lower = k.let(m.at(b, c, j)), k.let(m.at(b, pivot, j))
                        k.store(m, (b, pivot, j), upper)
                        k.store(m, (b, c, j), lower)
                first = k.let(a.at(b, c, c))
                for m in (a, out):
                    with k.loop(size, "vector") as j:
                        k.store(m, (b, c, j), m.at(b, c, j) / first)
                with k.loop(size) as r, k.when(r != c):
                    factor = k.let(a.at(b, r, c))
                    for m in (a, out):
                        with k.loop(size, "vector") as j:
                            k.store(m, (b, r, j), m.at(b, r, j) - factor * m.at(b, c, j))

    like = [(matrices.shape, wide.dtype)]
    return t.cast(t.reshape(t.loops("inverse", [matrices], like, body, like)[0], x.shape), x.dtype)


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
