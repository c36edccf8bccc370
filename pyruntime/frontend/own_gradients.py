"""Gradients that operators state themselves, for speed or where the derivatives of their parts cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Tensor


class OwnGradients:
    """The part of the Tracer that `pyruntime.training` reads.

    own_gradients: by uid of a value, a rule and its arguments
    still_tensors: uids of values through which no gradient flows
    differentiates: whether the graph computes gradients, so that operators keep what these read
    """

    def __init__(self) -> None:
        super().__init__()
        self.own_gradients: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self.still_tensors: set[int] = set()
        self.differentiates = False

    def own_gradient(self, y: Tensor, rule: str | Callable[..., Any], *args: Any) -> Tensor:
        """Let a rule compute the gradient of y, the one output of a kernel or the first of several, instead of the
        kernels that made it. Returns y.

        rule: the name of a rule in `pyruntime.training`, or a function (walk, g, *args) -> [(operand, its gradient)]
            that records kernels with walk.t; g is what flows into y, or a list for all outputs of its kernel
        args: tensors, expressions, and tuples of them; in a loop they are replaced by those of each iteration"""
        self.own_gradients[y.uid] = rule, args
        return y

    def rounded(self, codes: Tensor, value: Expr) -> Tensor:
        """codes, whose gradient is that of `value` at their indices, which rounds nothing ("straight through"). Also
        moves, sums and products of codes then have gradients."""
        return self.own_gradient(codes, "rounded", value)

    def still(self, x: Tensor) -> Tensor:
        """x, through which no gradient flows, for example because its derivatives cancel."""
        self.still_tensors.add(x.uid)
        return x
