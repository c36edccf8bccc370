"""Calls of routines that the provider does not claim become their meaning, so that the other passes see into them."""

from __future__ import annotations

from collections.abc import Mapping

from pyruntime.codegen.provider import Routine
from pyruntime.ir.blocks import inner_blocks
from pyruntime.ir.kernel import Block, Call, Kernel


def settle(block: Block, routines: Mapping[str, Routine]) -> None:
    """In this block and its inner blocks; claimed calls get their operands in the types that their routine takes."""
    kernels: list[Kernel] = []
    for kernel in block.kernels:
        for inner in inner_blocks(kernel):
            settle(inner, routines)
        if isinstance(kernel, Call):
            routine = routines.get(kernel.routine)
            kernels += routine.prepare(kernel) if routine else []
            if routine is None or not routine.claims(kernel):
                kernel = _meaning(kernel)
        kernels.append(kernel)
    block.kernels = kernels


def _meaning(call: Call) -> Kernel:
    out = call.definition()
    for t in out.outputs:
        t.kernel = out
    return out


__all__ = ["settle"]
