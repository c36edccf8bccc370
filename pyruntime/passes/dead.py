"""Dead code: kernels none of whose outputs are used disappear. Shape arithmetic done at plan time ends here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from pyruntime.kernel import Block, If, Kernel, Loop, Read, Tensor


def remove_dead(block: Block, outputs: Iterable[Tensor], symbols: set[str] | None = None) -> None:
    """Keep what `outputs` need. `symbols` are the names that kept kernels or outputs mention; a Read is kept if it
    binds one of them (None: keep all Reads)."""
    needed = {t.uid for t in outputs}
    kept: list[Kernel] = []
    for kernel in reversed(block.kernels):
        wanted = any(t.uid in needed for t in kernel.outputs)
        if isinstance(kernel, Read):
            wanted = symbols is None or not symbols.isdisjoint(kernel.symbols)
        if not wanted:
            continue
        for inner in inner_blocks(kernel):
            remove_dead(inner, inner.outputs, symbols)
        needed.update(t.uid for t in kernel.inputs)
        kept.append(kernel)
    block.kernels = kept[::-1]


def inner_blocks(kernel: Kernel) -> tuple[Block, ...]:
    if isinstance(kernel, If):
        return kernel.then, kernel.orelse
    return (kernel.body,) if isinstance(kernel, Loop) else ()


def _read(kernel: Kernel) -> Iterable[int]:
    return {t.uid for t in kernel.inputs}


def readers_of(
    block: Block, outputs: Iterable[Tensor], read: Callable[[Kernel], Iterable[int]] = _read
) -> Counter[int]:
    """How many kernels read a tensor, by uid; what a block returns counts as read. `read` gives what a kernel does:
    once each, or as often as a pass wants it to count."""
    readers: Counter[int] = Counter(t.uid for t in outputs)
    for kernel in block.kernels:
        readers.update(read(kernel))
        for inner in inner_blocks(kernel):
            readers.update(readers_of(inner, inner.outputs, read))
    return readers
