"""The losses of training sessions. Their sums run in float32, in the order in which the kernel reads elements."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import Any

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, F64, DType
from pyruntime.ir.expr import Expr, X, Y, cast, const, dim, exp, guard, log, select
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.standard.reduce import log_softmax_of
from pyruntime.training.graph.graph_names import COPY, DOMAIN


@op("Loss", since=1, domain=DOMAIN)
def loss(t: Tracer, y: Tensor, target: Tensor | None = None, *, kind: str, settings: str) -> Tensor:
    """A scalar: the mean of a loss over all elements of the target. kind: see `recipe_tables.LOSSES`"""
    if not y.dtype.is_float:
        raise t.unsupported(f"a loss of {y.dtype} numbers has no gradient", "the output must be a float")
    work = F64 if y.dtype is F64 else F32
    x = t.cast(y, work)
    if kind == "output":
        return _as_scalar(t, x)
    assert target is not None
    return KINDS[kind](t, x, target, work, json.loads(settings))


@op("Total", since=1, domain=DOMAIN)
def total(t: Tracer, *losses: Tensor, scales: str) -> Tensor:
    """The sum of scalars, each with a factor."""
    found: Tensor | None = None
    for x, scale in zip(losses, json.loads(scales), strict=True):
        part = t.map(X * scale, x)
        found = part if found is None else t.map(X + Y, found, t.cast(part, found.dtype))
    assert found is not None
    return found


def _as_scalar(t: Tracer, x: Tensor) -> Tensor:
    if not (sh.is_static(x.shape) and sh.size(x.shape) == 1):
        name, shape = x.name.removeprefix(COPY), ", ".join(map(str, x.shape))
        raise t.shape_error(f'the loss "{name}" has shape [{shape}]; a loss is a single number, such as a mean')
    return t.reshape(x, ())


def _mean(t: Tracer, values: Tensor) -> Tensor:
    whole = t.reduce("sum", values, range(values.rank), keepdims=False)
    count = cast(dim(sh.size(values.shape)), values.dtype)
    return t.map(X / count, whole)


def _checked(t: Tracer, x: Tensor, target: Tensor, work: DType) -> Tensor:
    """The target, of the shape of x."""
    shapes = [", ".join(map(str, s)) for s in (target.shape, x.shape)]
    if target.rank != x.rank:
        raise t.shape_error(f"the target has shape [{shapes[0]}], the output [{shapes[1]}]: they must be equal")
    for n, (have, want) in enumerate(zip(target.shape, x.shape, strict=True)):
        t.require_equal(have, want, f"axis {n} of the target [{shapes[0]}] and of the output [{shapes[1]}] differ")
    return t.reshape(t.cast(target, work), x.shape)  # whose dims have the names that the model's inputs have


def _elementwise(of: Callable[[dict[str, Any]], Expr]) -> Callable[..., Tensor]:
    def made(t: Tracer, x: Tensor, target: Tensor, work: DType, settings: dict[str, Any]) -> Tensor:
        return _mean(t, t.map(of(settings), x, _checked(t, x, target, work)))

    return made


def _huber(settings: dict[str, Any]) -> Expr:
    delta = float(settings["delta"])
    far = abs(X - Y)
    return select(far < delta, far * far * 0.5, (far - 0.5 * delta) * delta)


def _bce(settings: dict[str, Any]) -> Expr:
    """Of logits: max(x, 0) - x·y + log(1 + exp(-|x|)), with -1 as the derivative of |x| at 0, which makes that of the
    whole 1/2 - y. Of probabilities: the logarithms are at least -100."""
    if settings["logits"]:
        return select(X > 0.0, X, 0.0) - X * Y + log(exp(select(X > 0.0, -X, X)) + 1.0)
    low = 1e-38
    return -(Y * log(select(X > low, X, low)) + (1.0 - Y) * log(select(1.0 - X > low, 1.0 - X, low)))


def cross_entropy(t: Tracer, x: Tensor, target: Tensor, work: DType, settings: dict[str, Any]) -> Tensor:
    """The mean over the labels that are not ignored, weighted by their classes."""
    x, axis = _with_class_axis(t, x, target, settings["axis"])
    classes = x.shape[axis]
    logs = log_softmax_of(t, x, [axis])
    ignored, smoothing = settings["ignore_index"], float(settings["smoothing"])
    table = None if settings["weights"] is None else t.constant([float(w) for w in settings["weights"]], work)
    if table is not None:
        t.require_equal(table.shape[0], classes, "the loss's weights must have one number for each class")

    def of(i: tuple[Expr, ...], value: Callable[[Expr], Expr]) -> Expr:
        label = target.at(*i)
        known = value(t.checked_index(label, classes))
        return known if ignored is None else guard(label == ignored, const(0.0, work), known)

    def weight(c: Expr) -> Expr:
        return const(1.0, work) if table is None else table.at(c)

    def at(i: tuple[Expr, ...], c: Expr) -> Expr:
        return logs.at(*i[:axis], c, *i[axis:])

    found = t.compute(target.shape, lambda *i: of(i, lambda c: -at(i, c) * weight(c)), work)
    weights = t.compute(target.shape, lambda *i: of(i, weight), work)
    if smoothing:
        weighted = t.compute(logs.shape, lambda *i: logs.at(*i) * weight(i[axis]))
        sums_of_logs = t.reduce("sum", weighted, [axis], keepdims=False)
        share = const(smoothing, work) / cast(dim(classes), work)
        even = t.compute(target.shape, lambda *i: of(i, lambda _: -sums_of_logs.at(*i) * share), work)
        found = t.map(X * (1.0 - smoothing) + Y, found, even)
    axes = range(target.rank)
    sums = [t.reduce("sum", v, axes, keepdims=False) for v in (found, weights)]
    return t.map(X / select(Y > 0.0, Y, 1.0), *sums)


def _with_class_axis(t: Tracer, x: Tensor, target: Tensor, axis: int | None) -> tuple[Tensor, int]:
    """The logits and the axis of their classes. axis: that of the options, or None: 1, as in PyTorch, or the last one
    if the labels have the other axes. If only a run knows their shape, it moves the last axis to 1 where it must."""
    shapes = [", ".join(map(str, s)) for s in (target.shape, x.shape)]
    text = f"the labels have shape [{shapes[0]}], the logits [{shapes[1]}]"
    if target.dtype.is_float:
        raise t.unsupported(f"labels are integers, these are {target.dtype}", "numbers of classes from 0 on")
    if x.rank < 2 or target.rank != x.rank - 1:
        raise t.shape_error(f"{text}: labels have the axes of the logits without that of the classes")
    if axis is not None and not -x.rank <= axis < x.rank:
        raise t.shape_error(f"the axis of the classes is {axis}, the logits have {x.rank} axes")
    last, is_last = x.rank - 1, _is_last(x, target)
    if axis is None and isinstance(is_last, int):
        axis = last if is_last else 1
    if axis is None:
        order = [0, last, *range(1, last)]
        shape = [sh.select(is_last, x.shape[m], d) for m, d in zip(order, x.shape, strict=True)]

        def element(*i: Expr) -> Expr:
            return guard(dim(is_last) == 1, x.at(*[i[order.index(n)] for n in range(x.rank)]), x.at(*i))

        x, axis = t.compute(shape, element), 1
    axis %= x.rank
    for have, want in zip(target.shape, [d for n, d in enumerate(x.shape) if n != axis], strict=True):
        t.require_equal(have, want, text)
    return x, axis


def _is_last(x: Tensor, target: Tensor) -> sh.AnyDim:
    """1 if the classes are the last axis of the logits, 0 if they are axis 1. The number of classes is fixed; where
    both axes are, or none is, the labels decide."""
    first, last = x.shape[1], x.shape[-1]
    if x.rank == 2 or isinstance(first, int) != isinstance(last, int):
        return int(x.rank > 2 and isinstance(last, int))
    return _agree(target.shape, x.shape[:-1]) * (1 - _agree(target.shape, (x.shape[0], *x.shape[2:])))


def _agree(a: sh.Shape, b: Sequence[sh.AnyDim]) -> sh.AnyDim:
    """1 if two shapes are equal, else 0."""
    return reduce(mul, [sh.compare("eq", m, n) for m, n in zip(a, b, strict=True)])


KINDS: dict[str, Callable[..., Tensor]] = {
    "cross_entropy": cross_entropy,
    "mse": _elementwise(lambda _: (X - Y) * (X - Y)),
    "l1": _elementwise(lambda _: abs(X - Y)),
    "huber": _elementwise(_huber),
    "bce": _elementwise(_bce),
}
