"""The routine "conv_filters": the gradient of a convolution's filters."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyruntime.codegen.provider import Invocation
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Call, Kernel

from ..schedules import conv_filters, winograd_filters
from .base import WasmRoutine, arithmetic, scratch, widened
from .conv import MOST_TAPS, window_of
from .winograd import suits_filters


class ConvFilters(WasmRoutine):
    """args: x (N, C, *S), g (N, M, *O), what flows into the convolution; attrs: those of "conv" """

    def prepare(self, call: Call) -> list[Kernel]:
        before, wide = widened(call)
        return [*before, wide] if before else []

    def claims(self, call: Call) -> bool:
        y, pads = call.out, call.attrs["pads"]
        known = 3 <= y.rank <= 5 and sh.is_static(y.shape) and 0 < sh.size(y.shape[2:]) <= MOST_TAPS
        return super().claims(call) and known and not any(isinstance(p, int) and p < 0 for p in pads)

    def emit(self, writer: Any, call: Call) -> list[Invocation]:
        x, g, y, group = call.operand(0), call.operand(1), call.out, call.attrs["group"]
        if suits_filters(call):
            return [_winograd(writer, call)]
        direct = _reads_in_place(call)
        extents = [(sh.size(t.shape[2:]),) if direct else t.shape[2:] for t in (x, g)]
        window = window_of(call, extents[0], extents[1], y)
        mg, columns = int(y.shape[0]) // group, int(sh.size(y.shape[1:]))
        cg, taps = int(y.shape[1]), int(sh.size(y.shape[2:]))
        lines, wide = conv_filters.step_size(window.oh, window.ow)
        rows, run = (1, window.iw) if direct else conv_filters.covered(lines, wide, window)
        mc, nc = conv_filters.blocks(mg, columns, writer.threads)
        channels = 0 if direct else conv_filters.channels_of_block(nc, cg, taps)
        size = conv_filters.scratch_bytes(nc, channels, window, rows, run)
        params = conv_filters.Params(
            mc=mc, nc=nc, lines=lines, wide=wide, rows=rows, run=run, bytes=size, direct=int(direct)
        )  # fmt: skip
        own = scratch(size * writer.threads)
        sums = arithmetic(writer, call)
        kernel = partial(conv_filters.conv_filters, writer.module, arithmetic=sums)
        f = writer.function(("conv_filters", sums), kernel, "conv_filters")
        units = conv_filters.units(group, mg, columns, mc, nc)
        return [Invocation(f.name, [x, g, y, own], [*window, *params], units, call.node, [own])]


def _winograd(writer: Any, call: Call) -> Invocation:
    x, g, y, pads = call.operand(0), call.operand(1), call.out, call.attrs["pads"]
    (batch, c, ih, iw), (m, oh, ow) = x.shape, g.shape[1:]
    cg, mg = winograd_filters.blocks(int(y.shape[1]), int(y.shape[0]), writer.threads)
    th, quads = sh.ceildiv(oh, winograd_filters.STEP), sh.maximum(sh.ceildiv(ow, 4 * winograd_filters.STEP), 1)
    tr = winograd_filters.rows_of_step(batch, th, quads)
    size = winograd_filters.scratch_bytes(cg, mg, tr, quads)
    params = winograd_filters.Params(
        batch=batch, c=c, m=m, ih=ih, iw=iw, oh=oh, ow=ow, ph=pads[0], pw=pads[1], th=th, quads=quads, tr=tr, mg=mg,
        bytes=size, cg=cg,
    )  # fmt: skip
    own, sums = scratch(size * writer.threads), arithmetic(writer, call)
    kernel = partial(winograd_filters.winograd_filters, writer.module, arithmetic=sums)
    f = writer.function(("winograd_filters", sums), kernel, "winograd_filters")
    units = winograd_filters.units(int(y.shape[1]), int(y.shape[0]), cg, mg)
    return Invocation(f.name, [x, g, y, y, own], list(params), units, call.node, [own])


def _reads_in_place(call: Call) -> bool:
    a = call.attrs
    return all(d == 1 for d in (*call.out.shape[2:], *a["strides"])) and all(p == 0 for p in a["pads"])
