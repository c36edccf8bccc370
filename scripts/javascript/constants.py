"""What the text of an expression says without types."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from scripts.javascript.names import Refused
from scripts.javascript.tree import Js, binary, plain

CONSTANT: dict[type, Callable[[int, int], int]] = {
    ast.LShift: operator.lshift, ast.Pow: operator.pow, ast.Sub: operator.sub, ast.Add: operator.add,
    ast.Mult: operator.mul,
}  # fmt: skip


def is_pure(e: ast.expr) -> bool:
    """Whether a second evaluation gives the same and does nothing else."""
    return not any(isinstance(x, ast.Call) and getattr(x.func, "id", "") != "len" for x in ast.walk(e))


def power(number: int) -> Js:
    """A constant, as a power of two if it is a large one."""
    exponent = number.bit_length() - 1
    is_large = number == 1 << exponent and exponent > 9
    return binary(plain("2"), "**", plain(str(exponent))) if is_large else plain(str(number))


def constant(e: Any) -> int:
    """The value of an expression of integer literals."""
    if isinstance(e, ast.Constant) and isinstance(e.value, int):
        return e.value
    if isinstance(e, ast.BinOp) and type(e.op) in CONSTANT:
        return int(CONSTANT[type(e.op)](constant(e.left), constant(e.right)))
    raise Refused(e, "an operand that is no constant")
