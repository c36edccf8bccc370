"""Products leave loops: one product of all steps replaces a product in each step.

A product whose left operand depends on the number of the step alone, such as x[n] · W, is computed before the loop, for
all steps at once. The kernels that make its operand are recorded again with a leading axis for the step. The body
reads its slice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyruntime.codegen.provider import Routine
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32, I64
from pyruntime.ir.expr import Expr, cast, index, rewrite
from pyruntime.ir.kernel import Alias, Block, Call, Kernel, Leaf, Loop, Map, Reduce, Tensor
from pyruntime.ir.rewriting import take_over
from pyruntime.ir.shape import AnyDim

MOST_BYTES = 256 << 20  # operand and result for all steps; a larger product stays in the loop


def hoist_products(block: Block, routines: Mapping[str, Routine]) -> None:
    """Hoist in this block and its inner blocks."""
    kernels: list[Kernel] = []
    for kernel in block.kernels:
        for inner in kernel.blocks:
            hoist_products(inner, routines)
        if isinstance(kernel, Loop) and kernel.is_counted and not kernel.enters:
            kernels += _Hoisting(kernel, routines).kernels()
        kernels.append(kernel)
    block.kernels = kernels


class _Hoisting:
    """The products of one loop."""

    def __init__(self, loop: Loop, routines: Mapping[str, Routine]) -> None:
        assert loop.limit is not None
        self.loop, self.routines, self.count = loop, routines, sh.maximum(loop.limit, 0)
        self.number = loop.body.inputs[0]
        self.before: list[Kernel] = []
        self.lifted: dict[int, Tensor] = {}
        self.makers = {t.uid: k for k in loop.body.kernels for t in k.outputs}
        self.free = {self.number.uid}  # tensors that depend on no carried value
        carried = {t.uid for t in loop.body.inputs[1:]}
        for k in loop.body.kernels:
            inside = [t.uid for t in k.inputs if t.uid in self.makers or t.uid in carried]
            is_pure = (
                isinstance(k, (Map, Reduce, Alias)) or isinstance(k, Call) and isinstance(k.meaning, (Map, Reduce))
            )
            if is_pure and all(uid in self.free for uid in inside):
                self.free.update(t.uid for t in k.outputs)

    def kernels(self) -> list[Kernel]:
        """The kernels to run before the loop. Changes the body."""
        body = self.loop.body
        for n, k in enumerate(body.kernels):
            if isinstance(k, Call) and self._moves(k):
                whole = self._lift(k.out)
                place = cast(self.number.at(), I32)
                view = Map(whole.at(place, *[index(a) for a in range(k.out.rank)]))
                take_over(view, k)
                body.kernels[n] = view
        return self.before

    def _moves(self, call: Call) -> bool:
        """Whether a call is a plain product of a matrix that depends on the step alone and one from outside."""
        if call.routine != "matmul" or call.out.uid not in self.free or len(call.args) != 2 or call.plan is not None:
            return False
        if not isinstance(call.meaning, Reduce):
            return False
        x, w = call.operand(0), call.operand(1)
        if x.uid not in self.makers or w.uid in self.makers or (x.rank, w.rank) != (2, 2):
            return False
        size = sum(sh.estimate(sh.size((self.count, *t.shape))) * t.dtype.size for t in (x, call.out))
        flat = Leaf("feed").making((self.count * x.shape[0], x.shape[1]), x.dtype).out
        return size <= MOST_BYTES and self.routines[call.routine].claims(_product(flat, call))

    def _lift(self, t: Tensor) -> Tensor:
        """The values of a tensor in all steps."""
        if t.uid not in self.lifted:
            self.lifted[t.uid] = self._lifted(self.makers[t.uid], t)
        return self.lifted[t.uid]

    def _add(self, kernel: Kernel, shape: tuple[AnyDim, ...], of: Tensor, node: str) -> Tensor:
        made = kernel.making(shape, of.dtype, node).out
        self.before.append(kernel)
        return made

    def _lifted(self, k: Kernel, t: Tensor) -> Tensor:
        shape = (self.count, *t.shape)
        if isinstance(k, Alias):
            return self._add(Alias(self._inside(k.base)), shape, t, k.node)
        if isinstance(k, Map):
            return self._add(Map(self._over_steps(k.expr)), shape, t, k.node)
        if isinstance(k, Reduce):
            epilogue = None if k.epilogue is None else self._over_steps(k.epilogue)
            return self._add(Reduce(k.op, k.extents, self._over_steps(k.expr), epilogue), shape, t, k.node)
        assert isinstance(k, Call)
        if not self._moves(k):
            meaning = k.definition()
            assert isinstance(meaning, (Map, Reduce))
            return self._lifted(meaning, t)
        x = k.operand(0)
        flat = self._add(Alias(self._lift(x)), (self.count * x.shape[0], x.shape[1]), x, k.node)
        made = _product(flat, k)
        self.before.append(made)
        return self._add(Alias(made.out), shape, t, k.node)

    def _inside(self, t: Tensor) -> Tensor:
        """A tensor as an operand for all steps; one from outside the loop is repeated."""
        if t.uid in self.makers:
            return self._lift(t)
        return self._add(Map(t.at(*[index(a + 1) for a in range(t.rank)])), (self.count, *t.shape), t, self.loop.node)

    def _over_steps(self, e: Expr) -> Expr:
        """The expression of a kernel of the body over all steps, which are its first axis."""

        def visit(x: Expr) -> Expr | None:
            if x.op == "index":
                return index(x.value + 1)
            if x.op == "at" and x.value is self.number:
                return cast(index(0), I64)
            if x.op == "at" and x.value.uid in self.makers:
                return self._lift(x.value).at(index(0), *x.args)
            if x.op == "cast" and x.dtype is I32 and x.args[0].op == "cast" and x.args[0].args[0].op == "index":
                return x.args[0].args[0]
            return None

        return rewrite(e, visit)


def _product(flat: Tensor, call: Call) -> Call:
    """The product of a matrix with the second operand of a call."""
    assert isinstance(call.meaning, Reduce)
    w, dtype = call.operand(1), call.meaning.expr.dtype
    terms = cast(flat.at(index(0), index(2)), dtype) * cast(w.at(index(2), index(1)), dtype)
    meaning = Reduce("sum", (flat.shape[1],), terms)
    made = replace(call, args=(flat, w), meaning=meaning)
    made.making((flat.shape[0], w.shape[1]), call.out.dtype, call.node)
    meaning.outputs = made.outputs
    return made
