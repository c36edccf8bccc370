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
from pyruntime.ir.expr import Expr, X, Y, Z, cast, const, dim, exp, guard, log, select
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.standard.reduce import log_softmax_of
from pyruntime.training.graph.ctc import Chain, ctc_of, mean_of
from pyruntime.training.graph.distance_losses import pairs, triplet
from pyruntime.training.graph.graph_names import COPY, DOMAIN
from pyruntime.training.graph.trace_replay import Replay

LOW = 1e-38  # the least probability of which a logarithm is taken


@op("Loss", since=1, domain=DOMAIN)
def loss(t: Tracer, y: Tensor, *others: Tensor, kind: str, settings: str) -> Tensor:
    """A scalar. others: further outputs of the model, then feeds. kind: see `recipe_tables.LOSSES`"""
    if kind == "function":
        return function(t, (y, *others), json.loads(settings)["nodes"])
    if not y.dtype.is_float:
        raise t.unsupported(f"a loss of {y.dtype} numbers has no gradient", "the output must be a float")
    work = F64 if y.dtype is F64 else F32
    x = t.cast(y, work)
    if kind == "output":
        return _as_scalar(t, x)
    own = json.loads(settings)
    if kind in WHOLE:
        return WHOLE[kind](t, x, *others, work, own)
    return _reduced(t, KINDS[kind](t, x, *others, work, own), own["reduction"])


@op("Total", since=1, domain=DOMAIN)
def total(t: Tracer, *losses: Tensor, scales: str) -> Tensor:
    """The sum of scalars, each with a factor."""
    found: Tensor | None = None
    for x, scale in zip(losses, json.loads(scales), strict=True):
        part = t.map(X * scale, x)
        found = part if found is None else t.map(X + Y, found, t.cast(part, found.dtype))
    assert found is not None
    return found


def function(t: Tracer, tensors: Sequence[Tensor], nodes: list[Any]) -> Tensor:
    """A loss that users write. tensors: those that the leaves of its trace read, outputs first"""
    named = {(kind, n[2]["name"]): None for kind in ("output", "label") for n in nodes if n[0] == kind}
    leaves = dict(zip(named, tensors, strict=True))
    work = F64 if any(x.dtype is F64 for x in tensors) else F32

    def leaf(kind: str, name: str) -> Tensor:
        x = leaves[kind, name]
        return t.cast(x, work) if x.dtype.is_float else x

    return _as_scalar(t, t.cast(Replay(t, nodes, leaf, work).results[0], work))


def _as_scalar(t: Tracer, x: Tensor) -> Tensor:
    if not (sh.is_static(x.shape) and sh.size(x.shape) == 1):
        name, shape = x.name.removeprefix(COPY), ", ".join(map(str, x.shape))
        raise t.shape_error(f'the loss "{name}" has shape [{shape}]; a loss is a single number, such as a mean')
    return t.reshape(x, ())


def _reduced(t: Tracer, values: Tensor, reduction: str) -> Tensor:
    """The sum of all values, divided by their number, or by that of the first axis (batchmean)."""
    whole = t.reduce("sum", values, range(values.rank), keepdims=False)
    counts = {"mean": sh.size(values.shape), "batchmean": sh.size(values.shape[:1])}
    return t.map(X / cast(dim(counts[reduction]), values.dtype), whole) if reduction in counts else whole


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
        return t.map(of(settings), x, _checked(t, x, target, work))

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
    return -(Y * log(select(X > LOW, X, LOW)) + (1.0 - Y) * log(select(1.0 - X > LOW, 1.0 - X, LOW)))


def bce(t: Tracer, x: Tensor, target: Tensor, work: DType, settings: dict[str, Any]) -> Tensor:
    """pos_weight p: -(p·y·log σ(x) + (1 - y)·log(1 - σ(x)))"""
    y, weights = _checked(t, x, target, work), settings["pos_weight"]
    found = t.map(_bce(settings), x, y)
    if weights is None:
        return found
    table = t.constant([float(w) for w in weights], work)
    if len(weights) > 1:
        t.require_equal(
            x.shape[-1] if x.rank else 1, len(weights), "pos_weight must have one number, or those of the last axis"
        )
    far = select(X > 0.0, const(0.0, work), -X)
    of_logits = log(exp(select(X > 0.0, -X, X)) + 1.0) + far
    of_ones = t.map(Y * (of_logits if settings["logits"] else -log(select(X > LOW, X, LOW))), x, y)
    return t.map(X + Y * (Z - 1.0), found, of_ones, t.expand(table, x.shape))


def kl(t: Tracer, x: Tensor, target: Tensor, work: DType, settings: dict[str, Any]) -> Tensor:
    """y·(log y - x), 0 where y is 0; x: logarithms of probabilities"""
    formula = (
        exp(Y) * (Y - X) if settings["log_target"] else select(Y > 0.0, Y * (log(select(Y > 0.0, Y, 1.0)) - X), 0.0)
    )
    return t.map(formula, x, _checked(t, x, target, work))


def _class_table(t: Tracer, classes: sh.AnyDim, work: DType, settings: dict[str, Any]) -> Tensor | None:
    if settings["weights"] is None:
        return None
    table = t.constant([float(w) for w in settings["weights"]], work)
    t.require_equal(table.shape[0], classes, "the loss's weights must have one number for each class")
    return table


def soft_cross_entropy(t: Tracer, x: Tensor, target: Tensor, work: DType, settings: dict[str, Any]) -> Tensor:
    """Of labels that are probabilities: -Σ w·((1 - s)·y + s/C)·log p over the classes, by PyTorch divided by the number
    of labels, whatever their weights."""
    y, axis = _checked(t, x, target, work), _named_axis(t, x, settings["axis"])
    classes, smoothing = x.shape[axis], float(settings["smoothing"])
    table = _class_table(t, classes, work, settings)
    share = const(smoothing, work) / cast(dim(classes), work)
    terms = t.map(-X * (Y * (1.0 - smoothing) + share), log_softmax_of(t, x, [axis]), y)
    if table is not None:
        terms = t.compute(terms.shape, lambda *i: terms.at(*i) * table.at(i[axis]), work)
    return t.reduce("sum", terms, [axis], keepdims=False)


def _named_axis(t: Tracer, x: Tensor, axis: int | None) -> int:
    """Of the classes: 1 for two axes, else what the options say."""
    if axis is None and x.rank > 2:
        raise t.shape_error(f"the logits have {x.rank} axes: name that of the classes by the setting axis")
    return t.axis(1 if axis is None else axis, x.rank)


def distill(t: Tracer, x: Tensor, teacher: Tensor, work: DType, settings: dict[str, Any]) -> Tensor:
    """T²·Σ p·(log p - log q), p and q: softmax of the teacher's logits and of x, both divided by T.

    Source: https://arxiv.org/abs/1503.02531"""
    axis, temperature = _named_axis(t, x, settings["axis"]), float(settings["temperature"])
    logs = [log_softmax_of(t, t.map(X / temperature, y), [axis]) for y in (x, t.still(_checked(t, x, teacher, work)))]
    return t.reduce("sum", t.map(exp(Y) * (Y - X) * temperature**2, *logs), [axis], keepdims=False)


def cross_entropy(t: Tracer, x: Tensor, target: Tensor, work: DType, settings: dict[str, Any]) -> Tensor:
    if settings["soft"]:
        return _reduced(t, soft_cross_entropy(t, x, target, work, settings), settings["reduction"])
    return _of_classes(t, x, target, work, settings, log_softmax_of)


def nll(t: Tracer, x: Tensor, target: Tensor, work: DType, settings: dict[str, Any]) -> Tensor:
    """x: logarithms of probabilities"""
    return _of_classes(t, x, target, work, {"smoothing": 0.0, **settings}, lambda _t, x, _axes: x)


def _of_classes(
    t: Tracer, x: Tensor, target: Tensor, work: DType, settings: dict[str, Any], logs_of: Callable[..., Tensor]
) -> Tensor:  # fmt: skip
    """The mean over the labels that are not ignored, weighted by their classes; or the sum."""
    x, axis = _with_class_axis(t, x, target, settings["axis"])
    classes = x.shape[axis]
    logs = logs_of(t, x, [axis])
    ignored, smoothing = settings["ignore_index"], float(settings["smoothing"])
    table = _class_table(t, classes, work, settings)

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
    return sums[0] if settings["reduction"] == "sum" else t.map(X / select(Y > 0.0, Y, 1.0), *sums)


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


def cosine(t: Tracer, x: Tensor, *rest: Any) -> Tensor:
    *others, work, settings = rest
    if len(others) == 1:
        return pairs(t, x, _checked(t, x, others[0], work), None, 0.0)
    b, sides = _checked(t, x, others[0], work), others[1]
    rows = t.reduce("sum", x, [-1], keepdims=False)  # of which only the shape counts
    return pairs(t, x, b, _checked(t, rows, sides, work), float(settings["margin"]))


def ctc(
    t: Tracer, x: Tensor, labels: Tensor, steps: Tensor, counts: Tensor, work: DType, settings: dict[str, Any]
) -> Tensor:  # fmt: skip
    """x: (T, N, C), or (N, T, C)"""
    x = t.transpose(x, (1, 0, 2)) if settings["batch_first"] else x
    for other in (labels, steps, counts):
        t.require_equal(other.shape[0], x.shape[1], "labels and lengths need a row for each sample")
    logs = log_softmax_of(t, x, [2]) if settings["logits"] else x
    found = ctc_of(Chain(t, logs, labels, steps, counts, settings["blank"]))
    return mean_of(t, found, counts, settings["zero_infinity"], settings["reduction"] == "sum")


KINDS: dict[str, Callable[..., Tensor]] = {  # a value for each element, which are reduced
    "mse": _elementwise(lambda _: (X - Y) * (X - Y)),
    "l1": _elementwise(lambda _: abs(X - Y)),
    "huber": _elementwise(_huber),
    "bce": bce,
    "kl": kl,
    "distill": distill,
    "cosine": cosine,
    "triplet": triplet,
}
WHOLE: dict[str, Callable[..., Tensor]] = {"cross_entropy": cross_entropy, "nll": nll, "ctc": ctc}
