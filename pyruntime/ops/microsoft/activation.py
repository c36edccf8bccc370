"""GELU and its variants."""

from __future__ import annotations

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.expr import Expr, X, Y
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import formula, mapped
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.standard.activation import gelu, gelu_tanh, swish

formula("Gelu", domain=MICROSOFT)(gelu)


@formula("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Expr, *, alpha: float = 1.702) -> Expr:
    return swish(x, alpha=alpha)


@op("FastGelu", domain=MICROSOFT)
def fast_gelu(t: Tracer, x: Tensor, bias: Tensor | None = None) -> Tensor:
    t.require_shape("bias", bias, x.shape[-1:])
    return mapped(t, gelu_tanh, x if bias is None else t.map(X + Y, x, bias))


@op("BiasGelu", domain=MICROSOFT)
def bias_gelu(t: Tracer, x: Tensor, bias: Tensor) -> Tensor:
    t.require_shape("bias", bias, x.shape[-1:])
    return mapped(t, gelu, t.map(X + Y, x, bias))
