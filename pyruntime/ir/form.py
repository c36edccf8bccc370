"""Cache keys of generated code: everything that the code of kernels depends on, with numbers in place of tensors, so
that equal layers of a model have equal keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Call, Kernel, Loops, Map, Reduce, Tensor
from pyruntime.ir.statements import statement_key


class Form:
    """A structural key of kernels. tensors: those that the kernels make and use; the key names them by position.

    It contains everything of a `Call` except its definition, and a node's name only if the node checks an index."""

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        self.tensors: list[Tensor] = []
        self._numbers: dict[int, int] = {}  # position of a tensor, by uid
        self._nodes: list[Any] = []  # nodes of expressions, operands first
        self._places: dict[int, int] = {}  # position in `_nodes`, by id of an expression
        self._parts = [self._kernel(k) for k in kernels]

    def key(self) -> Any:
        """A hashable value. Kernels with equal keys have the same code. It distinguishes shared subexpressions from
        equal ones."""
        return tuple(self._nodes), tuple(self._parts), tuple([(t.dtype, t.shape) for t in self.tensors])

    def _tensor(self, t: Tensor) -> int:
        number = self._numbers.setdefault(t.uid, len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(t)
        return number

    def _expression(self, e: Expr) -> int:
        """Position of an expression in `_nodes`."""
        args = [self._places[id(a)] if id(a) in self._places else self._expression(a) for a in e.args]
        value = self._tensor(e.value) if e.op == "at" else e.content()
        place = self._places[id(e)] = len(self._nodes)
        self._nodes.append((e.op, e.dtype, value, *args))
        return place

    def _kernel(self, k: Kernel) -> Any:
        made = tuple([self._tensor(t) for t in k.outputs])
        if isinstance(k, Map):
            return made, self._expression(k.expr)
        if isinstance(k, Reduce):
            epilogue = None if k.epilogue is None else self._expression(k.epilogue)
            return made, k.op, k.extents, self._expression(k.expr), epilogue, k.round_block
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
