"""Elementwise operators: one broadcasting expression each."""

from __future__ import annotations

from pyruntime.dtype import DType
from pyruntime.expr import X, Y, cast, exp
from pyruntime.kernel import Tensor
from pyruntime.ops.registry import elementwise, op
from pyruntime.tracer import Tracer

elementwise("Add", since=7, expr=X + Y)
elementwise("Sub", since=7, expr=X - Y)
elementwise("Mul", since=7, expr=X * Y)
elementwise("Div", since=7, expr=X / Y)
elementwise("Exp", expr=exp(X))
