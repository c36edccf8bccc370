"""Kernels of a loop's body whose axes a reshape divides again, as after a product of flattened batches: they make the
divided result themselves. Else they read states at quotients and remainders of an index, and no axis of these states
is independent of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pyruntime.ir.expr import Expr, index, substitute, walk
from pyruntime.ir.kernel import Alias, Block, Call, Kernel, Map, Reduce, Tensor
from pyruntime.passes.loads import Joined, in_base

Dense = Map | Reduce


def divided_results(
    kernels: Sequence[Kernel], outputs: Sequence[Tensor], unaliased: Callable[[Expr, Joined], Expr]
) -> dict[int, Dense]:
    """Such kernels with the reshaped result, by uid of the result that they had. unaliased: an expression with loads of
    the tensors that were reshaped"""
    readers = Counter([t.uid for k in kernels for t in k.inputs] + [t.uid for t in outputs])
    makers = {k.out.uid: k for k in kernels if isinstance(k, (Map, Reduce, Call))}
    found: dict[int, Dense] = {}
    for alias in kernels:
        if isinstance(alias, Alias) and readers[alias.base.uid] == 1 and alias.base.uid in makers:
            kernel = makers[alias.base.uid]
            if isinstance(kernel, Call):
                dense = None if isinstance(kernel.meaning, Block) else kernel.definition()
            else:
                dense = kernel
            if isinstance(dense, (Map, Reduce)) and (made := _divided(dense, alias.out, unaliased)):
                found[alias.base.uid] = made
    return found


def _divided(kernel: Dense, out: Tensor, unaliased: Callable[[Expr, Joined], Expr]) -> Dense | None:
    """The kernel that makes the reshaped result, if it reads all tensors at plain indices then."""
    joined = Joined()
    load = in_base(out.at(*[index(n) for n in range(out.rank)]), joined)
    if load is None:
        return None
    axes = dict(enumerate(load.args))
    if isinstance(kernel, Map):
        made: Dense = Map(unaliased(substitute(kernel.expr, axes), joined))
        exprs = [made.expr]
    else:
        axes |= {kernel.out.rank + n: index(out.rank + n) for n in range(len(kernel.extents))}
        after = None if kernel.epilogue is None else unaliased(substitute(kernel.epilogue, axes), joined)
        made = Reduce(kernel.op, kernel.extents, unaliased(substitute(kernel.expr, axes), joined), after)
        exprs = [made.expr] if after is None else [made.expr, after]
    if not all(_is_plain(c) for e in exprs for x in walk(e) if x.op == "at" for c in x.args):
        return None
    made.replaces(kernel, (out,))
    return made


def _is_plain(coordinate: Expr) -> bool:
    return coordinate.op == "index" or not any(x.op == "index" for x in walk(coordinate))
