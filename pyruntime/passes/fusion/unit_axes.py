"""Merges reshapes that only add or remove axes of extent 1 into the kernel before them: they would block fusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pyruntime.ir.blocks import readers_of
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, const, index, substitute
from pyruntime.ir.kernel import Alias, Block, Map, Reduce, Tensor


def absorb_units(block: Block, outputs: Iterable[Tensor]) -> None:
    """Merge such reshapes of this block and its inner blocks. outputs: the tensors that leave the Program."""
    _block(block, readers_of(block, outputs))


def _block(block: Block, readers: Counter[int]) -> None:
    own = {id(k) for k in block.kernels}
    for kernel in block.kernels:
        for inner in kernel.blocks:
            _block(inner, readers)
    block.kernels = [k for k in block.kernels if not (isinstance(k, Alias) and _absorbed(k, own, readers))]


def _absorbed(alias: Alias, own: set[int], readers: Counter[int]) -> bool:
    before, after, kernel = alias.base.shape, alias.out.shape, alias.base.kernel
    if id(kernel) not in own or not isinstance(kernel, (Map, Reduce)) or readers[alias.base.uid] != 1:
        return False
    if [d for d in before if d != 1] != [d for d in after if d != 1]:
        return False
    long_axes = iter([n for n, d in enumerate(after) if d != 1])
    place: dict[int, Expr] = {n: const(0, I32) if d == 1 else index(next(long_axes)) for n, d in enumerate(before)}
    if isinstance(kernel, Reduce):
        place |= {len(before) + n: index(len(after) + n) for n in range(len(kernel.extents))}
        if kernel.epilogue is not None:
            kernel.epilogue = substitute(kernel.epilogue, place)
    kernel.expr = substitute(kernel.expr, place)
    kernel.outputs = alias.outputs
    alias.out.kernel = kernel
    return True
