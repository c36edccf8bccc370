"""The routine "matmul": which kernel of gemm.py runs a product, and with what strides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyruntime.codegen.block_epilogue import Groups, takes_epilogue
from pyruntime.codegen.provider import Invocation
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F16, F32, I32
from pyruntime.ir.expr import Expr, const, dim, guard, index
from pyruntime.ir.kernel import Alias, Call, Kernel, Leaf, Loops, Map, Tensor, View
from pyruntime.ir.shape import AnyDim

from ..schedules import gemm
from ..schedules.arithmetic import Arithmetic
from ..schedules.register_tile import PANEL
from .base import WasmRoutine, arithmetic, call_epilogue, fits, made_type, own_words, scratch, widened
from .dequantised_weights import prepare_dequantised_weights
from .integer_products import prepare_dequantised_product, prepare_product
from .matmul_nbits import prepare_halves

PACK_FROM = 5  # columns: below, a panel of 8 would be mostly padding


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
    """A product as gemm.py sees it; kind as there, None if it cannot be."""

    kind: str | None
    m: AnyDim
    n: AnyDim
    k: AnyDim
    lda: AnyDim
    ldb: AnyDim
    ldc: AnyDim
    batch: list[Axis]
    rows: tuple[int, ...]

    def levels(self) -> tuple[Axis, Axis]:
        """Outer and inner batch."""
        outer, inner = [*[Axis((), 1, 0, 0, 0)] * (2 - len(self.batch)), *self.batch]
        return outer, inner

    def groups(self, order: tuple[int, ...]) -> Groups:
        """Axes of the output, given for each the axis of the product."""
        place = {axis: n for n, axis in enumerate(order)}
        rank = len(order)
        named = [tuple([place[x] for x in b.axes]) for b in self.batch]
        none: tuple[int, ...] = ()
        outer, inner = [*[none] * (2 - len(named)), *named]
        return outer, inner, tuple([place[x] for x in self.rows]), (place[rank - 1],)


def describe(call: Call, out: Tensor, order: tuple[int, ...], views: dict[int, View]) -> Product:
    """The product with its batch axes merged as far as strides allow."""
    shape, c = _by_product_axes(out, order)
    a, b = _strides(call, 0, shape, views), _strides(call, 1, shape, views)
    left = views[0].tensor if 0 in views else call.args[0]
    assert left is not None
    k: AnyDim = left.shape[-1]
    if "sums" in call.attrs:
        codes = Arithmetic[call.attrs["sums"]].codes
        k = sh.floordiv(k, codes)
        a = [*[sh.floordiv(s, codes) for s in a[:-1]], 1]
    axes = range(len(order) - 2)
    batch = [Axis((x,), shape[x], a[x], b[x], c[x]) for x in axes if shape[x] != 1]
    rows = _merged_rows(Axis((len(order) - 2,), shape[-2], a[-2], 0, c[-2]), batch)
    kind = _kind(call, rows.extent, shape[-1], k, a, b) if c[-1] == 1 or shape[-1] == 1 else None
    ldb = b[-2] if kind == "rows" else b[-1]
    if kind and _base(call, 1).dtype is F16:
        kind += "16"
    return Product(kind, rows.extent, shape[-1], k, rows.a, ldb, rows.c, _merged(batch), rows.axes)


def _by_product_axes(out: Tensor, order: tuple[int, ...]) -> tuple[list[AnyDim], list[AnyDim]]:
    """Extents and strides of the output along the axes of the product."""
    shape: list[AnyDim] = [0] * out.rank
    strides: list[AnyDim] = [0] * out.rank
    for axis, extent, stride in zip(order, out.shape, sh.strides(out.shape), strict=True):
        shape[axis], strides[axis] = extent, stride
    return shape, strides


def _merged_rows(rows: Axis, batch: list[Axis]) -> Axis:
    """The rows with the last batch axes, taken from `batch`, along which B is the same and rows follow each other."""
    if rows.extent == 1 and batch and batch[-1].b == 0:
        last = batch.pop()
        rows = replace(last, axes=(*last.axes, *rows.axes))
    while batch and batch[-1].b == 0 and batch[-1].a == rows.extent * rows.a and batch[-1].c == rows.extent * rows.c:
        last = batch.pop()
        rows = replace(rows, axes=(*last.axes, *rows.axes), extent=rows.extent * last.extent)
    return rows


def _kind(call: Call, m: AnyDim, n: AnyDim, k: AnyDim, a: list[AnyDim], b: list[AnyDim]) -> str | None:
    if a[-1] != 1 and k != 1:
        return None
    if call.attrs.get("packed1"):
        return "panels"
    if b[-2] == 1 and n == 1:
        return "cols"
    return "rows" if b[-1] == 1 or n == 1 and b[-2] != 1 else "cols" if b[-2] == 1 or k == 1 else None


def _strides(call: Call, operand: int, shape: list[AnyDim], views: dict[int, View]) -> list[AnyDim]:
    """Strides of an operand along the axes of the product (its own last two at the end); 0 where it is broadcast."""
    t = call.args[operand]
    assert t is not None
    if operand in views:
        own, strides = views[operand].tensor.shape, views[operand].strides
    else:
        own, strides = t.shape, sh.strides(t.shape)
    if operand == 1 and call.attrs.get("packed1"):
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


def _lies_as_halves(t: Tensor | None) -> bool:
    """Whether it is float16 in a feed, or in a cache that grows in place: what other kernels make becomes float32
    (passes/wide_halves.py)."""
    while t is not None and t.dtype is F16:
        kernel = t.kernel
        if isinstance(kernel, Alias):
            t = kernel.base
        elif isinstance(kernel, Map) and kernel.expr.op == "at":
            t = kernel.expr.value
        elif isinstance(kernel, Leaf):
            return kernel.kind == "feed"
        else:
            return isinstance(kernel, Loops) and kernel.base is not None
    return False


class Matmul(WasmRoutine):
    def __init__(self, dots: str = "") -> None:
        self.dots = dots

    def prepare(self, call: Call) -> list[Kernel]:
        if call.out.dtype is I32 and _base(call, 0).dtype is I32:
            return prepare_product(call, self.dots)
        if call.out.dtype is F32:
            codes = prepare_dequantised_product(call, self.dots) or prepare_dequantised_weights(call)
            return codes or prepare_halves(call) or widened(call, (0,) if _lies_as_halves(call.args[1]) else (0, 1))
        return []

    def claims(self, call: Call) -> bool:
        if not call.args:  # `prepare` put the product before it
            return False
        if call.attrs.get("ready"):  # it became another routine
            return True
        floats = all(t.dtype is F32 for t in (_base(call, 0), call.out)) and _base(call, 1).dtype in (F32, F16)
        return ("sums" in call.attrs or floats) and self._runs(
            call, call.out, tuple(range(call.out.rank)), call.strided
        )

    def _runs(self, call: Call, out: Tensor, order: tuple[int, ...], views: dict[int, View]) -> bool:
        p = describe(call, out, order, views)
        return p.kind is not None and len(p.batch) <= 2

    def reads(self, call: Call, operand: int, view: View) -> bool:
        if "sums" in call.attrs:
            return False
        order = call.order or tuple(range(call.out.rank))
        if operand == 1 and any(s == 0 for s in view.strides[-2:]):
            return False
        return self._runs(call, call.out, order, {**call.strided, operand: view})

    def fuses(self, call: Call, out: Tensor, order: tuple[int, ...], epilogue: Expr) -> bool:
        p = describe(call, out, order, call.strided)
        if p.kind is None or len(p.batch) > 2 or not fits(out, made_type(call)):
            return False
        return takes_epilogue(out, epilogue, p.groups(order))

    def packs(self, call: Call, operand: int) -> Call | None:
        b = call.args[1]
        if operand != 1 or b is None or call.attrs.get("packed1"):
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
        return [invocation(writer, call, p, gemm.blocks(p.m, p.n, p.k, writer.threads))]


def described(call: Call) -> Product:
    return describe(call, call.out, call.order or tuple(range(call.out.rank)), call.strided)


def invocation(
    writer: Any, call: Call, p: Product, sizes: tuple[AnyDim, AnyDim, AnyDim], packed: Tensor | None = None
) -> Invocation:
    """The call as a product with blocks of these sizes; `packed` takes the place of B, of which `p` knows where its
    panels are."""
    kind = p.kind
    assert kind is not None
    order = call.order or tuple(range(call.out.rank))
    done = call_epilogue(writer, call, p.groups(order), own_words(gemm, 2), made_type(call))
    sums = arithmetic(writer, call)
    mc, nc, kc = sizes
    outer, inner = p.levels()
    batch = outer.extent * inner.extent
    a, b = _base(call, 0), _base(call, 1) if packed is None else packed
    own = [scratch(gemm.scratch_bytes(nc, kc) * writer.threads)] if kind != "panels" else []
    words = [p.m, p.n, p.k, batch, p.lda, p.ldb, p.ldc, inner.a, inner.b, inner.c, mc, nc, kc, inner.extent]
    words += [outer.a, outer.b, outer.c, offset(call, 0), 0 if packed is not None else offset(call, 1), *done.params]

    def make(name: str) -> Any:
        return gemm.matmul(writer.module, name, kind, arithmetic=sums, epilogue=done.epilogue, extra=len(done.tensors))

    key = ("matmul", kind, sums, done.epilogue.block_key(), len(done.tensors))
    f = writer.function(key, make, f"matmul_{kind}")
    c = done.result or call.out
    tensors = [a, b, c, done.bias or c, own[0] if own else c, *done.tensors]
    units = gemm.units(p.m, p.n, batch, mc, nc)
    return Invocation(f.name, tensors, words, units, call.node, [*own, *done.scratch()])


def offset(call: Call, operand: int) -> AnyDim:
    return call.strided[operand].offset if operand in call.strided else 0


def _base(call: Call, operand: int) -> Tensor:
    t = call.args[operand]
    assert t is not None
    return t


def packing(source: Tensor, base: Tensor, view: View | None, k: AnyDim, n: AnyDim) -> Call:
    """[ceil(n / 8)][k][8] of a matrix, zero padded."""
    lead = [0] * (source.rank - 2)
    place = index(0) * PANEL + index(2)
    meaning = Map(guard(place < dim(n), source.at(*lead, index(1), place), const(0.0)))
    call = Call("pack_b", (base,), {"k": k, "n": n}, meaning, {0: view} if view else {})
    call.outputs = (Tensor((sh.ceildiv(n, PANEL), k, PANEL), source.dtype, call),)
    return call


class PackB(WasmRoutine):
    """Panels of a constant matrix."""

    def emit(self, writer: Any, call: Call) -> list[Invocation]:
        k, n = call.attrs["k"], call.attrs["n"]
        strides = call.strided[0].strides[-2:] if 0 in call.strided else (n, 1)
        kind, ld = ("rows", strides[0]) if strides[1] == 1 else ("cols", strides[1])
        f = writer.function(("pack_b", kind), lambda name: gemm.pack_b(writer.module, name, kind), "pack_b")
        words = [n, k, 1, ld, 0, gemm.packed_floats(n, k), 1, 0, 0]
        return [Invocation(f.name, [_base(call, 0), call.out], words, gemm.pack_units(n), call.node)]


__all__ = ["Axis", "Matmul", "PackB", "Product", "describe", "described", "invocation", "offset", "packing"]
