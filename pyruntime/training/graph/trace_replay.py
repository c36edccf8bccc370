"""Traces of functions (pyruntime/runtime/traced_vocabulary.py) become kernels, or expressions of one element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyruntime.errors import InvalidInput
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, DType
from pyruntime.ir.expr import (
    Expr,
    X,
    cast,
    const,
    cos,
    dim,
    erf,
    exp,
    floor,
    log,
    maximum,
    minimum,
    power,
    round_even,
    select,
    sigmoid,
    sin,
    sqrt,
    tanh,
)  # fmt: skip
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import mapped, softplus_below
from pyruntime.ops.standard.matmul import matmul
from pyruntime.ops.standard.reduce import log_softmax_of
from pyruntime.runtime.traced_vocabulary import ELEMENTWISE

Node = Sequence[Any]
LOGICAL = ("logical_and", "logical_or", "logical_not")


def _sign(x: Expr) -> Expr:
    return select(x > 0.0, const(1.0, x.dtype), select(x < 0.0, const(-1.0, x.dtype), x * 0.0))


def _power(x: Expr, y: Expr) -> Expr:
    return x * x if y.op == "const" and y.value == 2 else power(x, y)


def _relu(x: Expr) -> Expr:
    """0 of -inf, and NaN of NaN"""
    return select(x <= 0.0, const(0.0, x.dtype), x)


def _softplus(x: Expr) -> Expr:
    """log(1 + exp(x)), with 1/2 as the derivative at 0"""
    return _relu(x) + softplus_below(select(x > 0.0, -x, x))


FORMULAS: dict[str, Callable[..., Expr]] = {
    "abs": lambda x: x * _sign(x), "neg": lambda x: -x, "exp": exp, "log": log, "sqrt": sqrt,
    "square": lambda x: x * x, "sign": _sign, "floor": floor, "round": round_even, "sin": sin, "cos": cos, "tanh": tanh,
    "erf": erf, "sigmoid": sigmoid, "relu": _relu, "softplus": _softplus,
    "logical_not": lambda x: ~x, "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y, "pow": _power, "minimum": minimum, "maximum": maximum, "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y, "lt": lambda x, y: x < y, "le": lambda x, y: x <= y, "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y, "logical_and": lambda x, y: x & y, "logical_or": lambda x, y: x | y, "where": select,
}  # fmt: skip


def element(name: str, operands: Sequence[Any], work: DType) -> Expr:
    """The formula of an elementwise method. operands: expressions and numbers; work: the type of numbers"""

    def typed(x: Any, is_condition: bool) -> Expr:
        e = x if isinstance(x, Expr) else const(x, work)
        if is_condition:
            return e if e.dtype is BOOL else cast(e, work) != 0.0
        return select(e, const(1.0, work), 0.0) if e.dtype is BOOL else cast(e, work)

    conditions = [name in LOGICAL or name == "where" and n == 0 for n in range(len(operands))]
    return FORMULAS[name](*map(typed, operands, conditions))


class Replay:
    """The values of a trace as tensors. leaf: kind and name of a leaf -> its tensor; work: the type of numbers"""

    def __init__(self, t: Tracer, nodes: Sequence[Node], leaf: Callable[[str, str], Tensor], work: DType) -> None:
        self.t, self.nodes, self.work = t, nodes, work
        self.values: list[Tensor] = []
        for name, operands, settings in nodes[:-1]:
            self.values.append(self._value(name, operands, settings, leaf))

    @property
    def results(self) -> list[Tensor]:
        return [self.operand(x) for x in self.nodes[-1][1]]

    def operand(self, x: Any) -> Tensor:
        if isinstance(x, str):
            return self.values[int(x)]
        return self.t.constant(x, self.work) if isinstance(x, list) else self.t.scalar(x, self.work)

    def _value(self, name: str, given: Sequence[Any], settings: Mapping[str, Any], leaf: Any) -> Tensor:
        if not given:
            found: Tensor = leaf(name, settings["name"])
            return found
        if name in ELEMENTWISE:
            xs = fitted(self.t, name, [self.operand(x) for x in given])
            return mapped(self.t, lambda *e: element(name, e, self.work), *xs)
        x, *others = [self.operand(x) for x in given]
        if not x.dtype.is_float and name != "one_hot":
            x = mapped(self.t, lambda e: element("add", (e, 0.0), self.work), x)
        return SHAPES[name](self.t, x, *others, **settings)


def fitted(t: Tracer, name: str, xs: Sequence[Tensor]) -> list[Tensor]:
    """Operands whose dims are the same wherever they are not the number 1: only this one is broadcast."""
    rank = max(x.rank for x in xs)
    wide = [(1,) * (rank - x.rank) + tuple(x.shape) for x in xs]
    shapes = "], [".join(", ".join(map(str, x.shape)) for x in xs)
    whole: list[Any] = []
    for dims in zip(*wide, strict=True):
        rest = [d for d in dims if not _is_one(d)]
        for d in rest[1:]:
            t.require_equal(d, rest[0], f"{name} of [{shapes}]: dims are neither equal nor 1")
        whole.append(rest[0] if rest else 1)
    shaped = [[1 if _is_one(d) else w for d, w in zip(s, whole, strict=True)] for s in wide]
    return [t.reshape(x, s) for x, s in zip(xs, shaped, strict=True)]


def _is_one(d: sh.AnyDim) -> bool:
    return isinstance(d, int) and d == 1


def _reduction(name: str) -> Callable[..., Tensor]:
    def made(t: Tracer, x: Tensor, axes: Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        found = range(x.rank) if axes is None else [t.axis(a, x.rank) for a in axes]
        y = t.reduce("sum" if name == "mean" else name, x, found, keepdims=keepdims)
        count = sh.size([x.shape[a] for a in found])
        return t.map(X / cast(dim(count), x.dtype), y) if name == "mean" else y

    return made


def _log_softmax(t: Tracer, x: Tensor, axis: int = -1) -> Tensor:
    return log_softmax_of(t, x, [t.axis(axis, x.rank)])


def _softmax(t: Tracer, x: Tensor, axis: int = -1) -> Tensor:
    return t.map(exp(X), _log_softmax(t, x, axis))


def _reshape(t: Tracer, x: Tensor, shape: Sequence[int]) -> Tensor:
    """-1: what the other dims leave"""
    rest = sh.size([d for d in shape if d != -1])
    whole = [sh.size(x.shape) // rest if d == -1 else d for d in shape]
    t.require_equal(sh.size(whole), sh.size(x.shape), "reshape changes the number of elements")
    return t.reshape(x, whole)


def _unsqueeze(t: Tracer, x: Tensor, axes: Sequence[int] = (-1,)) -> Tensor:
    return t.unsqueeze(x, t.axes(axes, x.rank + len(axes)))


def _transpose(t: Tracer, x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    return t.transpose(x, [*range(x.rank)][::-1] if axes is None else [t.axis(a, x.rank) for a in axes])


def _one_hot(t: Tracer, x: Tensor, classes: int) -> Tensor:
    one, zero = const(1.0), const(0.0)
    return t.compute(
        (*x.shape, classes), lambda *i: select(t.checked_index(x.at(*i[:-1]), classes) == i[-1], one, zero)
    )


def _pick(t: Tracer, x: Tensor, labels: Tensor) -> Tensor:
    """Along the last axis the element with the number that the label has."""
    *rows, classes = x.shape
    if labels.rank != len(rows):
        raise t.shape_error(f"labels of pick have {labels.rank} axes, the tensor without its last {len(rows)}")
    for have, want in zip(labels.shape, rows, strict=True):
        t.require_equal(have, want, "labels of pick need the dims of the tensor but the last")
    labels = t.reshape(labels, rows)
    return t.compute(rows, lambda *i: x.at(*i, t.checked_index(labels.at(*i), classes)))


SHAPES: dict[str, Callable[..., Tensor]] = {
    **{name: _reduction(name) for name in ("sum", "mean", "max", "min")},
    "softmax": _softmax, "log_softmax": _log_softmax, "reshape": _reshape, "transpose": _transpose,
    "unsqueeze": _unsqueeze, "squeeze": lambda t, x, axes: t.squeeze(x, axes),
    "one_hot": _one_hot, "detach": lambda t, x: t.still(t.map(X, x)), "matmul": matmul, "pick": _pick,
}  # fmt: skip


# ── ranks, before there are tensors ─────────────────────────────────────────────────────────────────────────────────


def label_ranks(nodes: Sequence[Node], known: Mapping[str, int]) -> dict[str, tuple[int, bool]]:
    """Of labels: their ranks, and whether they are integers. A label has the rank of what it is combined with. known:
    ranks of outputs. Errors: InvalidInput if this tells too little, or if the result is no single number"""
    labels: dict[str, int] = {}
    whole: set[str] = set()
    result = None
    for _ in range(len(nodes)):
        before = len(labels)
        result = _ranks(nodes, known, labels, whole)
        if len(labels) == before:
            break
    names = [node[2]["name"] for node in nodes if node[0] == "label"]
    if missing := [name for name in names if name not in labels]:
        text = f'the loss does not tell how many axes the label "{missing[0]}" has'
        raise InvalidInput(text, hint="combine it with an output: (outputs.y - labels.target).square().mean()")
    if result != 0:
        raise InvalidInput(f"the loss has {result} axes; a loss is a single number", hint="end with .mean() or .sum()")
    return {name: (labels[name], name in whole) for name in names}


class _Open:
    """The rank of a label that is not known yet, plus a number."""

    def __init__(self, name: str, more: int) -> None:
        self.name, self.more = name, more


def _ranks(nodes: Sequence[Node], known: Mapping[str, int], labels: dict[str, int], whole: set[str]) -> Any:
    found: list[Any] = []

    def of(x: Any) -> Any:
        return found[int(x)] if isinstance(x, str) else int(isinstance(x, list))

    def settle(x: Any, rank: int) -> None:
        if isinstance(x, _Open):
            if rank < x.more:
                raise InvalidInput(f'the label "{x.name}" is combined with a value of {rank} axes: too few')
            labels.setdefault(x.name, rank - x.more)

    def combined(operands: Sequence[Any]) -> Any:
        """The largest rank; a list of numbers tells nothing of a label's."""
        opens = [r for r in map(of, operands) if isinstance(r, _Open)]
        others = [x for x in operands if not (isinstance(of(x), _Open) or opens and isinstance(x, list))]
        largest = max(map(of, others), default=0)
        for r in opens if largest else ():
            settle(r, largest)
        return opens[0] if opens and not largest else largest

    for name, operands, settings in nodes:
        ranks = [of(x) for x in operands]
        first: Any = ranks[0] if ranks else 0
        if name == "output":
            found.append(known[settings["name"]])
        elif name == "label":
            found.append(labels.get(settings["name"], _Open(settings["name"], 0)))
        elif name in ELEMENTWISE or name == "matmul":
            rank = combined(operands)
            found.append(rank - 1 if name == "matmul" and 1 in ranks and not isinstance(rank, _Open) else rank)
        else:
            if name in ("one_hot", "pick"):
                source = nodes[int(operands[-1])] if isinstance(operands[-1], str) else ("", (), {})
                whole |= {source[2]["name"]} if source[0] == "label" else set()
            if name == "pick" and not isinstance(first, _Open):
                settle(ranks[1], first - 1)
            found.append(_rank_after(name, first, settings))
    return found[-1]


def _rank_after(name: str, rank: Any, settings: Mapping[str, Any]) -> Any:
    axes: Any = settings.get("axes")
    if name == "reshape":
        return len(settings["shape"])
    is_sum = name in ("sum", "mean", "max", "min") and not settings.get("keepdims")
    if is_sum and axes is None:
        return 0
    changes = {"one_hot": 1, "pick": -1, "unsqueeze": len(axes or (-1,)), "squeeze": -len(axes or ())}
    more: int = -len(axes) if is_sum else changes.get(name, 0)
    return _Open(rank.name, rank.more + more) if isinstance(rank, _Open) else rank + more
