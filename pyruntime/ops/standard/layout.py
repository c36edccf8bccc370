"""Rearrangement by index arithmetic: repetition, padding, cropping, blocks, triangles, ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F64, I64, STRING
from pyruntime.ir.expr import Expr, cast, clip, const, dim, guard, maximum, select, unary
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.formula import sum_type, zero


@op("Tile")
def tile_1(t: Tracer, x: Tensor, tiles: Tensor, axis: Tensor) -> Tensor:
    """Repeats one axis `tiles` times; tiles and axis are scalars of x's type."""
    count, n = t.ints(t.cast(tiles, I64), lower=0)[0], t.axis(t.static(t.cast(axis, I64))[0], x.rank)
    return _tile(t, x, [count if k == n else 1 for k in range(x.rank)])


@op("Tile", since=6)
def tile(t: Tracer, x: Tensor, repeats: Tensor) -> Tensor:
    return _tile(t, x, t.entries("repeats", t.ints(repeats, lower=0), x.rank))


def _tile(t: Tracer, x: Tensor, repeats: Sequence[AnyDim]) -> Tensor:
    """Expands (1, A, 1, B) to (r, A, s, B) for an (A, B) with repeats (r, s), and merges the axes."""
    split: list[AnyDim] = []
    full: list[AnyDim] = []
    for r, d in zip(repeats, x.shape, strict=True):
        split += [d] if r == 1 else [1, d]
        full += [d] if r == 1 else [r, d]
    spread = t.reshape(x, split)
    ones = [n for n, (a, b) in enumerate(zip(split, full, strict=True)) if a is not b]
    copies = t.compute(full, lambda *i: spread.at(*[0 if n in ones else c for n, c in enumerate(i)])) if ones else x
    return t.reshape(copies, [r * d for r, d in zip(repeats, x.shape, strict=True)])


# ── pad and crop ──────────────────────────────────────────────────────────────────────────────────────────────────


def _reflect(i: Expr, d: AnyDim, before: AnyDim, after: AnyDim) -> Expr:
    """… 2 1 | 0 1 2 … d-1 | d-2 …, any number of times."""
    last = d - 1
    if all(isinstance(n, int) for n in (d, before, after)) and max(before, after) <= last:
        return dim(last) - abs(dim(last) - abs(i))  # one reflection on either side
    phase = i % dim(sh.maximum(last * 2, 1))
    return dim(last) - abs(dim(last) - phase)


def _uncropped(d: AnyDim, before: AnyDim, after: AnyDim) -> tuple[AnyDim, AnyDim]:
    """The start and the number of the elements that negative pads leave. Mode wrap repeats only these, as in ONNX
    Runtime."""
    first = sh.maximum(-before, 0)
    return first, d - first - sh.maximum(-after, 0)


def pad_tensor(
    t: Tracer, x: Tensor, before: Sequence[AnyDim], after: Sequence[AnyDim], mode: str = "constant",
    value: Expr | None = None,
) -> Tensor:  # fmt: skip
    """x with elements added on each axis, or removed by negative pads. mode: constant, edge, reflect, wrap."""
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise t.unsupported(f"mode {mode} is not known")
    touched = [n for n in range(x.rank) if before[n] != 0 or after[n] != 0]
    if not touched:
        return x
    fill = zero(x.dtype) if value is None else value
    shape = [b + d + a for b, d, a in zip(before, x.shape, after, strict=True)]
    for n in touched:
        t.require(sh.compare("le", 0, shape[n]), f"pads {before[n]} and {after[n]} remove more than the {x.shape[n]}"
                  f" elements of axis {n}")  # fmt: skip
        if mode != "constant":
            source = _uncropped(x.shape[n], before[n], after[n])[1] if mode == "wrap" else x.shape[n]
            some = sh.maximum(sh.compare("lt", 0, source), sh.compare("eq", shape[n], 0))
            t.require(some, f"axis {n} has no elements to pad with (mode {mode})")

    def element(*i: Expr) -> Expr:
        at: list[Any] = list(i)
        inside: Expr | None = None
        for n in touched:
            c, d = i[n] - dim(before[n]), x.shape[n]
            if mode == "constant":
                both = (c >= 0) & (c < dim(d))
                inside = both if inside is None else inside & both
                at[n] = c
            elif mode == "edge":
                at[n] = clip(c, 0, dim(d - 1))
            elif mode == "wrap":
                first, count = _uncropped(d, before[n], after[n])
                at[n] = (c - dim(first)) % dim(count) + dim(first)
            else:
                at[n] = _reflect(c, d, before[n], after[n])
        return x.at(*at) if inside is None else guard(inside, x.at(*at), fill)

    return t.compute([sh.maximum(d, 0) for d in shape], element)


@op("Pad")
def pad_1(t: Tracer, x: Tensor, *, paddings: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    return pad_2(t, x, pads=paddings, mode=mode, value=value)


@op("Pad", since=2)
def pad_2(t: Tracer, x: Tensor, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    t.entries("pads", pads, 2 * x.rank)
    return pad_tensor(t, x, pads[: x.rank], pads[x.rank :], mode, const(value, x.dtype))


@op("Pad", since=11)
def pad(
    t: Tracer, x: Tensor, pads: Tensor, value: Tensor | None = None, axes: Tensor | None = None, *,
    mode: str = "constant",
) -> Tensor:  # fmt: skip
    """Adds elements at both ends of axes. Units: pads hold the begin values of all (given) axes, then their end values;
    negative ones crop.
    Spec: https://onnx.ai/onnx/operators/onnx__Pad.html"""
    which = t.ordered_axes(range(x.rank) if axes is None else t.static(axes), x.rank)
    values = t.entries("pads", t.ints(pads), 2 * len(which))
    before, after = [0] * x.rank, [0] * x.rank
    for k, n in enumerate(which):
        before[n], after[n] = values[k], values[k + len(which)]
    return pad_tensor(t, x, before, after, mode, None if value is None else t.reshape(value, ()).at())


@op("CenterCropPad", since=18)
def center_crop_pad(t: Tracer, x: Tensor, shape: Tensor, *, axes: Sequence[int] | None = None) -> Tensor:
    """Crops or zero-pads axes about their centres; if the difference is odd, the end gets one more.
    Spec: https://onnx.ai/onnx/operators/onnx__CenterCropPad.html"""
    before: list[AnyDim] = [0] * x.rank
    after = list(before)
    which = t.ordered_axes(range(x.rank) if axes is None else axes, x.rank)
    for n, size in zip(which, t.entries("shape", t.ints(shape, lower=0), len(which)), strict=True):
        more = size - x.shape[n]
        before[n] = sh.truncdiv(more, 2)
        after[n] = more - before[n]
    return pad_tensor(t, x, before, after)


# ── blocks ────────────────────────────────────────────────────────────────────────────────────────────────────────


@op("DepthToSpace")
def depth_to_space(t: Tracer, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """(N, b·b·C, H, W) -> (N, C, H·b, W·b); the depth is (b, b, C) in mode DCR, (C, b, b) in CRD."""
    b = blocksize
    n, depth, h, w = x.shape
    t.require_equal(depth % (b * b), 0, "depth is not a multiple of the block's size")
    c = depth // (b * b)
    if mode == "DCR":
        blocks = t.transpose(t.reshape(x, [n, b, b, c, h, w]), [0, 3, 4, 1, 5, 2])
    elif mode == "CRD":
        blocks = t.transpose(t.reshape(x, [n, c, b, b, h, w]), [0, 1, 4, 2, 5, 3])
    else:
        raise t.unsupported(f"mode {mode} is not known")
    return t.reshape(blocks, [n, c, h * b, w * b])


@op("SpaceToDepth")
def space_to_depth(t: Tracer, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """The inverse of DepthToSpace."""
    b = blocksize
    n, c, height, width = x.shape
    h, w = height // b, width // b
    t.require_equal(height - h * b, 0, "height is not a multiple of the block's size")
    t.require_equal(width - w * b, 0, "width is not a multiple of the block's size")
    if mode not in ("DCR", "CRD"):
        raise t.unsupported(f"mode {mode} is not known")
    perm = [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4]
    return t.reshape(t.transpose(t.reshape(x, [n, c, h, b, w, b]), perm), [n, c * b * b, h, w])


@op("Trilu", since=14)
def trilu(t: Tracer, x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Tensor:
    """The upper (or lower) triangle of the last two axes from the k-th diagonal on; 0 elsewhere."""
    # Strings are moved by Python, which needs k at compile time.
    number = 0 if k is None else t.static(k)[0] if x.dtype is STRING else t.ints(k)[0]
    offset = dim(sh.clamp(number, -x.shape[-2], x.shape[-1]))
    empty = zero(x.dtype)

    def element(*i: Expr) -> Expr:
        diagonal = i[-1] - i[-2]
        return select(diagonal >= offset if upper else diagonal <= offset, x.at(*i), empty)

    return t.compute(x.shape, element)


@op("ReverseSequence", since=10)
def reverse_sequence(t: Tracer, x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """The first lengths[b] steps of sequence b reversed; the other steps stay in place."""
    if sorted((batch_axis, time_axis)) != [0, 1]:
        raise t.shape_error(f"batch_axis is {batch_axis}, time_axis {time_axis}: must be 0 and 1")
    t.require_shape("sequence_lens", lengths, (x.shape[batch_axis],))

    def element(*i: Expr) -> Expr:
        step = i[time_axis]
        n = t.checked_index(lengths.at(i[batch_axis]), x.shape[time_axis] + 1)
        return x.at(*[select(step < n, n - 1 - step, step) if k == time_axis else c for k, c in enumerate(i)])

    return t.compute(x.shape, element)


# ── ranges and one-hot ────────────────────────────────────────────────────────────────────────────────────────────


@op("Range", since=11)
def range_(t: Tracer, start: Tensor, limit: Tensor, delta: Tensor, *, stash_type: int = 1) -> Tensor:
    """start, start + delta, … below limit (above it for a negative delta)."""
    dtype = start.dtype
    wide = sum_type(dtype)
    first, last, step = (t.cast(t.reshape(v, ()), wide) for v in (start, limit, delta))
    count = _count(t, first, last, step)
    return t.compute((count,), lambda i: cast(first.at() + cast(i, wide) * step.at(), dtype))


def _count(t: Tracer, first: Tensor, last: Tensor, step: Tensor) -> AnyDim:
    known = [t.known(v) for v in (first, last, step)]
    if first.dtype.is_int and all(known) and isinstance(known[2][0], int) and known[2][0]:  # type: ignore[index]
        (a,), (b,), (s,) = known  # type: ignore[misc]
        return sh.maximum(sh.ceildiv(b - a, s) if s > 0 else sh.ceildiv(a - b, -s), 0)

    def number() -> Expr:
        a, b, s = first.at(), last.at(), step.at()
        if first.dtype.is_float:  # in float64 as in other runtimes, because 0.3 / 0.1 in float32 is just above 3
            a, b, s = (cast(v, F64) for v in (a, b, s))
            return cast(maximum(unary("ceil", (b - a) / s), 0.0), I64)
        whole = (b - a) / s
        return cast(maximum(whole + cast(whole * s != b - a, s.dtype) * cast(whole >= 0, s.dtype), 0), I64)

    return t.ints(t.compute((), lambda: _if_forward(number(), first, last, step)), lower=0, refusal="delta is 0")[0]


def _if_forward(n: Expr, first: Tensor, last: Tensor, step: Tensor) -> Expr:
    """n if the steps lead to the limit, 0 if they lead away from it, -1 if the step is 0."""
    gap = last.at() - first.at()
    zero_ = const(0, gap.dtype)
    forward = ((gap > zero_) & (step.at() > zero_)) | ((gap < zero_) & (step.at() < zero_))
    return select(forward, n, select(step.at() == zero_, const(-1, I64), 0))


@op("OneHot", since=9)
def one_hot(t: Tracer, indices: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    """values[1] at the index (which wraps if negative) along the new axis, values[0] elsewhere."""
    n = t.ints(t.reshape(depth, ()) if depth.dtype.is_int else t.cast(t.reshape(depth, ()), I64), lower=0)[0]
    axis = t.axis(axis, indices.rank + 1)
    t.require_equal(sh.size(values.shape), 2, "values must be the off and the on value")

    def element(*i: Expr) -> Expr:
        k = cast(indices.at(*[c for m, c in enumerate(i) if m != axis]), I64)
        k = select(k < 0, k + cast(dim(n), I64), k)
        return select(k == cast(i[axis], I64), values.at(1), values.at(0))

    return t.compute([*indices.shape[:axis], n, *indices.shape[axis:]], element)
