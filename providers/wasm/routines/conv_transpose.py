"""The routine "conv_transpose": a convolution with a filter for each phase of the stride, then phase_interleave.py.

With stride s let q = o + begin = s·u + r. Output o takes the taps k = r + s·j at the inputs i = u - j: the same inputs
for all phases r. So one convolution over u computes all phases: it has s filters for each filter (taps past the window
are 0).
With a stride of 1 that convolution is the result. If the stride does not divide the window, some filters are padded
with zeros, and the last step also reads x and the filters, to mend what an infinity makes of these zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyruntime.codegen.provider import Invocation
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, const, dim, guard, index
from pyruntime.ir.kernel import Call, Kernel, Map, Reduce, Tensor
from pyruntime.ir.shape import AnyDim

from ..schedules import phase_interleave as interleave
from ..schedules.phase_mending import MendingBuffers, MendingParams
from .base import WasmRoutine, changed, fused_epilogue, made_map, widened
from .conv import MOST_TAPS, PlaneRoutine, conv_groups, spatial


class ConvTranspose(WasmRoutine):
    def prepare(self, call: Call) -> list[Kernel]:
        x, w = call.args[:2]
        if x is None or w is None or call.out.dtype is not F32 or not _suits(call, x, w):
            return []
        before, call = widened(call)
        filters = _filters(call, call.operand(1))
        product = _product(call, call.operand(0), filters.out)
        if all(s == 1 for s in call.attrs["strides"]):
            return [*before, filters, changed(call, routine="conv", args=product.args, attrs=product.attrs)]
        meaning = _interleaved(call, product.out)
        mended = (call.operand(0), filters.out) if _pads_filters(call) else ()
        attrs = {**call.attrs, "window": call.operand(1).shape[2:]}
        interleaved = changed(
            call, routine="phase_interleave", args=(product.out, *mended), attrs=attrs, meaning=meaning
        )
        return [*before, filters, product, interleaved]

    def claims(self, call: Call) -> bool:
        return False  # `prepare` replaces the calls that this provider computes


class PhaseInterleave(PlaneRoutine):
    """args: the result of the convolution that computes all phases and, to mend results, its operands; attrs: the
    attributes of "conv_transpose", and `window`, its extents."""

    def emit(self, writer: Any, call: Call) -> list[Invocation]:
        z, y, a = call.operand(0), call.out, call.attrs
        rank, mended = y.rank - 2, len(call.args) > 1
        dropped = [b % s for b, s in zip(a["pads"][:rank], a["strides"], strict=True)]
        params: Sequence[AnyDim] = interleave.Params(
            **spatial("o", y.shape[2:], 1), **spatial("u", z.shape[2:], 1), **spatial("s", a["strides"], 1),
            **spatial("b", dropped, 0), filters=y.shape[1],
        )  # fmt: skip
        arguments = interleave.MENDED if mended else interleave.ARGUMENTS
        fused = fused_epilogue(writer, call, conv_groups(y.rank), arguments, registers=False)
        buffers: Sequence[Tensor] = interleave.Buffers(z, fused.out)
        if mended:
            buffers = MendingBuffers(z, buffers[1], call.operand(1), call.operand(2))
            params = (*params, *_mending(call))
        kernel = partial(interleave.interleave, mended=mended)
        return [fused.invocation(kernel, ("interleave", mended), buffers, params, y.shape[0] * y.shape[1])]


def _mending(call: Call) -> MendingParams:
    (x, filters), a = (call.operand(1), call.operand(2)), call.attrs
    taps = filters.shape[2:]
    pads = [t - 1 - b // s for t, b, s in zip(taps, a["pads"][: len(taps)], a["strides"], strict=True)]
    return MendingParams(
        channels=filters.shape[1], members=sh.floordiv(call.out.shape[1], a["group"]), **spatial("k", a["window"], 1),
        **spatial("t", taps, 1), **spatial("i", x.shape[2:], 1), **spatial("p", pads, 0),
    )  # fmt: skip


def _suits(call: Call, x: Tensor, w: Tensor) -> bool:
    a = call.attrs
    rank, pads = x.rank - 2, a["pads"][: x.rank - 2]
    if not 1 <= rank <= 3 or not sh.is_static(w.shape[2:]) or any(not isinstance(p, int) or p < 0 for p in pads):
        return False
    one = all(s == 1 for s in a["strides"])
    flat = all(d == 1 for d in a["dilations"])
    return (one or flat) and all(_pad(call, w, n) >= 0 for n in range(rank)) and sh.size(_taps(call, w)) <= MOST_TAPS


def _pads_filters(call: Call) -> bool:
    """Whether some phases have fewer taps than others."""
    return any(k % s for k, s in zip(call.operand(1).shape[2:], call.attrs["strides"], strict=True))


def _taps(call: Call, w: Tensor) -> tuple[int, ...]:
    """Parameters of the convolution of one phase."""
    return tuple([-(-int(k) // s) for k, s in zip(w.shape[2:], call.attrs["strides"], strict=True)])


def _first(call: Call, axis: int) -> int:
    """The first u."""
    return call.attrs["pads"][axis] // call.attrs["strides"][axis]


def _pad(call: Call, w: Tensor, axis: int) -> int:
    return (_taps(call, w)[axis] - 1) * call.attrs["dilations"][axis] - _first(call, axis)


def _filters(call: Call, w: Tensor) -> Map:
    """(M · phases, C / group, *taps) of w (C, M / group, *K)."""
    strides, group, taps = call.attrs["strides"], call.attrs["group"], _taps(call, w)
    phases, rank = sh.size(strides), len(taps)
    per_group = sh.floordiv(w.shape[0], group)
    row, c = index(0), index(1)
    m, phase = _parts(row, phases)
    inside: Expr | None = None
    place: list[Expr] = []
    for n in reversed(range(rank)):
        phase, r = _parts(phase, strides[n])
        k = (taps[n] - 1 - index(2 + n)) * strides[n] + r
        place.insert(0, k)
        if w.shape[2 + n] % strides[n]:
            here = k < dim(w.shape[2 + n])
            inside = here if inside is None else inside & here
    own, within = _parts(m, w.shape[1]) if group != 1 else (const(0, I32), m)
    value = w.at(own * dim(per_group) + c, within, *place)
    value = value if inside is None else guard(inside, value, const(0.0))
    return made_map((w.shape[1] * group * phases, per_group, *taps), value, call.node)


def _parts(i: Expr, size: AnyDim) -> tuple[Expr, Expr]:
    """i / size and the remainder; without them if they are known, so that the filters may be a view."""
    return (i, const(0, I32)) if size == 1 else (i / dim(size), i - i / dim(size) * dim(size))


def _product(call: Call, x: Tensor, filters: Tensor) -> Call:
    """Return the convolution over u that computes all phases."""
    a, w = call.attrs, call.operand(1)
    rank, taps = x.rank - 2, filters.shape[2:]
    extents: list[AnyDim] = []
    ends: list[AnyDim] = []
    for n in range(rank):
        s, begin, pad = a["strides"][n], a["pads"][n], _pad(call, w, n)
        last = sh.floordiv(call.out.shape[2 + n] + begin - 1, s)
        extents.append(sh.maximum(last - _first(call, n) + 1, 0))
        ends.append(extents[n] + (taps[n] - 1) * a["dilations"][n] - x.shape[2 + n] - pad)
    pads = (*[_pad(call, w, n) for n in range(rank)], *ends)
    attrs = {"strides": (1,) * rank, "pads": pads, "dilations": a["dilations"], "group": a["group"]}
    product = Call("conv", (x, filters), attrs, _sum(x, filters, pads, a["dilations"], a["group"]))
    return product.making((x.shape[0], filters.shape[0], *extents), F32, call.node)


def _sum(x: Tensor, filters: Tensor, pads: Sequence[AnyDim], dilations: Sequence[int], group: int) -> Reduce:
    rank = len(dilations)
    n, m, *rest = [index(axis) for axis in range(3 + 2 * rank)]
    u, c, taps = rest[:rank], rest[rank], rest[rank + 1 :]
    place = [u[axis] + taps[axis] * dilations[axis] - dim(pads[axis]) for axis in range(rank)]
    inside = (place[0] >= 0) & (place[0] < dim(x.shape[2]))
    for axis in range(1, rank):
        inside = inside & (place[axis] >= 0) & (place[axis] < dim(x.shape[2 + axis]))
    channel = m / dim(sh.floordiv(filters.shape[0], group)) * dim(filters.shape[1]) + c
    value = guard(inside, x.at(n, channel, *place), const(0.0)) * filters.at(m, c, *taps)
    return Reduce("sum", (filters.shape[1], *filters.shape[2:]), value)


def _interleaved(call: Call, z: Tensor) -> Map:
    strides, pads = call.attrs["strides"], call.attrs["pads"]
    n, m, *o = [index(axis) for axis in range(z.rank)]
    phase: Expr = const(0, I32)
    place: list[Expr] = []
    for axis, s in enumerate(strides):
        q = o[axis] + pads[axis]
        place.append(q / s - _first(call, axis))
        phase = phase * s + (q - q / s * s)
    return Map(z.at(n, m * sh.size(strides) + phase, *place))
