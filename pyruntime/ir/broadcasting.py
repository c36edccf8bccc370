"""Broadcasting of shapes. Dims may be symbolic, so the compiler may not know which of two dims is 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyruntime.errors import ShapeError
from pyruntime.ir.shape import AnyDim, Shape, compare, select, single_operation


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
    """Whether b is min(a, k) for another integer k > 1, such as the extent of a slice [:a] of k elements. If such
    dims broadcast, they are equal."""
    op, args = _operation(b)
    return op == "min" and a in args and any(isinstance(x, int) and x > 1 for x in args if x != a)


def _within(a: AnyDim, b: AnyDim) -> bool:
    """Whether b is a or min(a, …), such as the extent of a slice [start : start + a]; or one of them if a > 0, such as
    the extent of a slice [-a:].

    Then a and b broadcast to a. (If a is 1 and the slice starts past the end, the result would be 0: a guard refuses
    that.) Decoders slice their position tables like this; without this rule, dims would grow with each layer."""
    op, args = _operation(b)
    if op == "select" and args[0] == compare("lt", 0, a):
        b = args[1]
        op, args = _operation(b)
    return a == b or (op == "min" and a in args)


def _joined(a: AnyDim, b: AnyDim) -> bool:
    """Whether b is already the result of broadcasting a with other dims, so that broadcasting again changes nothing."""
    seen: set[AnyDim] = set()
    todo = [a]
    while todo:
        x = todo.pop()
        op, args = _operation(x)
        if x in seen or op != "select" or args[0] != compare("eq", args[2], 1):
            continue
        if b in args[1:]:
            return True
        seen.add(x)
        todo += args[1:]
    return False


def _operation(x: AnyDim) -> tuple[str, Sequence[AnyDim]]:
    """The operation of a dim that is nothing else, and its operands; "" for other dims."""
    found = single_operation(x)
    return ("", ()) if found is None else (found.op, found.args)


def broadcast(*shapes: Shape) -> Shape:
    rank = max((len(s) for s in shapes), default=0)
    out: list[Any] = [1] * rank
    for shape in shapes:
        for i, dim in enumerate(shape):
            k = rank - len(shape) + i
            out[k] = broadcast_dim(out[k], dim)
    return tuple(out)
