"""Transcendental functions as expressions of basic operations, one definition for every printer.

`expand` rewrites them into add sub mul div sqrt abs neg floor ceil trunc round min max select, comparisons, casts and
bit operations. float32 needs 32-bit lanes only: no loads, no branches, no fused multiply-add.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyruntime.dtype import BF16, F16, F32
from pyruntime.expr import Expr, cast, rewrite
from pyruntime.mathlib import explog, hyperbolic, trig
from pyruntime.mathlib.f32 import SINGLE
from pyruntime.mathlib.format import Format

UNARY: dict[str, Callable[[Format, Expr], Expr]] = {
    "exp": explog.exp,
    "log": explog.log,
    "sin": trig.sin,
    "cos": trig.cos,
    "tanh": partial(hyperbolic.saturating, name="TANH"),
    "erf": partial(hyperbolic.saturating, name="ERF"),
}
FORMATS = {F32: SINGLE}


def expand(e: Expr) -> Expr:
    """The expression without transcendental nodes; shared subexpressions are the same object."""
    return rewrite(e, _visit)


def _visit(e: Expr) -> Expr | None:
    if e.op not in UNARY:
        return None
    if e.dtype in (F16, BF16):
        return cast(UNARY[e.op](SINGLE, cast(e.args[0], F32)), e.dtype)
    return UNARY[e.op](FORMATS[e.dtype], e.args[0])


__all__ = ["expand"]
