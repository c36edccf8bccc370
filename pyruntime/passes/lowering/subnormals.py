"""Subnormal numbers: zero where they meet products and where calculations make them in bulk
(docs/use/wrong.md#subnormal-numbers).

WebAssembly cannot flush them to zero, and Intel's processors take up to 150 cycles for each. No weight is copied:

- executors replace subnormal elements of weights when they load them (`Leaf.flushed`), so that all readers still share
  a weight; maps of weights on their way to a product, as in folded scales, flush what they compute;
- what decays is flushed in the kernel that stores it: states of loops, of recurrences and of optimisers;
- so are products of elements on their way to further products;
- reciprocals of 1 + e^x, as in Sigmoid, are flushed. e^x itself ends in zero wherever it is printed
  (mathlib/explog.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyruntime.ir.blocks import all_kernels, unreshaped
from pyruntime.ir.dtype import F16, F32, F64, U32, U64
from pyruntime.ir.expr import GRADUAL, Expr, bitcast, const, is_view, rewrite, select, walk
from pyruntime.ir.kernel import (
    Accum,
    Block,
    Call,
    Kernel,
    Leaf,
    Let,
    Loop,
    Loops,
    Map,
    Reduce,
    Stmt,
    Store,
    Tensor,
    root,
)
from pyruntime.ir.statements import expressions_of, rebuild, statements
from pyruntime.passes.lowering.wide_sums import is_product

NORMAL = {F32: (U32, 23), F64: (U64, 52)}  # words, and bits of the fraction; half floats are computed in float32
# Codes and scales of quantised weights stay as they are.
PRODUCTS = frozenset(("conv", "conv_transpose", "conv_filters", "matmul"))


def flushed(e: Expr) -> Expr:
    """e, or a zero of its sign if it is subnormal: its exponent is 0."""
    words, fraction = NORMAL[e.dtype]
    bits, sign = bitcast(e, words), 1 << (words.bits - 1)
    exponent = bits & const(sign - (1 << fraction), words)
    return select(exponent == const(0, words), bitcast(bits & const(sign, words), e.dtype), e)


def unflushed(e: Expr) -> Expr:
    """The expression that `flushed` got to make e; any other e as it is."""
    return e.args[2] if e.op == "select" and e.dtype in NORMAL and e.key() == flushed(e.args[2]).key() else e


def keep_subnormals(blocks: Sequence[Block]) -> None:
    """Let the results of exponentials be subnormal."""
    for k in [k for block in blocks for k in all_kernels(block)]:
        _rewrite(k, lambda e: Expr("exp", e.args, e.dtype, GRADUAL) if e.op == "exp" else None)


def flush_subnormals(main: Block, init: Block, outputs: Sequence[Tensor], on_gpu: bool) -> None:
    """outputs: the tensors that leave the Program, which stay as they are; on_gpu: whether kernels run on a GPU, which
    multiplies subnormal numbers as fast as others, or flushes them."""
    for k in all_kernels(main):
        _rewrite(k, lambda e: flushed(e) if _is_sigmoid(e) else None)
    _Flush(init, {root(t).uid for t in outputs}, on_gpu).block(main)


def _is_sigmoid(e: Expr) -> bool:
    """Whether an expression is a constant divided by 1 + e^x: subnormal for x in 87.3 .. 88.7, where e^x is finite."""
    is_quotient = e.op == "div" and e.dtype in NORMAL and e.args[0].op == "const" and e.args[1].op == "add"
    return is_quotient and any(a.op == "exp" for a in e.args[1].args)


class _Flush:
    """done: uids of weights and results that are flushed; outputs: uids of tensors that are not; products: uids of
    results of products, and of maps of these, whose weights are flushed, too: a subnormal bias would become an operand
    of the next product"""

    def __init__(self, init: Block, outputs: set[int], on_gpu: bool) -> None:
        self.outputs, self.on_gpu = outputs, on_gpu
        self.made_in_init = {t.uid for k in init.kernels for t in k.outputs}
        self.done: set[int] = set()
        self.products: set[int] = set()

    def block(self, block: Block) -> None:
        for k in block.kernels:
            for inner in k.blocks:
                self.block(inner)
            if isinstance(k, Loop):
                for t in k.body.outputs[1 : 1 + len(k.carried)]:
                    self._result(t, _computes)
            elif isinstance(k, Call) and k.routine in PRODUCTS:
                self._call(k)
                self.products.add(k.out.uid)
            elif isinstance(k, Loops):
                self._loops(k)
            elif isinstance(k, Reduce) and is_product(k) or self._follows(k):
                self._weights(k)
                self.products.add(k.outputs[0].uid)

    def _call(self, k: Call) -> None:
        self._weights(k)
        for t in k.args if not self.on_gpu else ():
            if t is not None and t.dtype in NORMAL:
                self._result(t, lambda e: e.op == "mul")

    def _follows(self, k: Kernel) -> bool:
        """Whether a kernel is a map of floats that reads the result of a product."""
        return isinstance(k, Map) and _is_of_floats(k) and any(unreshaped(t).uid in self.products for t in k.inputs)

    def _weights(self, k: Kernel) -> None:
        """Flush the weights that a kernel reads, also through views: in maps of the init block, or by executors."""
        for t in map(unreshaped, k.inputs):
            made = t.kernel
            if isinstance(made, Map) and made.expr.op == "at":
                self._weights(made)
            elif t.uid in self.made_in_init:
                self._result(t, _computes)
            elif isinstance(made, Leaf) and made.kind in ("weight", "constant") and t.uid not in self.outputs:
                made.flushed = t.dtype in NORMAL

    def _result(self, t: Tensor, applies: Callable[[Expr], bool]) -> None:
        """Flush the result of a map of floats in the map."""
        made = unreshaped(t)
        k = made.kernel
        leaves = made.uid in self.outputs or made.uid in self.done
        if isinstance(k, Map) and _is_of_floats(k) and not leaves and applies(k.expr):
            self.done.add(made.uid)
            k.expr = flushed(k.expr)

    def _loops(self, k: Loops) -> None:
        body = list(statements(k.body))
        if any(isinstance(s, Accum) and s.op == "sum" and s.value.op == "mul" for s in body):
            self._weights(k)
        lets = {s.var: s.value for s in body if isinstance(s, Let) and not s.mutable}
        kept = {t.uid for t in k.outputs} if k.bases else set()

        def visit(s: Stmt) -> Stmt:
            if isinstance(s, Store) and s.value.dtype in NORMAL:
                return Store(s.target, s.coords, _flushed_state(s.value, s.target, lets, s.target.uid in kept))
            return rebuild(s, lambda e: e, lambda inner: [visit(x) for x in inner])

        k.body = [visit(s) for s in k.body]


def _flushed_state(e: Expr, state: Tensor, lets: dict[int, Expr], is_kept: bool) -> Expr:
    """The new value of a state, flushed if it is a multiple of the old one. is_kept: if it is computed at all. What a
    select keeps of the old value stays as it is."""
    if e.op == "select":
        sides = [_flushed_state(a, state, lets, is_kept) for a in e.args[1:]]
        return select(e.args[0], *sides)
    scaled = is_kept and any(x.op == "mul" for x in walk(e)) or _scales(e, state, lets)
    return flushed(e) if scaled else e


def _scales(e: Expr, state: Tensor, lets: dict[int, Expr], in_product: bool = False) -> bool:
    """Whether a sum has a term that is a multiple of an element of the state."""
    if e.op == "var" and e.value in lets:
        return _scales(lets[e.value], state, lets, in_product)
    if e.op == "at":
        return in_product and e.value is state
    if e.op in ("add", "sub", "cast", "mul") and e.dtype in NORMAL:
        return any(_scales(a, state, lets, in_product or e.op == "mul") for a in e.args)
    return False


def _is_of_floats(k: Map) -> bool:
    """Whether a map of floats may have subnormal results; as float32 those of half floats are normal."""
    types = {t.dtype for t in k.inputs}
    return k.out.dtype in NORMAL and all(d.is_float for d in types) and not types <= {F16}


def _computes(e: Expr) -> bool:
    return not is_view(e)


def _rewrite(k: Kernel, visit: Callable[[Expr], Expr | None]) -> None:
    """Rewrite the expressions of a kernel that computes exponentials."""
    if not any(x.op == "exp" for e in expressions_of(k) for x in walk(e)):
        return
    memo: dict[int, Expr] = {}

    def statement(s: Stmt) -> Stmt:
        return rebuild(s, lambda e: rewrite(e, visit, memo), lambda body: [statement(x) for x in body])

    if isinstance(k, Map):
        k.expr = rewrite(k.expr, visit, memo)
    elif isinstance(k, Reduce):
        k.expr = rewrite(k.expr, visit, memo)
        k.epilogue = None if k.epilogue is None else rewrite(k.epilogue, visit, memo)
    elif isinstance(k, Loops):
        k.body = [statement(s) for s in k.body]
