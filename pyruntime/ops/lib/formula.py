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

from pyruntime.frontend.registry import Lowering, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32, F64, STRING, U8, DType
from pyruntime.ir.expr import Expr, as_expr, bitcast, cast, const, exp, maximum
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.minifloat import MINIFLOATS, decode

Formula = Callable[..., Expr]
LOWEST = -3.4028234663852886e38  # of float32
AT_ONCE = 32  # operands of one expression


def mapped(t: Tracer, fn: Formula, *xs: Tensor) -> Tensor:
    """fn of the elements of xs, broadcast."""
    shape = t.broadcast(*xs)
    return t.compute(shape, lambda *_: fn(*[t.aligned(x, shape) for x in xs]))


def formula(name: str, *, since: int = 1, domain: str = "") -> Callable[[Formula], Formula]:
    """Register a formula: positional parameters are the inputs' elements, keyword-only ones the attributes."""

    def register(fn: Formula) -> Formula:
        def lower(t: Tracer, *xs: Tensor, **attrs: Any) -> Tensor:
            return mapped(t, lambda *es: fn(*es, **attrs), *[numeric(t, x) for x in xs])

        _sign(lower, fn)
        op(name, since=since, domain=domain)(lower)
        return fn

    return register


def legacy_formula(name: str, fn: Formula) -> None:
    """The meaning before opset 7: the second operand's shape is the first's, or with `broadcast` a contiguous part of
    it that starts at `axis` (default: a suffix)."""

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
    """One or more operands combined from left to right; `last` gets the result and their number."""

    @op(name)
    def lower(t: Tracer, x: Tensor, *more: Tensor) -> Tensor:
        xs, count = [x, *more], 1 + len(more)
        while len(xs) > AT_ONCE:
            xs = [mapped(t, lambda *es: reduce(fn, es), *xs[n : n + AT_ONCE]) for n in range(0, len(xs), AT_ONCE)]
        return mapped(t, lambda *es: last(reduce(fn, es), count), *xs) if more else x


def _sign(lower: Lowering, fn: Formula) -> None:
    first = inspect.Parameter("t", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    lower.__signature__ = inspect.Signature([first, *inspect.signature(fn).parameters.values()])  # type: ignore[attr-defined]


def numeric(t: Tracer, x: Tensor) -> Tensor:
    """x in a type that has arithmetic: float8 and the like as float32."""
    return t.compute(x.shape, lambda *i: decode(x.at(*i), x.dtype)) if x.dtype in MINIFLOATS else x


def float_type(dtype: DType) -> DType:
    """The type in which floats are computed: float64 for itself, float32 for all others."""
    return F64 if dtype is F64 else F32


def real(e: Expr) -> Expr:
    """As a float that a transcendental function takes."""
    return e if e.dtype.is_float else cast(e, F64 if e.dtype.size == 8 else F32)


def number(value: float, dtype: DType) -> Expr:
    """An attribute as a constant of a type; integers take its whole part."""
    return as_expr(value if dtype.is_float else int(value), dtype)


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)) without overflow, with all digits where it is small. log(1 + p), 0 < p <= 1, as 2·atanh(s) with
    s = p / (p + 2), by its series: what 1 + p rounds away could be divided out, but WGSL lets (p + 1) - 1 be p."""
    power = exp(-abs(x))
    s = power / (power + 2.0)
    square = s * s
    series: Expr | float = 1 / (31 if x.dtype is F64 else 13)
    for n in range(29 if x.dtype is F64 else 11, 0, -2):
        series = square * series + 1 / n
    return maximum(x, 0.0) + (s + s) * series


def zero(dtype: DType) -> Expr:
    """0, False or "" of any type; float8 and the like have it as the bit pattern 0."""
    if dtype in MINIFLOATS:
        return bitcast(const(0, U8), dtype)
    return const(0, dtype) if dtype is not STRING else Expr("const", (), dtype, "")
