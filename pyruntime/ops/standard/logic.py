"""Comparison, logic, bit operations and selection."""

from __future__ import annotations

import math
from functools import partial

from pyruntime.frontend.registry import elementwise, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.expr import Expr, X, Y, binary, isinf, isnan, select, unary
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import formula, legacy_formula, mapped

for _name, _op in {"Equal": "eq", "Less": "lt", "Greater": "gt", "And": "and", "Or": "or", "Xor": "xor"}.items():
    legacy_formula(_name, partial(binary, _op))
    elementwise(_name, since=7, expr=binary(_op, X, Y))
elementwise("LessOrEqual", since=12, expr=X <= Y)
elementwise("GreaterOrEqual", since=12, expr=X >= Y)
elementwise("Not", expr=unary("not", X))
elementwise("BitwiseAnd", since=18, expr=X & Y)
elementwise("BitwiseOr", since=18, expr=X | Y)
elementwise("BitwiseXor", since=18, expr=X ^ Y)
elementwise("BitwiseNot", since=18, expr=unary("bitnot", X))


@formula("IsNaN", since=9)
def is_nan(x: Expr) -> Expr:
    return isnan(x)


@formula("IsInf", since=10)
def is_inf(x: Expr, *, detect_negative: int = 1, detect_positive: int = 1) -> Expr:
    if detect_negative and detect_positive:
        return isinf(x)
    if detect_positive:
        return x == math.inf
    return x == -math.inf if detect_negative else x < x


@op("Where", since=9)
def where(t: Tracer, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """x where the condition holds, else y; all three broadcast."""
    return mapped(t, select, condition, x, y)
