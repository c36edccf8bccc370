"""Products follow loops: one product of all steps replaces the products that the steps add up.

A carried value that each step only adds a product to, such as the gradient of a recurrent weight, s = s + aᵀ · b, is
not carried any more. The loop stacks a and b, and s is its first value plus the product of the stacks, whose rows are
those of all steps. Operands that depend on the number of the step alone are recorded again for all steps.
"""

from __future__ import annotations

from collections import Counter

from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, index, substitute, walk
from pyruntime.ir.kernel import Alias, Call, Kernel, Map, Reduce, Tensor, root
from pyruntime.ir.shape import AnyDim
from pyruntime.passes.loads import in_base
from pyruntime.passes.loops.lifted_kernels import MOST_BYTES, Lifting, matrix_product

Product = Call | Reduce


def sink_products(lifting: Lifting) -> list[Kernel]:
    """Sink what can be sunk out of a loop. Returns the kernels to run after the loop."""
    loop, sinking = lifting.loop, _Sinking(lifting)
    if not loop.binds:
        for n in reversed(range(len(loop.carried))):
            sinking.sink(n)
    return sinking.after


class _Sinking:
    """reads: how often kernels and results of the body read a tensor, by uid
    stacks: the values of a tensor of the body in all steps, by uid"""

    def __init__(self, lifting: Lifting) -> None:
        self.lifting, self.loop, self.body = lifting, lifting.loop, lifting.loop.body
        self.after: list[Kernel] = []
        self.stacks: dict[int, Tensor] = {}
        self.reads = Counter(t.uid for k in self.body.kernels for t in k.inputs)
        self.reads.update(t.uid for t in self.body.outputs)

    def sink(self, n: int) -> None:
        """Replace carried value n by the loop's first value and a sum of products, if that is what it is."""
        before, after, initial = self.body.inputs[2 + n], self.body.outputs[1 + n], self.loop.carried[n]
        kernel = after.kernel
        if not isinstance(kernel, Map) or after.uid not in self.lifting.makers:
            return
        if self.reads[before.uid] != 1 or self.reads[after.uid] != 1:  # something else reads the sum
            return
        terms = self._terms(kernel.expr)
        own = before.at(*[index(a) for a in range(before.rank)]).key()
        products = [self._product_of(t) for t in terms if t.key() != own]
        if len(products) != len(terms) - 1 or not all(p is not None and self._moves(p[0]) for p in products):
            return
        value = initial.at(*[index(a) for a in range(initial.rank)])
        for product, load in filter(None, products):
            value = value + self._total(product).at(*load.args)
        self._finish(n, Map(value))

    def _finish(self, n: int, last: Map) -> None:
        """Take carried value n out of the loop; `last` computes its last value."""
        loop, body = self.loop, self.body
        last.replaces(loop, (loop.outputs[n],))
        last.out.kernel, last.out.index = last, 0
        self.after.append(last)
        loop.carried = (*loop.carried[:n], *loop.carried[n + 1 :])
        body.inputs = (*body.inputs[: 2 + n], *body.inputs[3 + n :])
        body.outputs = (*body.outputs[: 1 + n], *body.outputs[2 + n :])
        loop.outputs = (*loop.outputs[:n], *loop.outputs[n + 1 :])
        for place, t in enumerate(loop.outputs):
            t.index = place

    # ── what is a sum of products ────────────────────────────────────────────────────────────────────────────────────

    def _terms(self, e: Expr) -> list[Expr]:
        """The terms of a sum, also of one that several kernels compute."""
        made = e if e.op == "add" else self._made(e)
        return [e] if made is None or made.op != "add" else [x for a in made.args for x in self._terms(a)]

    def _made(self, e: Expr) -> Expr | None:
        """An element that a map or a reshape of the body makes, for one reader, as the expression that makes it."""
        if e.op != "at" or e.value.uid not in self.lifting.makers or self.reads[e.value.uid] != 1:
            return None
        kernel = e.value.kernel
        is_exact = isinstance(kernel, Map) and kernel.expr.dtype is kernel.out.dtype  # a store rounds nothing
        if isinstance(kernel, Map) and is_exact and not any(x.op == "at" for c in e.args for x in walk(c)):
            return substitute(kernel.expr, e.args)
        return in_base(e, {})

    def _product_of(self, e: Expr) -> tuple[Product, Expr] | None:
        """The product whose element an expression is, and the load of this element."""
        while (made := self._made(e)) is not None:
            e = made
        if e.op != "at" or self.reads[e.value.uid] != 1 or any(x.op == "at" for c in e.args for x in walk(c)):
            return None
        kernel = e.value.kernel
        is_product = isinstance(kernel, (Call, Reduce)) and e.value.uid in self.lifting.makers
        return (kernel, e) if is_product and _factors(kernel) else None

    def _moves(self, product: Product) -> bool:
        """Whether what the steps must stack is no larger than the product, and there is room for it."""
        factors = _factors(product)
        assert factors is not None
        inside = {*self.lifting.makers, *[t.uid for t in self.body.inputs[2:]]}
        if not all(t.uid in inside for t in factors):
            return False
        stacked = [t for t in factors if t.uid not in self.lifting.free]
        step = sum(sh.estimate(sh.size(t.shape)) for t in stacked)
        size = sum(sh.estimate(sh.size((self.lifting.count, *t.shape))) * t.dtype.size for t in factors)
        return step <= sh.estimate(sh.size(product.out.shape)) and size <= MOST_BYTES

    # ── the product of all steps ─────────────────────────────────────────────────────────────────────────────────────

    def _total(self, product: Product) -> Tensor:
        """The sum of a product over all steps."""
        factors = _factors(product)
        assert factors is not None
        x, w = self._rows(factors[0], True), self._rows(factors[1], False)
        call = matrix_product(self._swapped(x), w, product)
        made = call if self.lifting.routines["matmul"].claims(call) else call.definition()
        call.out.kernel = made
        self.after.append(made)
        return made.out

    def _rows(self, t: Tensor, is_swapped: bool) -> Tensor:
        """The rows of a matrix of the body, or of its transpose, in all steps, one below the other."""
        while (found := _copied(t)) is not None and found[0].uid in self.lifting.makers:
            t, is_swapped = found[0], is_swapped != found[1]
        whole = self.lifting.lift(t) if t.uid in self.lifting.free else self._stacked(t)
        whole = self._swapped(whole) if is_swapped else whole
        count, rows, columns = whole.shape
        return self._add(Alias(whole), (count * rows, columns), t)

    def _stacked(self, t: Tensor) -> Tensor:
        """A tensor of the body in all steps, as an output of the loop."""
        loop, body = self.loop, self.body
        if t.uid not in self.stacks:
            own = t
            if root(t).uid not in self.lifting.makers or any(root(t) is root(x) for x in body.outputs):
                copy = Map(t.at(*[index(a) for a in range(t.rank)])).making(t.shape, t.dtype, loop.node)
                body.kernels.append(copy)
                own = copy.out
            stack = Tensor((self.lifting.count, *t.shape), t.dtype, loop, len(loop.outputs))
            body.outputs, loop.outputs = (*body.outputs, own), (*loop.outputs, stack)
            self.stacks[t.uid] = stack
        return self.stacks[t.uid]

    def _swapped(self, t: Tensor) -> Tensor:
        """The tensor with its last two axes swapped."""
        *lead, rows, columns = t.shape
        at = [index(a) for a in range(t.rank)]
        return self._add(Map(t.at(*at[:-2], at[-1], at[-2])), (*lead, columns, rows), t)

    def _add(self, kernel: Kernel, shape: tuple[AnyDim, ...], of: Tensor) -> Tensor:
        kernel.making(shape, of.dtype, self.loop.node)
        kernel.is_backward = self.loop.is_backward
        self.after.append(kernel)
        return kernel.out


def _factors(product: Product) -> tuple[Tensor, Tensor] | None:
    """a and b of a plain matrix product a · b."""
    meaning: object = product
    if isinstance(product, Call):
        is_own = product.routine == "matmul" and not (product.strided or product.packed or product.plan)
        meaning = product.meaning if is_own and product.order is None else None
    if not isinstance(meaning, Reduce) or product.epilogue is not None or meaning.op != "sum":
        return None
    e = meaning.expr
    if product.out.rank != 2 or len(meaning.extents) != 1 or e.op != "mul":
        return None
    a, b = (x.args[0] if x.op == "cast" else x for x in e.args)
    is_plain = a.op == b.op == "at" and _reads(a, 0, 2) and _reads(b, 2, 1)
    return (a.value, b.value) if is_plain else None


def _reads(load: Expr, row: int, column: int) -> bool:
    """Whether a load is that of a matrix at these indices."""
    t = load.value
    if t.rank != 2:
        return False
    pairs = zip(load.args, (row, column), t.shape, strict=True)
    return all(c.op == "index" and c.value == n or d == 1 and c.op == "const" for c, n, d in pairs)


def _copied(t: Tensor) -> tuple[Tensor, bool] | None:
    """The matrix of which a matrix is a copy, and whether it is transposed."""
    e = t.kernel.expr if isinstance(t.kernel, Map) else None
    if e is None or e.op != "at" or e.value.rank != 2 or e.dtype is not t.dtype:
        return None
    same, swapped = (e.value.shape == s for s in (t.shape, t.shape[::-1]))
    if same and _reads(e, 0, 1):
        return e.value, False
    return (e.value, True) if swapped and _reads(e, 1, 0) else None
