"""Large weights of which several elements share a byte stay as they are: elements are taken out where they are read."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import I2, I4, I32, U2, U4, U8
from pyruntime.ir.expr import Expr, cast, const
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.packed_codes import unpacked

if TYPE_CHECKING:
    from pyruntime.onnx.graph import Weight

LARGE = 1 << 16  # elements; smaller ones take a byte each
PACKED = (I2, U2, I4, U4)


def weight_tensor(t: Tracer, weight: Weight, name: str = "") -> Tensor:
    """The tensor that a weight is."""
    if weight.dtype not in PACKED or prod(weight.shape) < LARGE:
        return t.leaf("weight", weight.shape, weight.dtype, weight, name)
    dtype, bits = weight.dtype, weight.dtype.bits
    whole = replace(weight, dtype=U8, shape=(weight.size,))
    codes = t.leaf("weight", whole.shape, U8, whole, name)

    def element(*place: Expr) -> Expr:
        flat: Expr = const(0, I32)
        for i, d in zip(place, weight.shape, strict=True):
            flat = flat * d + i
        code = unpacked(codes.at(flat * bits / 8), flat, bits)
        middle = 1 << (bits - 1)
        return cast((code ^ middle) - middle if dtype.kind == "i" else code, dtype)

    return t.compute(weight.shape, element, dtype)


__all__ = ["weight_tensor"]
