"""Dead code: kernels none of whose outputs are used disappear. Shape arithmetic done at compile time ends here."""

from __future__ import annotations

from collections.abc import Iterable

from pyruntime.ir.kernel import Block, Kernel, Read, Tensor
from pyruntime.ir.symbol import Symbol


def remove_dead(block: Block, outputs: Iterable[Tensor], symbols: set[Symbol] | None = None) -> None:
    """Keep what `outputs` need. `symbols` are those that kept kernels or outputs mention; a Read is kept if it
    binds one of them (None: keep all Reads)."""
    needed = {t.uid for t in outputs}
    kept: list[Kernel] = []
    for kernel in reversed(block.kernels):
        wanted = not needed.isdisjoint([t.uid for t in kernel.outputs])
        if isinstance(kernel, Read):
            wanted = symbols is None or not symbols.isdisjoint(kernel.symbols)
        if not wanted:
            continue
        for inner in kernel.blocks:
            remove_dead(inner, inner.outputs, symbols)
        needed.update([t.uid for t in kernel.inputs])
        kept.append(kernel)
    block.kernels = kept[::-1]
