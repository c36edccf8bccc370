"""Puts other symbols into dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import add, mul
from typing import Any

from pyruntime.ir import shape as sh
from pyruntime.ir.shape import AnyDim, Dim
from pyruntime.ir.symbol import Symbol

_MAKE: dict[str, Callable[..., AnyDim]] = {
    "+": add, "*": mul, "floordiv": sh.floordiv, "max": sh.maximum, "min": sh.minimum, "select": sh.select,
    **{op: partial(sh.compare, op) for op in ("lt", "le", "eq")},
}  # fmt: skip


def renamed(x: AnyDim, names: Mapping[Symbol, Symbol]) -> AnyDim:
    """The dim with other symbols. names: the new symbol for each that changes"""
    if isinstance(x, int) or names.keys().isdisjoint(sh.symbols(x)):
        return x
    total: AnyDim = 0
    for factors, product in x.terms:
        for factor in factors:
            product = product * _factor(factor, names)
        total = total + product
    return total


def _factor(factor: Any, names: Mapping[Symbol, Symbol]) -> AnyDim:
    if isinstance(factor, Symbol):
        return sh.dim_of(names.get(factor, factor))
    if names.keys().isdisjoint(factor.symbols):
        return Dim((((factor,), 1),))
    return _MAKE[factor.op](*[renamed(a, names) for a in factor.args])
