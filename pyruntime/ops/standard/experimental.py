"""Experimental operators of early ONNX versions. The standard dropped them; ONNX Runtime still runs them, and old
exports contain them."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import X, Y, tanh
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import softplus
from pyruntime.ops.standard.move import slice_

# Shapes: x (N, C, H, W) if a docstring names axes


@op("Affine")
def affine(t: Tracer, x: Tensor, *, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    """alpha · x + beta."""
    return t.map(X * alpha + beta, x)


@op("Scale")
def scale_(t: Tracer, x: Tensor, *, scale: float = 1.0) -> Tensor:
    """scale · x."""
    return t.map(X * scale, x)


@op("ScaledTanh")
def scaled_tanh(t: Tracer, x: Tensor, *, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    """alpha · tanh(beta · x)."""
    return t.map(tanh(X * beta) * alpha, x)


@op("ParametricSoftplus")
def parametric_softplus(t: Tracer, x: Tensor, *, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    """alpha · ln(1 + exp(beta · x)), without overflow."""
    return t.map(softplus(X * beta) * alpha, x)


@op("ImageScaler")
def image_scaler(t: Tracer, x: Tensor, *, bias: Sequence[float] = (), scale: float = 1.0) -> Tensor:
    """scale · x + bias, with one bias per channel."""
    t.require_equal(x.shape[1], len(bias), "bias must have one element per channel")
    return t.map(X * scale + Y, x, t.constant(bias, x.dtype, (len(bias), 1, 1)))


@op("Crop")
def crop(t: Tracer, x: Tensor, *, border: Sequence[int], scale: Sequence[int] = ()) -> Tensor:
    """x without its borders (left, top, right, bottom); with `scale` (height, width), the region of this size from left
    and top on."""
    left, top, right, bottom = t.entries("border", border, 4)
    height, width = x.shape[2] - top - bottom, x.shape[3] - left - right
    if scale:
        height, width = t.entries("scale", scale, 2)
    for axis, start, size in ((2, top, height), (3, left, width)):
        if start < 0:
            raise t.shape_error(f"border {list(border)} must not be negative")
        inside = sh.compare("le", size, x.shape[axis] - start)
        t.require(inside, f"border {list(border)} and scale {list(scale)} exceed the image")
        x = t.slice(x, axis, start, size)
    return x


@op("DynamicSlice")
def dynamic_slice(t: Tracer, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None) -> Tensor:
    """Slice of opset 10 with steps of 1."""
    return slice_(t, x, starts, ends, axes)
