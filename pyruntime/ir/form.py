"""Cache keys of generated code: everything that the code of kernels depends on, with numbers in place of tensors, of
capacities of inputs, and of nodes whose indices are checked, so that equal layers of a model have equal keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import Call, Kernel, Loops, Map, Reduce, Tensor
from pyruntime.ir.shape import AnyDim, Dim
from pyruntime.ir.statements import statement_key
from pyruntime.ir.symbol import ROOM, Symbol


class Form:
    """A structural key of kernels. tensors: those that the kernels make and use; names: capacities, and labels of nodes
    that check an index. The key names both by position, capacities only if no kernel is a `Call`.

    It contains everything of a `Call` except its definition."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.tensors: list[Tensor] = []
        self.names: list[str | Symbol] = []
        self._keeps_dims = any(isinstance(k, Call) for k in kernels)
        self._dims: dict[Dim, Any] = {}
        self._numbers: dict[int, int] = {}  # position of a tensor, by uid
        self._nodes: list[Any] = []  # nodes of expressions, operands first
        self._places: dict[int, int] = {}  # position in `_nodes`, by id of an expression
        self._parts = [self._kernel(k) for k in kernels]

    def key(self) -> Any:
        """A hashable value. Kernels with equal keys have the same code. It distinguishes shared subexpressions from
        equal ones."""
        shapes = [(t.dtype, *map(self._dim, t.shape)) for t in self.tensors]
        return tuple(self._nodes), tuple(self._parts), tuple(shapes)

    def _name(self, name: str | Symbol) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def _dim(self, d: AnyDim) -> Any:
        """A dim with numbers in place of capacities."""
        if isinstance(d, int) or self._keeps_dims:
            return d
        if d not in self._dims:
            has_room = any(s.origin == ROOM for s in sh.symbols(d))
            self._dims[d] = tuple([(c, *map(self._factor, m)) for m, c in d.terms]) if has_room else d
        return self._dims[d]

    def _factor(self, factor: Symbol | sh.Operation) -> Any:
        if isinstance(factor, Symbol):
            return (self._name(factor), factor.lower) if factor.origin == ROOM else factor
        return factor.op, *map(self._dim, factor.args)

    def _tensor(self, t: Tensor) -> int:
        number = self._numbers.setdefault(t.uid, len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(t)
        return number

    def _expression(self, e: Expr) -> int:
        """Position of an expression in `_nodes`."""
        places, found = self._places, self._nodes
        for x in walk(e):
            if id(x) not in places:
                value = None if x.value is None else self._value(x)
                found.append((x.op, x.dtype, value, *[places[id(a)] for a in x.args]))
                places[id(x)] = len(found) - 1
        return places[id(e)]

    def _value(self, e: Expr) -> Any:
        if e.op == "at":
            return self._tensor(e.value)
        if e.op == "dim":
            return self._dim(e.value)
        return self._name(e.value) if e.op == "site" else e.content()

    def _kernel(self, k: Kernel) -> Any:
        made = tuple([self._tensor(t) for t in k.outputs])
        if isinstance(k, Map):
            return made, self._expression(k.expr)
        if isinstance(k, Reduce):
            epilogue = None if k.epilogue is None else self._expression(k.epilogue)
            return made, k.op, *map(self._dim, k.extents), self._expression(k.expr), epilogue, k.round_block
        if isinstance(k, Loops):
            tensors = tuple([self._tensor(t) for t in (*k.args, *k.scratch)])
            return made, tensors, len(k.args), *[statement_key(s, self._expression, self._tensor) for s in k.body]
        assert isinstance(k, Call)
        args = tuple([None if t is None else self._tensor(t) for t in k.args])
        views = tuple([(n, v.tensor.dtype, v.tensor.shape, v.offset, v.strides) for n, v in k.strided.items()])
        epilogue = None if k.epilogue is None else self._expression(k.epilogue)
        # repr distinguishes 0.0 from -0.0, and 1 from True
        attrs = tuple([(name, v, repr(v)) for name, v in k.attrs.items()])
        return made, k.routine, args, attrs, views, k.order, epilogue, k.packed, k.plan
