"""Brings operands of routines into the layouts that the routines want: constants once, in the init block, and weights
that runs change in each run, where that pays."""

from __future__ import annotations

from collections.abc import Mapping

from pyruntime.codegen.provider import Routine
from pyruntime.ir.kernel import Block, Call, Kernel, Tensor
from pyruntime.passes.loads import is_of_states, is_stored_constant


def pack(block: Block, init: Block, routines: Mapping[str, Routine]) -> None:
    """Give calls in this block and its inner blocks packed operands. An operand of two calls is packed once."""
    made_in_init = {t.uid for k in init.kernels for t in k.outputs}
    _block(block, init, routines, made_in_init, {})


def _block(
    block: Block, init: Block, routines: Mapping[str, Routine], made_in_init: set[int], packed: dict[object, Tensor]
) -> None:
    kernels: list[Kernel] = []
    packed_here: dict[object, Tensor] = {}
    for kernel in block.kernels:
        if isinstance(kernel, Call) and kernel.routine in routines:
            routine = routines[kernel.routine]
            for n, operand in enumerate(kernel.args):
                if operand is None:
                    continue
                if is_stored_constant(operand, made_in_init):
                    _operand(kernel, n, init.kernels, routine.packs(kernel, n), packed)
                elif is_of_states(operand):
                    _operand(kernel, n, kernels, routine.packs_in_runs(kernel, n), packed_here)
        for inner in kernel.blocks:
            _block(inner, init, routines, made_in_init, packed)
        kernels.append(kernel)
    block.kernels[:] = kernels


def _operand(
    call: Call, n: int, into: list[Kernel], packing: Kernel | None, packed: dict[object, Tensor]
) -> None:  # fmt: skip
    """Let the call read operand n as `packing` makes it; into: the kernels to which that is added."""
    if packing is None:
        return
    source, view = call.args[n], call.strided.pop(n, None)
    assert source is not None
    key = (source.uid, view and (view.offset, view.strides), packing.out.shape)
    if key not in packed:
        packed[key] = packing.out
        packing.replaces(call, packing.outputs)
        into.append(packing)
    call.args = (*call.args[:n], packed[key], *call.args[n + 1 :])
    call.packed |= {n}
