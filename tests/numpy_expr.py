"""Evaluates an expression over whole arrays with NumPy, each operation rounding as its dtype does.

Only the basic operations that `mathlib.expand` returns. Indices are the inputs, by number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyruntime.ir.dtype import DType, bounds
from pyruntime.ir.expr import Expr, walk

Array = np.ndarray[Any, Any]

UNARY: dict[str, Callable[..., Array]] = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": np.rint, "isnan": np.isnan, "not": np.logical_not, "bitnot": np.invert,
}  # fmt: skip
BINARY: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def evaluate(e: Expr, *inputs: Array) -> Array:
    """The values of e where input n stands for index n; a shared node is computed once."""
    done: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        for node in walk(e):
            done[id(node)] = _value(node, [done[id(a)] for a in node.args], inputs)
    return done[id(e)]


def _value(node: Expr, args: list[Array], inputs: Sequence[Array]) -> Array:
    if node.op == "index":
        return inputs[node.value]
    if node.op == "const":
        return np.array(node.value, numpy_type(node.dtype))
    if node.op in ("select", "guard"):
        return np.where(*args)
    if node.op == "bitcast":
        return args[0].view(numpy_type(node.dtype))
    if node.op == "cast":
        return _cast(args[0], node.args[0].dtype, node.dtype)
    if node.op in BINARY:
        a, b = args
        assert a.dtype == b.dtype, node.op
        return BINARY[node.op](a, b)
    return UNARY[node.op](args[0])


def _cast(x: Array, source: DType, to: DType) -> Array:
    """Float to integer truncates and saturates, NaN gives 0."""
    if not (source.is_float and to.is_int):
        return x.astype(numpy_type(to))
    low, high = bounds(to)
    whole = np.where(np.isnan(x) | (x >= float(high)) | (x <= float(low)), 0, x).astype(numpy_type(to))
    return np.where(x >= float(high), high, np.where(x <= float(low), low, whole)).astype(numpy_type(to))


def numpy_type(d: DType) -> Any:
    return np.dtype(d.name)
