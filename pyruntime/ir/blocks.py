"""Queries about blocks: their kernels, including those of inner blocks, and the readers of tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from pyruntime.ir.kernel import Alias, Block, Host, If, Kernel, Leaf, Loop, Map, Read, Tensor

_CONSTANT = ("weight", "constant")  # kinds of leaves
WHOLE_NODE = "onnx:"  # the start of routines that are whole nodes


def all_kernels(block: Block) -> list[Kernel]:
    """The kernels of a block and its inner blocks."""
    out: list[Kernel] = []
    for k in block.kernels:
        out.append(k)
        for inner in k.blocks:
            out += all_kernels(inner)
    return out


def compute_kernels(block: Block) -> list[Kernel]:
    """The kernels of a block and its inner blocks for which a provider writes code."""
    return [k for k in all_kernels(block) if not isinstance(k, (Leaf, Alias, Read, Host, If, Loop))]


def is_constant(t: Tensor) -> bool:
    """Whether only maps, reshapes, weights and constants contribute to a tensor."""
    found, todo = {t.uid}, [t]
    while todo:
        kernel = todo.pop().kernel
        if not isinstance(kernel, (Leaf, Map, Alias)) or isinstance(kernel, Leaf) and kernel.kind not in _CONSTANT:
            return False
        todo += [x for x in kernel.inputs if x.uid not in found]
        found.update([x.uid for x in todo])
    return True


def unreshaped(t: Tensor) -> Tensor:
    """The tensor of which this is a reshape, or the tensor itself."""
    while isinstance(t.kernel, Alias):
        t = t.kernel.base
    return t


def own_inputs(kernel: Kernel) -> tuple[Tensor, ...]:
    """The tensors that a kernel itself reads, without those that only kernels of its inner blocks read."""
    if isinstance(kernel, If):
        return (kernel.condition,)
    if isinstance(kernel, Loop):
        return (*[t for t in (kernel.trip, kernel.condition) if t is not None], *kernel.carried)
    return kernel.inputs


def _read(kernel: Kernel) -> Iterable[int]:
    return {t.uid for t in kernel.inputs}


def readers_of(
    block: Block, outputs: Iterable[Tensor], read: Callable[[Kernel], Iterable[int]] = _read
) -> Counter[int]:
    """Number of readers of each tensor, by uid. A tensor that a block returns has one more reader. `read`: uids of the
    tensors that a kernel reads; a pass may count some of them several times."""
    uids = [t.uid for t in outputs]
    for kernel in all_kernels(block):
        uids += read(kernel)
        for inner in kernel.blocks:
            uids += [t.uid for t in inner.outputs]
    return Counter(uids)
