"""Operators that are one broadcasting formula of typed expressions, with attributes.

@formula("LeakyRelu")
def leaky_relu(x, *, alpha=0.01):
    return select(x < 0, x * alpha, x)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import reduce
from typing import Any

from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.frontend.registry import Lowering, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import BF16, F16, F32, F64, STRING, U8, DType
from pyruntime.ir.expr import Expr, Y, as_expr, bitcast, cast, const, exp, maximum
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.minifloat import MINIFLOATS, decode

POINTWISE = GradientRule[Tensor, Expr]()

Formula = Callable[..., Expr]
LOWEST = -3.4028234663852886e38  # the lowest finite float32
MAX_OPERANDS = 32  # operands of one expression; a variadic operator with more uses several expressions


def mapped(t: Tracer, fn: Formula, *xs: Tensor) -> Tensor:
    """fn applied to the elements of xs, broadcast."""
    shape = t.broadcast(*xs)
    return t.compute(shape, lambda *_: fn(*[t.aligned(x, shape) for x in xs]))


def formula(
    name: str, *, since: int = 1, domain: str = "", derivative: Formula | None = None
) -> Callable[[Formula], Formula]:
    """Register a formula as an operator: its positional parameters are the inputs' elements, its keyword-only
    parameters the attributes.

    derivative: of a formula of one operand, for one that is smooth where its parts are not, as |x| at 0"""

    def register(fn: Formula) -> Formula:
        def lower(t: Tracer, *xs: Tensor, **attrs: Any) -> Tensor:
            operands = [numeric(t, x) for x in xs]
            y = mapped(t, lambda *es: fn(*es, **attrs), *operands)
            if derivative is not None:
                t.own_gradient(y, POINTWISE, operands[0], derivative(Y, **attrs))
            return y

        _copy_signature(lower, fn)
        op(name, since=since, domain=domain)(lower)
        return fn

    return register


def legacy_formula(name: str, fn: Formula) -> None:
    """The meaning before opset 7: the second operand has the shape of the first or, with `broadcast`, of a contiguous
    part of it that starts at `axis` (default: a suffix)."""

    @op(name, since=1)
    def lower(t: Tracer, a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
        if not broadcast:
            for m, n in zip(a.shape, b.shape, strict=a.rank == b.rank):
                t.require_equal(m, n, "operands without broadcast differ in shape")
            return mapped(t, fn, a, b)
        if axis is not None and b.rank:
            first = t.axis(axis, a.rank)
            b = t.reshape(b, (*b.shape, *[1] * (a.rank - first - b.rank)))
        return mapped(t, fn, a, b)


def variadic(name: str, fn: Formula, last: Callable[[Expr, int], Expr] = lambda e, _: e) -> None:
    """Register an operator that combines one or more operands from left to right. `last` gets the result and the number
    of operands."""

    @op(name)
    def lower(t: Tracer, x: Tensor, *more: Tensor) -> Tensor:
        xs, count = [x, *more], 1 + len(more)
        while len(xs) > MAX_OPERANDS:
            groups = [xs[n : n + MAX_OPERANDS] for n in range(0, len(xs), MAX_OPERANDS)]
            xs = [mapped(t, lambda *es: reduce(fn, es), *group) for group in groups]
        return mapped(t, lambda *es: last(reduce(fn, es), count), *xs) if more else x


def _copy_signature(lower: Lowering, fn: Formula) -> None:
    first = inspect.Parameter("t", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    lower.__signature__ = inspect.Signature([first, *inspect.signature(fn).parameters.values()])  # type: ignore[attr-defined]


def numeric(t: Tracer, x: Tensor) -> Tensor:
    """x in a type that has arithmetic: float8, float6 and float4 become float32."""
    return t.compute(x.shape, lambda *i: decode(x.at(*i), x.dtype)) if x.dtype in MINIFLOATS else x


def float_type(dtype: DType) -> DType:
    """The type in which floats are computed: float64 for float64, float32 for all others."""
    return F64 if dtype is F64 else F32


def sum_type(dtype: DType) -> DType:
    """The type in which values are summed: float32 for half floats."""
    return F32 if dtype in (F16, BF16) else dtype


def real(e: Expr) -> Expr:
    """e as a float that transcendental functions take."""
    return e if e.dtype.is_float else cast(e, F64 if e.dtype.size == 8 else F32)


def number(value: float, dtype: DType) -> Expr:
    """An attribute as a constant of the type; integer types truncate it."""
    return as_expr(value if dtype.is_float else int(value), dtype)


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)) without overflow and without cancellation: max(x, 0) + log(1 + exp(-|x|))"""
    return maximum(x, 0.0) + softplus_below(-abs(x))


def softplus_below(x: Expr) -> Expr:
    """log(1 + p) with p = exp(x), x up to 0: 2·atanh(s), s = p / (p + 2), is a series. The usual correction for the
    rounding of 1 + p does not work here, because WGSL may evaluate (p + 1) - 1 as p."""
    power = exp(x)
    s = power / (power + 2.0)
    square = s * s
    series: Expr | float = 1 / (31 if x.dtype is F64 else 13)
    for n in range(29 if x.dtype is F64 else 11, 0, -2):
        series = square * series + 1 / n
    return (s + s) * series


def zero(dtype: DType) -> Expr:
    """0, False or "" of any type. For float8 and smaller floats it is the bit pattern 0."""
    if dtype in MINIFLOATS:
        return bitcast(const(0, U8), dtype)
    return const(0, dtype) if dtype is not STRING else Expr("const", (), dtype, "")
