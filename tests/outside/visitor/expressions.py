"""Expressions of kernels, evaluated by NumPy for all elements at once."""

import numpy as np

from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import walk

OPS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "tanh": np.tanh,
}  # fmt: skip
LEAVES = ("at", "const", "index", "dim", "arg")


def refused(expr):
    """Why `evaluate` cannot compute a float32 expression, or ""."""
    for e in walk(expr):
        if e.op not in OPS and e.op not in LEAVES:
            return f"no {e.op}"
        if e.dtype is not (I32 if e.op in ("index", "dim") else F32) and (e.op, e.dtype) != ("const", I32):
            return f"no {e.op} of {e.dtype}"
    return ""


def axes_of(shape):
    """The index along each axis of an output of this shape."""
    return [
        np.arange(extent).reshape([-1 if n == axis else 1 for n in range(len(shape))])
        for axis, extent in enumerate(shape)
    ]


def evaluate(e, axes, values, symbols, result=None):
    """axes: those of `axes_of`; values: arrays by uid of their tensors; result: of a routine, for its epilogue"""
    if e.op == "index":
        return axes[e.value]
    if e.op == "dim":
        return sh.evaluate(e.value, symbols)
    if e.op == "const":
        return e.value
    if e.op == "arg":
        return result
    args = [evaluate(a, axes, values, symbols, result) for a in e.args]
    return values[e.value.uid][tuple(args)] if e.op == "at" else OPS[e.op](*args)
