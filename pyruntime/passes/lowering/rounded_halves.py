"""Rounds half floats before kernels whose results are discrete, so that these do not depend on where values are stored.

Kernels compute with half floats in float32. A stored result is rounded, and one that fusion or `wide_halves` keeps in
float32 is not: 300 · 300 is infinite or 90,000. Sums and products only become more exact by that, but IsInf, a
comparison, a conversion to integers, Floor or ArgMax would answer differently at another optimisation level. Such a
kernel, and the kernels after it, read a rounded copy of the tensor, which fusion inlines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pyruntime.codegen.half_floats import HALVES
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import COMPARE, Expr, cast, index, rewrite, walk
from pyruntime.ir.kernel import Alias, Block, Kernel, Leaf, Loops, Map, Reduce, Stmt, Tensor
from pyruntime.ir.statements import expressions_of, rebuild

STEPS = frozenset(("floor", "ceil", "trunc", "round", "rem", "mod"))
ORDERS = frozenset(("lt", "le", "gt", "ge"))


def round_halves(block: Block) -> None:
    """Insert roundings in this block and its inner blocks."""
    copies: dict[int, Tensor] = {}  # of tensors that kernels of this block read, by uid
    kernels: list[Kernel] = []
    for kernel in block.kernels:
        for inner in kernel.blocks:
            round_halves(inner)
        for t in _decisive(kernel):
            if t.uid not in copies and not _is_stored(t):
                kernels.append(_rounded(t, kernel.node))
                copies[t.uid] = kernels[-1].outputs[0]
        if copies and any(t.uid in copies for t in kernel.inputs):
            _read_copies(kernel, copies)
        kernels.append(kernel)
    block.kernels = kernels


def _is_stored(t: Tensor) -> bool:
    """Whether a tensor is always a half float in memory: a feed, a weight, a reshape of one."""
    while isinstance(t.kernel, Alias):
        t = t.kernel.base
    return isinstance(t.kernel, Leaf)


def _rounded(t: Tensor, node: str) -> Map:
    e = t.at(*[index(n) for n in range(t.rank)])
    rounded = Expr("cast", (cast(e, F32),), t.dtype)
    # wide_halves drops a cast that comes last, but not casts there and back
    return Map(Expr("cast", (cast(rounded, F32),), t.dtype)).making(t.shape, t.dtype, node)


def _decisive(kernel: Kernel) -> list[Tensor]:
    """The half-float tensors on which a discrete result of the kernel depends."""
    if not isinstance(kernel, (Map, Reduce, Loops)) or not any(t.dtype in HALVES for t in kernel.inputs):
        return []
    expressions = expressions_of(kernel)
    discrete = list(_decisions(expressions))
    if discrete and isinstance(kernel, Loops) or any(not t.dtype.is_float for t in kernel.outputs):
        discrete = expressions
        if isinstance(kernel, Loops):
            return [t for t in kernel.args if t.dtype in HALVES]
    found = {x.value.uid: x.value for e in discrete for x in walk(e) if x.op == "at" and x.value.dtype in HALVES}
    return list(found.values())


def _decisions(expressions: list[Expr]) -> Iterator[Expr]:
    """The nodes whose results jump where their operands do not."""
    for e in expressions:
        for x in walk(e):
            if x.op in STEPS or x.op == "isnan" or x.op in COMPARE and not any(map(_is_continuous, x.args)):
                yield x
            elif x.op == "select" and x.args[0].op in ORDERS and any(map(_is_level, x.args[1:])):
                yield x.args[0]


def _is_continuous(e: Expr) -> bool:
    """Whether a comparison with this constant selects between formulas that agree there (ReLU, an empty softmax)."""
    return e.op == "const" and (e.value == 0 or math.isinf(e.value))


def _is_level(e: Expr) -> bool:
    return e.op == "const" and e.dtype is not None and e.dtype.is_float and e.value != 0 and math.isfinite(e.value)


def _read_copies(kernel: Kernel, copies: dict[int, Tensor]) -> None:
    memo: dict[int, Expr] = {}

    def visit(e: Expr) -> Expr | None:
        copy = copies.get(e.value.uid) if e.op == "at" else None
        return None if copy is None else Expr("at", e.args, e.dtype, copy)

    def new(e: Expr) -> Expr:
        return rewrite(e, visit, memo)

    def statement(s: Stmt) -> Stmt:
        return rebuild(s, new, lambda body: [statement(b) for b in body])

    if isinstance(kernel, Loops):
        if not kernel.bases:
            kernel.args = tuple([copies.get(t.uid, t) for t in kernel.args])
            kernel.body = [statement(s) for s in kernel.body]
    elif isinstance(kernel, (Map, Reduce)):
        kernel.expr = new(kernel.expr)
        if isinstance(kernel, Reduce) and kernel.epilogue is not None:
            kernel.epilogue = new(kernel.epilogue)
