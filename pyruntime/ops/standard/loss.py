"""Losses. Their sums over all elements run in float64, because they add one number after the other."""

# N batch, C classes, S other axes

from __future__ import annotations

from collections.abc import Callable

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F64
from pyruntime.ir.expr import Expr, Scalar, X, Y, cast, guard
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import sum_type
from pyruntime.ops.standard.reduce import log_softmax_of


@op("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood_loss(
    t: Tracer, x: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-w[c]·x[n, c, s] with c = target[n, s], 0 where c is ignore_index; mean divides by the sum of the weights.

    Shapes: x (N, C, *S), target (N, *S), weight (C) -> (N, *S) or ()
    Spec:   https://onnx.ai/onnx/operators/onnx__NegativeLogLikelihoodLoss.html"""
    work = sum_type(x.dtype)
    if x.rank < 2 or target.rank != x.rank - 1:
        raise t.shape_error(f"input has rank {x.rank}, target rank {target.rank}: the classes are axis 1 of the input")
    for n, (have, want) in enumerate(zip(target.shape, (x.shape[0], *x.shape[2:]), strict=True)):
        t.require_equal(have, want, f"axis {n} of target and its axis of input differ")
    classes = x.shape[1]
    if weight is not None:
        t.require_equal(sh.size(weight.shape), classes, "weight must have one element per class")

    def at(fn: Callable[[Expr], Scalar], *i: Expr) -> Expr:
        """fn(class), or 0 if the target is ignored."""
        label = target.at(*i)
        value = fn(t.checked_index(label, classes))
        return value if ignore_index is None else guard(label == ignore_index, _number(0.0, value), value)

    def scale(c: Expr) -> Scalar:
        return Expr("const", (), work, 1.0) if weight is None else cast(weight[c], work)

    def loss(*i: Expr) -> Expr:
        return at(lambda c: -(cast(x.at(i[0], c, *i[1:]), work) * scale(c)), *i)

    losses = t.compute(target.shape, loss, work)
    if reduction == "none":
        return t.cast(losses, x.dtype)
    if reduction not in ("sum", "mean"):
        raise t.unsupported(f"reduction {reduction!r} is not known")
    axes = list(range(target.rank))

    def summed(values: Tensor) -> Tensor:
        return t.reduce("sum", t.cast(values, F64), axes, keepdims=False)

    total = summed(losses)
    if reduction == "mean":
        total = t.map(X / Y, total, summed(t.compute(target.shape, lambda *i: at(scale, *i), work)))
    return t.cast(total, x.dtype)


def _number(value: float, like: Expr) -> Expr:
    return Expr("const", (), like.dtype, value)


@op("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy_loss(
    t: Tracer, scores: Tensor, labels: Tensor, weights: Tensor | None = None, *, ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The negative log-likelihood of log-softmax over axis 1, and that log-softmax.
    Spec: https://onnx.ai/onnx/operators/onnx__SoftmaxCrossEntropyLoss.html"""
    work = sum_type(scores.dtype)
    logs = log_softmax_of(t, t.cast(scores, work), [1])
    w = None if weights is None else t.cast(weights, work)
    loss = negative_log_likelihood_loss(t, logs, labels, w, ignore_index=ignore_index, reduction=reduction)
    return t.cast(loss, scores.dtype), t.cast(logs, scores.dtype)
