"""Broadcasting of shapes. Dims may be symbolic, so the compiler may not know which of two dims is 1."""

from __future__ import annotations

from typing import Any

from pyruntime.errors import ShapeError
from pyruntime.ir.shape import AnyDim, Atom, Dim, Shape, compare, select
from pyruntime.ir.symbol import Symbol


def broadcast_dim(a: AnyDim, b: AnyDim) -> AnyDim:
    """The dim of ONNX's multidirectional broadcasting: equal dims, or one of them is 1."""
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        raise ShapeError(f"dims {a} and {b} do not broadcast")
    if caps(a, b):
        return a
    if caps(b, a):
        return b
    if _within(a, b) or _joined(a, b):
        return a
    if _within(b, a) or _joined(b, a):
        return b
    if isinstance(a, int) and a != 0:  # the executor's guards check that the symbolic dim is 1 or equal to this one
        return a
    if isinstance(b, int) and b != 0:
        return b
    return select(compare("eq", a, 1), b, a)


def caps(a: AnyDim, b: AnyDim) -> bool:
    """Whether b is min(a, k) for an integer k > 1, such as the extent of a slice [:a] of k elements. If such
    dims broadcast, they are equal."""
    op, *args = _only_atom(b)
    return op == "min" and a in args and any(isinstance(x, int) and x > 1 for x in args)


def _within(a: AnyDim, b: AnyDim) -> bool:
    """Whether b is a or min(a, …), such as the extent of a slice [start : start + a]; or one of them if a > 0, such as
    the extent of a slice [-a:].

    Then a and b broadcast to a. (If a is 1 and the slice starts past the end, the result would be 0: a guard refuses
    that.) Decoders slice their position tables like this; without this rule, dims would grow with each layer."""
    op, *args = _only_atom(b)
    if op == "select" and args[0] == compare("lt", 0, a):
        b = args[1]
        op, *args = _only_atom(b)
    return a == b or (op == "min" and a in args)


def _joined(a: AnyDim, b: AnyDim) -> bool:
    """Whether b is already the result of broadcasting a with other dims, so that broadcasting again changes nothing."""
    op, *args = _only_atom(a)
    if op != "select" or args[0] != compare("eq", args[2], 1):
        return False
    return any(x == b or _joined(x, b) for x in args[1:])


def _only_atom(x: AnyDim) -> Atom:
    """Return the operation of a dim that is a single operation, with its operands; ("",) for other dims."""
    if isinstance(x, Dim) and len(x.terms) == 1 and x.terms[0][1] == 1 and len(x.terms[0][0]) == 1:
        atom: Atom = x.terms[0][0][0]
        return ("",) if isinstance(atom, Symbol) else atom
    return ("",)


def broadcast(*shapes: Shape) -> Shape:
    rank = max((len(s) for s in shapes), default=0)
    out: list[Any] = [1] * rank
    for shape in shapes:
        for i, dim in enumerate(shape):
            k = rank - len(shape) + i
            out[k] = broadcast_dim(out[k], dim)
    return tuple(out)
