"""Routines read their operands through views: transposes, slices and reshapes before them cost no copy."""

from __future__ import annotations

from collections.abc import Mapping

from pyruntime.codegen.addressing import split
from pyruntime.codegen.provider import Routine
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, binary, dim, index, is_view
from pyruntime.ir.kernel import Alias, Block, Call, Map, Tensor, View
from pyruntime.passes.map_fusion import substitute


def read_through(block: Block, routines: Mapping[str, Routine]) -> None:
    """Replace operands of calls by the tensors they are views of, where the routine can follow the strides."""
    for kernel in block.kernels:
        if isinstance(kernel, Call) and kernel.routine in routines:
            for n, operand in enumerate(kernel.args):
                if operand is not None and n not in kernel.strided:
                    _operand(kernel, n, operand, routines[kernel.routine])
        for inner in kernel.blocks:
            read_through(inner, routines)


def _operand(call: Call, n: int, operand: Tensor, routine: Routine) -> None:
    base, coords = _through(operand)
    if base is not operand:
        offset, coefficients, opaque = split(base, coords)
        if not opaque:
            view = View(operand, offset, tuple([coefficients.get(("index", i), 0) for i in range(operand.rank)]))
            if routine.reads(call, n, view):
                call.args = (*call.args[:n], base, *call.args[n + 1 :])
                call.strided[n] = view


def _through(t: Tensor) -> tuple[Tensor, list[Expr]]:
    """The tensor that `t` is a view of, and the coordinates there of t's element (i, j, …)."""
    coords: list[Expr] = [index(n) for n in range(t.rank)]
    while True:
        kernel = t.kernel
        if isinstance(kernel, Map) and kernel.expr.op == "at" and is_view(kernel.expr):
            t, coords = kernel.expr.value, [substitute(c, tuple(coords)) for c in kernel.expr.args]
        elif isinstance(kernel, Alias):
            parts = _parts(t.shape, kernel.base.shape)
            if parts is None:
                return t, coords
            coords = [_joined([(coords[n], t.shape[n]) for n in group]) for group in parts]
            t = kernel.base
        else:
            return t, coords


def _parts(shape: sh.Shape, base: sh.Shape) -> list[list[int]] | None:
    """Which axes of a reshaped tensor make up each axis of its base; None where an axis joins several of the base."""
    out: list[list[int]] = []
    n = 0
    for d in base:
        group: list[int] = []
        total = 1
        while total != d:
            if n == len(shape):
                return None
            total = total * shape[n]
            group.append(n)
            n += 1
            if len(group) > len(shape):
                return None
        out.append(group)
    return out if all(shape[m] == 1 for m in range(n, len(shape))) else None


def _joined(parts: list[tuple[Expr, sh.AnyDim]]) -> Expr:
    out = dim(0)
    for coord, extent in parts:
        out = binary("add", binary("mul", out, dim(extent)), coord)
    return out


__all__ = ["read_through"]
