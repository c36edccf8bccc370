"""Activations: one formula each. Spec: https://onnx.ai/onnx/operators/"""

from __future__ import annotations

import math

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32, F64
from pyruntime.ir.expr import Expr, as_expr, cast, clip, erf, exp, maximum, minimum, select, sigmoid, tanh
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import formula, mapped, number, softplus


@formula("Relu")
def relu(x: Expr) -> Expr:
    return maximum(x, number(0, x.dtype))


@formula("LeakyRelu")
def leaky_relu(x: Expr, *, alpha: float = 0.01) -> Expr:
    return select(x < 0.0, x * alpha, x)


@formula("ThresholdedRelu")
def thresholded_relu(x: Expr, *, alpha: float = 1.0) -> Expr:
    return select(x > alpha, x, 0.0)


@formula("Elu")
def elu(x: Expr, *, alpha: float = 1.0) -> Expr:
    return select(x < 0.0, (exp(x) - 1.0) * alpha, x)


@formula("Selu")
def selu_1(x: Expr, *, alpha: float = 1.6732, gamma: float = 1.0507) -> Expr:
    return select(x > 0.0, x, (exp(x) - 1.0) * alpha) * gamma


@formula("Selu", since=6)
def selu(x: Expr, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Expr:
    return selu_1(x, alpha=alpha, gamma=gamma)


def _slope_of_celu(x: Expr, *, alpha: float = 1.0) -> Expr:
    return select(x < 0.0, exp(x / alpha), 1.0)


@formula("Celu", since=12, derivative=_slope_of_celu)
def celu(x: Expr, *, alpha: float = 1.0) -> Expr:
    """max(x, 0) + min(alpha · (e^(x / alpha) - 1), 0). Near z = x / alpha = 0, e^z - 1 cancels, and a large alpha would
    make its error as large as x; there a series computes (e^z - 1) / z. An infinite alpha gives 0 · ∞ = NaN, as
    defined."""
    z = x / alpha
    series: Expr | float = 1.0
    for n in range(15 if x.dtype is F64 else 8, 1, -1):
        series = 1.0 + z * series * (1.0 / n)
    plain = (exp(z) - 1.0) * alpha
    return maximum(x, 0.0) + minimum(select(abs(z) < 0.5, x * series, plain) if math.isfinite(alpha) else plain, 0.0)


@formula("HardSigmoid")
def hard_sigmoid(x: Expr, *, alpha: float = 0.2, beta: float = 0.5) -> Expr:
    return clip(x * alpha + beta, 0.0, 1.0)


@formula("HardSwish", since=14)
def hard_swish(x: Expr) -> Expr:
    return x * hard_sigmoid(x, alpha=1 / 6)


formula("Softplus", derivative=sigmoid)(softplus)


@formula("Softsign")
def softsign(x: Expr) -> Expr:
    return x / (abs(x) + 1.0)


@formula("Mish", since=18)
def mish(x: Expr) -> Expr:
    """x · tanh(ln(1 + e^x)), as a fraction without cancellation; x itself for x >= 20."""
    power = exp(minimum(x, 20.0))
    top = power * (power + 2.0)
    return x * (top / (top + 2.0))


@formula("Swish", since=24)
def swish(x: Expr, *, alpha: float = 1.0) -> Expr:
    return x * sigmoid(x if alpha == 1.0 else x * alpha)


@formula("SwiGLU", since=28)
def swiglu(a: Expr, b: Expr, *, alpha: float = 1.0) -> Expr:
    return swish(a, alpha=alpha) * b


def gelu_tanh(x: Expr) -> Expr:
    return x * 0.5 * (tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1.0)


@formula("Gelu", since=20)
def gelu(x: Expr, *, approximate: str = "none") -> Expr:
    """x · Φ(x), with erf or its tanh approximation."""
    return gelu_tanh(x) if approximate == "tanh" else x * 0.5 * (erf(x * math.sqrt(0.5)) + 1.0)


@formula("Shrink", since=9)
def shrink(x: Expr, *, bias: float = 0.0, lambd: float = 0.5) -> Expr:
    """x + bias below -lambd, x - bias above lambd, 0 between."""
    e = x if x.dtype.is_float else cast(x, F32)
    return cast(select(e < -lambd, e + bias, select(e > lambd, e - bias, as_expr(0.0, e.dtype))), x.dtype)


def _prelu(x: Expr, slope: Expr) -> Expr:
    return select(x < number(0, x.dtype), x * slope, x)


@op("PRelu")
def prelu_1(t: Tracer, x: Tensor, slope: Tensor) -> Tensor:
    """One slope for all, or one per channel (axis 1)."""
    if slope.rank == 1 and x.rank > 2 and slope.shape[0] != 1:
        slope = t.unsqueeze(slope, list(range(1, x.rank - 1)))
    return mapped(t, _prelu, x, slope)


@op("PRelu", since=7)
def prelu(t: Tracer, x: Tensor, slope: Tensor) -> Tensor:
    """x · slope below 0, else x. The slope broadcasts to x."""
    return mapped(t, _prelu, x, slope)
