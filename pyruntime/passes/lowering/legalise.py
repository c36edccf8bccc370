"""Replaces calls that no provider's routine claims by their definitions, which the other passes can optimise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyruntime.codegen.provider import Routine
from pyruntime.errors import UnsupportedOp
from pyruntime.ir.kernel import Block, Call, Kernel
from pyruntime.ir.rewriting import rewrite_kernels


def legalise(block: Block, routines: Mapping[str, Routine]) -> None:
    """Legalise calls in this block and its inner blocks. Claimed calls get kernels before them that convert operands to
    the types that the routine takes. Errors: UnsupportedOp for the name of a routine that no provider has."""

    def legal(kernel: Kernel) -> Sequence[Kernel] | None:
        if not isinstance(kernel, Call):
            return None
        routine = routines.get(kernel.routine)
        if routine is None:
            names = ", ".join(sorted(routines))
            raise UnsupportedOp(
                f'no provider has a routine "{kernel.routine}"', node=kernel.node, hint=f"routines are {names}"
            )
        *before, last = routine.prepare(kernel) or [kernel]
        if isinstance(last, Call) and not routines[last.routine].claims(last):
            last = last.definition()
        return [*before, last]

    rewrite_kernels(block, legal)
