"""Integer products by 8-bit dot products: four codes a word, if the host's relaxed dot product is exact for bytes.

Σ (x - z)·(w - v) = Σ x·w - z·Σ (w - v) - v·Σ x: the kernel multiplies the codes, padded by z, and a correction is
subtracted: one number per filter and, if weights have a zero point that does not fit into signed bytes, one sum of
codes per position.

`dots`: the signedness of the dot product's second operand for which no sum of two products saturates: "unsigned" or
"signed".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, I8, I32, U8, DType
from pyruntime.ir.expr import Expr, cast, const, dim, guard, index, rewrite, walk
from pyruntime.ir.kernel import Call, Kernel, Map, Reduce, Tensor
from pyruntime.ir.shape import AnyDim

from ..schedules.arithmetic import Arithmetic
from ..schedules.register_tile import PANEL
from .base import element, made_map
from .intervals import interval

LOWEST = {"unsigned": 0, "signed": -128}
SIGNED = LOWEST["signed"]


@dataclass(slots=True)
class Bytes:
    """int32 elements that fit a byte, by the indices of their tensor. An element of the operand is this one minus
    `zero`."""

    value: Expr
    zero: Expr | None = None


def as_bytes(e: Expr, lowest: int, axis: int | None = None) -> Bytes | None:
    """Return an int32 expression as bytes from `lowest` on, or None unless its type or its zero point shows that bytes
    suffice. The zero point may vary along `axis` only."""
    found = interval(e)
    if found is not None and found[1] - found[0] < 256:
        if lowest <= found[0] and found[1] < lowest + 256:
            return Bytes(e)
        return Bytes(e + (lowest - found[0]), const(lowest - found[0], I32))
    if e.op != "sub" or any(x.op == "index" and x.value != axis for x in walk(e.args[1])):
        return None
    code = as_bytes(e.args[0], lowest)
    if code is not None:
        code.zero = e.args[1] if code.zero is None else code.zero + e.args[1]
    return code


def operands(x: Tensor, w: Tensor, axis: int, dots: str) -> tuple[Bytes, Bytes] | None:
    """Return activations and weights as bytes, or None. axis: the axis of filters in the weights."""
    if not dots:
        return None
    codes, weights = as_bytes(element(x), LOWEST[dots]), as_bytes(element(w), SIGNED, axis)
    return None if codes is None or weights is None else (codes, weights)


def _four(codes: list[Expr]) -> Expr:
    """Return a word of four bytes, the first in the lowest bits."""
    word = codes[3] << 24
    for n in (2, 1, 0):
        word = word | ((codes[n] & 0xFF) << 8 * n if n else codes[n] & 0xFF)
    return word


def channel_quads(e: Expr, t: Tensor, groups: int, channels: AnyDim, node: str) -> Map:
    """(N, groups · ceil(C / 4), *S) of e over (N, groups · C, *S): four channels of a group in the bytes of a word."""
    quads = sh.ceildiv(channels, 4)
    group = const(0, I32) if groups == 1 else index(1) / dim(quads)
    first = (index(1) - group * dim(quads)) * 4

    def at(n: int) -> Expr:
        channel = group * dim(channels) + first + n
        code = rewrite(e, lambda x: channel if x.op == "index" and x.value == 1 else None)
        return code if quads * 4 == channels else guard(first + n < dim(channels), code, const(0, I32))

    return made_map((t.shape[0], quads * groups, *t.shape[2:]), _four([at(n) for n in range(4)]), node)


def _product(call: Call, plan: Arithmetic, args: list[Tensor], packed: frozenset[int] = frozenset()) -> Call:
    inner = Call(call.routine, tuple(args), call.attrs, call.meaning, packed=packed, plan=plan)
    return inner.making(call.out.shape, I32, call.node)


def _corrected(
    call: Call, inner: Call, zeros: tuple[Expr | None, Expr | None], sums: tuple[Reduce, list[Reduce]], axis: int
) -> list[Kernel]:
    """The inner product and a map that subtracts the zero points' part.

    zeros: the zero point of the activations, and that of the weights by filter index(0); axis: the axis of filters in
    the result; sums: sums of the weights, and sums of the activations (shaped like the result with one filter, or one
    per group)
    """
    value = inner.out.at(*[index(n) for n in range(call.out.rank)])
    made: list[Kernel] = [inner]
    filters, codes = sums
    if zeros[0] is not None:
        taken = made_map(filters.out.shape, filters.out.at(index(0)) * zeros[0], call.node)
        made, value = [filters, taken, *made], value - taken.out.at(index(axis))
    if zeros[1] is not None:
        zero, shape = made_map(filters.out.shape, zeros[1], call.node), codes[-1].out.shape
        place = [index(n) for n in range(call.out.rank)]
        place[axis] = (
            index(axis) / dim(sh.floordiv(call.out.shape[axis], shape[axis])) if shape[axis] != 1 else const(0, I32)
        )
        made, value = [zero, *codes, *made], value - zero.out.at(index(axis)) * codes[-1].out.at(*place)
    return [*made, Map(value)]


def _sum(e: Expr, extents: sh.Shape, shape: sh.Shape, node: str) -> Reduce:
    return Reduce("sum", extents, e).making(shape, I32, node)


def _window_sums(call: Call, codes: Bytes, x: Tensor, w: Tensor) -> list[Reduce]:
    """Σ x over channels, then over the window, for each group; x is padded by its zero point."""
    a, channels, rank = call.attrs, w.shape[1], x.rank
    channel = index(1) * dim(channels) + index(rank)
    e = rewrite(codes.value, lambda i: channel if i.op == "index" and i.value == 1 else None)
    first = _sum(e, (channels,), (x.shape[0], a["group"], *x.shape[2:]), call.node)
    inside = const(True, BOOL)
    place: list[Expr] = []
    for n, size in enumerate(x.shape[2:]):
        c = index(2 + n) * dim(a["strides"][n]) - dim(a["pads"][n]) + index(rank + n) * dim(a["dilations"][n])
        inside, place = inside & (c >= 0) & (c < dim(size)), [*place, c]
    around = const(0, I32) if codes.zero is None else codes.zero * dim(channels)
    e = guard(inside, first.out.at(index(0), index(1), *place), around)
    return [first, _sum(e, w.shape[2:], (x.shape[0], a["group"], *call.out.shape[2:]), call.node)]


def prepare_conv(call: Call, dots: str) -> list[Kernel]:
    """Replace an int32 convolution by one of bytes and a map after it; empty if bytes do not suffice."""
    x, w = call.operand(0), call.operand(1)
    found = operands(x, w, 0, dots)
    if found is None:
        return []
    codes, weights = found
    args = [
        channel_quads(codes.value, x, call.attrs["group"], w.shape[1], call.node),
        channel_quads(weights.value, w, 1, w.shape[1], call.node),
    ]
    if codes.zero is not None:
        args.append(made_map((), _four([codes.zero] * 4), call.node))
    inner = _product(call, Arithmetic.INT8, [m.out for m in args])
    sums = _sum(element(w), w.shape[1:], w.shape[:1], call.node), _window_sums(call, codes, x, w)
    return [*args, *_corrected(call, inner, (codes.zero, weights.zero), sums, 1)]


def prepare_product(call: Call, dots: str) -> list[Kernel]:
    """Replace an int32 product by one matrix by a product of bytes and a map after it; empty if bytes do not
    suffice."""
    a, b = call.args[:2]
    if a is None or b is None or any(d != 1 for d in b.shape[:-2]) or b.rank > a.rank:
        return []
    found = operands(a, b, b.rank - 1, dots)
    if found is None:
        return []
    codes, weights = found
    k, n = b.shape[-2:]

    def at(row: Expr, column: Expr, e: Expr = weights.value) -> Expr:
        place = {b.rank - 2: row, b.rank - 1: column}
        return rewrite(e, lambda x: place.get(x.value, const(0, I32)) if x.op == "index" else None)

    rows, packed = _rows(codes.value, a, dots, call.node), panels(at, b.shape, I8, call.node)
    args = [rows.out if isinstance(rows, Map) else rows, packed.out]
    inner = _product(call, Arithmetic.INT8_ROWS, args, frozenset({1}))
    rank = call.out.rank
    along = rewrite(codes.value, lambda x: index(rank) if x.op == "index" and x.value == rank - 1 else None)
    sums = _sum(at(index(1), index(0), element(b)), (k,), (n,), call.node)
    row_sums = _sum(along, (k,), (*a.shape[:-1], 1), call.node)
    zero = None if weights.zero is None else at(const(0, I32), index(0), weights.zero)
    made = _corrected(call, inner, (codes.zero, zero), (sums, [row_sums]), rank - 1)
    return [*([rows] if isinstance(rows, Map) else []), packed, *made]


def _rows(e: Expr, a: Tensor, dots: str, node: str) -> Map | Tensor:
    """Return rows of bytes, padded to words: the tensor itself if its rows have this form."""
    k = a.shape[-1]
    kind = U8 if dots == "unsigned" else I8
    code = e.args[0] if e.op == "cast" else e
    if sh.ceildiv(k, 4) * 4 == k and code.op == "at" and code.dtype is kind and code.value.shape == a.shape:
        if all(
            c.op == "index" and c.value == n or d == 1 for n, (c, d) in enumerate(zip(code.args, a.shape, strict=True))
        ):
            return code.value
    return padded_rows(e, a, kind, node)


def padded_rows(e: Expr, a: Tensor, kind: DType, node: str) -> Map:
    """Return rows of the codes `e` at the indices of `a`, padded to words."""
    k, codes = a.shape[-1], 4 // kind.size
    padded = sh.ceildiv(k, codes) * codes
    e = cast(e, kind)
    if padded != k:
        e = guard(index(a.rank - 1) < dim(k), e, const(0, kind))
    return made_map((*a.shape[:-1], padded), e, node)


def panels(at: Callable[[Expr, Expr], Expr], shape: sh.Shape, kind: DType, node: str) -> Map:
    """Return panels [ceil(n / 8)][words of k][8][codes of a word], zero padded. at: returns the code at a row and a
    column of the matrix (…, k, n)"""
    (k, n), codes = shape[-2:], 4 // kind.size
    row, column = index(1) * codes + index(3), index(0) * PANEL + index(2)
    inside = (row < dim(k)) & (column < dim(n))
    e = guard(inside, cast(at(row, column), kind), const(0, kind))
    return made_map((sh.ceildiv(n, PANEL), sh.ceildiv(k, codes), PANEL, codes), e, node)
