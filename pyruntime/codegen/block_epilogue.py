"""Lowers the elementwise epilogue of a routine (`Call.epilogue`) to a loop over one finished block of its result.

A routine indexes its result by (outer batch, inner batch, row, col), each a group of adjacent axes.
The code is a loop form over the variables INPUTS. Buffer 0 is the result, which the code overwrites.
"""

from __future__ import annotations

from typing import Any

from pyruntime.codegen.addressing import Indexing, Lowering, accesses, without_units
from pyruntime.codegen.loop_ir import Lowered
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32, DType
from pyruntime.ir.expr import Expr, binary, cast, const, index, rewrite
from pyruntime.ir.kernel import For, Leaf, Map, Stmt, Store, Tensor
from pyruntime.ir.shape import AnyDim

INPUTS = ("batch", "row", "rows", "col", "cols")  # variables 0, 1, …
BATCH, ROW, ROWS, COL, COLS = range(5)

Axes = tuple[int, ...]
Groups = tuple[Axes, Axes, Axes, Axes]  # outer, inner, row, col: axes of the output


def takes_epilogue(out: Tensor, epilogue: Expr, groups: Groups) -> bool:
    """Whether the epilogue can be expressed over the groups."""
    return mergeable(out, without_units(epilogue, out.shape), groups)


def lower_epilogue(out: Tensor, epilogue: Expr, groups: Groups, dtype: DType = F32) -> Lowered:
    """The code of an epilogue that `takes_epilogue` accepts. Its buffers and parameters follow those of the routine.
    dtype: the type of the routine's result, of the same size as the output's type; if the types differ, buffer 1 is the
    output, in the same memory as the result."""
    expr = without_units(epilogue, out.shape)
    axes = [tuple([n for n in group if out.shape[n] != 1]) for group in groups]
    result = out if dtype is out.dtype else Tensor(out.shape, dtype, Leaf("scratch"))
    work = Lowering(Map(expr), (out, result))
    work.variables = len(INPUTS)
    indexing = Indexing(work)
    body = _index_variables(indexing, out, axes)
    own = indexing.address(out, [index(n) for n in range(len(out.shape))])
    done = rewrite(expr, lambda e: result.at(*[index(n) for n in range(len(out.shape))]) if e.op == "arg" else None)
    value = cast(indexing.load(done), out.dtype)
    assert indexing.vector is not None
    inner: list[Stmt] = [Store(0, (own,), value)]
    loop = For(indexing.vector.value, _variable(COLS), inner, "vector")
    rows = For(body.pop().value, _variable(ROWS), [loop])
    once = For(work.new().value, const(1, I32), [*body, rows], "parallel")
    return work.finish([once], 1)


def _variable(n: int) -> Expr:
    return Expr("var", (), I32, n)


def _index_variables(indexing: Indexing, out: Tensor, groups: list[Axes]) -> list[Any]:
    """Fill `indexing.index_of`. Returns the statements before the loops, then the variable of the row loop."""
    work, body = indexing.work, list[Stmt]()
    outer, inner, row, col = groups
    number = _variable(BATCH)
    if outer:
        extent = work.number(sh.size([out.shape[n] for n in inner]))
        high, low = (work.let(binary(op, number, extent), body) for op in ("div", "rem"))
        indexing.index_of[outer[-1]], number = [high], low
    if inner:
        indexing.index_of[inner[-1]] = [number]
    r, c = work.new(), work.new()
    if row:
        indexing.index_of[row[-1]] = [_variable(ROW), r]
    if col:
        indexing.index_of[col[-1]] = [_variable(COL), c]
    indexing.vector = c
    return [*body, r]


def mergeable(out: Tensor, expr: Expr, groups: Groups) -> bool:
    """Whether every access follows each group of axes with a single stride."""
    own = {("index", n): s for n, s in enumerate(sh.strides(out.shape))}
    found, raw = accesses(expr)
    for group in groups:
        axes = [n for n in group if out.shape[n] != 1]
        if len(axes) > 1 and not raw.isdisjoint(axes):
            return False
        for a, b in zip(axes, axes[1:], strict=False):
            extent: AnyDim = out.shape[b]
            if any(c.get(("index", a), 0) != c.get(("index", b), 0) * extent for c in (*found, own)):
                return False
    return True
