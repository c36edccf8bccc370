"""Removes kernels whose outputs nothing reads, such as shape arithmetic that the compiler has evaluated."""

from __future__ import annotations

from collections.abc import Iterable

from pyruntime.ir.kernel import Block, Kernel, Read, Tensor
from pyruntime.ir.symbol import Symbol


def remove_dead(block: Block, outputs: Iterable[Tensor], symbols: set[Symbol] | None = None) -> None:
    """Keep the kernels on which `outputs` depend. A Read stays if it binds one of `symbols` (None: all Reads stay)."""
    needed = {t.uid for t in outputs}
    live: list[Kernel] = []
    for kernel in reversed(block.kernels):
        is_live = not needed.isdisjoint([t.uid for t in kernel.outputs])
        if isinstance(kernel, Read):
            is_live = symbols is None or not symbols.isdisjoint(kernel.symbols)
        if not is_live:
            continue
        for inner in kernel.blocks:
            remove_dead(inner, inner.outputs, symbols)
        needed.update([t.uid for t in kernel.inputs])
        live.append(kernel)
    block.kernels = live[::-1]
