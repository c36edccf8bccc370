"""Kernels as they are, but reading other tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyruntime.ir.expr import Expr, dim, rewrite
from pyruntime.ir.kernel import (
    Alias,
    Block,
    Call,
    If,
    Kernel,
    Leaf,
    Loop,
    Loops,
    Map,
    Reduce,
    Stmt,
    Store,
    Tensor,
    View,
)  # fmt: skip
from pyruntime.ir.renaming import renamed
from pyruntime.ir.shape import AnyDim, Dim
from pyruntime.ir.statements import rebuild
from pyruntime.ir.symbol import Symbol


class Copies:
    """of: by uid, what is read in place of a tensor; symbols, labels: those of copies, by those of the kernels"""

    def __init__(
        self, of: dict[int, Tensor], symbols: Mapping[Symbol, Symbol] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.of = of
        self.symbols = symbols or {}
        self.labels = labels or {}
        self._dims: dict[Dim, AnyDim] = {}
        self._memo: dict[int, Expr] = {}  # of one kernel: expressions that statements share stay shared

    def copy(self, kernel: Kernel) -> Kernel:
        """A copy with new outputs, which `of` has from now on. kernel: see `can_copy_blocks`"""
        if isinstance(kernel, Loops):
            scratch = [Tensor(self.dims(s.shape), s.dtype, Leaf("scratch")) for s in kernel.scratch]
            self.of |= {s.uid: new for s, new in zip(kernel.scratch, scratch, strict=True)}
        made = tuple([Tensor(self.dims(o.shape), o.dtype, kernel, o.index) for o in kernel.outputs])
        self.of |= {o.uid: new for o, new in zip(kernel.outputs, made, strict=True)}
        return self._finished(kernel, made)

    def rewired(self, kernel: Kernel) -> Kernel:
        """A kernel with the same outputs in place of this one."""
        return self._finished(kernel, kernel.outputs)

    def _finished(self, kernel: Kernel, outputs: tuple[Tensor, ...]) -> Kernel:
        self._memo = {}
        new = self._reading(kernel)
        new.replaces(kernel, outputs)
        new.node = self.labels.get(new.node, new.node)
        for t in outputs:
            t.kernel = new
        return new

    def tensor(self, x: Tensor) -> Tensor:
        return self.of.get(x.uid, x)

    def dim(self, d: AnyDim) -> AnyDim:
        if isinstance(d, int) or not self.symbols:
            return d
        if d not in self._dims:
            self._dims[d] = renamed(d, self.symbols)
        return self._dims[d]

    def dims(self, shape: Sequence[AnyDim]) -> tuple[AnyDim, ...]:
        return tuple(map(self.dim, shape)) if self.symbols else tuple(shape)

    def expr(self, e: Expr) -> Expr:
        def load(x: Expr) -> Expr | None:
            if x.op == "at" and x.value.uid in self.of:
                return Expr("at", x.args, x.dtype, self.of[x.value.uid])
            if x.op == "dim" and self.symbols:
                new = self.dim(x.value)
                return None if new is x.value else dim(new)
            if x.op == "site" and x.value in self.labels:
                return Expr("site", (), x.dtype, self.labels[x.value])
            return None

        return rewrite(e, load, self._memo)

    def _reading(self, kernel: Kernel) -> Kernel:
        if isinstance(kernel, Map):
            return Map(self.expr(kernel.expr))
        if isinstance(kernel, Reduce):
            expr, epilogue = self.expr(kernel.expr), self._epilogue(kernel.epilogue)
            return replace(kernel, extents=self.dims(kernel.extents), expr=expr, epilogue=epilogue)
        if isinstance(kernel, Alias):
            return Alias(self.tensor(kernel.base))
        if isinstance(kernel, Loops):
            args, scratch, bases = (tuple(map(self.tensor, x)) for x in (kernel.args, kernel.scratch, kernel.bases))
            return replace(kernel, args=args, scratch=scratch, bases=bases, body=self._body(kernel.body))
        if isinstance(kernel, If):
            then, orelse = map(self._block, kernel.blocks)
            return replace(kernel, condition=self.tensor(kernel.condition), then=then, orelse=orelse)
        if isinstance(kernel, Loop):
            trip, condition = (None if x is None else self.tensor(x) for x in (kernel.trip, kernel.condition))
            carried = tuple(map(self.tensor, kernel.carried))
            return replace(kernel, trip=trip, condition=condition, carried=carried, body=self._block(kernel.body))
        assert isinstance(kernel, Call)
        assert not isinstance(kernel.meaning, Block)  # only models that are trained copy kernels
        meaning = self._reading(kernel.meaning)
        assert isinstance(meaning, (Map, Reduce, Loops))
        meaning.outputs = tuple(map(self.tensor, kernel.meaning.outputs))
        given = tuple([None if a is None else self.tensor(a) for a in kernel.args])
        strided = {
            n: View(self.tensor(v.tensor), self.dim(v.offset), self.dims(v.strides)) for n, v in kernel.strided.items()
        }
        attrs = {name: self.value(v) for name, v in kernel.attrs.items()} if self.symbols else kernel.attrs
        epilogue = self._epilogue(kernel.epilogue)
        return replace(kernel, args=given, attrs=attrs, meaning=meaning, strided=strided, epilogue=epilogue)

    def value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self.value, value))
        return self.dim(value) if isinstance(value, Dim) else value

    def _block(self, block: Block) -> Block:
        inputs = tuple([Leaf("block").making(x.shape, x.dtype).out for x in block.inputs])
        self.of |= {x.uid: new for x, new in zip(block.inputs, inputs, strict=True)}
        kernels = [self.copy(k) for k in block.kernels]
        return Block(inputs, kernels, tuple(map(self.tensor, block.outputs)))

    def _epilogue(self, e: Expr | None) -> Expr | None:
        return None if e is None else self.expr(e)

    def _body(self, body: list[Stmt]) -> list[Stmt]:
        return [self._statement(s) for s in body]

    def _statement(self, s: Stmt) -> Stmt:
        new = rebuild(s, self.expr, self._body)
        return replace(new, target=self.tensor(new.target)) if isinstance(new, Store) else new


def can_copy(kernel: Kernel) -> bool:
    """Whether a kernel can run a second time: no kernel of Python or with inner blocks."""
    return isinstance(kernel, (Map, Reduce, Alias, Loops, Call))


def can_copy_blocks(kernel: Kernel) -> bool:
    """The same for a kernel that may have inner blocks; these bind no symbols."""
    if isinstance(kernel, (If, Loop)):
        symbols = (*kernel.binds, *(kernel.enters if isinstance(kernel, Loop) else ()))
        return not symbols and all(can_copy_blocks(k) for block in kernel.blocks for k in block.kernels)
    return can_copy(kernel)
