"""Keeps sums, norms and scores of half floats in float32 between kernels on the GPU, where storing them would overflow.

Kernels compute with half floats in float32, but a tensor between two kernels is rounded, and half floats end at 65,504.
The square of 300 is more, and so are most sums of squares and many scores of attention, while what a model computes
from them, x / sqrt(mean(x²)) or a softmax, is small. `wide_halves` widens all tensors between kernels on the CPU; here
it would double the bytes that kernels read and write. So only these become float32:

- what is reduced along whole axes, and what is computed from such results alone: means, variances, their roots;
- squares, exponentials, differences from a mean, and other values computed from float32 on their way to a reduction;
- products of matrices on their way to a softmax, and those that one map reads, which becomes their epilogue;
- the result of a softmax that a product reads: attention then is one kernel, and never stores it;
- what maps compute from these, if one map reads it element by element: fusion joins the two, and nothing stores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyruntime.codegen.half_floats import HALVES
from pyruntime.ir.blocks import all_kernels, is_constant
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import Alias, Block, Call, Kernel, Map, Reduce, Tensor, root
from pyruntime.passes.lowering.wide_halves import fixed_types, only_moves, widen

GROWING = frozenset(("exp", "pow"))


def widen_sums(block: Block, outputs: Iterable[Tensor]) -> None:
    """Widen such tensors in this block and its inner blocks. outputs: the tensors that leave the Program."""
    kernels = all_kernels(block)
    if any(t.dtype in HALVES for k in kernels for t in k.outputs):
        found = _Search(kernels, fixed_types(kernels, outputs))
        widen(found.kernels(), found.wide)


class _Search:
    """wide: uids of the tensors that become float32."""

    def __init__(self, kernels: Sequence[Kernel], fixed: set[int]) -> None:
        self.all = kernels
        self.fixed = fixed
        self.readers: dict[int, list[Kernel]] = {}
        for k in kernels:
            for t in {t.uid: t for t in k.inputs}.values():
                self.readers.setdefault(t.uid, []).append(k)
        self.reduced: set[int] = set()  # on the way to a reduction through maps
        self.scores: set[int] = set()  # on the way to a softmax
        self.factors: set[int] = set()  # on the way to a product through maps
        self.shares: set[int] = set()  # exponentials, and what is computed from them on the way to a product
        for k in reversed(kernels):
            self._look_ahead(k)
        self.statistics: set[int] = set()
        self.products: set[int] = set()
        self.wide: set[int] = set()
        self.ends: set[int] = set()  # those of `wide` that do not widen what is computed from them
        for k in kernels:
            self._look_back(k)
        self.wide |= self.ends

    def kernels(self) -> list[Kernel]:
        """Those that read or make a wide tensor."""
        return [k for k in self.all if any(root(t).uid in self.wide for t in (*k.inputs, *k.outputs))]

    def _look_ahead(self, k: Kernel) -> None:
        """Note where the inputs of a kernel lead to."""
        if isinstance(k, Call) or isinstance(k, Reduce) and is_product(k):
            self.factors |= {t.uid for t in k.inputs}
        to_reduction = isinstance(k, Reduce) and _reduces_rows(k)
        if not to_reduction and not isinstance(k, (Map, Alias)):
            return
        out = k.outputs[0].uid
        uids = {t.uid for t in k.inputs}
        if to_reduction or out in self.reduced:
            self.reduced |= uids
        if out in self.factors:
            self.factors |= uids
        is_exponential = isinstance(k, Map) and out in self.reduced and any(x.op == "exp" for x in walk(k.expr))
        self.shares |= {out} if is_exponential else set()
        if isinstance(k, Reduce) and k.op == "max" or is_exponential or out in self.scores:
            self.scores |= uids

    def _look_back(self, k: Kernel) -> None:
        """Decide on the result of a kernel."""
        out = k.outputs[0] if k.outputs else None
        if out is None or not isinstance(k, (Map, Reduce, Call, Alias)):
            return
        if isinstance(k, Call) or isinstance(k, Reduce) and is_product(k):
            self.products.add(out.uid)
        elif isinstance(k, Reduce):
            self.statistics |= {out.uid} if _reduces_rows(k) else set()
        elif len(k.inputs) == 1 and k.inputs[0].uid in self.products and _copies(k):
            self.products.add(out.uid)
        else:
            computed = [t for t in k.inputs if not is_constant(t)]
            self.statistics |= {out.uid} if computed and all(t.uid in self.statistics for t in computed) else set()
        if isinstance(k, (Map, Alias)) and out.uid in self.factors and any(t.uid in self.shares for t in k.inputs):
            self.shares.add(out.uid)
        if out.dtype in HALVES and root(out).uid not in self.fixed and not isinstance(k, Alias):
            self._decide(k, out)

    def _decide(self, k: Map | Reduce | Call, out: Tensor) -> None:
        uid = out.uid
        if isinstance(k, Map) and only_moves(k, self.wide):
            return
        if uid in self.products:
            if uid in self.scores:
                self.wide.add(uid)
            elif self._has_epilogue(out):
                self.ends.add(uid)
        elif uid in self.statistics:
            self.wide.add(uid)
        elif uid in self.shares and uid in self.factors:
            self.wide.add(uid)
        elif uid in self.reduced and isinstance(k, Map):
            if _grows(k.expr) or any(root(t).uid in self.wide for t in k.inputs):
                self.wide.add(uid)
        if isinstance(k, Map) and self._has_epilogue(out) and any(self._is_wide(t) for t in k.inputs):
            self.ends.add(uid)

    def _is_wide(self, t: Tensor) -> bool:
        return root(t).uid in self.wide or root(t).uid in self.ends

    def _has_epilogue(self, t: Tensor) -> bool:
        """Whether one map alone reads a tensor, element by element."""
        readers = self.readers.get(t.uid, [])
        return len(readers) == 1 and isinstance(readers[0], Map) and readers[0].out.shape == t.shape and all(
            _is_at_own_index(x) for x in walk(readers[0].expr) if x.op == "at" and x.value is t
        )  # fmt: skip


def _reduces_rows(k: Reduce) -> bool:
    """Whether a reduction reads whole axes of its operands, unlike pooling."""
    return not is_product(k) and all(
        c.op in ("index", "const") for x in walk(k.expr) if x.op == "at" for c in x.args
    )  # fmt: skip


def is_product(k: Reduce) -> bool:
    """Whether it sums products of elements of two tensors with different axes: a product of matrices, a convolution."""
    if k.op != "sum":
        return False
    e = k.expr
    while e.op == "cast":
        e = e.args[0]
    return e.op == "mul" and _axes(e.args[0]) != _axes(e.args[1])


def _axes(e: Expr) -> frozenset[object]:
    return frozenset(x.value for x in walk(e) if x.op == "index")


def _grows(e: Expr) -> bool:
    """Whether values may be far larger than the operands: powers, and products of two computed numbers."""
    return any(x.op in GROWING or x.op == "mul" and all(_is_computed(a) for a in x.args) for x in walk(e))


def _is_computed(e: Expr) -> bool:
    return any(x.op == "at" and not is_constant(x.value) for x in walk(e))


def _copies(k: Map | Alias) -> bool:
    """Whether it converts or moves elements without arithmetic."""
    return isinstance(k, Alias) or all(x.op in ("cast", "at", "index", "const", "dim") for x in walk(k.expr))


def _is_at_own_index(at: Expr) -> bool:
    return all(c.op == "index" and c.value == n for n, c in enumerate(at.args))
