"""Calls of routines that the provider does not claim become their meaning, so that the other passes see into them."""

from __future__ import annotations

from collections.abc import Mapping

from pyruntime.kernel import Block, Call
from pyruntime.passes.dead import inner_blocks
from pyruntime.provider import Routine


def settle(block: Block, routines: Mapping[str, Routine]) -> None:
    for n, kernel in enumerate(block.kernels):
        if isinstance(kernel, Call):
            routine = routines.get(kernel.routine)
            if routine is None or not routine.claims(kernel):
                meaning = block.kernels[n] = kernel.definition()
                for t in meaning.outputs:
                    t.kernel = meaning
        for inner in inner_blocks(kernel):
            settle(inner, routines)


__all__ = ["settle"]
