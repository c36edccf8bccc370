"""Writes a procedure of the body into a step: its statements, without parallel loops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyruntime.ir.dtype import I32, DType
from pyruntime.ir.expr import Expr, rewrite
from pyruntime.ir.kernel import Accum, For, Let, Loops, Set, Stmt, Store, Tensor
from pyruntime.ir.statements import rebuild, statements
from pyruntime.passes.loops.unit import Unit


def write_procedure(unit: Unit, p: Loops) -> None:
    """Write its statements for a step, after copies of the tensors that its results take over, unless these are states
    that a step overwrites."""
    for base, out in zip(p.bases, p.outputs, strict=False):
        if unit.replaced.get(out.uid) is not base:
            unit.copy(out, partial(_element, unit, base), unit.places[out.uid])
    _Writer(unit).write(p.body)


def _element(unit: Unit, t: Tensor, coords: Sequence[Expr]) -> Expr:
    return _value(unit, t.at(*coords))


def _value(unit: Unit, e: Expr) -> Expr:
    return unit.expression(e, [], unit.register)


class _Writer:
    """variables: of the unit's procedure, by number of the inner one's"""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.variables: dict[int, Expr] = {}

    def write(self, body: Sequence[Stmt]) -> None:
        for s in statements(body):
            if isinstance(s, Let):
                self._variable(s.var, s.value.dtype)
        for s in self._body(body):
            self.unit.k.emit(s)

    def _variable(self, number: int, dtype: DType) -> Expr:
        if number not in self.variables:
            self.variables[number] = self.unit.k.new(dtype)
        return self.variables[number]

    def _expression(self, e: Expr) -> Expr:
        own = rewrite(e, lambda x: self._variable(x.value, x.dtype) if x.op == "var" else None)
        return _value(self.unit, own)

    def _body(self, body: Sequence[Stmt]) -> list[Stmt]:
        return [self._statement(s) for s in body]

    def _statement(self, s: Stmt) -> Stmt:
        made = rebuild(s, self._expression, self._body)
        if isinstance(made, For):
            made.var = self._variable(made.var, I32).value
            made.kind = self.unit.outer_kind if made.kind == "parallel" else made.kind
        elif isinstance(made, Store):
            place = self.unit.places[made.target.uid]
            made = Store(place.tensor, tuple(place.coords(made.coords)), made.value)
        elif isinstance(made, (Let, Set, Accum)):
            made.var = self.variables[made.var].value
        return made
