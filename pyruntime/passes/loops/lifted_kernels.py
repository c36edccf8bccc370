"""Kernels of a loop's body for all steps at once: with a leading axis for the step."""

from __future__ import annotations

from collections.abc import Mapping

from pyruntime.codegen.provider import Routine
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32, I64
from pyruntime.ir.expr import Expr, cast, index, rewrite
from pyruntime.ir.kernel import Alias, Call, Kernel, Leaf, Loop, Map, Reduce, Tensor
from pyruntime.ir.shape import AnyDim

# Terms of an element, and of all, of a sum that leaves a loop on a GPU: others cost a step less than the loads of their
# results (RWKV-7's products of two vectors), or less than a dispatch costs a run
LEAST_TERMS, LEAST_WORK = 16, 4096
MOST_BYTES = 256 << 20  # operand and result for all steps; a larger product stays in the loop


class Lifting:
    """Records kernels of one loop's body again, before the loop.

    count: the number of steps; makers: the kernel of the body that makes a tensor, by uid
    free: uids of tensors of the body that depend on no carried value; before: the kernels to run before the loop
    """

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

    def moves(self, call: Call) -> bool:
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
        return size <= MOST_BYTES and self.routines[call.routine].claims(matrix_product(flat, w, call))

    def is_long_sum(self, k: Reduce) -> bool:
        """Whether a kernel has sums of many terms, all of which depend on the step alone."""
        if k.op != "sum" or k.out.uid not in self.free:
            return False
        terms, sums, steps = (sh.estimate(sh.size(d)) for d in (k.extents, k.out.shape, (self.count,)))
        varies = any(t is self.number or t.uid in self.makers for t in k.inputs)
        is_long = terms >= LEAST_TERMS and terms * sums >= LEAST_WORK
        return varies and is_long and steps * sums * k.out.dtype.size <= MOST_BYTES

    def lift(self, t: Tensor) -> Tensor:
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
        if not self.moves(k):
            meaning = k.definition()
            assert isinstance(meaning, (Map, Reduce))
            return self._lifted(meaning, t)
        x = k.operand(0)
        flat = self._add(Alias(self.lift(x)), (self.count * x.shape[0], x.shape[1]), x, k.node)
        made = matrix_product(flat, k.operand(1), k)
        self.before.append(made)
        return self._add(Alias(made.out), shape, t, k.node)

    def _inside(self, t: Tensor) -> Tensor:
        """A tensor as an operand for all steps; one from outside the loop is repeated."""
        if t.uid in self.makers:
            return self.lift(t)
        return self._add(Map(t.at(*[index(a + 1) for a in range(t.rank)])), (self.count, *t.shape), t, self.loop.node)

    def _over_steps(self, e: Expr) -> Expr:
        """The expression of a kernel of the body over all steps, which are its first axis."""

        def visit(x: Expr) -> Expr | None:
            if x.op == "index":
                return index(x.value + 1)
            if x.op == "at" and x.value is self.number:
                return cast(index(0), I64)
            if x.op == "at" and x.value.uid in self.makers:
                return self.lift(x.value).at(index(0), *x.args)
            if x.op == "cast" and x.dtype is I32 and x.args[0].op == "cast" and x.args[0].args[0].op == "index":
                return x.args[0].args[0]
            return None

        return rewrite(e, visit)


def matrix_product(a: Tensor, b: Tensor, like: Call | Reduce) -> Call:
    """The product a · b, with the types and the node of another product."""
    meaning = like.meaning if isinstance(like, Call) else like
    assert isinstance(meaning, Reduce)
    dtype = meaning.expr.dtype
    terms = cast(a.at(index(0), index(2)), dtype) * cast(b.at(index(2), index(1)), dtype)
    own = Reduce("sum", (a.shape[1],), terms)
    made = Call("matmul", (a, b), dict(like.attrs) if isinstance(like, Call) else {}, own)
    made.making((a.shape[0], b.shape[1]), like.out.dtype, like.node)
    made.is_backward, own.outputs = like.is_backward, made.outputs
    return made
