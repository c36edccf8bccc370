"""Convolutions. The contraction is the routine "conv" or "conv_transpose"; a bias is a map after it.

Letters: N batch, C input channels, M filters, S input extents, K window, O output extents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyruntime.frontend.registry import attributes_of, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import DType
from pyruntime.ir.expr import Expr, X, cast, dim, guard, index, rem, sigmoid
from pyruntime.ir.kernel import Leaf, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.formula import sum_type
from pyruntime.ops.lib.window import SAME, Window, sliding
from pyruntime.ops.standard.quant import subtract_zero

LARGE = 1024  # smaller filters are never exchanged with their input, see `_is_larger`


def convolve(t: Tracer, x: Tensor, w: Tensor, window: Window, group: int = 1) -> Tensor:
    """y[n, m, o] = Σ over c, k of x[n, g·C/group + c, o·stride + k·dilation - begin] · w[m, c, k] with g = m //
    (M/group); elements outside x are 0. Half floats are summed in float32.

    Routine "conv": args (x, w), attrs strides, pads (begins, then ends), dilations, group.
    Shapes: x (N, C, *S), w (M, C/group, *K) -> (N, M, *O)"""
    _require_groups(t, group)
    t.require_equal(x.shape[1], w.shape[1] * group, f"input channels and weight channels x group {group} differ")
    t.require(sh.compare("eq", w.shape[0] % group, 0), f"{w.shape[0]} filters are not divisible by group {group}")
    t.settle(w.shape)
    rank = len(window.size)
    dtype = sum_type(x.dtype)
    per_group = sh.floordiv(w.shape[0], group)

    def body(n: Expr, m: Expr, *i: Expr) -> Expr:
        o, c, k = i[:rank], i[rank], i[rank + 1 :]
        channel = c if group == 1 else index(1) / dim(per_group) * dim(w.shape[1]) + c
        positions = window.positions(o, k)
        value = cast(x.at(n, channel, *positions), dtype)
        return guard(window.inside(positions), value, 0) * cast(w.at(m, c, *k), dtype)

    meaning = t.reduce_compute("sum", (x.shape[0], w.shape[0], *window.out), (w.shape[1], *window.kernel), body)
    attrs = {"strides": window.strides, "pads": window.pads, "dilations": window.dilations, "group": group}
    return t.call("conv", (x, w), meaning, **attrs)


def add_bias(t: Tracer, y: Tensor, bias: Tensor | None, dtype: DType) -> Tensor:
    """y plus a bias per filter, as `dtype`."""
    if bias is not None:
        t.require_shape("the bias", bias, (y.shape[1],))
        out = y
        y = t.compute(out.shape, lambda *i: out.at(*i) + cast(bias.at(i[1]), out.dtype))
    return t.cast(y, dtype)


def check_weight(t: Tracer, x: Tensor, w: Tensor, kernel_shape: Sequence[int] | None) -> None:
    """Refuse a weight that differs from x in rank, or from kernel_shape."""
    if x.rank != w.rank:
        raise t.shape_error(f"input has rank {x.rank}, weight {w.rank}")
    if kernel_shape is not None and tuple(kernel_shape) != w.shape[2:]:
        t.require(int(len(kernel_shape) == w.rank - 2), "kernel_shape and the weight's rank differ")
        for k, d in zip(kernel_shape, w.shape[2:], strict=True):
            t.require_equal(k, d, "kernel_shape and the weight's shape differ")


def _window(
    t: Tracer, x: Tensor, w: Tensor, auto_pad: str, pads: Sequence[int] | None, strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
) -> Window:  # fmt: skip
    _check_one_padding(t, auto_pad, pads)
    return sliding(t, x.shape[2:], w.shape[2:], auto_pad=auto_pad, pads=pads, strides=strides, dilations=dilations)


def _check_one_padding(t: Tracer, auto_pad: str, pads: Sequence[int] | None) -> None:
    """Convolutions, unlike pooling, refuse pads in addition to auto_pad. ONNX Runtime refuses pads of 0 too."""
    if auto_pad in (*SAME, "VALID") and any(pads or ()):
        raise t.unsupported(f"both auto_pad {auto_pad} and pads {list(pads or ())} are given")


@op("Conv", since=1)
def conv(
    t: Tracer, x: Tensor, w: Tensor, b: Tensor | None = None, *, auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None, group: int = 1, kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """`convolve`, plus b. Shapes: x (N, C, *S), w (M, C/group, *K), b (M,) -> (N, M, *O).
    Spec: https://onnx.ai/onnx/operators/onnx__Conv.html"""
    check_weight(t, x, w, kernel_shape)
    window = _window(t, x, w, auto_pad, pads, strides, dilations)
    return add_bias(t, convolve(t, x, w, window, group), b, x.dtype)


# ── transposed ────────────────────────────────────────────────────────────────────────────────────────────────────


@op("ConvTranspose", since=1)
def conv_transpose(
    t: Tracer, x: Tensor, w: Tensor, b: Tensor | None = None, *, auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None, group: int = 1, kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None, output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of Conv: x[n, c, i] · w[c, m, k] is added to the output at i·stride + k·dilation - begin.

    Routine "conv_transpose": args (x, w), attrs as for "conv".
    Shapes: x (N, C, *S), w (C, M/group, *K), b (M,) -> (N, M, *O), O = stride·(S-1) + output_padding + reach - pads
    Spec: https://onnx.ai/onnx/operators/onnx__ConvTranspose.html"""
    check_weight(t, x, w, kernel_shape)
    window = _transposed_window(
        t, x.shape[2:], w.shape[2:], auto_pad, pads, strides, dilations, output_padding, output_shape
    )
    return add_bias(t, _transposed(t, x, w, window, group), b, x.dtype)


def _transposed(t: Tracer, x: Tensor, w: Tensor, window: Window, group: int) -> Tensor:
    """The transposed convolution, with x and w exchanged if w is the larger one."""
    t.require_equal(x.shape[1], w.shape[0], "input channels and weight channels differ")
    t.settle(w.shape)
    if _is_larger(t, x, w, window, group):
        swap = [1, 0, *range(2, x.rank)]
        exchanged = replace(window, size=window.kernel, kernel=window.size)
        return t.transpose(gathered(t, t.transpose(w, swap), t.transpose(x, swap), exchanged, 1), swap)
    return gathered(t, x, w, window, group)


def gathered(t: Tracer, x: Tensor, w: Tensor, window: Window, group: int) -> Tensor:
    """For each output, the sum over the elements of a filter."""
    rank = len(window.size)
    dtype = sum_type(x.dtype)
    _require_groups(t, group)
    per_group = t.divided(x.shape[1], group, "channels into groups")

    def body(n: Expr, m: Expr, *i: Expr) -> Expr:
        o, c, k = i[:rank], i[rank], i[rank + 1 :]
        channel = c if group == 1 else m / dim(w.shape[1]) * dim(per_group) + c
        filter_ = m if group == 1 else rem(m, dim(w.shape[1]))
        hits, source = sources(window, o, k)
        return guard(hits, cast(x.at(n, channel, *source), dtype), 0) * cast(w.at(channel, filter_, *k), dtype)

    shape = (x.shape[0], w.shape[1] * group, *window.out)
    meaning = t.reduce_compute("sum", shape, (per_group, *window.kernel), body)
    attrs = {"strides": window.strides, "pads": window.pads, "dilations": window.dilations, "group": group}
    return t.call("conv_transpose", (x, w), meaning, **attrs)


def _require_groups(t: Tracer, group: int) -> None:
    if group < 1:  # it would divide a tensor without channels
        raise t.unsupported(f"group is {group}, must be above 0")


def _is_larger(t: Tracer, x: Tensor, w: Tensor, window: Window, group: int) -> bool:
    """Whether to exchange filters and input, which a full convolution permits, because the filters are larger. Each
    output sums over all elements of a filter, and most elements of a larger filter meet no input."""
    fixed = group != 1 or any(n != 1 for n in (*window.strides, *window.dilations))
    if fixed or not sh.is_static(w.shape) or sh.size(w.shape[2:]) <= LARGE:
        return False
    if isinstance(w.kernel, Leaf) and w.kernel.kind == "feed":  # the program is compiled for its dims anyway
        t.settle(x.shape[2:])
    return sh.is_static(x.shape[2:]) and sh.size(x.shape[2:]) < sh.size(w.shape[2:])


def sources(window: Window, o: Sequence[Expr], k: Sequence[Expr]) -> tuple[Expr, list[Expr]]:
    """The input position i with i·stride + k·dilation - begin = o, and whether it exists. `window.size` is i's
    extent."""
    hits: Expr | None = None
    source = []
    for n in range(len(o)):
        stride = window.strides[n]
        place = o[n] + dim(window.begin[n]) - k[n] * window.dilations[n]
        i = place / stride
        hit = (place >= 0) & (i < dim(window.size[n]))
        hit = hit & (rem(place, stride) == 0) if stride != 1 else hit
        hits = hit if hits is None else hits & hit
        source.append(i)
    assert hits is not None
    return hits, source


def _transposed_window(
    t: Tracer, size: sh.Shape, kernel: sh.Shape, auto_pad: str, pads: Sequence[int] | None,
    strides: Sequence[int] | None, dilations: Sequence[int] | None, output_padding: Sequence[int] | None,
    output_shape: Sequence[int] | None,
) -> Window:  # fmt: skip
    """The window whose `out` follows from pads, or whose pads follow from output_shape or SAME."""
    rank = len(size)
    strides = tuple(t.entries("strides", strides or [1] * rank, rank))
    dilations = tuple(t.entries("dilations", dilations or [1] * rank, rank))
    extra = tuple(t.entries("output_padding", output_padding or [0] * rank, rank))
    both = tuple(t.entries("pads", pads or [0] * 2 * rank, 2 * rank))
    _check_one_padding(t, auto_pad, both)
    if not all(0 <= e < max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        raise t.unsupported(f"output_padding is {list(extra)}, must be 0 or more and below the stride or the dilation")
    full = [strides[n] * (size[n] - 1) + extra[n] + (kernel[n] - 1) * dilations[n] + 1 for n in range(rank)]
    out: list[AnyDim]
    if output_shape or auto_pad in SAME:
        if output_shape and len(output_shape) not in (rank, rank + 2):
            raise t.shape_error(f"output_shape has {len(output_shape)} entries, not {rank}")
        out = list(output_shape[-rank:]) if output_shape else [size[n] * strides[n] for n in range(rank)]
        for n in range(rank):  # Conv maps an output that is a stride longer to more elements than x has
            fits = sh.compare("lt", out[n] - full[n] + extra[n], strides[n])
            text = f"the last window ends at {full[n] - extra[n]}, at least a stride of {strides[n]} before {out[n]}"
            t.require(fits, text)
        total = [sh.maximum(full[n] - out[n], 0) for n in range(rank)]
        less = tuple(sh.floordiv(p, 2) for p in total)
        more = tuple(p - half for p, half in zip(total, less, strict=True))
        begin, end = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    elif auto_pad in ("NOTSET", "VALID", ""):
        begin, end = both[:rank], both[rank:]
        out = [full[n] - begin[n] - end[n] for n in range(rank)]
    else:
        raise t.unsupported(f'auto_pad "{auto_pad}" is not known')
    return Window(size, kernel, strides, dilations, begin, end, tuple(out))


@op("Col2Im", since=18)
def col2im(
    t: Tracer, x: Tensor, image_shape: Tensor, block_shape: Tensor, *, dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Sums columns into an image; overlapping elements add up. Shapes: x (N, C·ΠK, L) -> (N, C, *image). Spec:
    https://onnx.ai/onnx/operators/onnx__Col2Im.html"""
    image = tuple(t.ints(image_shape, 1))
    block = tuple(t.ints(block_shape, 1))
    rank = len(image)
    if not rank:
        raise t.shape_error("image_shape is empty")
    w = sliding(t, image, block, pads=pads, strides=strides, dilations=dilations)
    t.require_equal(x.shape[2], sh.size(w.out), "columns and window positions differ")
    channels = t.divided(x.shape[1], sh.size(block), "channels into blocks")
    # Along each axis an element sums over the places in a block or, if those are fewer, over the positions of blocks.
    by_position = [sh.is_static((p, k)) and p < k for p, k in zip(w.out, block, strict=True)]

    def pick(by_place: Sequence[Any], other: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(o if swap else p for p, o, swap in zip(by_place, other, by_position, strict=True))

    steps, gaps = pick(w.strides, w.dilations), pick(w.dilations, w.strides)
    back = Window(pick(w.out, block), pick(block, w.out), steps, gaps, w.begin, w.end, image)

    def body(n: Expr, c: Expr, *i: Expr) -> Expr:
        o, r = i[:rank], i[rank:]
        hits, source = sources(back, o, r)
        k, position = pick(r, source), pick(source, r)
        return guard(hits, x.at(n, flat([c, *k], (1, *block)), flat(position, w.out)), 0)

    return t.reduce_compute("sum", (x.shape[0], channels, *image), back.kernel, body)


def flat(coords: Sequence[Expr], shape: sh.Shape) -> Expr:
    """The row-major index of coordinates."""
    out = coords[0]
    for c, d in zip(coords[1:], shape[1:], strict=True):
        out = out * dim(d) + c
    return out


# ── with state, integers ──────────────────────────────────────────────────────────────────────────────────────────


@op("CausalConvWithState", since=27)
def causal_conv(
    t: Tracer, x: Tensor, w: Tensor, b: Tensor | None = None, past: Tensor | None = None, *, activation: str = "none"
) -> tuple[Tensor, Tensor]:
    """Depthwise 1-D convolution of past ++ x; the state is the last K-1 elements of past ++ x.
    Shapes: x (N, C, L), w (C, 1, K), b (C,), past (N, C, K-1) -> (N, C, L), (N, C, K-1)
    Spec: https://onnx.ai/onnx/operators/onnx__CausalConvWithState.html"""
    if activation not in ("none", "silu", "swish"):
        raise t.unsupported(f'activation "{activation}" is not known')
    keep = w.shape[2] - 1
    t.require(sh.compare("le", 0, keep), "the filter is empty")
    if past is None:
        past = t.fill((*x.shape[:2], keep), 0, x.dtype)
    t.require_equal(past.shape[2], keep, "the state must have one element less than the filter")
    joined = t.concat([past, x], 2)
    group = x.shape[1] if x.shape[1] != 0 else 1
    y = convolve(t, joined, w, sliding(t, joined.shape[2:], w.shape[2:]), group)
    y = t.cast(add_bias(t, y, b, y.dtype), sum_type(x.dtype))
    if activation != "none":
        y = t.map(X * sigmoid(X), y)
    return t.cast(y, x.dtype), t.slice(joined, 2, x.shape[2], keep)


def convolve_integers(
    t: Tracer, x: Tensor, x_zero: Tensor | None, w: Tensor, w_zero: Tensor | None, *, auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None, group: int = 1, kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Σ (x - x_zero)·(w - w_zero) as int32; w_zero is one number, or one per filter."""
    check_weight(t, x, w, kernel_shape)
    zero = w_zero
    if zero is not None and zero.shape not in ((), (1,)):
        t.require_shape("the weight's zero point", zero, (w.shape[0],))
        zero = t.reshape(zero, [zero.shape[0], *[1] * (w.rank - 1)])
    if x_zero is not None and x_zero.rank:
        x_zero = t.reshape(x_zero, ())
    window = _window(t, x, w, auto_pad, pads, strides, dilations)
    return convolve(t, subtract_zero(t, x, x_zero), subtract_zero(t, w, zero), window, group)


@op("ConvInteger", since=10)
@attributes_of(convolve_integers)
def conv_integer(
    t: Tracer, x: Tensor, w: Tensor, x_zero_point: Tensor | None = None, w_zero_point: Tensor | None = None,
    **attributes: Any,
) -> Tensor:  # fmt: skip
    """Conv of (x - x_zero_point) with (w - w_zero_point) in int32.
    Spec: https://onnx.ai/onnx/operators/onnx__ConvInteger.html"""
    return convolve_integers(t, x, x_zero_point, w, w_zero_point, **attributes)
