"""Activation functions of the recurrent operators, as expressions.

Spec: the table of activation functions at https://onnx.ai/onnx/operators/onnx__LSTM.html"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.expr import Expr, clip, exp, maximum, minimum, select, sigmoid, tanh
from pyruntime.ops.lib.formula import softplus

Activation = Callable[[Expr], Expr]

# lower-case name -> (defaults of alpha and beta, formula)
_TABLE: dict[str, tuple[tuple[float, ...], Callable[..., Expr]]] = {
    "relu": ((), lambda x: maximum(x, 0.0)),
    "tanh": ((), tanh),
    "sigmoid": ((), sigmoid),
    "softsign": ((), lambda x: x / (abs(x) + 1.0)),
    "softplus": ((), softplus),
    "leakyrelu": ((0.01,), lambda x, a: select(x < 0.0, x * a, x)),
    "thresholdedrelu": ((1.0,), lambda x, a: select(x >= a, x, 0.0)),
    "elu": ((1.0,), lambda x, a: select(x < 0.0, (exp(minimum(x, 0.0)) - 1.0) * a, x)),
    "affine": ((1.0, 0.0), lambda x, a, b: x * a + b),
    "scaledtanh": ((1.0, 1.0), lambda x, a, b: tanh(x * b) * a),
    "hardsigmoid": ((0.2, 0.5), lambda x, a, b: clip(x * a + b, 0.0, 1.0)),
}


def activations(
    t: Tracer, names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], limit: float | None
) -> list[Activation]:
    """The functions by name. A function with parameters takes the next values of the lists, or its defaults. `limit`
    clips the argument to [-limit, limit]."""
    alpha, beta = iter(alphas), iter(betas)
    out: list[Activation] = []
    for name in names:
        if name.lower() not in _TABLE:
            raise t.unsupported(f"activation {name} is not known")
        defaults, formula = _TABLE[name.lower()]
        values = [next(source, default) for source, default in zip((alpha, beta), defaults, strict=False)]
        out.append(_clipped(formula, values, limit))
    return out


def _clipped(formula: Callable[..., Expr], values: Sequence[float], limit: float | None) -> Activation:
    if limit is None or limit == 0.0:
        return lambda x: formula(x, *values)
    return lambda x: formula(clip(x, -limit, limit), *values)
