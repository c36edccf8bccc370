"""Joins consecutive kernels of one provider to parts, which the provider compiles and runs as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.kernel import Alias, Block, Kernel, Leaf, Tensor, root

Make = Callable[[Sequence[Kernel], Sequence[Tensor]], Kernel]  # kernels, and those of their results that others read


def runs_of(block: Block, has: Callable[[Kernel], bool], joins: bool) -> Iterator[list[Kernel]]:
    """The kernels that a provider `has`, in this block and its inner blocks: runs of consecutive ones if it joins them,
    else each on its own. A reshape of a result belongs to the run; one of another tensor does not end it."""
    run: list[Kernel] = []
    made: set[int] = set()
    for k in block.kernels:
        for inner in k.blocks:
            yield from runs_of(inner, has, joins)
        is_own = has(k)
        if run and (is_own and not joins or not is_own and not isinstance(k, (Alias, Leaf))):
            yield run
            run, made = [], set()
        if is_own or joins and isinstance(k, Alias) and root(k.base).uid in made:
            run.append(k)
            made |= {t.uid for t in k.outputs}
    if run:
        yield run


def join(block: Block, runs: Sequence[Sequence[Kernel]], kept: Sequence[Tensor], make: Make) -> None:
    """Replace each run by the kernel that `make` returns, and the reshapes of its results. kept: tensors that are read
    outside of all blocks"""
    readers = Counter(root(t).uid for t in kept)
    readers.update(root(t).uid for t in block.outputs)
    for k in all_kernels(block):
        readers.update(_read(k))
        readers.update(root(t).uid for inner in k.blocks for t in inner.outputs)
    steps = {id(run[0]): _step(run, readers, make) for run in runs}
    _replace(block, steps, {id(k) for run in runs for k in run})


def _read(kernel: Kernel) -> set[int]:
    return {root(t).uid for t in kernel.inputs}


def _step(run: Sequence[Kernel], readers: Counter[int], make: Make) -> list[Kernel]:
    """The step of a run, and the reshapes of its results that others may read."""
    inside = Counter(uid for k in run for uid in _read(k))
    made = [t for k in run if not isinstance(k, Alias) for t in k.outputs]
    outputs = [t for t in made if readers[t.uid] > inside[t.uid]]
    step = make(run, outputs)
    read = {t.uid for t in outputs}
    reshapes = [k for k in run if isinstance(k, Alias) and root(k.base).uid in read]
    for t in outputs:
        t.kernel = step
    return [step, *reshapes]


def _replace(block: Block, steps: dict[int, list[Kernel]], gone: set[int]) -> None:
    kernels: list[Kernel] = []
    waiting: list[Kernel] = []  # the step of a run that may go on: reshapes of other tensors go before it
    for k in block.kernels:
        for inner in k.blocks:
            _replace(inner, steps, gone)
        if id(k) in steps:
            kernels += waiting
            waiting = steps[id(k)]
        elif waiting and isinstance(k, Alias) and root(k.base).kernel is waiting[0]:
            waiting.append(k)
        elif id(k) not in gone:
            if not isinstance(k, (Alias, Leaf)):
                kernels += waiting
                waiting = []
            kernels.append(k)
    block.kernels = kernels + waiting
