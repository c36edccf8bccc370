"""Constant operands are brought into the layout that a routine wants, once, in the init block."""

from __future__ import annotations

from collections.abc import Mapping

from pyruntime.codegen.provider import Routine
from pyruntime.ir.kernel import Block, Call, Leaf, Tensor


def pack(block: Block, init: Block, routines: Mapping[str, Routine]) -> None:
    """Give calls in this block and its inner blocks packed weights. A weight used twice is packed once."""
    made = {t.uid for k in init.kernels for t in k.outputs}
    _block(block, init, routines, made, {})


def _block(
    block: Block, init: Block, routines: Mapping[str, Routine], made: set[int], known: dict[object, Tensor]
) -> None:
    for kernel in block.kernels:
        if isinstance(kernel, Call) and kernel.routine in routines:
            for n, operand in enumerate(kernel.args):
                if operand is not None and _constant(operand, made):
                    _operand(kernel, n, init, routines[kernel.routine], known)
        for inner in kernel.blocks:
            _block(inner, init, routines, made, known)


def _operand(call: Call, n: int, init: Block, routine: Routine, known: dict[object, Tensor]) -> None:
    packing = routine.packs(call, n)
    if packing is None:
        return
    source, view = call.args[n], call.strided.pop(n, None)
    assert source is not None
    key = (source.uid, view and (view.offset, view.strides), packing.out.shape)
    if key not in known:
        known[key] = packing.out
        packing.node = call.node
        init.kernels.append(packing)
    call.args = (*call.args[:n], known[key], *call.args[n + 1 :])
    call.attrs = {**call.attrs, f"packed{n}": True}


def _constant(t: Tensor, made: set[int]) -> bool:
    return t.uid in made or (isinstance(t.kernel, Leaf) and t.kernel.kind in ("weight", "constant"))


__all__ = ["pack"]
