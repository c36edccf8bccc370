"""The order of start-up: what becomes of one constant is made before the next ones are needed, in steps of some
megabytes of constants, so that executors need not hold all of them at once (docs/design/memory.md#loading-weights)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Kernel, Leaf, Tensor, root

PORTION = 1 << 22  # bytes of constants that a step is the first to read, if there are several in it


def portions(kernels: Sequence[Kernel]) -> Iterator[list[Kernel]]:
    """The kernels of `init`, which have no symbols and no inner blocks, each behind those that make what it reads."""
    makers = {t.uid: kernel for kernel in kernels for t in kernel.outputs}
    read = {t.uid for kernel in kernels for t in kernel.inputs}
    done: set[int] = set()
    portion: list[Kernel] = []
    size = 0
    loaded: set[int] = set()
    for last in kernels:
        if any(t.uid in read for t in last.outputs):
            continue
        before = _before(last, makers, done)
        needed = {uid: n for kernel in before for uid, n in map(_constant, kernel.inputs) if uid not in loaded}
        added = sum(needed.values())
        if portion and size + added > PORTION:
            yield portion
            portion, size = [], 0
        portion += before
        size += added
        loaded.update(needed)  # |= with what is no set would copy all
    yield portion


def _before(last: Kernel, makers: dict[int, Kernel], done: set[int]) -> list[Kernel]:
    """A kernel and what it needs that is not done, in order."""
    order: list[Kernel] = []
    stack = [(last, False)]
    while stack:
        kernel, entered = stack.pop()
        if entered:
            order.append(kernel)
        elif id(kernel) not in done:
            done.add(id(kernel))
            stack.append((kernel, True))
            stack += [(makers[t.uid], False) for t in reversed(kernel.inputs) if t.uid in makers]
    return order


def _constant(t: Tensor) -> tuple[int, int]:
    """Its uid, and its bytes if it is a constant."""
    base = root(t)
    count = sh.size(base.shape) if isinstance(base.kernel, Leaf) else 0
    assert isinstance(count, int)
    return base.uid, count * base.dtype.size


__all__ = ["portions"]
