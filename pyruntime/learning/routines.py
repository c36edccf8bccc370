"""The gradients of routines, as calls of routines again."""

from __future__ import annotations

from collections.abc import Callable

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, const, guard, index, rewrite
from pyruntime.ir.kernel import Call, Reduce, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.learning.walk import Given, Walk
from pyruntime.ops.lib.window import Window
from pyruntime.ops.standard.conv import convolve, gathered
from pyruntime.ops.standard.matmul import product

Routine = Callable[[Walk, Call, Tensor], "Given | None"]  # None: by the definition


def matmul(walk: Walk, call: Call, g: Tensor) -> Given:
    """a: g · bᵀ; b: aᵀ · g, over the rows of all batches at once if b has no batch."""
    a, b, t = call.operand(0), call.operand(1), walk.t
    given: Given = []
    if walk.is_active(a):
        given.append((a, t.cast(summed_to(t, product(t, g, swapped(t, b)), a.shape), a.dtype)))
    if walk.is_active(b):
        rows = a
        if b.rank == 2 and a.rank > 2:
            count = sh.size(a.shape[:-1])
            rows, g = t.reshape(a, (count, a.shape[-1])), t.reshape(g, (count, g.shape[-1]))
        given.append((b, t.cast(summed_to(t, product(t, swapped(t, rows), g), b.shape), b.dtype)))
    return given


def swapped(t: Tracer, x: Tensor) -> Tensor:
    """x with its last two axes exchanged."""
    return t.transpose(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


def summed_to(t: Tracer, x: Tensor, shape: sh.Shape) -> Tensor:
    """x summed over the axes that broadcasting added to `shape` or enlarged from 1."""
    skip = x.rank - len(shape)
    gone = [n for n in range(x.rank) if n < skip or shape[n - skip] != x.shape[n]]
    return t.reshape(t.reduce("sum", x, gone) if gone else x, shape)


def conv(walk: Walk, call: Call, g: Tensor) -> Given | None:
    """x: the transposed convolution of g; w: the product of g with the windows of x. Filters of groups get their
    gradient by the definition."""
    x, w, t, group = call.operand(0), call.operand(1), walk.t, call.attrs["group"]
    if group != 1 and walk.is_active(w):
        return None
    rank = x.rank - 2
    over = Window(
        x.shape[2:], w.shape[2:], call.attrs["strides"], call.attrs["dilations"],
        call.attrs["pads"][:rank], call.attrs["pads"][rank:], g.shape[2:],
    )  # fmt: skip
    given: Given = []
    if walk.is_active(x):
        back = Window(g.shape[2:], over.kernel, over.strides, over.dilations, over.begin, over.end, x.shape[2:])
        given.append((x, t.cast(gathered(t, g, w, back, group), x.dtype)))
    if walk.is_active(w):
        given.append((w, t.cast(_filters(t, x, g, over, w.shape), w.dtype)))
    return given


def conv_transpose(walk: Walk, call: Call, g: Tensor) -> Given | None:
    """x: the convolution of g; w: the product of x with the windows of g."""
    x, w, t, group = call.operand(0), call.operand(1), walk.t, call.attrs["group"]
    if group != 1 and walk.is_active(w):
        return None
    rank = x.rank - 2
    over = Window(
        g.shape[2:], w.shape[2:], call.attrs["strides"], call.attrs["dilations"],
        call.attrs["pads"][:rank], call.attrs["pads"][rank:], x.shape[2:],
    )  # fmt: skip
    given: Given = []
    if walk.is_active(x):
        given.append((x, t.cast(convolve(t, g, w, over, group), x.dtype)))
    if walk.is_active(w):
        given.append((w, t.cast(_filters(t, g, x, over, w.shape), w.dtype)))
    return given


def _filters(t: Tracer, x: Tensor, g: Tensor, over: Window, shape: sh.Shape) -> Tensor:
    """The gradient of filters w[m, c, k]: Σ over n and o of g[n, m, o] · x[n, c, o·stride + k·dilation - begin], as one
    product over (n, o)."""
    rank = len(over.kernel)

    def window(c: Expr, *i: Expr) -> Expr:
        k, n, o = i[:rank], i[rank], i[rank + 1 :]
        at = over.positions(o, k)
        return guard(over.inside(at), x.at(n, c, *at), const(0.0, x.dtype))

    count: tuple[AnyDim, ...] = (x.shape[0], *over.out)
    columns = t.compute((x.shape[1], *over.kernel, *count), window)
    flat = t.reshape(columns, (x.shape[1] * sh.size(over.kernel), sh.size(count)))
    rows = t.reshape(t.transpose(g, [1, 0, *range(2, g.rank)]), (g.shape[1], sh.size(count)))
    return t.reshape(product(t, rows, swapped(t, flat)), shape)


def matmul_nbits(walk: Walk, call: Call, g: Tensor) -> Given | None:
    """a: g · W with the weights dequantised for it; the codes are integers, so nothing flows into them."""
    a, t, meaning = call.operand(0), walk.t, call.meaning
    if not walk.is_active(a) or any(x is not None and walk.is_active(x) for x in call.args[1:]):
        return None
    assert isinstance(meaning, Reduce)
    turn = {a.rank - 1: index(0), a.rank: index(1)}
    weight = rewrite(meaning.expr.args[1], lambda x: turn.get(x.value) if x.op == "index" else None)
    w = t.compute((call.attrs["N"], call.attrs["K"]), lambda *_: weight)
    return [(a, t.cast(product(t, g, w), a.dtype))]


ROUTINES: dict[str, Routine] = {
    "matmul": matmul, "conv": conv, "conv_transpose": conv_transpose, "matmul_nbits": matmul_nbits,
}  # fmt: skip
