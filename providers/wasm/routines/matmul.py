"""The routine "matmul": layouts and strides of a product for gemm.py."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyruntime.codegen.block_epilogue import Groups, takes_epilogue
from pyruntime.codegen.provider import Invocation
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F16, F32, F64, I32
from pyruntime.ir.expr import Expr, const, dim, guard, index
from pyruntime.ir.kernel import Alias, Call, Kernel, Leaf, Loops, Map, Tensor, View
from pyruntime.ir.shape import AnyDim

from ..schedules import gemm, gemm_doubles
from ..schedules.layouts import Dense, Layout, Packed
from ..schedules.panel_order import FEW_ROWS
from ..schedules.register_tile import PANEL
from .base import WasmRoutine, fits, is_integer, scratch, sum_type, widened
from .dequantised_weights import prepare_dequantised_weights
from .gemm_calls import pack_call, product_call
from .integer_products import prepare_dequantised_product, prepare_product
from .matmul_nbits import prepare_halves

PACK_FROM = 5  # columns; with fewer, a panel of 8 would be mostly padding
LEFT_FROM = 9  # rows of a transposed A; fewer read B in place, from a copy of A


@dataclass(slots=True)
class Axis:
    """A batch axis: its extent, and the strides of A, B and C along it."""

    axes: tuple[int, ...]
    extent: AnyDim
    a: AnyDim
    b: AnyDim
    c: AnyDim


@dataclass(slots=True)
class Product:
    """A product as gemm.py computes it; layout: the layout of B, None if gemm.py supports none; rows: axes of m; left:
    whether A is transposed."""

    layout: Layout | None
    m: AnyDim
    n: AnyDim
    k: AnyDim
    lda: AnyDim
    ldb: AnyDim
    ldc: AnyDim
    batch: list[Axis]
    rows: tuple[int, ...]
    left: bool

    @property
    def runs(self) -> bool:
        """Whether gemm.py can compute it."""
        return self.layout is not None and len(self.batch) <= 2

    def levels(self) -> tuple[Axis, Axis]:
        """Return the outer and the inner batch axis."""
        outer, inner = [*[Axis((), 1, 0, 0, 0)] * (2 - len(self.batch)), *self.batch]
        return outer, inner

    def groups(self, order: tuple[int, ...]) -> Groups:
        """Axes of the output by group; order: the axis of the product for each axis of the output."""
        place = {axis: n for n, axis in enumerate(order)}
        rank = len(order)
        named = [tuple([place[x] for x in b.axes]) for b in self.batch]
        none: tuple[int, ...] = ()
        outer, inner = [*[none] * (2 - len(named)), *named]
        return outer, inner, tuple([place[x] for x in self.rows]), (place[rank - 1],)


def describe(call: Call, out: Tensor, order: tuple[int, ...], views: dict[int, View]) -> Product:
    """Merge the product's batch axes as far as strides allow."""
    shape, c = _by_product_axes(out, order)
    a, b = _strides(call, 0, shape, views), _strides(call, 1, shape, views)
    k: AnyDim = (views[0].tensor if 0 in views else call.operand(0)).shape[-1]
    if is_integer(call):
        codes = call.plan.codes
        k = sh.floordiv(k, codes)
        a = [*[sh.floordiv(s, codes) for s in a[:-1]], 1]
    axes = range(len(order) - 2)
    batch = [Axis((x,), shape[x], a[x], b[x], c[x]) for x in axes if shape[x] != 1]
    rows = _merged_rows(Axis((len(order) - 2,), shape[-2], a[-2], 0, c[-2]), batch)
    left = a[-1] != 1 and k != 1
    runs = not left or (call.operand(0).dtype is F32 and rows.a == 1 and sh.compare("lt", rows.extent, LEFT_FROM) != 1)
    layout = _layout(call, shape[-1], k, b) if runs and (c[-1] == 1 or shape[-1] == 1) else None
    ldb = b[-2] if isinstance(layout, Dense) and not layout.transposed else b[-1]
    lda = a[-1] if left else rows.a
    return Product(layout, rows.extent, shape[-1], k, lda, ldb, rows.c, _merged(batch), rows.axes, left)


def _by_product_axes(out: Tensor, order: tuple[int, ...]) -> tuple[list[AnyDim], list[AnyDim]]:
    """Return extents and strides of the output by the axes of the product."""
    shape: list[AnyDim] = [0] * out.rank
    strides: list[AnyDim] = [0] * out.rank
    for axis, extent, stride in zip(order, out.shape, sh.strides(out.shape), strict=True):
        shape[axis], strides[axis] = extent, stride
    return shape, strides


def _merged_rows(rows: Axis, batch: list[Axis]) -> Axis:
    """Merge the rows with the last batch axes along which B is the same and rows are equidistant; remove these axes
    from `batch`."""
    if rows.extent == 1 and batch and batch[-1].b == 0:
        last = batch.pop()
        rows = replace(last, axes=(*last.axes, *rows.axes))
    while batch and batch[-1].b == 0 and batch[-1].a == rows.extent * rows.a and batch[-1].c == rows.extent * rows.c:
        last = batch.pop()
        rows = replace(rows, axes=(*last.axes, *rows.axes), extent=rows.extent * last.extent)
    return rows


def _layout(call: Call, n: AnyDim, k: AnyDim, b: list[AnyDim]) -> Layout | None:
    if 1 in call.packed:
        return Packed()
    half = call.operand(1).dtype is F16
    if b[-2] == 1 and n == 1:
        return Dense(True, half)
    if b[-1] == 1 or (n == 1 and b[-2] != 1):
        return Dense(False, half)
    return Dense(True, half) if b[-2] == 1 or k == 1 else None


def _strides(call: Call, operand: int, shape: list[AnyDim], views: dict[int, View]) -> list[AnyDim]:
    """Strides of an operand along the axes of the product, its own two at the end; 0 for broadcasting."""
    if operand in views:
        own, strides = views[operand].tensor.shape, views[operand].strides
    else:
        own, strides = call.operand(operand).shape, sh.strides(call.operand(operand).shape)
    if operand == 1 and 1 in call.packed:
        return [0] * len(shape)
    out: list[AnyDim] = [0] * (len(shape) - len(own))
    for n, (d, s) in enumerate(zip(own, strides, strict=True)):
        full = shape[len(shape) - len(own) + n]
        if n >= len(own) - 2 or d == full:
            out.append(s)
        else:
            out.append(0 if d == 1 else s * (1 - sh.compare("eq", d, 1)))
    return out


def _merged(batch: list[Axis]) -> list[Axis]:
    out: list[Axis] = []
    for x in batch:
        y = out[-1] if out else None
        if y and y.a == x.a * x.extent and y.b == x.b * x.extent and y.c == x.c * x.extent:
            out[-1] = Axis((*y.axes, *x.axes), y.extent * x.extent, x.a, x.b, x.c)
        else:
            out.append(x)
    return out


def _is_stored_half(t: Tensor | None) -> bool:
    """Whether the tensor is a float16 feed or a cache that grows in place; float16 results of other kernels become
    float32 (passes/lowering/wide_halves.py)."""
    while t is not None and t.dtype is F16:
        kernel = t.kernel
        if isinstance(kernel, Alias):
            t = kernel.base
        elif isinstance(kernel, Map) and kernel.expr.op == "at":
            t = kernel.expr.value
        elif isinstance(kernel, Leaf):
            return kernel.kind == "feed"
        else:
            return isinstance(kernel, Loops) and bool(kernel.bases)
    return False


class Matmul(WasmRoutine):
    def __init__(self, dots: str = "") -> None:
        self.dots = dots

    def prepare(self, call: Call) -> list[Kernel]:
        if call.out.dtype is I32 and call.operand(0).dtype is I32:
            return prepare_product(call, self.dots)
        if call.out.dtype is F32:
            quantised = prepare_dequantised_product(call, self.dots) or prepare_dequantised_weights(call)
            operands = (0,) if _is_stored_half(call.args[1]) else (0, 1)
            if found := quantised or prepare_halves(call):
                return found
            before, wide = widened(call, operands)
            return [*before, wide]
        return []

    def claims(self, call: Call) -> bool:
        floats = all(t.dtype is F32 for t in (call.operand(0), call.out)) and call.operand(1).dtype in (F32, F16)
        order = tuple(range(call.out.rank))
        if is_of_doubles(call):
            return describe(call, call.out, order, call.strided).runs
        return (is_integer(call) or floats) and describe(call, call.out, order, call.strided).runs

    def reads(self, call: Call, operand: int, view: View) -> bool:
        if is_integer(call):
            return False
        if operand == 1 and any(s == 0 for s in view.strides[-2:]):
            return False
        return describe(call, call.out, _order(call), {**call.strided, operand: view}).runs

    def fuses(self, call: Call, out: Tensor, order: tuple[int, ...], epilogue: Expr) -> bool:
        if is_of_doubles(call):
            return False
        p = describe(call, out, order, call.strided)
        return p.runs and fits(out, sum_type(call)) and takes_epilogue(out, epilogue, p.groups(order))

    def packs(self, call: Call, operand: int) -> Call | None:
        b = call.args[1]
        if operand != 1 or b is None or 1 in call.packed or b.dtype is F64:
            return None
        view = call.strided.get(1)
        source = view.tensor if view else b
        k, n = source.shape[-2:]
        if view and view.offset != 0:
            return None
        if any(d != 1 for d in source.shape[:-2]) or (isinstance(n, int) and n < PACK_FROM):
            return None
        return packing(source, b, view, k, n)

    def emit(self, writer: Any, call: Call) -> list[Invocation]:
        p = described(call)
        if is_of_doubles(call):
            return [product_of_doubles(writer, call, p)]
        few = 0 if p.left else FEW_ROWS if isinstance(p.layout, Packed) else 8
        mc, nc, kc = gemm.blocks(p.m, p.n, p.k, writer.threads, few)
        return [invocation(writer, call, p, gemm.left_blocks(mc, nc, p.k) if p.left else (mc, nc, kc))]


def is_of_doubles(call: Call) -> bool:
    return all(t.dtype is F64 for t in (call.operand(0), call.operand(1), call.out))


def product_of_doubles(writer: Any, call: Call, p: Product) -> Invocation:
    assert isinstance(p.layout, Dense)
    outer, inner = p.levels()
    mc, nc, kc = gemm_doubles.blocks(p.m, p.n, p.k)
    steps = (1, p.ldb) if p.layout.transposed else (p.ldb, 1)
    params = gemm_doubles.Params(
        m=p.m, n=p.n, k=p.k, lda=p.lda, step_k=steps[0], step_n=steps[1], ldc=p.ldc, stride_a=inner.a,
        stride_b=inner.b, stride_c=inner.c, mc=mc, nc=nc, kc=kc, inner=inner.extent, outer_a=outer.a,
        outer_b=outer.b, outer_c=outer.c, offset_a=offset(call, 0), offset_b=offset(call, 1),
    )  # fmt: skip
    own = scratch(gemm_doubles.scratch_bytes(nc, kc) * writer.threads)
    key = ("matmul_doubles", writer.relaxed)
    f = writer.function(key, lambda name: gemm_doubles.matmul(writer.module, name, writer.relaxed), "matmul_doubles")
    buffers = gemm_doubles.Buffers(call.operand(0), call.operand(1), call.out, own)
    units = gemm.units(p.m, p.n, outer.extent * inner.extent, mc, nc)
    return Invocation(f.name, list(buffers), list(params), units, call.node, [own])


def described(call: Call) -> Product:
    return describe(call, call.out, _order(call), call.strided)


def _order(call: Call) -> tuple[int, ...]:
    return call.order or tuple(range(call.out.rank))


def invocation(
    writer: Any, call: Call, p: Product, sizes: tuple[AnyDim, AnyDim, AnyDim], packed: Tensor | None = None
) -> Invocation:
    """Return the call as a product with blocks of these sizes; `packed` replaces B and has the strides of `p`."""
    assert p.layout is not None
    mc, nc, kc = sizes
    outer, inner = p.levels()
    params = gemm.Params(
        m=p.m, n=p.n, k=p.k, batch=outer.extent * inner.extent, lda=p.lda, ldb=p.ldb, ldc=p.ldc,
        stride_a=inner.a, stride_b=inner.b, stride_c=inner.c, mc=mc, nc=nc, kc=kc, inner=inner.extent,
        outer_a=outer.a, outer_b=outer.b, outer_c=outer.c,
        offset_a=offset(call, 0), offset_b=0 if packed is not None else offset(call, 1),
    )  # fmt: skip
    b = call.operand(1) if packed is None else packed
    return product_call(writer, call, p.layout, p.groups(_order(call)), [call.operand(0), b], params, left=p.left)


def offset(call: Call, operand: int) -> AnyDim:
    return call.strided[operand].offset if operand in call.strided else 0


def packing(source: Tensor, base: Tensor, view: View | None, k: AnyDim, n: AnyDim) -> Call:
    """[ceil(n / 8)][k][8] of a matrix, zero padded."""
    lead = [0] * (source.rank - 2)
    place = index(0) * PANEL + index(2)
    meaning = Map(guard(place < dim(n), source.at(*lead, index(1), place), const(0.0)))
    call = Call("pack_b", (base,), {"k": k, "n": n}, meaning, {0: view} if view else {})
    return call.making((sh.ceildiv(n, PANEL), k, PANEL), source.dtype)


class PackB(WasmRoutine):
    """Panels of a constant matrix."""

    def emit(self, writer: Any, call: Call) -> list[Invocation]:
        k, n = call.attrs["k"], call.attrs["n"]
        strides = call.strided[0].strides[-2:] if 0 in call.strided else (n, 1)
        transposed = strides[1] != 1
        ld, size = strides[1 if transposed else 0], gemm.packed_floats(n, k)
        params = gemm.PackParams(n=n, k=k, batch=1, ld=ld, stride_source=0, stride_packed=size)
        return [pack_call(writer, call, transposed, gemm.PackBuffers(call.operand(0), call.out), params)]
