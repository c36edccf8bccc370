"""Removes kernels whose outputs nothing reads, such as shape arithmetic that the compiler has evaluated, and values
that loops stack for no reader."""

from __future__ import annotations

from collections.abc import Iterable

from pyruntime.ir.kernel import Block, If, Kernel, Loop, Read, Tensor
from pyruntime.ir.symbol import Symbol
from pyruntime.passes.cleanup.used_symbols import symbols_in


def remove_dead(block: Block, outputs: Iterable[Tensor], symbols: set[Symbol] | None = None) -> None:
    """Keep the kernels on which `outputs` depend. A Read stays if it binds one of `symbols` (None: all Reads stay), and
    an If or a Loop if later kernels mention a symbol that it binds."""
    needed = {t.uid for t in outputs}
    live: list[Kernel] = []
    for kernel in reversed(block.kernels):
        is_live = not needed.isdisjoint([t.uid for t in kernel.outputs])
        if isinstance(kernel, Read):
            is_live = symbols is None or not symbols.isdisjoint(kernel.symbols)
        elif not is_live and isinstance(kernel, (If, Loop)) and kernel.binds:
            is_live = not symbols_in(Block((), live)).isdisjoint([s for *_, s in kernel.binds])
        if not is_live:
            continue
        if isinstance(kernel, Loop):
            _remove_stacks(kernel, needed)
        for inner in kernel.blocks:
            remove_dead(inner, inner.outputs, symbols)
        needed.update([t.uid for t in kernel.inputs])
        live.append(kernel)
    block.kernels = live[::-1]


def _remove_stacks(loop: Loop, needed: set[int]) -> None:
    """Drop the stacked values of a loop that are not needed, unless symbols are bound to their dims."""
    states = len(loop.carried)
    if loop.binds or all(t.uid in needed for t in loop.outputs[states:]):
        return
    condition, *results = loop.body.outputs
    live = [n for n, t in enumerate(loop.outputs) if n < states or t.uid in needed]
    loop.body.outputs = (condition, *[results[n] for n in live])
    loop.outputs = tuple([loop.outputs[n] for n in live])
    for n, t in enumerate(loop.outputs):
        t.index = n
