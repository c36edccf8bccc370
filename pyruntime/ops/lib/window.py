"""Sliding windows of Conv, pooling and their relatives. Along one axis, window element k of output o is at input
position `o * stride + k * dilation - begin`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL
from pyruntime.ir.expr import Expr, Scalar, as_expr, const, dim, guard
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim, Shape

SAME = ("SAME_UPPER", "SAME_LOWER")
LONG_STEP = 256  # a shorter step over rows of less than 8 million elements fits the int32 arithmetic of kernels


def shortest_step(step: int, size: AnyDim) -> AnyDim:
    """A step along an axis of `size` elements that reaches the same elements as `step`. Steps beyond the axis end in a
    step of its size, so that the step times the length of a row fits the int32 arithmetic of kernels."""
    return step if step < LONG_STEP else sh.minimum(step, sh.maximum(size, 1))


@dataclass(frozen=True, slots=True)
class Window:
    """Per spatial axis: extents of the input, the window and the output, strides, dilations and padding."""

    size: Shape
    kernel: Shape
    strides: Shape
    dilations: tuple[int, ...]
    begin: Shape
    end: Shape
    out: Shape

    @property
    def pads(self) -> Shape:
        return (*self.begin, *self.end)

    def along(self, axis: int, size: Shape) -> Window:
        """This window along one axis only, for an input of the extents `size`; along other axes each element is a
        window."""

        def only(values: Sequence[Any], others: Sequence[Any]) -> tuple[Any, ...]:
            return (*others[:axis], values[axis], *others[axis + 1 :])

        ones, none = (1,) * len(size), (0,) * len(size)
        return Window(
            size, only(self.kernel, ones), only(self.strides, ones), only(self.dilations, ones),
            only(self.begin, none), only(self.end, none), only(self.out, size),
        )  # fmt: skip

    def positions(self, o: Sequence[Expr], k: Sequence[Expr]) -> list[Expr]:
        """Input coordinates of the window elements k at outputs o; they may be outside the input."""
        return [o[n] * self.strides[n] + k[n] * self.dilations[n] - dim(self.begin[n]) for n in range(len(self.kernel))]

    def inside(self, positions: Sequence[Expr], padded: bool = False) -> Expr:
        """Whether positions are in the input, or with `padded` in its padding too. Tests that always hold are left
        out."""
        tests = []
        for n, p in enumerate(positions):
            low = -self.begin[n] if padded else 0
            high = self.size[n] + (self.end[n] if padded else 0)
            if sh.compare("ge", -self.begin[n], low) != 1:
                tests.append(p >= dim(low))
            reach = (self.out[n] - 1) * self.strides[n] + (self.kernel[n] - 1) * self.dilations[n] - self.begin[n]
            if sh.compare("lt", reach, high) != 1:
                tests.append(p < dim(high))
        return reduce(and_, tests) if tests else const(True, BOOL)


def sliding(
    t: Tracer, size: Shape, kernel: Sequence[AnyDim], *, auto_pad: str = "NOTSET", pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None, dilations: Sequence[int] | None = None, ceil_mode: int = 0,
) -> Window:  # fmt: skip
    """The window of an operator's attributes. Extent of the output: floor((size + pads - reach) / stride) + 1, or ceil
    with ceil_mode; ceil(size / stride) for SAME."""
    rank = len(size)
    steps = _checked(t, "strides", strides, 1, rank)
    dilations = _checked(t, "dilations", dilations, 1, rank)
    pads = _checked(t, "pads", pads, 0, 2 * rank)
    if min(pads, default=0) < 0:
        raise t.unsupported(f"pads is {list(pads)}, must be at least 0")
    if len(kernel) != rank:
        raise t.shape_error(f"kernel_shape has {len(kernel)} entries, the input has {rank} spatial axes")
    for k in kernel:
        t.require(sh.compare("le", 1, k), f"kernel_shape has {k}, must be at least 1")
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    begin: list[AnyDim]
    end: list[AnyDim]
    if auto_pad in SAME:
        far = tuple(map(shortest_step, steps, size))
        out = [sh.ceildiv(s, step) for s, step in zip(size, far, strict=True)]
        total = [sh.maximum((out[n] - 1) * far[n] + reach[n] - size[n], 0) for n in range(rank)]
        less = [sh.floordiv(p, 2) for p in total]
        more = [p - half for p, half in zip(total, less, strict=True)]
        begin, end = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
        return Window(size, tuple(kernel), far, dilations, tuple(begin), tuple(end), tuple(out))
    if auto_pad not in ("NOTSET", "VALID", ""):
        raise t.unsupported(f'auto_pad "{auto_pad}" is not known')
    both = (0,) * 2 * rank if auto_pad == "VALID" else pads
    begin, end = list(both[:rank]), list(both[rank:])
    far = tuple([shortest_step(step, size[n] + begin[n] + end[n]) for n, step in enumerate(steps)])
    out = [_extent(t, size[n], begin[n], end[n], reach[n], far[n], bool(ceil_mode)) for n in range(rank)]
    return Window(size, tuple(kernel), far, dilations, tuple(begin), tuple(end), tuple(out))


def _extent(t: Tracer, size: AnyDim, begin: AnyDim, end: AnyDim, reach: AnyDim, stride: AnyDim, ceil: bool) -> AnyDim:
    """The number of windows. With `ceil` the last window may reach beyond the padded input but must start inside the
    input or before it; the smaller of both limits counts. The expression mentions `size` only once, because otherwise
    each pooling of a chain would double its length."""
    room = size + begin + end - reach
    if not ceil:
        t.require(sh.compare("ge", room, 0), f"a window of {reach} does not fit in {size} + pads {begin} and {end}")
        return sh.floordiv(room, stride) + 1
    out = sh.floordiv(size + (begin + stride - 1 + sh.minimum(end - reach + stride, 0)), stride)
    t.require(sh.compare("ge", out, 0), f"a window of {reach} does not fit in {size} + pads {begin} and {end}")
    return out


def _checked(t: Tracer, name: str, values: Sequence[int] | None, default: int, count: int) -> tuple[int, ...]:
    return tuple(t.entries(name, values, count)) if values else (default,) * count


def padded_load(x: Tensor, lead: Sequence[Scalar], window: Window, positions: Sequence[Expr], outside: Scalar) -> Expr:
    """x[*lead, *positions], or `outside` where a position is outside x."""
    value = x.at(*lead, *positions)
    return guard(window.inside(positions), value, as_expr(outside, x.dtype))
