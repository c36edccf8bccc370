"""Which provider runs which kernel.

Every kernel goes to the first provider of the session's list that supports it; then what does not pay goes back to the
last provider ("wasm"): values that the plan waits for (reads, conditions, host functions), and islands whose work is
small against the bytes that cross to reach them. With one provider asked for, nothing goes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyruntime.codegen.provider import Builder, Provider, Routine
from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import inner_blocks
from pyruntime.ir.expr import walk
from pyruntime.ir.kernel import Alias, Block, Call, Host, If, Kernel, Leaf, Loop, Map, Read, Reduce, Tensor, View, root
from pyruntime.program.residency import HOME

CROSSING_COST = 200_000  # operations that a crossing costs by itself: a submission and a wait, some 100 microseconds
BYTE_COST = 2  # operations that a crossing byte costs
SMALL = 4096  # elements: up to this, what only the plan waits for is computed at home


@dataclass
class Partition:
    """where: provider by id of kernel; reasons: why a kernel is not on the first provider, by id of kernel."""

    where: dict[int, str] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)


def partition(block: Block, providers: Sequence[Provider], only: bool = False) -> Partition:
    """Assign the kernels of a block and its inner blocks. `only`: the last provider is a fallback, not a choice."""
    out = Partition()
    _assign(block, providers, out)
    if len(providers) > 1 and not only:
        _waited_for(block, providers[-1].name, out)
        _islands(block, providers[-1].name, out)
    return out


def _assign(block: Block, providers: Sequence[Provider], out: Partition) -> None:
    for kernel in block.kernels:
        if _computes(kernel):
            out.where[id(kernel)] = providers[-1].name
            for p in providers:
                why = p.supports(kernel)
                if not why:
                    out.where[id(kernel)] = p.name
                    break
                out.reasons.setdefault(id(kernel), why)
        for inner in inner_blocks(kernel):
            _assign(inner, providers, out)


def _computes(kernel: Kernel) -> bool:
    return not isinstance(kernel, Leaf | Alias | Read | Host | If | Loop)


def _waited_for(block: Block, home: str, out: Partition) -> None:
    """Small values that only reads, conditions and host functions need are made at home."""
    needed_elsewhere: set[int] = set()
    for kernel in reversed(block.kernels):
        for inner in inner_blocks(kernel):
            _waited_for(inner, home, out)
        if _computes(kernel):
            small = all(sh.estimate(sh.size(t.shape)) <= SMALL for t in (*kernel.outputs, *kernel.inputs))
            wanted = {t.uid for t in kernel.outputs} & needed_elsewhere
            if small and not wanted and not {t.uid for t in kernel.outputs} & {root(t).uid for t in block.outputs}:
                if _feeds_plan(kernel, block):
                    out.where[id(kernel)] = home
                    out.reasons.setdefault(id(kernel), "the plan waits for its value")
                    continue
            needed_elsewhere |= {root(t).uid for t in kernel.inputs}


def _feeds_plan(kernel: Kernel, block: Block) -> bool:
    made = {t.uid for t in kernel.outputs}
    return any(
        isinstance(k, Read | Host | If | Loop) and any(root(t).uid in made for t in k.inputs) for k in block.kernels
    )


def _islands(block: Block, home: str, out: Partition) -> None:
    """Runs of kernels away from home whose work does not pay for their crossings go home."""
    for kernel in block.kernels:
        for inner in inner_blocks(kernel):
            _islands(inner, home, out)
    run: list[Kernel] = []
    ends: list[Kernel | None] = [*block.kernels, None]
    for k in ends:
        if isinstance(k, Alias | Leaf):
            continue
        if k is not None and _computes(k) and out.where[id(k)] != home:
            run.append(k)
        elif run:
            _judge(run, block, home, out)
            run = []


def _judge(run: list[Kernel], block: Block, home: str, out: Partition) -> None:
    members = {id(k) for k in run}
    made = {t.uid for k in run for t in k.outputs}
    crossing: dict[int, Tensor] = {}
    for k in run:
        for t in map(root, k.inputs):
            if out.where.get(id(t.kernel)) == home or (
                isinstance(t.kernel, Leaf) and t.kernel.kind in ("feed", "block")
            ):
                crossing[t.uid] = t
    for k in block.kernels:
        if id(k) not in members and out.where.get(id(k), home) == home:
            crossing |= {t.uid: t for t in map(root, k.inputs) if t.uid in made}
    crossing |= {t.uid: t for t in map(root, block.outputs) if t.uid in made}
    size = sum(sh.estimate(sh.size(t.shape)) * t.dtype.size for t in crossing.values())
    cost = CROSSING_COST + BYTE_COST * size
    work = sum(operations(k) for k in run)
    if work < cost:
        for k in run:
            out.where[id(k)] = home
            out.reasons[id(k)] = f"{work:.0f} operations do not pay for {size} bytes crossing"


def operations(kernel: Kernel) -> float:
    """A rough count of what a kernel computes."""
    kernel = kernel.definition() if isinstance(kernel, Call) else kernel
    elements = sum(sh.estimate(sh.size(t.shape)) for t in kernel.outputs)
    if isinstance(kernel, Map):
        return elements * (1 + len(walk(kernel.expr)))
    if isinstance(kernel, Reduce):
        return elements * max(sh.estimate(sh.size(kernel.extents)), 1) * 2
    return 4.0 * (elements + sum(sh.estimate(sh.size(t.shape)) for t in kernel.inputs))


class Placed:
    """The builders of several providers as one. `place` must be called before the first segment."""

    def __init__(self, providers: Sequence[Provider], builders: Mapping[str, Builder], only: bool) -> None:
        self.providers = providers
        self.builders = builders
        self.only = only
        self.partition = Partition()
        own = {n: r for p in reversed(providers) for n, r in builders[p.name].routines.items()}
        self.routines: dict[str, Any] = {n: _Claimed(r, providers, builders) for n, r in own.items()}

    def place(self, main: Block) -> None:
        self.partition = partition(main, self.providers, self.only)

    def where(self, kernel: Kernel) -> str:
        return self.partition.where.get(id(kernel), HOME)


class _Claimed:
    """A routine of a later provider, for the calls that no earlier provider supports."""

    def __init__(self, inner: Routine, providers: Sequence[Provider], builders: Mapping[str, Builder]) -> None:
        self.inner = inner
        self.before = [p for p in providers if inner not in builders[p.name].routines.values()]

    def _free(self, call: Call) -> bool:
        return all(p.supports(call) for p in self.before)

    def prepare(self, call: Call) -> list[Kernel]:
        return self.inner.prepare(call) if self._free(call) else []

    def claims(self, call: Call) -> bool:
        return self._free(call) and self.inner.claims(call)

    def reads(self, call: Call, operand: int, view: View) -> bool:
        return self.inner.reads(call, operand, view)

    def fuses(self, call: Call, out: Tensor, order: tuple[int, ...], epilogue: Any) -> bool:
        return self.inner.fuses(call, out, order, epilogue)

    def packs(self, call: Call, operand: int) -> Kernel | None:
        return self.inner.packs(call, operand)


__all__ = ["Partition", "Placed", "operations", "partition"]
