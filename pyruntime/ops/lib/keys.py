"""Look-up of elements among constant keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyruntime.host.text  # noqa: F401  registers its functions
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import I32, I64, STRING
from pyruntime.ir.expr import Expr, const, isnan, select
from pyruntime.ir.kernel import Tensor


def positions(t: Tracer, x: Tensor, keys: Sequence[Any]) -> Tensor:
    """The index of each element among the keys (the last of equal ones), or -1; from opset 4 on NaN equals NaN. Numbers
    are found by binary search, strings by hashing."""
    if any(isinstance(key, str) is not (x.dtype is STRING) for key in keys):
        raise t.shape_error(f"the keys differ in type from the input, which is {x.dtype}")
    if x.dtype is STRING:
        return t.host("find_keys", [x], [(x.shape, I64)], keys=tuple(keys))[0]
    last = {key: n for n, key in enumerate(keys) if key == key}
    nan = max((n for n, key in enumerate(keys) if key != key), default=-1) if t.opset >= 4 else -1
    if not last:
        return t.compute(x.shape, lambda *i: _or_nan(x.at(*i), nan, const(-1, I64)))
    order = sorted(last)
    count = 1 << (len(order) - 1).bit_length()
    order += order[-1:] * (count - len(order))
    table, numbers = t.constant(order, x.dtype), t.constant([last[key] for key in order], I64)

    def place(*i: Expr) -> Expr:
        value, at, step = x.at(*i), const(0, I32), count >> 1
        while step:
            at = at + select(table[at + step] <= value, step, const(0, I32))
            step >>= 1
        return _or_nan(value, nan, select(table[at] == value, numbers[at], const(-1, I64)))

    return t.compute(x.shape, place)


def _or_nan(value: Expr, nan: int, found: Expr) -> Expr:
    return found if nan < 0 else select(isnan(value), const(nan, I64), found)
