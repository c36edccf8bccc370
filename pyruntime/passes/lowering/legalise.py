"""Calls of routines that the provider does not claim become their meaning, so that the other passes see into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyruntime.codegen.provider import Routine
from pyruntime.errors import UnsupportedOp
from pyruntime.ir.kernel import Block, Call, Kernel
from pyruntime.ir.rewriting import rewrite_kernels


def legalise(block: Block, routines: Mapping[str, Routine]) -> None:
    """In this block and its inner blocks; claimed calls get their operands in the types that their routine takes.
    Errors: UnsupportedOp for a routine that no provider has, a misspelt one."""

    def legal(kernel: Kernel) -> Sequence[Kernel] | None:
        if not isinstance(kernel, Call):
            return None
        routine = routines.get(kernel.routine)
        if routine is None:
            names = ", ".join(sorted(routines))
            raise UnsupportedOp(
                f'no provider has a routine "{kernel.routine}"', node=kernel.node, hint=f"there are {names}"
            )
        before = routine.prepare(kernel)
        return [*before, kernel if routine.claims(kernel) else kernel.definition()]

    rewrite_kernels(block, legal)


__all__ = ["legalise"]
