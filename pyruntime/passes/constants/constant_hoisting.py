"""Constant folding by hoisting: kernels that depend on constants alone run once, in the Program's init block."""

from __future__ import annotations

from collections.abc import Callable

from pyruntime.ir import shape as sh
from pyruntime.ir.expr import walk
from pyruntime.ir.kernel import Block, If, Kernel, Loop, Map, Read, Tensor
from pyruntime.passes.cleanup.used_symbols import symbols_of
from pyruntime.passes.loads import is_stored_constant

# Operations that take longer than a load: a table of 131,072 sines took 2 ms of each run of a DFT
COSTLY = frozenset("sin cos tan exp log pow tanh erf".split())


def hoist_constants(block: Block, init: Block, selected: Callable[[Kernel], bool] = lambda kernel: True) -> None:
    """Move constant kernels that `selected` accepts from this block and its inner blocks to the init block."""
    _hoist(block, init, {t.uid for kernel in init.kernels for t in kernel.outputs}, selected)


def unpacks_bits(kernel: Kernel) -> bool:
    """Whether a kernel makes elements that share bytes in the file (of 2 or 4 bits)."""
    return isinstance(kernel, Map) and kernel.out.dtype.bits < 8


def is_foldable(kernel: Kernel, constant: set[int]) -> bool:
    """Whether a kernel can run in the init block. constant: uids of that block's results."""
    if isinstance(kernel, (If, Loop, Read)) or not kernel.outputs:
        return False
    if not all(is_stored_constant(t, constant) for t in kernel.inputs):
        return False
    if symbols_of(kernel):
        return False
    if isinstance(kernel, Map):  # a map that only enlarges a constant (Expand) stays where it can be fused
        read = sum(sh.size(t.shape) for t in kernel.inputs)
        least = 1 << 20 if _is_costly(kernel) else 1 << 16
        return sh.size(kernel.out.shape) <= max(4 * read, least)
    return True


def computed_tables(init: Block) -> list[Tensor]:
    """Results of maps of the init block that take longer to compute than to load: no reader should inline them."""
    return [kernel.out for kernel in init.kernels if isinstance(kernel, Map) and _is_costly(kernel)]


def _is_costly(kernel: Map) -> bool:
    return any(e.op in COSTLY for e in walk(kernel.expr))


def _hoist(block: Block, init: Block, constant: set[int], selected: Callable[[Kernel], bool]) -> None:
    remaining: list[Kernel] = []
    for kernel in block.kernels:
        if selected(kernel) and is_foldable(kernel, constant):
            init.kernels.append(kernel)
            constant.update(t.uid for t in kernel.outputs)
        else:
            for inner in kernel.blocks:
                _hoist(inner, init, constant, selected)
            remaining.append(kernel)
    returned = {t.uid for t in block.outputs}
    if returned & constant:  # a block owns the tensors that it returns, so their kernels must stay in it
        _move_back(init, remaining, returned, constant)
    block.kernels = remaining


def _move_back(init: Block, remaining: list[Kernel], returned: set[int], constant: set[int]) -> None:
    back = [k for k in init.kernels if any(t.uid in returned for t in k.outputs)]
    init.kernels = [k for k in init.kernels if k not in back]
    for k in back:
        constant.difference_update(t.uid for t in k.outputs)
    remaining[:0] = back
