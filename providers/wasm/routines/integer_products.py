"""Integer products: operands that fit int16 are multiplied in pairs along k (`i32x4.dot_i16x8_s`), exactly.

An int8 product with a zero point has operands of nine bits, too wide for 8-bit instructions; int16 pairs do 8 products
an instruction, twice as many as float32. A product of dequantised codes is the product of the codes, scaled.
"""

from __future__ import annotations

from collections.abc import Callable

from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I16, I32, DType
from pyruntime.ir.expr import Expr, cast, const, dim, guard, index, rewrite, walk
from pyruntime.ir.kernel import Call, Kernel, Leaf, Map, Reduce, Tensor
from pyruntime.ir.rewriting import take_over
from pyruntime.ir.shape import AnyDim, Shape

from ..schedules.arithmetic import Arithmetic
from . import byte_products
from .base import changed, element, made_map, without_views
from .intervals import interval
from .winograd import suits_pairs, transformed_pairs


def is_short(t: Tensor) -> bool:
    """Whether all elements provably fit int16."""
    return _short(t.at(*[const(0, I32)] * t.rank))


def _short(e: Expr) -> bool:
    found = interval(e)
    return found is not None and -(1 << 15) <= found[0] and found[1] < 1 << 15


def prepare_product(call: Call, dots: str) -> list[Kernel]:
    """Return kernels for an int32 product of operands that fit bytes or int16, packed; empty if they do not fit."""
    if eight := byte_products.prepare_product(call, dots):
        return eight
    a, b = call.args[:2]
    if a is None or b is None or not (is_short(a) and is_short(b)) or any(d != 1 for d in b.shape[:-2]):
        return []
    rows = byte_products.padded_rows(a.at(*[index(n) for n in range(a.rank)]), a, I16, call.node)
    panels = byte_products.panels(lambda *at: b.at(*[0] * (b.rank - 2), *at), b.shape, I16, call.node)
    args = (rows.out, panels.out)
    return [rows, panels, changed(call, args=args, plan=Arithmetic.INT16, packed=frozenset({1}))]


# ── convolutions ──────────────────────────────────────────────────────────────────────────────────────────────────


def channel_pairs(t: Tensor, groups: int, channels: AnyDim, node: str) -> Map:
    """(N, groups · ceil(C / 2), *S) of (N, groups · C, *S): two channels of a group in the halves of an int32."""
    half = sh.ceildiv(channels, 2)
    n, c, *place = [index(axis) for axis in range(t.rank)]
    group = const(0, I32) if groups == 1 else c / dim(half)
    pair = c - group * dim(half)
    first = group * dim(channels) + pair * 2
    second = t.at(n, first + 1, *place)
    if half * 2 != channels:
        second = guard(pair * 2 + 1 < dim(channels), second, const(0, I32))
    e = (t.at(n, first, *place) & 0xFFFF) | (second << 16)
    return made_map((t.shape[0], half * groups, *t.shape[2:]), e, node)


def column_pairs(t: Tensor, shift: int, node: str) -> Map:
    """(*S, ceil((W + shift) / 2)): columns 2 i - shift and the next in the halves of an int32, 0 beside the last
    axis."""
    *place, i = [index(axis) for axis in range(t.rank)]
    width = t.shape[-1]
    half = sh.ceildiv(width + shift, 2)

    def column(n: int) -> Expr:
        c = i * 2 + (n - shift) if n != shift else i * 2
        e = t.at(*place, c)
        e = e if half * 2 == width + shift or n == 0 else guard(c < dim(width), e, const(0, I32))
        return guard(c >= 0, e, const(0, I32)) if n < shift else e

    return made_map((*t.shape[:-1], half), (column(0) & 0xFFFF) | (column(1) << 16), node)


def _by_columns(call: Call, x: Tensor, w: Tensor) -> Call | None:
    """Replace a convolution with a stride of 2 along the last axis by one of pairs of columns with a stride of 1, whose
    neighbours are adjacent in memory, if it takes no more products than pairs of channels."""
    a, last = call.attrs, x.rank - 3
    begin, width = a["pads"][last], w.shape[-1]
    if a["strides"][last] != 2 or a["dilations"][last] != 1 or not isinstance(begin, int):
        return None
    if not sh.is_static(w.shape) or w.shape[1] * -(-(width + begin % 2) // 2) > -(-w.shape[1] // 2) * width:
        return None
    strides, pads = list(a["strides"]), list(a["pads"])
    strides[last], pads[last] = 1, (begin + 1) // 2
    args = (column_pairs(x, 0, call.node).out, column_pairs(w, begin % 2, call.node).out)
    return changed(call, args=args, attrs={**a, "strides": tuple(strides), "pads": tuple(pads)})


def prepare_conv(call: Call, dots: str) -> list[Kernel]:
    """Return kernels for an int32 convolution of operands that fit: in bytes (byte_products.py), as pairs of channels
    or columns, by Winograd's form of such pairs, or for a depthwise one in float32, whose sums are exact up to 2^24;
    else empty."""
    x, w = call.args[:2]
    if x is None or w is None or not (is_short(x) and is_short(w)):
        return []
    group = call.attrs["group"]
    if group != 1 and group == x.shape[1] and w.shape[1] == 1:
        return _as_floats(call, x, w)
    if eight := byte_products.prepare_conv(call, dots):
        return eight
    windows = are_weights(w) and suits_pairs(call, (_most(element(x)), _most(element(w))))
    columns = None if windows else _by_columns(call, x, w)
    if columns is not None:
        return [*[t.kernel for t in columns.inputs], changed(columns, plan=Arithmetic.INT16)]
    pairs = channel_pairs(x, group, w.shape[1], call.node)
    weights = transformed_pairs(call) if windows else (channel_pairs(w, 1, w.shape[1], call.node),)
    packed = frozenset({1} if windows else ())
    args = (pairs.out, weights[-1].out)
    return [pairs, *weights, changed(call, args=args, plan=Arithmetic.INT16, packed=packed)]


def _as_floats(call: Call, x: Tensor, w: Tensor) -> list[Kernel]:
    if not sh.is_static(w.shape[2:]) or _most(element(x)) * _most(element(w)) * int(sh.size(w.shape[2:])) > 1 << 24:
        return []
    assert isinstance(call.meaning, Reduce)
    own = [made_map(t.shape, cast(t.at(*[index(n) for n in range(t.rank)]), F32), call.node) for t in (x, w)]
    product = _instead(call, own, F32)
    return [*own, product.value.kernel, Map(cast(product, I32))]


def _most(e: Expr) -> int:
    found = interval(e)
    assert found is not None
    return max(-found[0], found[1])


def _instead(call: Call, operands: list[Map], dtype: DType) -> Expr:
    """Return an element of the same sums in a new call, whose operands have equal values."""
    assert isinstance(call.meaning, Reduce)
    now = {t.uid: m.out for t, m in zip(call.args, operands, strict=True) if t is not None}

    def visit(e: Expr) -> Expr | None:
        return cast(now[e.value.uid].at(*e.args), e.dtype) if e.op == "at" and e.value.uid in now else None

    meaning = Reduce("sum", call.meaning.extents, cast(rewrite(call.meaning.expr, visit), dtype))
    product = Call(call.routine, tuple([m.out for m in operands]), call.attrs, meaning)
    return product.making(call.out.shape, dtype, call.node).out.at(*[index(n) for n in range(call.out.rank)])


# ── products of dequantised codes ─────────────────────────────────────────────────────────────────────────────────


def dequantised(t: Tensor, axis: int | None) -> tuple[Expr, Expr] | None:
    """(codes as int32, scale) of a dequantised tensor if codes fit int16 and the scale varies along `axis` only."""
    e = without_views(element(t))
    if e.op != "mul" or e.dtype is not F32 or e.args[0].op != "cast":
        return None
    codes, scale = e.args[0].args[0], e.args[1]
    axes = {x.value for x in walk(scale) if x.op == "index"}
    if codes.dtype is not I32 or not _short(codes) or not axes <= {axis}:
        return None
    return codes, scale


def prepare_dequantised_conv(call: Call, dots: str) -> list[Kernel]:
    """Replace a float32 convolution of dequantised codes by a convolution of the codes and a map that scales. Empty for
    depthwise convolutions, which gain nothing."""
    x, w = call.args[:2]
    if x is None or w is None or call.attrs["group"] == x.shape[1] != 1:
        return []
    return _scaled(call, (0, 1), w.shape[1:], lambda inner: prepare_conv(inner, dots))


def prepare_dequantised_product(call: Call, dots: str) -> list[Kernel]:
    """Replace a float32 product of dequantised codes by one constant matrix of dequantised codes: see
    `prepare_dequantised_conv`."""
    b = call.args[1]
    if b is None or any(d != 1 for d in b.shape[:-2]):
        return []
    if not are_weights(b):
        return []
    return _scaled(call, (b.rank - 1, call.out.rank - 1), b.shape[-2:-1], lambda inner: prepare_product(inner, dots))


def are_weights(t: Tensor) -> bool:
    """Whether elements are computed from constants and single numbers only."""
    made_of = [x.kernel for x in without_views(element(t)).tensors() if x.rank]
    return all(isinstance(k, Leaf) and k.kind == "weight" for k in made_of)


def _scaled(
    call: Call, filters: tuple[int, int], summed: Shape, prepare: Callable[[Call], list[Kernel]]
) -> list[Kernel]:
    """filters: the axis of filters in the weights and in the result; summed: extents of each sum; prepare: makes the
    kernels of the integer call."""
    x, w = call.operand(0), call.operand(1)
    left, right = dequantised(x, None), dequantised(w, filters[0])
    if left is None or right is None or not _sums_fit(left[0], right[0], summed):
        return []
    own = [made_map(t.shape, codes, call.node) for t, codes in ((x, left[0]), (w, right[0]))]
    product = _instead(call, own, I32)
    scales = rewrite(right[1], lambda e: index(filters[1]) if e.op == "index" else None)
    inner = product.value.kernel
    *before, made = prepare(inner)
    take_over(made, inner)
    # The product of both scales may be infinite, or 0. So may sums in the scale of activations, which can be near 1e36.
    scaled = Map(cast(product, F32) * scales * left[1])
    return [*own, *before, made, scaled]


def _sums_fit(x: Expr, w: Expr, summed: Shape) -> bool:
    """Whether each sum of products fits int32."""
    return sh.is_static(summed) and _most(x) * _most(w) * int(sh.size(summed)) < 1 << 31
