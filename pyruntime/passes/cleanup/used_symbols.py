"""Symbols that kernels mention: a Read is dead if nothing mentions its symbols."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import Block, Call, Kernel, Loops, Reduce
from pyruntime.ir.shape import Dim
from pyruntime.ir.statements import expressions_of
from pyruntime.ir.symbol import Symbol


def symbols_in(block: Block) -> set[Symbol]:
    """Symbols in shapes, extents, expressions and attributes of the kernels of a block and its inner blocks."""
    return _symbols(_dims_in(block))


def symbols_of(kernel: Kernel) -> set[Symbol]:
    """Symbols that one kernel mentions, without its inner blocks."""
    return _symbols(_dims_of(kernel))


def _symbols(dims: set[Dim]) -> set[Symbol]:
    return set().union(*map(sh.symbols, dims))


def _dims_in(block: Block) -> set[Dim]:
    out: set[Dim] = set()
    for kernel in block.kernels:
        out |= _dims_of(kernel)
        for inner in kernel.blocks:
            out |= _dims_in(inner)
            for t in (*inner.inputs, *inner.outputs):
                _dims(t.shape, out)
    return out


def _dims_of(kernel: Kernel) -> set[Dim]:
    out: set[Dim] = set()
    for t in (*kernel.inputs, *kernel.outputs):
        _dims(t.shape, out)
    _kernel(kernel, out)
    return out


def _kernel(kernel: Kernel, out: set[Dim]) -> None:
    if isinstance(kernel, Call):
        _dims(kernel.attrs.values(), out)
        for k in kernel.meaning.kernels if isinstance(kernel.meaning, Block) else [kernel.meaning]:
            _kernel(k, out)
        _expressions([kernel.epilogue] if kernel.epilogue is not None else [], out)
        for view in kernel.strided.values():
            _dims((*view.tensor.shape, view.offset, *view.strides), out)
        return
    _expressions(expressions_of(kernel), out)
    if isinstance(kernel, Reduce):
        _dims(kernel.extents, out)
    elif isinstance(kernel, Loops):
        for t in kernel.scratch:
            _dims(t.shape, out)


def _expressions(exprs: Iterable[Expr], out: set[Dim]) -> None:
    for e in exprs:
        for x in walk(e):
            if x.op == "dim":
                out.add(x.value)
            elif x.op == "at":
                _dims(x.value.shape, out)


def _dims(values: Iterable[Any], out: set[Dim]) -> None:
    for v in values:
        if isinstance(v, Dim):
            out.add(v)
        elif isinstance(v, tuple):
            _dims(v, out)
