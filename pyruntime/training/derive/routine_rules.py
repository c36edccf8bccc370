"""The gradients of routines, as calls of routines again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyruntime.frontend.own_gradients import Cotangents
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, cast, dim, guard
from pyruntime.ir.kernel import Call, Tensor
from pyruntime.ops.lib.formula import sum_type
from pyruntime.ops.lib.window import Window
from pyruntime.ops.standard.conv import convolve, gathered
from pyruntime.ops.standard.matmul import product
from pyruntime.training.derive.backward_walk import Walk

Routine = Callable[[Walk, Call, Tensor], "Cotangents | None"]  # None: by the definition


def matmul(walk: Walk, call: Call, g: Tensor) -> Cotangents:
    """a: g · bᵀ; b: aᵀ · g, over the rows of all batches at once if b has no batch."""
    a, b, t = call.operand(0), call.operand(1), walk.t
    found: Cotangents = []
    if walk.is_active(a):
        found.append((a, walk.like(a, summed_to(t, product(t, g, swapped(t, _real(t, b, g))), a.shape))))
    if walk.is_active(b):
        rows = _real(t, a, g)
        if b.rank == 2 and a.rank > 2:
            count = sh.size(a.shape[:-1])
            rows, g = t.reshape(rows, (count, a.shape[-1])), t.reshape(g, (count, g.shape[-1]))
        found.append((b, walk.like(b, summed_to(t, product(t, swapped(t, rows), g), b.shape))))
    return found


def _real(t: Tracer, x: Tensor, g: Tensor) -> Tensor:
    """x; codes as floats, in the type of the cotangent g."""
    return x if x.dtype.is_float else t.cast(x, g.dtype)


def swapped(t: Tracer, x: Tensor) -> Tensor:
    """x with its last two axes exchanged."""
    return t.transpose(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


def summed_to(t: Tracer, x: Tensor, shape: sh.Shape) -> Tensor:
    """The product x summed over the leading axes that broadcasting added to `shape` or enlarged from 1. Whether a
    symbolic dim was enlarged is known in a run: then the sum has one term, or as many as the axis."""
    skip, batch = x.rank - len(shape), x.rank - 2
    wanted = (*[1] * skip, *shape[: len(shape) - 2])
    terms = [1 if d == x.shape[n] else sh.floordiv(x.shape[n], d) for n, d in enumerate(wanted)]
    gone = [n for n in range(batch) if terms[n] != 1]
    if not gone:
        return t.reshape(x, shape)

    def term(*i: Expr) -> Expr:
        more = dict(zip(gone, i[x.rank :], strict=True))
        return x.at(*[i[n] + more[n] if n in more else i[n] for n in range(x.rank)])

    out = t.reduce_compute("sum", (*wanted, *x.shape[batch:]), [terms[n] for n in gone], term)
    return t.reshape(t.cast(out, x.dtype), shape)


def conv(walk: Walk, call: Call, g: Tensor) -> Cotangents:
    """x: the transposed convolution of g; w: the sum of g times the windows of x."""
    x, w, t = call.operand(0), call.operand(1), walk.t
    real_x, real_w = _real(t, x, g), _real(t, w, g)
    over, group = _window(call, x, w, g), call.attrs["group"]
    found: Cotangents = []
    if walk.is_active(x):
        found.append((x, walk.like(x, gathered(t, g, real_w, _back(over), group))))
    if walk.is_active(w):
        found.append((w, walk.like(w, _filters(t, real_x, g, over, w.shape, group))))
    return found


def conv_transpose(walk: Walk, call: Call, g: Tensor) -> Cotangents:
    """x: the convolution of g; w: the sum of x times the windows of g."""
    x, w, t = call.operand(0), call.operand(1), walk.t
    real_x, real_w = _real(t, x, g), _real(t, w, g)
    over, group = _window(call, g, w, x), call.attrs["group"]
    found: Cotangents = []
    if walk.is_active(x):
        found.append((x, walk.like(x, convolve(t, g, real_w, over, group))))
    if walk.is_active(w):
        found.append((w, walk.like(w, _filters(t, g, real_x, over, w.shape, group))))
    return found


def conv_filters(walk: Walk, call: Call, h: Tensor) -> Cotangents:
    """The second derivative, with h in the place of filters: x: the transposed convolution of g; g: the convolution of
    x."""
    x, g, t = call.operand(0), call.operand(1), walk.t
    over, group = _window(call, x, h, g), call.attrs["group"]
    found: Cotangents = []
    if walk.is_active(x):
        found.append((x, t.cast(gathered(t, g, h, _back(over), group), x.dtype)))
    if walk.is_active(g):
        found.append((g, t.cast(convolve(t, x, h, over, group), g.dtype)))
    return found


def _window(call: Call, x: Tensor, w: Tensor, y: Tensor) -> Window:
    """Of the convolution of x with w that makes y."""
    a, rank = call.attrs, x.rank - 2
    ends = a["pads"][:rank], a["pads"][rank:]
    return Window(x.shape[2:], w.shape[2:], a["strides"], a["dilations"], *ends, y.shape[2:])


def _back(over: Window) -> Window:
    return replace(over, size=over.out, out=over.size)


def _filters(t: Tracer, x: Tensor, g: Tensor, over: Window, shape: sh.Shape, group: int) -> Tensor:
    """The gradient of filters w[m, c, k]: Σ over n and o of g[n, m, o] · x[n, q·C/group + c, o·stride + k·dilation -
    begin] with q = m // (M/group).

    Routine "conv_filters": args (x, g), attrs as for "conv"."""
    rank, dtype = len(over.kernel), sum_type(x.dtype)
    per_group = t.divided(shape[0], group, "filters into groups")

    def body(m: Expr, c: Expr, *i: Expr) -> Expr:
        k, n, o = i[:rank], i[rank], i[rank + 1 :]
        channel = c if group == 1 else m / dim(per_group) * dim(shape[1]) + c
        at = over.positions(o, k)
        value = guard(over.inside(at), cast(x.at(n, channel, *at), dtype), 0)
        return cast(g.at(n, m, *o), dtype) * value

    meaning = t.reduce_compute("sum", shape, (x.shape[0], *over.out), body)
    attrs = {"strides": over.strides, "pads": over.pads, "dilations": over.dilations, "group": group}
    return t.call("conv_filters", (x, g), meaning, **attrs)


ROUTINES: dict[str, Routine] = {
    "matmul": matmul, "conv": conv, "conv_transpose": conv_transpose, "conv_filters": conv_filters,
}  # fmt: skip
