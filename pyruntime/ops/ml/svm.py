"""Support vector machines.

Spec: https://onnx.ai/onnx/operators/onnx_aionnxml_SVMClassifier.html"""

# N rows, F features, C classes, S support vectors, P pairs of classes

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32, I32, I64
from pyruntime.ir.expr import Expr, X, Y, cast, clip, const, exp, maximum, power, select, tanh
from pyruntime.ir.kernel import Builder, Tensor, Var
from pyruntime.ops.ml import DOMAIN
from pyruntime.ops.ml.linear import affine, rows_of, transposed
from pyruntime.ops.ml.scores import apply_transform, best, labels, logistic, two_classes
from pyruntime.ops.standard.matmul import product


def _kernel(t: Tracer, x: Tensor, vectors: Sequence[float], count: int, kind: str, params: Sequence[float]) -> Tensor:
    """K[n, s] = kernel(x[n], vector s); params are gamma, coef0, degree."""
    features = len(vectors) // count if count > 0 else 0
    if not features or features * count != len(vectors):
        raise t.shape_error(f"{len(vectors)} numbers do not make {count} support vectors")
    t.require_equal(x.shape[1], features, "columns and elements of a support vector differ in number")
    gamma, coef0, degree = (*params, 0.0, 0.0, 0.0)[:3]
    table = transposed(t, vectors, count, features)
    if kind == "RBF":
        squares = t.reduce_compute(
            "sum", (x.shape[0], count), (features,), lambda n, s, f: (x[n, f] - table[f, s]) * (x[n, f] - table[f, s])
        )
        return t.map(exp(X * -gamma), squares)
    dots = product(t, x, table)
    if kind == "LINEAR":
        return dots
    if kind == "POLY":
        return t.map(power(X * gamma + coef0, const(degree, F32)), dots)
    if kind == "SIGMOID":
        return t.map(tanh(X * gamma + coef0), dots)
    raise t.unsupported(f"kernel_type {kind!r} is not known")


@op("SVMRegressor", domain=DOMAIN)
def svm_regressor(
    t: Tracer, x: Tensor, *, coefficients: Sequence[float] = (), kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR", n_supports: int = 0, one_class: int = 0, post_transform: str = "NONE",
    rho: Sequence[float] = (), support_vectors: Sequence[float] = (),
) -> Tensor:  # fmt: skip
    """Σs coefficient[s] · K[n, s] + rho, (N, F) -> (N, 1); with one_class its sign."""
    rows = rows_of(t, x)
    if n_supports:
        values = _kernel(t, rows, support_vectors, n_supports, kernel_type, kernel_params)
        weights = t.entries("coefficients", coefficients, n_supports)
        scores = product(t, values, t.constant(weights, F32, (n_supports, 1)))
    else:
        scores = affine(t, rows, coefficients, [], 1)
    scores = t.map(X + (rho[0] if rho else 0.0), scores)
    if one_class:
        return t.map(select(X > 0.0, const(1.0, F32), const(-1.0, F32)), scores)
    return apply_transform(t, scores, post_transform)


@op("SVMClassifier", domain=DOMAIN)
def svm_classifier(
    t: Tracer, x: Tensor, *, classlabels_ints: Sequence[int] = (), classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float] = (), kernel_params: Sequence[float] = (), kernel_type: str = "LINEAR",
    post_transform: str = "NONE", prob_a: Sequence[float] = (), prob_b: Sequence[float] = (),
    rho: Sequence[float] = (), support_vectors: Sequence[float] = (), vectors_per_class: Sequence[int] = (),
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One decision per pair of classes; the class with the most votes wins. With prob_a and prob_b the scores become
    probabilities of the pairs, which give the probabilities of the classes.

    Shapes: (N, F) -> labels (N), float32 scores (N, P), (N, 2) with two classes, or (N, C) probabilities"""
    if len(prob_a) != len(prob_b):
        raise t.shape_error(f"prob_a has {len(prob_a)} entries, prob_b {len(prob_b)}")
    rows, classes = rows_of(t, x), len(classlabels_strings or classlabels_ints)
    if not vectors_per_class:  # a linear model
        scores = t.map(X + Y, affine(t, rows, coefficients, [], classes), t.constant(rho[:1] or [0.0], F32))
        place = best(t, scores)
        return labels(t, place, classlabels_ints, classlabels_strings), apply_transform(t, scores, post_transform)
    count = sum(vectors_per_class)
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    if classes < 2 or min(t.entries("vectors_per_class", vectors_per_class, classes)) < 0:
        raise t.shape_error(f"vectors_per_class {list(vectors_per_class)} does not fit {classes} classes")
    t.entries("coefficients", coefficients, (classes - 1) * count)
    t.entries("rho", rho, len(pairs))
    t.entries("prob_a", prob_a or rho, len(pairs))
    values = _kernel(t, rows, support_vectors, count, kernel_type, kernel_params)
    weights = _pair_weights(coefficients, vectors_per_class, pairs)
    table = t.constant([row[s] for s in range(count) for row in weights], F32, (count, len(pairs)))
    scores = t.map(X + Y, product(t, values, table), t.constant(rho, F32))
    place = best(t, _votes(t, scores, pairs, classes))
    if prob_a:
        scores = apply_transform(t, _probabilities(t, scores, prob_a, prob_b, pairs, classes), post_transform)
    elif classes == 2:
        scores = two_classes(t, scores, post_transform, False)
    else:
        scores = apply_transform(t, scores, post_transform)
    return labels(t, place, classlabels_ints, classlabels_strings), scores


def _pair_weights(
    coefficients: Sequence[float], sizes: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> list[list[float]]:
    """The weight of each support vector in each pair (i, j): vectors of class i have row j - 1 of the coefficients,
    vectors of class j have row i."""
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
    """The number of pairs that each class wins: the first of a pair wins if the score is above 0, else the second."""

    def element(n: Expr, c: Expr) -> Expr:
        total: Expr | None = None
        for p, (i, j) in enumerate(pairs):
            won = select(scores[n, p] > 0.0, c == i, c == j)
            total = cast(won, I64) if total is None else total + cast(won, I64)
        assert total is not None
        return total

    return t.compute((scores.shape[0], classes), element)


# ── probabilities ─────────────────────────────────────────────────────────────────────────────────────────────────


def _probabilities(
    t: Tracer, scores: Tensor, a: Sequence[float], b: Sequence[float], pairs: Sequence[tuple[int, int]], classes: int
) -> Tensor:
    """Class probabilities from the pairs' scores by Platt's sigmoids and `_couple`. (N, P) -> (N, C)"""
    scaled = t.map(X * Y, scores, t.constant(a, F32))
    shifted = t.map(X + Y, scaled, t.constant(b, F32))
    pair = t.map(clip(1.0 - logistic(X), 1e-7, 1 - 1e-7), shifted)
    number = {}
    for n, (i, j) in enumerate(pairs):
        number[i, j] = number[j, i] = n
    at = t.constant([number.get((i, j), 0) for i in range(classes) for j in range(classes)], I32, (classes, classes))

    def element(n: Expr, i: Expr, j: Expr) -> Expr:
        value = pair[n, at[i, j]]
        return select(i < j, value, select(i == j, 0.0, 1.0 - value))

    return _couple(t, t.compute((scores.shape[0], classes, classes), element))


def _couple(t: Tracer, r: Tensor) -> Tensor:
    """Class probabilities p that fit those of the pairs: minimises Σ(r[j,i]·p[i] - r[i,j]·p[j])² by libsvm's iteration
    (Wu, Lin and Weng 2004, algorithm 2). r (N, C, C) -> (N, C)"""
    rows, classes = r.shape[0], r.shape[1]

    def body(k: Builder, p: Tensor, q: Tensor, qp: Tensor) -> None:
        with k.parallel(rows) as n:
            with k.loop(classes) as i:
                k.store(p, (n, i), 1.0 / classes)
                own = k.var(0.0, F32)
                with k.loop(classes) as j:
                    own.set(own.get + r[n, j, i] * r[n, j, i])
                    k.store(q, (n, i, j), -(r[n, j, i] * r[n, i, j]))
                k.store(q, (n, i, i), own.get)
            step, error = k.var(0, I32), k.var(1.0, F32)
            with k.while_((step.get < max(100, classes)) & (error.get >= 0.005 / classes)):
                total = _products(k, n, classes, p, q, qp)
                error.set(0.0)
                with k.loop(classes) as i:
                    error.set(maximum(error.get, abs(qp[n, i] - total.get)))
                with k.when(error.get >= 0.005 / classes):
                    _update(k, n, classes, p, q, qp, total)
                step.set(step.get + 1)

    scratch = [((rows, classes, classes), F32), ((rows, classes), F32)]
    return t.loops("couple", [r], [((rows, classes), F32)], body, scratch)[0]


def _products(k: Builder, n: Expr, classes: int, p: Tensor, q: Tensor, qp: Tensor) -> Var:
    """Stores qp = q·p, and returns p·q·p."""
    total = k.var(0.0, F32)
    with k.loop(classes) as i:
        line = k.var(0.0, F32)
        with k.loop(classes) as j:
            line.set(line.get + q[n, i, j] * p[n, j])
        k.store(qp, (n, i), line.get)
        total.set(total.get + p[n, i] * line.get)
    return total


def _update(k: Builder, n: Expr, classes: int, p: Tensor, q: Tensor, qp: Tensor, total: Var) -> None:
    """One sweep of the iteration over all classes."""
    with k.loop(classes) as i:
        own = k.let(q[n, i, i])
        d = k.let((total.get - qp[n, i]) / own)
        total.set((total.get + d * (d * own + qp[n, i] * 2.0)) / ((d + 1.0) * (d + 1.0)))
        k.store(p, (n, i), p[n, i] + d)
        with k.loop(classes) as j:
            k.store(qp, (n, j), (qp[n, j] + d * q[n, i, j]) / (d + 1.0))
            k.store(p, (n, j), p[n, j] / (d + 1.0))
