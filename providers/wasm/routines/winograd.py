"""Chooses which convolutions use Winograd's forms (schedules/winograd.py), and transforms their weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from operator import add

from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, const, dim, guard, index, is_view, substitute
from pyruntime.ir.kernel import Builder, Call, Leaf, Loops, Map, Reduce, Tensor

from ..schedules.winograd_forms import FLOATS, INTEGERS, Form
from .base import is_integer, made_map

# For floats: a quarter of the products and four times the memory for weights. Time of the direct product / of
# Winograd, python -m bench.winograd (native, one thread, Zen 5): 64x56x56 1.8, 128x28x28 2.2, 256x14x14 1.7,
# 16x112x112 2.1, 64x224x224 2.8, 32x12x12 1.4, 16x56x56 1.2, 512x7x7 1.3, 64x10x10 1.1, 8x56x56 1.0. With few filters
# the direct product gathers patches for few sums; Chromium 156, Zen 4, channels to filters: 16 to 1 over 160x160 3.8,
# 16 to 8 3.0, 3 to 16 1.4, 64 to 3 over 80x80 1.2, 8 to 8 over 40x40 1.1, 1 to 16 over 160x160 1.1
WINOGRAD_CHANNELS, WINOGRAD_SIZE = 3, 12
PAIRS_CHANNELS, PAIRS_SIZE = 3, 6


def suits(call: Call) -> bool:
    """Whether the form for floats is faster."""
    return not is_integer(call) and _suits(call, WINOGRAD_CHANNELS, WINOGRAD_SIZE)


def suits_pairs(call: Call, largest: tuple[int, int]) -> bool:
    """Whether the form for codes is faster and exact: sums of four elements of the input and of nine weights fit int16,
    and four times an output fits int32. largest: the largest codes of x and w"""
    x, w = largest
    return (
        _suits(call, PAIRS_CHANNELS, PAIRS_SIZE)
        and max(4 * x, 9 * w) < 1 << 15
        and 4 * 9 * x * w * int(sh.size(call.operand(1).shape[1:2])) < 1 << 31
    )


def suits_filters(call: Call) -> bool:
    """Whether the form for floats is faster for the gradient of filters, a call of "conv_filters". Time of the direct
    product / of Winograd, natively and in WebAssembly alone, images x channels x size: 8x64x12 2.2, 2.4; 2x64x56 2.1,
    2.5; 8x16x14 1.7, 2.1; 8x8x28 1.3, 1.9; 1x256x14 1.2, 1.5; but 1x256x8 0.7, 0.8, and to 1 filter 0.8."""
    y = call.out
    return _suits_window(call, y, call.operand(1), WINOGRAD_CHANNELS, WINOGRAD_SIZE) and y.shape[0] >= WINOGRAD_CHANNELS


def _suits(call: Call, channels: int, size: int) -> bool:
    return _suits_window(call, call.operand(1), call.out, channels, size)


def _suits_window(call: Call, w: Tensor, y: Tensor, channels: int, size: int) -> bool:
    """w: the filters or their gradient; y: the output or what flows into it"""
    a = call.attrs
    if w.rank != 4 or a["group"] != 1 or not sh.is_static(w.shape):
        return False
    square = w.shape[2:] == (3, 3) and all(s == 1 for s in (*a["strides"], *a["dilations"]))
    small = any(sh.compare("lt", d, size) == 1 for d in y.shape[2:])  # unknown sizes count as large
    return square and not small and w.shape[0] > 0 and w.shape[1] >= channels


def transformed(call: Call) -> Reduce:
    """U (points, M, C): the sum over the window, weighted by the constants of the transform."""
    return _transformed(call.operand(1), FLOATS)


def transformed_in_runs(call: Call) -> Loops:
    """The same for weights that change: G w, then times Gt, for four channels at a time. It takes an eighth of the time
    of a sum over the window for each point."""
    w, form = call.operand(1), FLOATS
    # a row more, so that elements of all points, which are written together, are in different sets of a cache
    shape = (form.points, w.shape[0] + 1, w.shape[1])
    view = w.kernel.expr if isinstance(w.kernel, Map) and is_view(w.kernel.expr) else None  # flipped, for gradients
    made = Loops("winograd_filters", (w if view is None else view.value,), (), []).making(shape, w.dtype, call.node)
    k = Builder()

    def combined(row: Sequence[float], values: Sequence[Expr]) -> Expr:
        return reduce(add, [v if g == 1 else v * g for g, v in zip(row, values, strict=True) if g])

    def element(*place: Expr | int) -> Expr:
        load = w.at(*place)
        return load if view is None else substitute(view, load.args)

    with k.parallel(dim(w.shape[0])) as m, k.loop(dim(w.shape[1]), "vector") as c:
        lane = k.let(c)  # a variable, so that lanes load elements that are nine apart
        kernel = [[k.let(element(m, lane, r, s)) for r in range(3)] for s in range(3)]
        half = [[k.let(combined(row, column)) for column in kernel] for row in form.g]
        for p, (i, j) in enumerate(product(range(form.side), repeat=2)):
            k.store(made.out, (const(p, I32), m, c), combined(form.g[j], half[i]))
    made.body = k.body
    return made


def transformed_pairs(call: Call) -> tuple[Reduce, Map]:
    """Return U of int32 codes, and U in pairs of channels (points, M, ceil(C / 2))."""
    u = _transformed(call.operand(1), INTEGERS, call.node)
    points, m, c = u.out.shape
    p, row, pair = (index(n) for n in range(3))
    second = guard(pair * 2 + 1 < dim(c), u.out.at(p, row, pair * 2 + 1), const(0, I32))
    e = (u.out.at(p, row, pair * 2) & 0xFFFF) | (second << 16)
    return u, made_map((points, m, sh.ceildiv(c, 2)), e, call.node)


def _transformed(w: Tensor, form: Form, node: str = "") -> Reduce:
    values = [int(v) for v in form.kernel_transform()] if w.dtype is I32 else form.kernel_transform()
    table = Leaf("constant", values).making((form.points, 3, 3), w.dtype).out
    p, m, c, r, s = (index(n) for n in range(5))
    kernel = Reduce("sum", (3, 3), table.at(p, r, s) * w.at(m, c, r, s))
    return kernel.making((form.points, *w.shape[:2]), w.dtype, node)
