"""Converts raw scores to labels and probabilities. Follows ONNX Runtime where the specification is silent."""

# N rows, C classes

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import I32, I64, STRING
from pyruntime.ir.expr import Expr, X, Y, cast, const, exp, isnan, log, maximum, select, sqrt
from pyruntime.ir.kernel import Tensor

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def logistic(x: Expr) -> Expr:
    """1 / (1 + exp(-x)), computed from |x|, so that nothing overflows."""
    v = 1.0 / (exp(-abs(x)) + 1.0)
    return select(x < 0.0, 1.0 - v, v)


def probit(x: Expr) -> Expr:
    """√2 · erf⁻¹(2x - 1), by Winitzki's approximation with a = 0.147."""
    y = x * 2.0 - 1.0
    ln = log((1.0 - y) * (y + 1.0))
    half = ln * 0.5 + 2 / (math.pi * 0.147)
    root = sqrt(sqrt(half * half - ln * (1 / 0.147)) - half)
    return select(y < 0.0, -root, root) * math.sqrt(2)


def apply_transform(t: Tracer, scores: Tensor, how: str) -> Tensor:
    """The scores after post_transform, (N, C) -> (N, C)"""
    if how not in TRANSFORMS:
        raise t.unsupported(f"post_transform {how!r} is not known")
    if how == "LOGISTIC":
        return t.map(logistic(X), scores)
    if how == "PROBIT":
        return t.map(probit(X), scores)
    if how == "NONE":
        return scores
    e = t.map(exp(X - Y), scores, t.reduce("max", scores, [1]))
    if how == "SOFTMAX_ZERO":  # scores of 0 remain 0
        e = t.map(select((Y < 1e-7) & (Y > -1e-7), 0.0, X), e, scores)
    return t.map(X / maximum(Y, 1e-30), e, t.reduce("sum", e, [1]))


def labels(t: Tracer, places: Tensor, ints: Sequence[int], strings: Sequence[str]) -> Tensor:
    """The labels at these positions, int64 or strings; the positions themselves if the model has no labels."""
    if not ints and not strings:
        return t.cast(places, I64)
    names: Sequence[Any] = strings or ints
    table = t.constant(names, STRING if strings else I64)
    return t.compute(places.shape, lambda n: table[t.checked_index(places[n], len(names))], table.dtype)


def best(t: Tracer, scores: Tensor, voted: Tensor | None = None) -> Tensor:
    """The position of the highest score in each row, among those with votes if `voted` (N, C) is given. As in ONNX
    Runtime, a NaN counts as the highest score if it is the row's first candidate, else as the lowest."""
    if not scores.dtype.is_float:
        return t.reduce("argmax", scores, [1], keepdims=False)
    first = None if voted is None else t.reduce("argmax", voted, [1], keepdims=False)

    def score(n: Expr, c: Expr) -> Expr:
        x = scores[n, c]
        low, high = (const(limit, x.dtype) for limit in (-math.inf, math.inf))
        x = select(isnan(x), select(c == (0 if first is None else cast(first[n], I32)), high, low), x)
        return x if voted is None else select(voted[n, c] > 0, x, low)

    return t.reduce_compute("argmax", scores.shape[:1], scores.shape[1:], score)


def two_classes(t: Tracer, score: Tensor, how: str, probability: bool) -> Tensor:
    """(N, 1) -> (N, 2): the score s of the second class, and 1 - s for a probability, else -s, for the first."""
    if how not in TRANSFORMS:
        raise t.unsupported(f"post_transform {how!r} is not known")

    def element(n: Expr, c: Expr) -> Expr:
        s = score[n, 0]
        if how == "PROBIT":
            s = probit(s)
        if how == "LOGISTIC":
            return select(c < 1, logistic(-s), logistic(s))
        if probability:
            return select(c < 1, 1.0 - s, s)
        return select(c < 1, -s, s)

    return t.compute((score.shape[0], 2), element)


def above(t: Tracer, score: Tensor, limit: float) -> Tensor:
    """1 if the only score of a row exceeds the limit, else 0."""
    return t.compute((score.shape[0],), lambda n: cast(score[n, 0] > const(limit, score.dtype), I64))
