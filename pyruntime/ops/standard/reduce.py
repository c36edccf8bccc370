"""Reductions, ArgMax, ArgMin and softmax. Half floats are summed in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, F32, F64, I64, U64
from pyruntime.ir.expr import Expr, X, Y, cast, const, dim, exp, isinf, log, rem, select, sqrt
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import mapped, sum_type

SOFTMAX = GradientRule[Tensor, Tensor, Sequence[int]]()
LOG_SOFTMAX = GradientRule[Tensor, Tensor, Sequence[int]]()

Reduction = Callable[[Tracer, Tensor, list[int]], Tensor]  # reduced axes remain with extent 1


def wide(t: Tracer, x: Tensor) -> Tensor:
    """x in the type that long sums use: float32 for half floats."""
    return t.cast(x, sum_type(x.dtype))


def real(t: Tracer, x: Tensor) -> Tensor:
    """x in a float type that has roots and logarithms."""
    if x.dtype.is_float:
        return wide(t, x)
    return t.cast(x, F64 if x.dtype.size == 8 else F32)


def total(t: Tracer, x: Tensor, axes: Sequence[int], of: Expr | None = None) -> Tensor:
    return t.reduce("sum", x, axes, of=of)


def _mean(t: Tracer, x: Tensor, axes: list[int]) -> Tensor:
    if x.dtype in (I64, U64):
        return _mean_of_long(t, x, axes)
    x = wide(t, x) if x.dtype.is_float else t.cast(x, I64)
    return t.map(X / cast(dim(prod(x.shape[a] for a in axes)), x.dtype), total(t, x, axes))


def _mean_of_long(t: Tracer, x: Tensor, axes: list[int]) -> Tensor:
    """Σx / n, truncated towards 0, from the sums of x / n and of its remainders: Σx itself may overflow."""
    n = cast(dim(prod(x.shape[a] for a in axes)), x.dtype)
    zero = const(0, x.dtype)
    quotients, remainders = total(t, x, axes, X / n), total(t, x, axes, rem(X, n))

    def mean(q: Expr, r: Expr) -> Expr:
        whole, rest = q + r / n, rem(r, n)
        down = cast((whole > zero) & (rest < zero), x.dtype)
        return whole - down + cast((whole < zero) & (rest > zero), x.dtype)

    return t.map(mean(X, Y), quotients, remainders)


def _extreme(op_: str, of_bools: str) -> Reduction:
    return lambda t, x, axes: t.reduce(of_bools if x.dtype is BOOL else op_, x, axes)


def _log_sum_exp(t: Tracer, x: Tensor, axes: list[int]) -> Tensor:
    """log Σ exp(x), shifted by the maximum if that is finite."""
    x = real(t, x)
    peak = t.still(t.map(select(isinf(X), 0.0, X), t.reduce("max", x, axes)))
    return t.map(log(X) + Y, total(t, t.map(exp(X - Y), x, peak), axes), peak)


_REDUCTIONS: dict[str, Reduction] = {
    "Sum": lambda t, x, axes: total(t, wide(t, x), axes),
    "Mean": _mean,
    "Max": _extreme("max", "any"),
    "Min": _extreme("min", "all"),
    "Prod": lambda t, x, axes: t.reduce("prod", wide(t, x), axes),
    "L1": lambda t, x, axes: total(t, wide(t, x), axes, abs(X)),
    "L2": lambda t, x, axes: t.map(sqrt(X), total(t, real(t, x), axes, X * X)),
    "SumSquare": lambda t, x, axes: total(t, wide(t, x), axes, X * X),
    "LogSum": lambda t, x, axes: t.map(log(X), total(t, real(t, x), axes)),
    "LogSumExp": _log_sum_exp,
}


def _reduced(t: Tracer, x: Tensor, axes: list[int], keepdims: int, reduction: Reduction) -> Tensor:
    axes = t.axes(axes, x.rank)
    out = t.cast(reduction(t, x, axes), x.dtype)
    return out if keepdims == 1 else t.squeeze(out, axes)


def _register(name: str, reduction: Reduction) -> None:
    """The axes are an attribute before opset 18 (13 for ReduceSum), then an input."""

    @op(f"Reduce{name}")
    def by_attribute(t: Tracer, x: Tensor, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Tensor:
        return _reduced(t, x, list(axes or range(x.rank)), keepdims, reduction)

    @op(f"Reduce{name}", since=13 if name == "Sum" else 18)
    def by_input(
        t: Tracer, x: Tensor, axes: Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        values = t.static(axes) if axes is not None else []
        if not values and noop_with_empty_axes:
            return _reduced(t, x, [], keepdims, reduction)
        return _reduced(t, x, values or list(range(x.rank)), keepdims, reduction)


for _name, _reduction in _REDUCTIONS.items():
    _register(_name, _reduction)


def _register_arg(name: str, op_: str) -> None:
    @op(name)
    def lower(t: Tracer, x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        """The index (int64) of the first or last extremum along an axis."""
        axis = t.axis(axis, x.rank)
        if x.rank == 0:
            return t.fill((), 0, I64)
        others = prod([*x.shape[:axis], *x.shape[axis + 1 :]])
        d = sh.size(x.shape[axis : axis + 1])
        t.require(sh.maximum(sh.compare("lt", 0, d), sh.compare("eq", others, 0)), f"axis {axis} has no elements")
        return t.reduce(f"{op_}_last" if select_last_index else op_, x, [axis], keepdims == 1)


_register_arg("ArgMax", "argmax")
_register_arg("ArgMin", "argmin")


# ── softmax and norms along an axis ───────────────────────────────────────────────────────────────────────────────


def softmax_of(t: Tracer, x: Tensor, axes: Sequence[int]) -> Tensor:
    """exp(x - max) / Σ exp(x - max), in x's type."""
    y = wide(t, x)
    e = t.map(exp(X - Y), y, t.still(t.reduce("max", y, axes)))
    p = t.map(X / Y, e, total(t, e, axes))
    return t.cast(t.own_gradient(p, SOFTMAX, p, y, axes), x.dtype)


def log_softmax_of(t: Tracer, x: Tensor, axes: Sequence[int]) -> Tensor:
    y = wide(t, x)
    shifted = t.map(X - Y, y, t.still(t.reduce("max", y, axes)))
    logs = t.map(X - log(Y), shifted, total(t, shifted, axes, exp(X)))
    return t.cast(t.own_gradient(logs, LOG_SOFTMAX, logs, y, axes), x.dtype)


def _hardmax(t: Tracer, x: Tensor, axes: Sequence[int]) -> Tensor:
    """1 at the first maximum, 0 elsewhere."""
    first = t.reduce("argmax", x, axes)
    axis = t.axis(axes[0], x.rank)
    one, zero = const(1, x.dtype), const(0, x.dtype)
    return t.compute(x.shape, lambda *i: select(t.aligned(first, x.shape) == cast(i[axis], I64), one, zero))


def _register_softmax(name: str, reduction: Callable[[Tracer, Tensor, Sequence[int]], Tensor]) -> None:
    """Before opset 13 the axes from `axis` on are flattened into one."""

    @op(name)
    def flattened(t: Tracer, x: Tensor, *, axis: int = 1) -> Tensor:
        axis = axis if axis == x.rank else t.axis(axis, x.rank)
        flat = t.reshape(x, [prod(x.shape[:axis]), prod(x.shape[axis:])])
        return t.reshape(reduction(t, flat, [1]), x.shape)

    @op(name, since=13)
    def along_axis(t: Tracer, x: Tensor, *, axis: int = -1) -> Tensor:
        return reduction(t, x, [axis])


_register_softmax("Softmax", softmax_of)
_register_softmax("LogSoftmax", log_softmax_of)
_register_softmax("Hardmax", _hardmax)


@op("LpNormalization")
def lp_normalization(t: Tracer, x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """x / ‖x‖p along an axis; 0 where the norm is 0."""
    if p not in (1, 2):
        raise t.unsupported(f"p must be 1 or 2, is {p}")
    y = wide(t, x)
    norm = total(t, y, [axis], abs(X)) if p == 1 else t.map(sqrt(X), total(t, y, [axis], X * X))
    return t.cast(mapped(t, lambda e, n: select(n == 0.0, 0.0, e / n), y, norm), x.dtype)
