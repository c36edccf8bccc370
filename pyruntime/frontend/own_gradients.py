"""Gradients that operators state themselves, for speed or where the derivatives of their parts cancel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVarTuple

from pyruntime.errors import InternalError
from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Tensor

Args = TypeVarTuple("Args")
Cotangents = list[tuple[Tensor, Tensor]]  # operands of a kernel, each with its cotangent


class GradientRule(Generic[*Args]):
    """Stands for the function that computes an operator's own gradient. The operator declares it, with the types of the
    arguments that it passes; a module of `pyruntime.training.derive`, which models without gradients do not load, sets
    the function: `@operator.RULE.function`."""

    def __init__(self) -> None:
        self._function: Callable[[Any, Any, *Args], Cotangents] | None = None

    def function(self, function: Callable[[Any, Any, *Args], Cotangents]) -> Callable[[Any, Any, *Args], Cotangents]:
        """function(walk, g, *args): see `OwnGradients.own_gradient`"""
        self._function = function
        return function

    def __call__(self, walk: Any, g: Any, *args: *Args) -> Cotangents:
        if self._function is None:
            raise InternalError("no module of pyruntime.training.derive has the function of this rule")
        return self._function(walk, g, *args)


ROUNDED = GradientRule[Expr]()


class OwnGradients:
    """The part of the Tracer that `pyruntime.training` reads.

    own_gradients: by uid of a value, a function and its arguments
    still_tensors: uids of values through which no gradient flows
    differentiates: whether the graph computes gradients, so that operators keep what these read
    is_backward: whether the kernels that are recorded now belong to a backward pass
    """

    node: str

    def __init__(self) -> None:
        super().__init__()
        self.own_gradients: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self.still_tensors: set[int] = set()
        self.differentiates = False
        self.is_backward = False

    def own_gradient(
        self, y: Tensor, rule: Callable[[Any, Any, *Args], Cotangents], *args: *Args
    ) -> Tensor:  # fmt: skip
        """Let a rule compute the gradient of y, the one output of a kernel or the first of several, instead of the
        kernels that made it. Returns y.

        rule: a GradientRule, or a function (walk, g, *args) -> [(operand, its cotangent)] that records kernels
            with walk.t; g is the cotangent of y, or a list of those of all outputs of its kernel
        args: tensors, expressions, and tuples of them; in a loop they are replaced by those of each iteration"""
        self.own_gradients[y.uid] = rule, args
        return y

    @contextmanager
    def backward_pass(self, label: str) -> Iterator[None]:
        """Record kernels of a backward pass under this label."""
        before = self.node, self.is_backward
        self.node, self.is_backward = label, True
        try:
            yield
        finally:
            self.node, self.is_backward = before

    def rounded(self, codes: Tensor, value: Expr) -> Tensor:
        """codes, whose gradient is that of `value` at their indices, which rounds nothing ("straight through"). Also
        moves, sums and products of codes then have gradients."""
        return self.own_gradient(codes, ROUNDED, value)

    def still(self, x: Tensor) -> Tensor:
        """x, through which no gradient flows, for example because its derivatives cancel."""
        self.still_tensors.add(x.uid)
        return x
