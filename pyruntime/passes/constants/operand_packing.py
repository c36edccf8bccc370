"""Brings constant operands of routines into the layouts that the routines want, once, in the init block."""

from __future__ import annotations

from collections.abc import Mapping

from pyruntime.codegen.provider import Routine
from pyruntime.ir.kernel import Block, Call, Tensor
from pyruntime.passes.loads import is_stored_constant


def pack(block: Block, init: Block, routines: Mapping[str, Routine]) -> None:
    """Give calls in this block and its inner blocks packed operands. An operand of two calls is packed once."""
    made_in_init = {t.uid for k in init.kernels for t in k.outputs}
    _block(block, init, routines, made_in_init, {})


def _block(
    block: Block, init: Block, routines: Mapping[str, Routine], made_in_init: set[int], packed: dict[object, Tensor]
) -> None:
    for kernel in block.kernels:
        if isinstance(kernel, Call) and kernel.routine in routines:
            for n, operand in enumerate(kernel.args):
                if operand is not None and is_stored_constant(operand, made_in_init):
                    _operand(kernel, n, init, routines[kernel.routine], packed)
        for inner in kernel.blocks:
            _block(inner, init, routines, made_in_init, packed)


def _operand(call: Call, n: int, init: Block, routine: Routine, packed: dict[object, Tensor]) -> None:
    packing = routine.packs(call, n)
    if packing is None:
        return
    source, view = call.args[n], call.strided.pop(n, None)
    assert source is not None
    key = (source.uid, view and (view.offset, view.strides), packing.out.shape)
    if key not in packed:
        packed[key] = packing.out
        packing.node = call.node
        init.kernels.append(packing)
    call.args = (*call.args[:n], packed[key], *call.args[n + 1 :])
    call.packed |= {n}
