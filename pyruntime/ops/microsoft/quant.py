"""Products of quantised matrices, and the standard's quantised operators under Microsoft's domain."""

from __future__ import annotations

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import X, Y, Z, cast
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.standard.matmul import matmul
from pyruntime.ops.standard.qlinear import per_row, product_of_codes, qlinear_conv, requantise, scalar_of
from pyruntime.ops.standard.quant import dequantize_linear, dynamic_quantize_linear, require_pair, subtract_zero

op("DequantizeLinear", domain=MICROSOFT)(dequantize_linear)
op("QLinearConv", domain=MICROSOFT)(qlinear_conv)


@op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    t: Tracer, a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, a_zero_point: Tensor | None = None,
    b_zero_point: Tensor | None = None, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """MatMulInteger · a_scale · b_scale + bias."""
    codes = product_of_codes(t, a, a_zero_point, b, b_zero_point)
    factor = cast(X, F32) * (cast(Y, F32) * cast(Z, F32))
    y = t.map_onto(factor, codes, per_row(t, a_scale, a), b_scale)
    t.require_shape("the bias", bias, b.shape[-1:])
    return t.cast(y if bias is None else t.map_onto(X + cast(Y, F32), y, bias), a_scale.dtype)


@op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    t: Tracer, a: Tensor, b: Tensor, b_scale: Tensor, b_zero_point: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """MatMulIntegerToFloat with a quantised at run time."""
    codes, scale, zero = dynamic_quantize_linear(t, a)
    return matmul_integer_to_float(t, codes, b, scale, b_scale, zero, b_zero_point, bias)


@op("QGemm", domain=MICROSOFT)
def qgemm(
    t: Tracer, a: Tensor, a_scale: Tensor, a_zero_point: Tensor, b: Tensor, b_scale: Tensor, b_zero_point: Tensor,
    c: Tensor | None = None, y_scale: Tensor | None = None, y_zero_point: Tensor | None = None, *,
    alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Tensor:  # fmt: skip
    """alpha · a_scale · b_scale · (a'·b' + c) / y_scale, quantised if y_zero_point is given, as in ONNX Runtime.
    Shapes: (M, K) × (K, N) -> (M, N)."""
    require_pair(t, b_scale, b_zero_point)
    left = subtract_zero(t, a, scalar_of(t, a_zero_point))
    b_zero = b_zero_point
    if b_zero is not None and b_zero.rank == 1 and transB and b_zero.shape[0] != 1:
        b_zero = t.reshape(b_zero, (b_zero.shape[0], 1))
    right = subtract_zero(t, b, b_zero)
    codes = matmul(t, t.transpose(left, [1, 0]) if transA else left, t.transpose(right, [1, 0]) if transB else right)
    codes = codes if c is None else t.map_onto(X + Y, codes, c)
    factor = t.map(X * Y * alpha, scalar_of(t, a_scale), b_scale)
    factor = factor if y_scale is None else t.map(X / Y, factor, y_scale)
    if y_zero_point is None:
        return t.map(cast(X, F32) * Y, codes, factor)
    return requantise(t, codes, factor, y_zero_point)
