"""Operators that ONNX Runtime had before the standard, and its variants of standard operators."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import I32
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.microsoft.fused import fused_matmul
from pyruntime.ops.standard.conv import conv_transpose
from pyruntime.ops.standard.grid import grid_sample
from pyruntime.ops.standard.index import gather_nd
from pyruntime.ops.standard.layout import pad, range_, trilu
from pyruntime.ops.standard.matmul import matmul
from pyruntime.ops.standard.unique import unique

op("GatherND", domain=MICROSOFT)(gather_nd)
op("Trilu", domain=MICROSOFT)(trilu)


@op("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose_with_dynamic_pads(
    t: Tracer, x: Tensor, w: Tensor, pads: Tensor | None = None, b: Tensor | None = None, *, auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None, group: int = 1, kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """ConvTranspose with pads as an input."""
    return conv_transpose(
        t, x, w, b, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        output_padding=output_padding, pads=None if pads is None else t.static(pads), strides=strides,
    )  # fmt: skip


@op("SampleOp", domain=MICROSOFT)
def sample_op(t: Tracer, x: Tensor) -> Tensor:
    """Returns x. In ONNX Runtime, an example for authors of operators."""
    return t.reshape(x, x.shape)


@op("ExpandDims", domain=MICROSOFT)
def expand_dims(t: Tracer, x: Tensor, axis: Tensor) -> Tensor:
    """Inserts an axis of extent 1 at the position `axis`, a single number."""
    return t.unsqueeze(x, [t.static(t.reshape(axis, ()))[0]])


@op("GridSample", domain=MICROSOFT)
def grid_sample_microsoft(
    t: Tracer, x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros"
) -> Tensor:
    """GridSample of images. Shapes: x (N, C, H, W), grid (N, P, Q, 2) -> (N, C, P, Q)"""
    return grid_sample(t, x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


@op("Pad", domain=MICROSOFT)
def pad_microsoft(t: Tracer, x: Tensor, pads: Tensor, value: Tensor | None = None, *, mode: str = "constant") -> Tensor:
    """Pad; pads may also have the shape (1, 2·rank)."""
    return pad(t, x, t.reshape(pads, (2 * x.rank,)), value, mode=mode)


@op("Range", domain=MICROSOFT)
def range_microsoft(t: Tracer, start: Tensor, limit: Tensor, delta: Tensor | None = None) -> Tensor:
    """start, start + delta (default 1), … below limit."""
    return range_(t, start, limit, t.scalar(1, start.dtype) if delta is None else delta)


@op("TransposeMatMul", domain=MICROSOFT)
def transpose_matmul(
    t: Tracer, a: Tensor, b: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0
) -> Tensor:
    """FusedMatMul under its older name."""
    return fused_matmul(t, a, b, alpha=alpha, transA=transA, transB=transB)


@op("Unique", domain=MICROSOFT)
def unique_microsoft(t: Tracer, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct elements in order of first appearance, the index of each input element among them, and their counts.
    Shapes: x (C,) -> (D,), (C,), (D,)"""
    y, _, inverse, counts = unique(t, x, sorted=0)
    return y, inverse, counts


@op("MatMulInteger16", domain=MICROSOFT)
def matmul_integer16(t: Tracer, a: Tensor, b: Tensor) -> Tensor:
    """numpy.matmul of int16 matrices, summed in int32."""
    return matmul(t, t.cast(a, I32), t.cast(b, I32))
