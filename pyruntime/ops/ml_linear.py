"""ai.onnx.ml: linear models and support vector machines.

Spec: https://onnx.ai/onnx/operators/#ai-onnx-ml
"""

# N rows, F features, C classes, S support vectors

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.dtype import F32, I64
from pyruntime.expr import Expr, X, Y, cast, exp, power, select, tanh
from pyruntime.kernel import Tensor
from pyruntime.ops.matmul import product
from pyruntime.ops.ml_scores import above, best, labels, transformed, two_classes
from pyruntime.ops.registry import op
from pyruntime.tracer import Tracer

DOMAIN = "ai.onnx.ml"


def _rows(t: Tracer, x: Tensor) -> Tensor:
    return t.cast(t.unsqueeze(x, [0]) if x.rank == 1 else x, F32)


def _affine(t: Tracer, x: Tensor, coefficients: Sequence[float], intercepts: Sequence[float], count: int) -> Tensor:
    """x · coefficientsᵀ + intercepts, (N, F) -> (N, count)"""
    features = len(coefficients) // count
    t.require_equal(x.shape[1], features, "columns and coefficients differ in number")
    w = t.constant(
        [coefficients[c * features + f] for f in range(features) for c in range(count)], F32, (features, count)
    )
    y = product(t, x, w)
    return t.map(X + Y, y, t.constant(intercepts, F32)) if intercepts else y


def _transposed(t: Tracer, values: Sequence[float], rows: int, columns: int) -> Tensor:
    return t.constant([values[r * columns + c] for c in range(columns) for r in range(rows)], F32, (columns, rows))


@op("LinearRegressor", domain=DOMAIN)
def linear_regressor(
    t: Tracer, x: Tensor, *, coefficients: Sequence[float] = (), intercepts: Sequence[float] = (),
    post_transform: str = "NONE", targets: int = 1,
) -> Tensor:  # fmt: skip
    return transformed(t, _affine(t, _rows(t, x), coefficients, intercepts, targets), post_transform)


@op("LinearClassifier", domain=DOMAIN)
def linear_classifier(
    t: Tracer, x: Tensor, *, classlabels_ints: Sequence[int] = (), classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float], intercepts: Sequence[float] = (), multi_class: int = 0, post_transform: str = "NONE",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(N, F) -> labels (N), float32 scores (N, C). One row of coefficients for two labels: its sign decides."""
    names = classlabels_strings or classlabels_ints
    count = len(intercepts) or len(names)
    scores = _affine(t, _rows(t, x), coefficients, intercepts, count)
    if count == 1 and len(names) == 2:
        place = above(t, scores, 0.0)
        scores = two_classes(t, scores, post_transform, True)
    else:
        place = best(t, scores)
        scores = transformed(t, scores, post_transform)
    return labels(t, place, classlabels_ints, classlabels_strings), scores


# ── support vectors ───────────────────────────────────────────────────────────────────────────────────────────────


def _kernel(t: Tracer, x: Tensor, vectors: Sequence[float], count: int, kind: str, params: Sequence[float]) -> Tensor:
    """K[n, s] = kernel(x[n], vector s); params are gamma, coef0, degree."""
    features = len(vectors) // count
    gamma, coef0, degree = (*params, 0.0, 0.0, 0.0)[:3]
    table = t.constant(
        [vectors[s * features + f] for f in range(features) for s in range(count)], F32, (features, count)
    )
    if kind == "RBF":
        squares = t.reduce_compute(
            "sum", (x.shape[0], count), (features,), lambda n, s, f: (x[n, f] - table[f, s]) * (x[n, f] - table[f, s])
        )
        return t.map(exp(X * -gamma), squares)
    dots = product(t, x, table)
    if kind == "LINEAR":
        return dots
    if kind == "POLY":
        return t.map(power(X * gamma + coef0, X * 0.0 + degree), dots)
    if kind == "SIGMOID":
        return t.map(tanh(X * gamma + coef0), dots)
    raise t.unsupported(f"kernel_type {kind!r} is not known")


@op("SVMRegressor", domain=DOMAIN)
def svm_regressor(
    t: Tracer, x: Tensor, *, coefficients: Sequence[float] = (), kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR", n_supports: int = 0, one_class: int = 0, post_transform: str = "NONE",
    rho: Sequence[float] = (), support_vectors: Sequence[float] = (),
) -> Tensor:  # fmt: skip
    """Σs coefficient[s] · K[n, s] + rho, (N, F) -> (N, 1); one_class gives its sign."""
    rows = _rows(t, x)
    if n_supports:
        values = _kernel(t, rows, support_vectors, n_supports, kernel_type, kernel_params)
        scores = product(t, values, t.constant(coefficients, F32, (n_supports, 1)))
    else:
        scores = _affine(t, rows, coefficients, [], 1)
    scores = t.map(X + (rho[0] if rho else 0.0), scores)
    if one_class:
        return t.map(select(X > 0.0, X * 0.0 + 1.0, X * 0.0 - 1.0), scores)
    return transformed(t, scores, post_transform)


@op("SVMClassifier", domain=DOMAIN)
def svm_classifier(
    t: Tracer, x: Tensor, *, classlabels_ints: Sequence[int] = (), classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float] = (), kernel_params: Sequence[float] = (), kernel_type: str = "LINEAR",
    post_transform: str = "NONE", prob_a: Sequence[float] = (), prob_b: Sequence[float] = (),
    rho: Sequence[float] = (), support_vectors: Sequence[float] = (), vectors_per_class: Sequence[int] = (),
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One decision for each pair of classes, of which the class with the most votes wins.

    Shapes: (N, F) -> labels (N), float32 scores (N, pairs) (or (N, 2) with two classes)"""
    if prob_a:
        raise t.unsupported("prob_a and prob_b (probabilities by Platt scaling)", "export it without probabilities")
    rows, classes = _rows(t, x), len(classlabels_strings or classlabels_ints)
    if not vectors_per_class:  # a linear model
        scores = t.map(X + Y, _affine(t, rows, coefficients, [], classes), t.constant(rho[:1] or [0.0], F32))
        place = best(t, scores)
        return labels(t, place, classlabels_ints, classlabels_strings), transformed(t, scores, post_transform)
    count = sum(vectors_per_class)
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    values = _kernel(t, rows, support_vectors, count, kernel_type, kernel_params)
    weights = _pair_weights(coefficients, vectors_per_class, pairs)
    table = t.constant([row[s] for s in range(count) for row in weights], F32, (count, len(pairs)))
    scores = t.map(X + Y, product(t, values, table), t.constant(rho, F32))
    place = best(t, _votes(t, scores, pairs, classes))
    if classes == 2:
        scores = two_classes(t, scores, post_transform, False)
    else:
        scores = transformed(t, scores, post_transform)
    return labels(t, place, classlabels_ints, classlabels_strings), scores


def _pair_weights(
    coefficients: Sequence[float], sizes: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> list[list[float]]:
    """The weight of each support vector in each pair: those of class i by row j - 1, those of j by row i."""
    count = sum(sizes)
    starts = [sum(sizes[:c]) for c in range(len(sizes))]
    out: list[list[float]] = []
    for i, j in pairs:
        row = [0.0] * count
        for c, line in ((i, j - 1), (j, i)):
            for s in range(starts[c], starts[c] + sizes[c]):
                row[s] = coefficients[line * count + s]
        out.append(row)
    return out


def _votes(t: Tracer, scores: Tensor, pairs: Sequence[tuple[int, int]], classes: int) -> Tensor:
    """How many pairs each class wins: the first of a pair with a score above 0, else the second."""

    def element(n: Expr, c: Expr) -> Expr:
        total: Expr | None = None
        for p, (i, j) in enumerate(pairs):
            won = select(scores[n, p] > 0.0, c == i, c == j)
            total = cast(won, I64) if total is None else total + cast(won, I64)
        assert total is not None
        return total

    return t.compute((scores.shape[0], classes), element)
