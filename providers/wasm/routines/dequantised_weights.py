"""Products by weights that DequantizeLinear computes. The codes stay packed, like those of MatMulNBits."""

from __future__ import annotations

from typing import NamedTuple

from pyruntime.codegen.half_floats import HALVES
from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import is_constant
from pyruntime.ir.dtype import F32, I2, I4, I8, I32, U2, U4, U8, DType
from pyruntime.ir.expr import Expr, cast, const, index, rewrite, substitute, uses_index
from pyruntime.ir.kernel import Call, Kernel, Tensor

from ..schedules.weight_codes import GROUP, ROUND, WeightCodes
from .base import changed, element, widened, without_views
from .matmul_nbits import LARGE, codes_in_panels, digits_of, steps_in_panels

PACKED = {I2: (2, 0), U2: (2, 2), I4: (4, 0), U4: (4, 8), I8: (8, 0), U8: (8, 128)}  # by type: bits, and code of 0
BLOCK = index(2)


class Codes(NamedTuple):
    """A constant matrix whose elements (index(0), index(1)) are (code - zero) · scale. code has a type in PACKED, zero
    is int32 and scale float32. zero and scale depend on index(1) and on BLOCK, a block of `size` elements along the
    first axis."""

    code: Expr
    zero: Expr
    scale: Expr
    size: int


def prepare_dequantised_weights(call: Call) -> list[Kernel]:
    """Replace a product by a large constant matrix of dequantised codes by a product by codes of 2, 4 or 8 bits."""
    a, b = call.args
    if a is None or b is None or b.rank != 2 or not sh.is_static(b.shape) or sh.size(b.shape) < LARGE:
        return []
    codes = _codes_of(b)
    if codes is None:
        return []
    k, n = (int(d) for d in b.shape)
    bits, middle = PACKED[codes.code.dtype]
    same = codes.zero.op == "const" and codes.zero.value == middle
    layout, zero = WeightCodes(bits, not same, digits_of(bits, codes.size)), const(0, I32)

    def code(row: Expr, column: Expr) -> Expr:
        return cast(substitute(codes.code, (row, column)), I32) + (layout.middle - middle)

    def scale(block: Expr, column: Expr) -> Expr:
        return substitute(codes.scale, (zero, column, block))

    def added(block: Expr, column: Expr) -> Expr:
        return cast(middle - substitute(codes.zero, (zero, column, block)), F32) * scale(block, column)

    before, call = widened(call, (0,))
    packed = codes_in_panels(layout, k, n, code, call.node)
    steps = steps_in_panels(-(-k // codes.size), n, scale, None if same else added, call.node)
    args, attrs = (call.args[0], packed.out, steps.out), {"block_size": codes.size, "K": k, "N": n}
    return [*before, packed, steps, changed(call, routine="matmul_nbits", args=args, attrs=attrs, plan=layout)]


def _codes_of(b: Tensor) -> Codes | None:
    e, types = _without_casts(b)
    if e.op != "mul" or e.args[0].op != "cast" or e.args[0].args[0].dtype is not I32:
        return None
    difference, scale = e.args[0].args[0], e.args[1]
    code, zero = difference.args if difference.op == "sub" else (difference, const(0, I32))
    if code.op != "cast" or code.args[0].op != "at" or code.args[0].dtype not in PACKED:
        return None
    if _is_rounded(types, scale) or not all(is_constant(t) for t in e.tensors()):
        return None
    sizes: set[int] = set()
    zero, scale = _by_block(zero, sizes), _by_block(scale, sizes)
    if len(sizes) > 1 or any(size % GROUP for size in sizes) or uses_index(zero, 0) or uses_index(scale, 0):
        return None
    rows = int(b.shape[0])
    return Codes(code.args[0], zero, scale, sizes.pop() if sizes else -(-rows // ROUND) * ROUND)


def _without_casts(b: Tensor) -> tuple[Expr, list[DType]]:
    """Return the expression of an element without views and casts, and the types of these casts, the last one first."""
    e, types = without_views(element(b)), []
    while e.op == "cast":
        types.append(e.dtype)
        e = without_views(e.args[0])
    return e, types


def _is_rounded(types: list[DType], scale: Expr) -> bool:
    """Whether the model rounds elements by casts, other than the cast to half floats that DequantizeLinear implies for
    half float scales."""
    own = scale.op == "cast" and types[-1:] == [scale.args[0].dtype]
    asked = types[:-1] if own else types
    return any(t in HALVES for t in asked[1:]) or not all(t.is_float and t.size > 1 for t in types)


def _by_block(e: Expr, sizes: set[int]) -> Expr:
    """Return the expression with BLOCK instead of the first axis divided by a number; add this number to `sizes`."""

    def visit(x: Expr) -> Expr | None:
        if x.op != "div" or x.args[0].op != "index" or x.args[0].value != 0 or x.args[1].op != "const":
            return None
        sizes.add(x.args[1].value)
        return BLOCK

    return rewrite(e, visit)
