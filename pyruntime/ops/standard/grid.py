"""GridSample and AffineGrid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32, STRING
from pyruntime.ir.expr import Expr, cast, clip, const, dim, floor, guard, maximum, minimum, rem, round_even, select
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.formula import float_type
from pyruntime.ops.lib.resample import as_float, cubic_weight, linear_weight

CUBIC = -0.75  # the coefficient of the cubic convolution, as in PyTorch


def _reflected(x: Expr, d: AnyDim, align: bool) -> Expr:
    """A float coordinate reflected into the axis, at the centres (align) or the edges of its end pixels."""
    low = const(0.0 if align else -0.5, x.dtype)
    span = maximum(as_float(d - 1 if align else d, x.dtype), 1.0)
    r = rem(abs(x - low), span * 2.0)
    return minimum(maximum(low + minimum(r, span * 2.0 - r), low), as_float(d, x.dtype) - (1.0 if align else 0.5))


def _fold(i: Expr, d: AnyDim, align: bool) -> Expr:
    """`_reflected` of an integer position."""
    if align:
        m = abs(i) % dim(sh.maximum(d * 2 - 2, 1))
        return clip(minimum(m, dim(d * 2 - 2) - m), 0, dim(d - 1))
    m = i % dim(d * 2)
    return minimum(m, dim(d * 2 - 1) - m)


def _position(t: Tracer, grid: Tensor, axis: int, d: AnyDim, mode: str, padding: str, align: bool) -> Tensor:
    """The pixel coordinate along one axis that each output element reads. The grid lists the last axis first."""
    last, wide = grid.shape[-1], float_type(grid.dtype)

    def element(*i: Expr) -> Expr:
        n = cast(grid.at(*i, dim(last - 1 - axis)), wide)
        size, end = as_float(d, wide), as_float(d - 1, wide)
        x = (n + 1.0) * 0.5 * end if align else ((n + 1.0) * size - 1.0) * 0.5
        if mode == "nearest":
            x = round_even(x)
        if padding == "border":  # cubic weights depend on positions outside too, as in PyTorch
            return clip(x, -4.0, size + 4.0) if mode == "cubic" else clip(x, 0.0, end)
        inside = (x >= (0.0 if align else -0.5)) & (x <= size - (1.0 if align else 0.5))
        return select(inside, x, _reflected(x, d, align)) if padding == "reflection" else x

    return t.compute(grid.shape[:-1], element)


_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@op("GridSample", since=16)
def grid_sample(
    t: Tracer, x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    """x read at the coordinates of a grid, where -1 and 1 are the ends of each axis.

    Shapes: x (N, C, *S), grid (N, *O, |S|) -> (N, C, *O)
    Spec:   https://onnx.ai/onnx/operators/onnx__GridSample.html"""
    mode = _MODES.get(mode, mode)
    if mode not in ("nearest", "linear", "cubic") or padding_mode not in ("zeros", "border", "reflection"):
        raise t.unsupported(f"mode {mode} with padding_mode {padding_mode} is not supported")
    sizes, align = x.shape[2:], bool(align_corners)
    t.require(int(grid.rank == x.rank), f"grid has rank {grid.rank}, the input {x.rank}")
    t.require_equal(grid.shape[0], x.shape[0], "grid and input differ in the batch")
    t.require_equal(grid.shape[-1], len(sizes), "the grid's last axis and the number of spatial axes differ")
    if padding_mode != "zeros":
        for d in sizes:
            t.require(sh.compare("le", 1, d), f"padding_mode {padding_mode} needs spatial axes with elements")
    where = [_position(t, grid, n, d, mode, padding_mode, align) for n, d in enumerate(sizes)]
    out = (*x.shape[:2], *grid.shape[1:-1])
    if x.dtype is STRING and mode != "nearest":
        raise t.unsupported(f"mode {mode} needs numbers, the input holds strings")
    dtype = x.dtype if mode == "nearest" else float_type(x.dtype)

    def read(lead: Sequence[Expr], at: Sequence[Expr]) -> Expr:
        value = x.at(*lead, *[_inside(i, d, padding_mode, align) for i, d in zip(at, sizes, strict=True)])
        if padding_mode != "zeros":
            return cast(value, dtype)
        inside = const(True, (at[0] < 0).dtype)
        for i, d in zip(at, sizes, strict=True):
            inside = inside & (i >= 0) & (i < dim(d))
        return guard(inside, cast(value, dtype), const(0, dtype))

    def element(*i: Expr) -> Expr:
        positions = [w.at(i[0], *i[2:]) for w in where]
        return cast(_sampled(mode, positions, lambda at: read(i[:2], at)), x.dtype)

    return t.compute(out, element)


def _inside(i: Expr, d: AnyDim, padding: str, align: bool) -> Expr:
    if padding == "zeros":
        return i
    return clip(i, 0, dim(d - 1)) if padding == "border" else clip(_fold(i, d, align), 0, dim(d - 1))


def _sampled(mode: str, positions: Sequence[Expr], read: Callable[[Sequence[Expr]], Expr]) -> Expr:
    """The interpolated value: the sum of weight · value over the neighbouring elements; for "nearest", the one
    element."""
    base = [floor(p) for p in positions]
    if mode == "nearest":
        return read([cast(b, I32) for b in base])
    steps = range(2) if mode == "linear" else range(-1, 3)
    total: Expr | None = None
    for offsets in product(steps, repeat=len(positions)):
        value = read([cast(b, I32) + o for b, o in zip(base, offsets, strict=True)])
        for p, b, o in zip(positions, base, offsets, strict=True):
            distance = p - b - float(o)
            weight = linear_weight(distance) if mode == "linear" else cubic_weight(distance, CUBIC)
            value = value * cast(weight, value.dtype)
        total = value if total is None else total + value
    assert total is not None
    return total


@op("AffineGrid", since=20)
def affine_grid(t: Tracer, theta: Tensor, size: Tensor, *, align_corners: int = 0) -> Tensor:
    """theta · (x, y, 1), or theta · (x, y, z, 1), for each position of an output of the given size.

    Shapes: theta (N, r, r + 1), size (N, C, *S) with r = |S| -> (N, *S, r)"""
    extents = t.ints(size, lower=0)
    if len(extents) not in (4, 5):
        raise t.shape_error(f"size has the shape {list(size.shape)}, not [4] or [5]")
    batch, _, *sizes = extents
    rank, wide = len(sizes), float_type(theta.dtype)
    t.require_shape("theta", theta, (batch, rank, rank + 1))

    def coordinate(i: Expr, d: AnyDim) -> Expr:
        if align_corners:
            return cast(i, wide) * 2.0 / maximum(as_float(d - 1, wide), 1.0) - 1.0
        return (cast(i, wide) * 2.0 + 1.0) / as_float(d, wide) - 1.0

    def element(n: Expr, *i: Expr) -> Expr:
        row = i[-1]
        out = cast(theta.at(n, row, rank), wide)
        for k in range(rank):  # x belongs to the last axis
            out = out + cast(theta.at(n, row, k), wide) * coordinate(i[rank - 1 - k], sizes[rank - 1 - k])
        return cast(out, theta.dtype)

    return t.compute((batch, *sizes, rank), element)
