"""Large weights whose elements share bytes stay packed: kernels extract elements where they read them."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import I2, I4, I32, U2, U4, U8, DType
from pyruntime.ir.expr import Expr, cast, const
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.packed_codes import LARGE, unpacked

if TYPE_CHECKING:
    from pyruntime.onnx.graph import Weight

PACKED = (I2, U2, I4, U4)


def weight_leaf(t: Tracer, weight: Weight, name: str = "") -> Tensor:
    """The tensor of a weight; a tensor of bytes if it stays packed."""
    if weight.dtype in PACKED and prod(weight.shape) >= LARGE:
        weight = replace(weight, dtype=U8, shape=(weight.size,))
    return t.leaf("state" if weight.is_state else "weight", weight.shape, weight.dtype, weight, name)


def elements_of(t: Tracer, leaf: Tensor, weight: Weight) -> Tensor:
    """A tensor with the weight's type and shape, whose elements are extracted from the leaf."""
    if leaf.dtype is weight.dtype:
        return leaf
    node, t.node = t.node, t.node or f'Unpack "{weight.name}"'
    elements = t.compute(weight.shape, lambda *place: _element(leaf, weight.dtype, weight.shape, place), weight.dtype)
    t.node, elements.name = node, leaf.name
    return elements


def _element(codes: Tensor, dtype: DType, shape: tuple[int, ...], place: tuple[Expr, ...]) -> Expr:
    flat: Expr = const(0, I32)
    for i, d in zip(place, shape, strict=True):
        flat = flat * d + i
    code, middle = unpacked(codes.at(flat / (8 // dtype.bits)), flat, dtype.bits), 1 << (dtype.bits - 1)
    return cast((code ^ middle) - middle if dtype.kind == "i" else code, dtype)
