"""Linear models.

Spec: https://onnx.ai/onnx/operators/#ai-onnx-ml"""

# N rows, F features, C classes

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import X, Y
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.ml import DOMAIN
from pyruntime.ops.ml.scores import above, apply_transform, best, labels, two_classes
from pyruntime.ops.standard.matmul import product


def rows_of(t: Tracer, x: Tensor) -> Tensor:
    return t.cast(t.unsqueeze(x, [0]) if x.rank == 1 else x, F32)


def affine(t: Tracer, x: Tensor, coefficients: Sequence[float], intercepts: Sequence[float], count: int) -> Tensor:
    """x · coefficientsᵀ + intercepts, (N, F) -> (N, count)"""
    features = len(coefficients) // count if count > 0 else 0
    if not features or features * count != len(coefficients) or len(intercepts) not in (0, count):
        raise t.shape_error(f"{len(coefficients)} coefficients and {len(intercepts)} intercepts for {count} results")
    t.require_equal(x.shape[1], features, "columns and coefficients differ in number")
    y = product(t, x, transposed(t, coefficients, count, features))
    return t.map(X + Y, y, t.constant(intercepts, F32)) if intercepts else y


def transposed(t: Tracer, values: Sequence[float], rows: int, columns: int) -> Tensor:
    """A row-major matrix, transposed to (columns, rows)."""
    return t.constant([values[r * columns + c] for c in range(columns) for r in range(rows)], F32, (columns, rows))


@op("LinearRegressor", domain=DOMAIN)
def linear_regressor(
    t: Tracer, x: Tensor, *, coefficients: Sequence[float] = (), intercepts: Sequence[float] = (),
    post_transform: str = "NONE", targets: int = 1,
) -> Tensor:  # fmt: skip
    return apply_transform(t, affine(t, rows_of(t, x), coefficients, intercepts, targets), post_transform)


@op("LinearClassifier", domain=DOMAIN)
def linear_classifier(
    t: Tracer, x: Tensor, *, classlabels_ints: Sequence[int] = (), classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float], intercepts: Sequence[float] = (), multi_class: int = 0, post_transform: str = "NONE",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(N, F) -> labels (N), float32 scores (N, C). With a single row of coefficients and two labels or none (then 0 and
    1), the sign of the score decides."""
    names = classlabels_strings or classlabels_ints
    count = len(intercepts) or len(names)
    least = 2 if count == 1 else count
    if names and (len(names) < least or count == 1 and len(names) > 2):
        raise t.shape_error(f"{len(names)} class labels for {count} scores, needs {least}")
    scores = affine(t, rows_of(t, x), coefficients, intercepts, count)
    if count == 1 and len(names) in (0, 2):
        place = above(t, scores, 0.0)
        scores = two_classes(t, scores, post_transform, True) if names else apply_transform(t, scores, post_transform)
    else:
        place = best(t, scores)
        scores = apply_transform(t, scores, post_transform)
    return labels(t, place, classlabels_ints, classlabels_strings), scores
