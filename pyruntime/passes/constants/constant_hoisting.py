"""Constant folding by hoisting: kernels that depend on constants alone run once, in the program's init block."""

from __future__ import annotations

from collections.abc import Callable

from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Block, If, Kernel, Leaf, Loop, Map, Read, Tensor
from pyruntime.passes.cleanup.used_symbols import symbols_of

Which = Callable[[Kernel], bool]


def hoist_constants(block: Block, init: Block, which: Which = lambda kernel: True) -> None:
    """Move them out of the block (and its inner blocks), or those that are asked for, to the init block."""
    _collect(block, init, {t.uid for kernel in init.kernels for t in kernel.outputs}, which)


def unpacks(kernel: Kernel) -> bool:
    """Whether it takes apart what shares bytes in the file."""
    return isinstance(kernel, Map) and kernel.out.dtype.bits < 8


def _collect(block: Block, init: Block, constant: set[int], which: Which) -> None:
    kept: list[Kernel] = []
    for kernel in block.kernels:
        if which(kernel) and _foldable(kernel, constant):
            init.kernels.append(kernel)
            constant.update(t.uid for t in kernel.outputs)
        else:
            for inner in kernel.blocks:
                _collect(inner, init, constant, which)
            kept.append(kernel)
    owned = {t.uid for t in block.outputs}
    if owned & constant and block.outputs:  # a block owns its outputs: what makes them stays in it
        _return(block, init, kept, owned, constant)
    block.kernels = kept


def _return(block: Block, init: Block, kept: list[Kernel], owned: set[int], constant: set[int]) -> None:
    back = [k for k in init.kernels if any(t.uid in owned for t in k.outputs)]
    init.kernels = [k for k in init.kernels if k not in back]
    for k in back:
        constant.difference_update(t.uid for t in k.outputs)
    kept[:0] = back


def _foldable(kernel: Kernel, constant: set[int]) -> bool:
    if isinstance(kernel, (If, Loop, Read)) or not kernel.outputs:
        return False
    if not all(_constant(t, constant) for t in kernel.inputs):
        return False
    if symbols_of(kernel):
        return False
    if isinstance(kernel, Map):  # what only grows a constant (an expand) stays where it can be fused
        given = sum(sh.size(t.shape) for t in kernel.inputs)
        return sh.size(kernel.out.shape) <= max(4 * given, 1 << 16)
    return True


def _constant(t: Tensor, constant: set[int]) -> bool:
    return t.uid in constant or (isinstance(t.kernel, Leaf) and t.kernel.kind in ("weight", "constant"))
