"""The routine "conv": 1x1 as a product, depthwise ones by depthwise.py, the rest as an implicit product by conv.py."""

from __future__ import annotations

from typing import Any

from pyruntime.codegen.block_epilogue import Groups, takes_epilogue
from pyruntime.codegen.choices import WINOGRAD_TILES
from pyruntime.codegen.provider import Invocation
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Call, Kernel, Tensor
from pyruntime.ir.shape import AnyDim

from ..schedules import conv, depthwise, gemm, winograd
from .base import WasmRoutine, arithmetic, call_epilogue, fits, made_type, own_words, scratch, widened
from .integer_products import prepare_conv, prepare_dequantised_conv
from .winograd import suits, transformed

MOST_TAPS = 1 << 16  # a thread's panels and table are then 25 MB


class Conv(WasmRoutine):
    def __init__(self, dots: str = "") -> None:
        self.dots = dots

    def prepare(self, call: Call) -> list[Kernel]:
        x, w = _operands(call)
        if not _runs(x, w):
            return []
        if call.out.dtype is I32 and x.dtype is I32:
            return prepare_conv(call, self.dots)
        if call.out.dtype is not F32:
            return []
        return widened(call) or prepare_dequantised_conv(call, self.dots)

    def claims(self, call: Call) -> bool:
        if not call.args:  # `prepare` put the product before it
            return False
        return ("sums" in call.attrs or super().claims(call)) and _runs(*_operands(call))

    def fuses(self, call: Call, out: Tensor, order: tuple[int, ...], epilogue: Expr) -> bool:
        if order != tuple(range(out.rank)) or not fits(out, made_type(call)):
            return False
        return takes_epilogue(out, epilogue, conv_groups(out.rank))

    def emit(self, writer: Any, call: Call) -> list[Invocation]:
        x, w = _operands(call)
        group = call.attrs["group"]
        if group == 1 and _pointwise(call, w):
            return [_product(writer, call)]
        if call.attrs.get("packed1"):
            return [_winograd(writer, call)]
        alone = x.rank <= 4 and group == x.shape[1] and w.shape[1] == 1 and group != 1 and "sums" not in call.attrs
        if alone and _reaches(call):
            return [_depthwise(writer, call)]
        return [_implicit(writer, call)]

    def packs(self, call: Call, operand: int) -> Kernel | None:
        if operand != 1 or call.attrs.get("packed1") or not suits(call):
            return None
        return transformed(call)


def _runs(x: Tensor, w: Tensor) -> bool:
    taps = w.shape[2:]
    return 3 <= x.rank <= 5 and sh.is_static(taps) and sh.size(taps) <= MOST_TAPS


def _operands(call: Call) -> tuple[Tensor, Tensor]:
    x, w = call.args[:2]
    assert x is not None
    assert w is not None
    return x, w


def conv_groups(rank: int) -> Groups:
    return (), (0,), (1,), tuple(range(2, rank))


def _pointwise(call: Call, w: Tensor) -> bool:
    a = call.attrs
    return all(d == 1 for d in (*w.shape[2:], *a["strides"])) and all(p == 0 for p in a["pads"])


def _product(writer: Any, call: Call) -> Invocation:
    x, w = _operands(call)
    y = call.out
    m, k, n, batch = w.shape[0], x.shape[1], sh.size(x.shape[2:]), x.shape[0]
    done = call_epilogue(writer, call, conv_groups(y.rank), own_words(gemm, 2), made_type(call))
    sums = arithmetic(writer, call)
    mc, nc, kc = gemm.blocks(m, n, k, writer.threads)
    own = scratch(gemm.scratch_bytes(nc, kc) * writer.threads)
    words = [m, n, k, batch, k, n, n, 0, k * n, m * n, mc, nc, kc, batch, 0, 0, 0, 0, 0, *done.params]

    def make(name: str) -> Any:
        return gemm.matmul(
            writer.module, name, "rows", arithmetic=sums, epilogue=done.epilogue, extra=len(done.tensors)
        )

    f = writer.function(("matmul", "rows", sums, done.epilogue.block_key(), len(done.tensors)), make, "conv_1x1")
    y = done.result or y
    tensors = [w, x, y, done.bias or y, own, *done.tensors]
    return Invocation(f.name, tensors, words, gemm.units(m, n, batch, mc, nc), call.node, [own, *done.scratch()])


def _winograd(writer: Any, call: Call) -> Invocation:
    x, u = _operands(call)
    y, pads = call.out, call.attrs["pads"]
    batch, _, ih, iw = x.shape
    m, c = u.shape[1:]
    oh, ow = y.shape[2:]
    sums = arithmetic(writer, call)
    form = winograd.form_of(sums)
    th, quads = sh.ceildiv(oh, form.step), sh.maximum(sh.ceildiv(ow, 4 * form.step), 1)
    done = call_epilogue(writer, call, conv_groups(4), own_words(winograd, 2), made_type(call))
    chosen = writer.choices.of(WINOGRAD_TILES, call.node)
    tr, mg = winograd.blocks(form, m, c, th, quads, writer.threads, chosen)
    size = winograd.scratch_bytes(form, c, tr, quads)
    own = scratch(size * writer.threads)
    words = [batch, c, m, ih, iw, oh, ow, pads[0], pads[1], th, quads, tr, mg, size, *done.params]
    extra = len(done.tensors)

    def make(name: str) -> Any:
        return winograd.winograd(writer.module, name, arithmetic=sums, epilogue=done.epilogue, extra=extra)

    f = writer.function(("winograd", sums, done.epilogue.block_key(), extra), make, "winograd")
    y = done.result or y
    tensors = [x, u, y, done.bias or y, own, *done.tensors]
    units = winograd.units(batch, m, th, tr, mg)
    return Invocation(f.name, tensors, words, units, call.node, [own, *done.scratch()])


def full_rank(values: Any, rank: int, fill: AnyDim) -> list[AnyDim]:
    """Spatial values as three."""
    return [fill] * (3 - rank) + list(values)


def _implicit(writer: Any, call: Call) -> Invocation:
    x, w = _operands(call)
    y, a = call.out, call.attrs
    rank = x.rank - 2
    group = a["group"]
    mg, cg = sh.floordiv(w.shape[0], group), w.shape[1]
    positions, taps = sh.size(y.shape[2:]), sh.size(w.shape[2:])
    done = call_epilogue(writer, call, conv_groups(y.rank), own_words(conv, 2), made_type(call))
    sums = arithmetic(writer, call)
    mc, nc, cc = conv.blocks(mg, cg, positions, taps, writer.threads)
    own = scratch(conv.scratch_bytes(nc, cc, taps) * writer.threads)
    words = [x.shape[0], group, mg, cg, *full_rank(x.shape[2:], rank, 1), *full_rank(y.shape[2:], rank, 1)]
    words += [*full_rank(w.shape[2:], rank, 1), *full_rank(a["strides"], rank, 1), *full_rank(a["dilations"], rank, 1)]
    words += [*full_rank(a["pads"][:rank], rank, 0), mc, nc, cc, *done.params]

    around = call.args[2] if len(call.args) > 2 else None
    extra, filled = len(done.tensors), around is not None

    def make(name: str) -> Any:
        return conv.conv(writer.module, name, arithmetic=sums, epilogue=done.epilogue, extra=extra, filled=filled)

    f = writer.function(("conv", sums, done.epilogue.block_key(), extra, filled), make, "conv")
    y = done.result or y
    tensors = [x, w, y, around or done.bias or y, own, *done.tensors]
    units = conv.units(x.shape[0], group, mg, positions, mc, nc)
    return Invocation(f.name, tensors, words, units, call.node, [own, *done.scratch()])


def _reaches(call: Call) -> bool:
    """Whether windows are short enough for depthwise.py."""
    taps, dilations = _operands(call)[1].shape[2:], call.attrs["dilations"]
    return all((k - 1) * d < depthwise.REACH for k, d in zip(taps, dilations, strict=True))


def _depthwise(writer: Any, call: Call) -> Invocation:
    (x, w), sums = _operands(call), arithmetic(writer, call)
    y, a = call.out, call.attrs
    rank = x.rank - 2
    done = call_epilogue(writer, call, conv_groups(y.rank), own_words(depthwise, 2))
    kernel, strides, dilations, pads = (
        full_rank(v, rank, f)[1:]
        for v, f in ((w.shape[2:], 1), (a["strides"], 1), (a["dilations"], 1), (a["pads"][:rank], 0))
    )
    c, mult, extra = x.shape[1], sh.floordiv(w.shape[0], x.shape[1]), len(done.tensors)
    size, out = full_rank(x.shape[2:], rank, 1)[1:], full_rank(y.shape[2:], rank, 1)[1:]
    rows, run = depthwise.copied(out, kernel, strides, dilations)
    words = [x.shape[0], c, mult, *size, *out, *kernel, *strides, *dilations, *pads, rows, run, *done.params]
    own = scratch(depthwise.scratch_bytes(rows, run, strides[1], sh.size(kernel)) * writer.threads)

    def make(name: str) -> Any:
        return depthwise.depthwise(writer.module, name, arithmetic=sums, epilogue=done.epilogue, extra=extra)

    f = writer.function(("depthwise", done.epilogue.block_key(), extra), make, "depthwise")
    y = done.result or y
    tensors = [x, w, y, done.bias or y, own, *done.tensors]
    return Invocation(f.name, tensors, words, depthwise.units(x.shape[0], c, mult), call.node, [own, *done.scratch()])


__all__ = ["Conv", "conv_groups", "full_rank"]
