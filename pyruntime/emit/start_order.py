"""Orders the init block so that all kernels that process one constant run before the next constants are needed, in
steps of a few megabytes of constants: executors need not hold all raw constants at once
(docs/design/memory.md#loading-weights)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Kernel, Leaf, Tensor, root

PORTION = 1 << 22  # bytes of constants that a step reads first, unless it reads a single larger one


def portions(kernels: Sequence[Kernel]) -> Iterator[list[Kernel]]:
    """The kernels of `init` in groups, each kernel after those that make its inputs. They have no symbols and no inner
    blocks."""
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
        loaded.update(needed)  # update, because |= with a non-set would copy the whole set
    yield portion


def _before(last: Kernel, makers: dict[int, Kernel], done: set[int]) -> list[Kernel]:
    """A kernel, preceded by the kernels that it needs and that are not done yet."""
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
    """A tensor's uid, and its bytes if it is a constant, else 0."""
    base = root(t)
    count = sh.size(base.shape) if isinstance(base.kernel, Leaf) else 0
    assert isinstance(count, int)
    return base.uid, count * base.dtype.size
