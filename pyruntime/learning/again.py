"""Records the kernels of a block once more, on other inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from pyruntime.errors import NotDifferentiable
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.expr import Expr, rewrite
from pyruntime.ir.kernel import Alias, Block, Call, Kernel, Loops, Map, Reduce, Stmt, Store, Tensor
from pyruntime.ir.statements import rebuild


def record_again(t: Tracer, block: Block, given: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """Record copies of a block's kernels, and return the copies of all their tensors by uid. given: what replaces the
    block's inputs."""
    copies = _Copies(t, dict(given))
    label = t.node
    for kernel in list(block.kernels):
        copies.record(kernel)
    t.node = label
    return copies.of


class _Copies:
    def __init__(self, t: Tracer, of: dict[int, Tensor]) -> None:
        self.t, self.of = t, of

    def record(self, kernel: Kernel) -> None:
        new = self._copy(kernel)
        new.node = kernel.node
        if not new.outputs:
            new.outputs = tuple([Tensor(o.shape, o.dtype, new, o.index) for o in kernel.outputs])
        self.t.block.kernels.append(new)
        for old, made in zip(kernel.outputs, new.outputs, strict=True):
            self.of[old.uid] = made
            if old.uid in self.t.still_tensors:
                self.t.still(made)
        for old, made in zip(kernel.outputs, new.outputs, strict=True):
            own = self.t.own_gradients.get(old.uid)
            if own is not None:
                self.t.own_gradients[made.uid] = (own[0], self._value(own[1]))

    def _copy(self, kernel: Kernel) -> Kernel:
        if isinstance(kernel, Map):
            return Map(self._expr(kernel.expr))
        if isinstance(kernel, Reduce):
            return Reduce(kernel.op, kernel.extents, self._expr(kernel.expr))
        if isinstance(kernel, Alias):
            return Alias(self._tensor(kernel.base))
        if isinstance(kernel, Loops):
            return self._loops(kernel)
        if isinstance(kernel, Call):
            args = tuple([None if a is None else self._tensor(a) for a in kernel.args])
            meaning = self._copy(kernel.meaning)
            new = Call(kernel.routine, args, kernel.attrs, meaning)  # type: ignore[arg-type]
            if meaning.outputs:  # a procedure stores into its own outputs
                new.outputs = meaning.outputs
                for x in new.outputs:
                    x.kernel = new
            return new
        raise NotDifferentiable(f"a {type(kernel).__name__} kernel inside If or Loop has no gradient")

    def _loops(self, kernel: Loops) -> Loops:
        args, bases = (tuple(map(self._tensor, of)) for of in (kernel.args, kernel.bases))
        new = Loops(kernel.name, args, (), [], kernel.unit_is_row, bases)
        new.outputs = tuple([Tensor(o.shape, o.dtype, new, o.index) for o in kernel.outputs])
        new.scratch = tuple([self.t.leaf("scratch", s.shape, s.dtype) for s in kernel.scratch])
        pairs = zip((*kernel.outputs, *kernel.scratch), (*new.outputs, *new.scratch), strict=True)
        self.of |= {old.uid: made for old, made in pairs}
        new.body = [self._statement(s) for s in kernel.body]
        return new

    def _statement(self, s: Stmt) -> Stmt:
        out = rebuild(s, self._expr, lambda body: [self._statement(inner) for inner in body])
        return replace(out, target=self._tensor(out.target)) if isinstance(out, Store) else out

    def _tensor(self, x: Tensor) -> Tensor:
        return self.of.get(x.uid, x)

    def _expr(self, e: Expr) -> Expr:
        def load(x: Expr) -> Expr | None:
            if x.op == "at" and x.value.uid in self.of:
                return Expr("at", x.args, x.dtype, self.of[x.value.uid])
            return None

        return rewrite(e, load)

    def _value(self, v: Any) -> Any:
        """An argument of an operator's own gradient, with its tensors replaced."""
        if isinstance(v, (tuple, list)):
            return type(v)([self._value(x) for x in v])
        if is_dataclass(v) and not isinstance(v, type):
            return replace(v, **{f.name: self._value(getattr(v, f.name)) for f in fields(v)})
        return self._tensor(v) if isinstance(v, Tensor) else self._expr(v) if isinstance(v, Expr) else v
