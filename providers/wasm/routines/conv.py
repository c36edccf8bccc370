"""The routine "conv": 1x1 as a product, depthwise by depthwise.py, others as an implicit product by conv.py."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyruntime.codegen.block_epilogue import Groups, takes_epilogue
from pyruntime.codegen.choices import WINOGRAD_TILES
from pyruntime.codegen.provider import Invocation
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Call, Kernel, Tensor
from pyruntime.ir.shape import AnyDim, Shape

from ..schedules import conv, depthwise, gemm, winograd
from ..schedules.arguments import ConvBuffers, Window
from ..schedules.layouts import Dense
from .base import WasmRoutine, arithmetic, fits, fused_epilogue, is_integer, scratch, sum_type, widened
from .gemm_calls import product_call
from .integer_products import prepare_conv, prepare_dequantised_conv
from .winograd import suits, transformed, transformed_in_runs

# From this many positions of the output on, Winograd's form pays even if each run transforms the filters
WINOGRAD_POSITIONS = 256
MOST_TAPS = 1 << 16  # taps of a window: with more, the scratch memory of a thread exceeds 25 MB


class PlaneRoutine(WasmRoutine):
    """A routine that makes planes (N, M, *S), each with an epilogue."""

    def fuses(self, call: Call, out: Tensor, order: tuple[int, ...], epilogue: Expr) -> bool:
        same = order == tuple(range(out.rank)) and fits(out, sum_type(call))
        return same and takes_epilogue(out, epilogue, conv_groups(out.rank))


class Conv(PlaneRoutine):
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
        before, wide = widened(call)
        return [*before, wide] if before else prepare_dequantised_conv(call, self.dots)

    def claims(self, call: Call) -> bool:
        return (is_integer(call) or super().claims(call)) and _runs(*_operands(call))

    def emit(self, writer: Any, call: Call) -> list[Invocation]:
        x, w = _operands(call)
        group = call.attrs["group"]
        if group == 1 and _pointwise(call, w):
            return [_product(writer, call)]
        if 1 in call.packed:
            return [_winograd(writer, call)]
        depthwise_ = x.rank <= 4 and group == x.shape[1] and w.shape[1] == 1 and group != 1 and not is_integer(call)
        if depthwise_ and _reaches(call):
            return [_depthwise(writer, call)]
        return [_implicit(writer, call)]

    def packs(self, call: Call, operand: int) -> Kernel | None:
        if operand != 1 or 1 in call.packed or not suits(call):
            return None
        return transformed(call)

    def packs_in_runs(self, call: Call, operand: int) -> Kernel | None:
        positions = call.out.shape[0] * sh.size(call.out.shape[2:])
        few = sh.compare("lt", positions, WINOGRAD_POSITIONS) == 1
        return None if few or self.packs(call, operand) is None else transformed_in_runs(call)


def _runs(x: Tensor, w: Tensor) -> bool:
    taps = w.shape[2:]
    return 3 <= x.rank <= 5 and sh.is_static(taps) and sh.size(taps) <= MOST_TAPS


def _operands(call: Call) -> tuple[Tensor, Tensor]:
    return call.operand(0), call.operand(1)


def conv_groups(rank: int) -> Groups:
    return (), (0,), (1,), tuple(range(2, rank))


def spatial(prefix: str, values: Sequence[AnyDim], missing: AnyDim, axes: str = "dhw") -> dict[str, AnyDim]:
    """Return parameters of a schedule, named by a prefix and an axis. `missing` stands for the first axes if `values`
    has fewer."""
    padded = [missing] * (len(axes) - len(values)) + list(values)
    return {prefix + axis: value for axis, value in zip(axes, padded, strict=True)}


def window_of(call: Call, inputs: Shape, outputs: Shape, w: Tensor) -> Window[AnyDim]:
    """The window of a convolution with one to three spatial dims. inputs, outputs: their extents; w: filters, or their
    gradient"""
    a, group = call.attrs, call.attrs["group"]
    dims = (inputs, outputs, w.shape[2:], a["strides"], a["dilations"], a["pads"][: w.rank - 2])
    named = {
        name: d for n, prefix in enumerate("ioksdp") for name, d in spatial(prefix, dims[n], int(prefix != "p")).items()
    }
    return Window(call.operand(0).shape[0], group, sh.floordiv(w.shape[0], group), w.shape[1], *named.values())


def _pointwise(call: Call, w: Tensor) -> bool:
    a = call.attrs
    return all(d == 1 for d in (*w.shape[2:], *a["strides"])) and all(p == 0 for p in a["pads"])


def _product(writer: Any, call: Call) -> Invocation:
    """Return a 1x1 convolution as a product that reads x in place."""
    x, w = _operands(call)
    m, k, n, batch = w.shape[0], x.shape[1], sh.size(x.shape[2:]), x.shape[0]
    mc, nc, kc = gemm.blocks(m, n, k, writer.threads)
    params = gemm.Params(
        m=m, n=n, k=k, batch=batch, lda=k, ldb=n, ldc=n, stride_a=0, stride_b=k * n, stride_c=m * n,
        mc=mc, nc=nc, kc=kc, inner=batch,
    )  # fmt: skip
    return product_call(writer, call, Dense(), conv_groups(call.out.rank), [w, x], params, label="conv_1x1")


def _winograd(writer: Any, call: Call) -> Invocation:
    x, u = _operands(call)
    y, pads = call.out, call.attrs["pads"]
    batch, _, ih, iw = x.shape
    um, c = u.shape[1:]
    m, oh, ow = y.shape[1:]
    sums = arithmetic(writer, call)
    form = winograd.form_of(sums)
    th, quads = sh.ceildiv(oh, form.step), sh.maximum(sh.ceildiv(ow, 4 * form.step), 1)
    fused = fused_epilogue(writer, call, conv_groups(4), winograd.ARGUMENTS, sum_type(call))
    tr, mg = winograd.blocks(form, m, c, th, quads, writer.threads, writer.choices.of(WINOGRAD_TILES, call.node))
    size = winograd.scratch_bytes(form, c, tr, quads)
    params = winograd.Params(
        batch=batch, c=c, m=m, ih=ih, iw=iw, oh=oh, ow=ow, ph=pads[0], pw=pads[1], th=th, quads=quads, tr=tr, mg=mg,
        bytes=size, um=um,
    )  # fmt: skip
    out, own = fused.out, scratch(size * writer.threads)
    kernel = partial(winograd.winograd, arithmetic=sums)
    buffers, units = ConvBuffers(x, u, out, fused.bias or out, own), winograd.units(batch, m, th, tr, mg)
    return fused.invocation(kernel, ("winograd", sums), buffers, params, units, [own])


def _implicit(writer: Any, call: Call) -> Invocation:
    x, w = _operands(call)
    y, a = call.out, call.attrs
    group = a["group"]
    mg, cg = sh.floordiv(w.shape[0], group), w.shape[1]
    positions, taps = sh.size(y.shape[2:]), sh.size(w.shape[2:])
    fused = fused_epilogue(writer, call, conv_groups(y.rank), conv.ARGUMENTS, sum_type(call))
    sums = arithmetic(writer, call)
    mc, nc, cc = conv.blocks(mg, cg, positions, taps, writer.threads)
    params = (*window_of(call, x.shape[2:], y.shape[2:], w), *conv.Params(mc, nc, cc))
    around = call.args[2] if len(call.args) > 2 else None
    out, own = fused.out, scratch(conv.scratch_bytes(nc, cc, taps) * writer.threads)
    filled = around is not None
    kernel = partial(conv.conv, arithmetic=sums, filled=filled)
    buffers = ConvBuffers(x, w, out, around or fused.bias or out, own)
    units = conv.units(x.shape[0], group, mg, positions, mc, nc)
    return fused.invocation(kernel, ("conv", sums, filled), buffers, params, units, [own])


def _reaches(call: Call) -> bool:
    """Whether windows are short enough for depthwise.py."""
    taps, dilations = _operands(call)[1].shape[2:], call.attrs["dilations"]
    return all((k - 1) * d < depthwise.REACH for k, d in zip(taps, dilations, strict=True))


def _depthwise(writer: Any, call: Call) -> Invocation:
    (x, w), y, a = _operands(call), call.out, call.attrs
    of = {
        prefix: spatial(prefix, values, missing, "hw")
        for prefix, values, missing in (
            ("i", x.shape[2:], 1), ("o", y.shape[2:], 1), ("k", w.shape[2:], 1), ("s", a["strides"], 1),
            ("d", a["dilations"], 1), ("p", a["pads"][: x.rank - 2], 0),
        )
    }  # fmt: skip
    size, kernel, strides, dilations = [list(of[prefix].values()) for prefix in "oksd"]
    rows, run = depthwise.copied(size, kernel, strides, dilations)
    c, mult = x.shape[1], sh.floordiv(w.shape[0], x.shape[1])
    places = {name: value for named in of.values() for name, value in named.items()}
    params = depthwise.Params(batch=x.shape[0], c=c, mult=mult, **places, rows=rows, run=run)
    fused = fused_epilogue(writer, call, conv_groups(y.rank), depthwise.ARGUMENTS)
    out = fused.out
    own = scratch(depthwise.scratch_bytes(rows, run, strides[1], sh.size(kernel)) * writer.threads)
    written = partial(depthwise.depthwise, arithmetic=arithmetic(writer, call))
    buffers, units = ConvBuffers(x, w, out, fused.bias or out, own), depthwise.units(x.shape[0], c, mult)
    return fused.invocation(written, ("depthwise",), buffers, params, units, [own])
