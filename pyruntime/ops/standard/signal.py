"""Fourier transforms, window functions, mel filters.

A transform of a short length, or of one that is known only in a run, is one matrix product with its basis. Others are
fast transforms (`ops/standard/fourier.py`)."""

# K frequencies, N length of the transform, P parts of a number: 1 real, 2 complex

from __future__ import annotations

import math
from collections.abc import Callable

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F64, I32, I64, DType
from pyruntime.ir.expr import Expr, cast, const, cos, dim, guard, select
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.formula import float_type, sum_type
from pyruntime.ops.standard.cast import dtype_of
from pyruntime.ops.standard.fourier import fast_transform, pays, quarter_sine
from pyruntime.ops.standard.matmul import product


@op("DFT", since=17)
def dft_17(
    t: Tracer, x: Tensor, dft_length: Tensor | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    return _along(t, x, dft_length, axis, inverse, onesided)


@op("DFT", since=20)
def dft(
    t: Tracer, x: Tensor, dft_length: Tensor | None = None, axis: Tensor | None = None, *, inverse: int = 0,
    onesided: int = 0,
) -> Tensor:  # fmt: skip
    """Discrete Fourier transform along one axis: X[k] = Σn x[n] · exp(∓2πi·kn/N), divided by N if inverse.

    Shapes: x (…, n, …, P) -> (…, N or N/2 + 1, …, 2); inverse and onesided: (…, N/2 + 1, …, 2) -> (…, N, …, 1)
    Spec:   https://onnx.ai/onnx/operators/onnx__DFT.html"""
    return _along(t, x, dft_length, -2 if axis is None else t.static(axis)[0], inverse, onesided)


def _along(t: Tracer, x: Tensor, length: Tensor | None, axis: int, inverse: int, onesided: int) -> Tensor:
    axis = t.axis(axis, x.rank)
    if axis == x.rank - 1:
        raise t.shape_error(f"axis {axis} has real and imaginary parts; the transform needs one of the other axes")
    perm = list(range(x.rank))
    perm[axis], perm[-2] = perm[-2], perm[axis]
    n = x.shape[axis]
    default = 2 * (n - 1) if inverse and onesided else n
    size = t.ints(length, lower=0)[0] if length is not None else default
    y = transform(t, t.transpose(x, perm), size, bool(inverse), bool(onesided))
    return t.transpose(y, perm)


def transform(t: Tracer, x: Tensor, length: AnyDim, inverse: bool, onesided: bool) -> Tensor:
    """The transform along the last axis but one, truncated or zero-padded to `length`. (…, n, P) -> (…, K, P')"""
    parts = x.shape[-1]
    known = sh.maximum(sh.compare("eq", parts, 1), sh.compare("eq", parts, 2))
    t.require(known, f"the last axis has {parts} elements, not 1 (real) or 2 (complex)")
    half = length // 2 + 1
    real = inverse and onesided
    n = sh.minimum(x.shape[-2], half if real else length)
    bins = half if onesided and not inverse else length
    out_parts = 1 if real else 2
    if isinstance(length, int) and isinstance(parts, int) and isinstance(x.shape[-2], int) and length > 1:
        if pays(1 if real else parts, length, bins if isinstance(bins, int) else length):
            return _fast(t, x, length, parts, inverse, onesided)
    # A real inverse is in float64, because its terms and their mirror images cancel.
    dtype = F64 if real else sum_type(x.dtype)
    basis = t.compute((n, parts, bins, out_parts), _basis(length, dtype, inverse, real), dtype)
    rows = t.cast(x if n == x.shape[-2] else t.slice(x, -2, 0, n), dtype)
    lead = x.shape[:-2]
    rows = t.reshape(rows, (sh.size(lead), n * parts))
    y = product(t, rows, t.reshape(basis, (n * parts, bins * out_parts)))
    return t.cast(t.reshape(y, (*lead, bins, out_parts)), x.dtype)


def _fast(t: Tracer, x: Tensor, length: int, parts: int, inverse: bool, onesided: bool) -> Tensor:
    lead, given, real = x.shape[:-2], x.shape[-2], inverse and onesided
    flat = t.reshape(x, (sh.size(lead), given, parts))
    dtype = sum_type(x.dtype)

    def plane(r: Expr, p: Expr, n: Expr) -> Expr:
        place = select(n * 2 > length, length - n, n) if real else n  # the other half of the spectrum is its mirror
        value = cast(guard(place < dim(given), flat[r, place, p], 0.0), dtype)
        return select((n * 2 > length) & (p == 1), -value, value) if real else value

    y = fast_transform(t, t.compute((flat.shape[0], parts, length), plane, dtype), inverse)
    if real:
        y = t.slice(y, 2, 0, 1)
    elif onesided:
        y = t.slice(y, 1, 0, length // 2 + 1)
    return t.cast(t.reshape(y, (*lead, *y.shape[1:])), x.dtype)


def _basis(length: AnyDim, dtype: DType, inverse: bool, real: bool) -> Callable[..., Expr]:
    """The contribution of part p of input n to part q of output k. The input of a real inverse is the first half of the
    spectrum; the other half is its mirror image."""
    sign = 1.0 if inverse else -1.0

    def element(n: Expr, p: Expr, k: Expr, q: Expr) -> Expr:
        total = cast(dim(length), I64)
        turns = cast(n, I64) * cast(k, I64) % total * 4
        cross = quarter_sine(turns, total, dtype) * select(p < q, const(sign, dtype), const(-sign, dtype))
        value = select(p == q, quarter_sine(turns + total, total, dtype), cross)
        if real:
            single = (n < 1) | (n * 2 == dim(length))
            value = value * select(single, const(1.0, dtype), const(2.0, dtype))
        return value / cast(total, dtype) if inverse else value

    return element


@op("STFT", since=17)
def stft(
    t: Tracer, signal: Tensor, frame_step: Tensor, window: Tensor | None = None, frame_length: Tensor | None = None, *,
    onesided: int = 1,
) -> Tensor:  # fmt: skip
    """The transforms of overlapping frames, each multiplied by the window.

    Shapes: signal (B, L, P) or (B, L), window (W) -> (B, frames, K, 2), frames = (L - length) / step + 1
    Spec:   https://onnx.ai/onnx/operators/onnx__STFT.html"""
    x = t.unsqueeze(signal, [2]) if signal.rank == 2 else signal
    if window is None and frame_length is None:
        raise t.shape_error("a window or a frame_length is needed")
    step = t.ints(frame_step, lower=1)[0]
    length = t.ints(frame_length, lower=0)[0] if frame_length is not None else window.shape[0]  # type: ignore[union-attr]
    width = length if window is None else window.shape[0]
    t.require(sh.compare("le", width, length), "the window is longer than a frame")
    t.require(sh.compare("le", length, x.shape[1]), f"a frame of {length} is longer than the signal of {x.shape[1]}")
    frames = (x.shape[1] - length) // step + 1

    def element(b: Expr, f: Expr, n: Expr, p: Expr) -> Expr:
        value = x[b, f * dim(step) + n, p]
        return value if window is None else value * window[n]

    return transform(t, t.compute((x.shape[0], frames, width, x.shape[2]), element), length, False, bool(onesided))


# ── windows ───────────────────────────────────────────────────────────────────────────────────────────────────────

# a0 - a1·cos(2πn/N) + a2·cos(4πn/N); N is the size, minus 1 for a symmetric window
WINDOWS = {"HannWindow": (0.5, 0.5, 0.0), "HammingWindow": (25 / 46, 21 / 46, 0.0), "BlackmanWindow": (0.42, 0.5, 0.08)}


def _window(name: str, terms: tuple[float, float, float]) -> None:
    @op(name, since=17)
    def window(t: Tracer, size: Tensor, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
        count = t.ints(size, lower=0)[0]
        out = dtype_of(t, output_datatype)
        dtype = float_type(out)

        def element(n: Expr) -> Expr:
            angle = cast(n, dtype) * (2 * math.pi) / cast(dim(count if periodic else count - 1), dtype)
            waves = cos(angle) * -terms[1]
            waves = waves + cos(angle * 2.0) * terms[2] if terms[2] else waves
            return cast(waves + terms[0], out)  # this order makes the middle exactly 1

        return t.compute((count,), element)


for _name, _terms in WINDOWS.items():
    _window(_name, _terms)


# ── mel ───────────────────────────────────────────────────────────────────────────────────────────────────────────


MAX_BINS = 1 << 16  # Python computes their corners one by one


@op("MelWeightMatrix", since=17)
def mel_weight_matrix(
    t: Tracer, num_mel_bins: Tensor, dft_length: Tensor, sample_rate: Tensor, lower_edge_hertz: Tensor,
    upper_edge_hertz: Tensor, *, output_datatype: int = 1,
) -> Tensor:  # fmt: skip
    """Triangular filters whose corners are evenly spaced on the mel scale. (dft_length / 2 + 1, num_mel_bins)
    Spec: https://onnx.ai/onnx/operators/onnx__MelWeightMatrix.html"""
    bins, length, rate = (int(t.static(x)[0]) for x in (num_mel_bins, dft_length, sample_rate))
    if not 1 <= bins <= MAX_BINS or length < 1 or rate < 1:
        raise t.unsupported(f"{bins} bins for {length} samples at {rate} Hz; 1 to {MAX_BINS} bins are supported")
    edges = [t.static(x)[0] for x in (lower_edge_hertz, upper_edge_hertz)]
    if not all(0 <= hertz < math.inf for hertz in edges):
        raise t.shape_error(f"{edges[0]} to {edges[1]} Hz is not a range of frequencies")
    low, high = (2595 * math.log10(1 + hertz / 700) for hertz in edges)
    width = (high - low) / (bins + 2)
    hertz = [700 * (10 ** ((low + n * width) / 2595) - 1) for n in range(bins + 2)]
    corners = [int((length + 1) * f // rate) for f in hertz]
    rows = length // 2 + 1
    if max(corners) > rows:
        raise t.shape_error("upper_edge_hertz exceeds half of the sample rate")
    at = t.constant(corners, I32)
    dtype = dtype_of(t, output_datatype)
    table = t.compute((rows, bins), lambda row, n: _filter(row, at[n], at[n + 1], at[n + 2]), F64)
    return t.cast(t.cast(table, float_type(dtype)), dtype)


def _filter(row: Expr, left: Expr, center: Expr, right: Expr) -> Expr:
    """1 at the center, falling to 0 on both sides."""
    rising = cast(row - left, F64) / cast(center - left, F64)
    falling = cast(right - row, F64) / cast(right - center, F64)
    # The top counts even without a falling side, but not if the corners descend because lower_edge_hertz is higher.
    top = select((row == center) & (left <= center), const(1.0, F64), const(0.0, F64))
    before = select((left <= row) & (row < center), rising, top)
    return select((center <= row) & (row < right), falling, before)
