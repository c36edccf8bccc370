"""Which provider runs which kernel.

Every kernel goes to the first provider of the session's list that supports it; then what does not pay goes back to
linear memory, to the first provider there that supports it: values that the plan waits for (reads, conditions, host
functions), and islands whose work is small against the bytes that cross to reach them. Where the session asks for no
provider in linear memory, nothing goes back: the last of the list takes what no other can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyruntime.codegen.provider import LINEAR, Memory, Provider, memory_of
from pyruntime.errors import our_fault
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import walk
from pyruntime.ir.kernel import Alias, Block, Call, Host, If, Kernel, Leaf, Loop, Map, Read, Reduce, Tensor, root

SMALL = 4096  # elements: up to this, what only the plan waits for is computed at home


@dataclass
class Placement:
    """provider: of each kernel; reasons: why a kernel is not on the first provider."""

    providers: Sequence[Provider]
    provider: dict[Kernel, Provider] = field(default_factory=dict)
    reasons: dict[Kernel, str] = field(default_factory=dict)

    def memory(self, kernel: Kernel) -> Memory:
        """Where a kernel works; what is not placed works in linear memory."""
        found = self.provider.get(kernel)
        return LINEAR if found is None else memory_of(found)

    def first(self, kernel: Kernel, providers: Sequence[Provider]) -> tuple[Provider, str]:
        """The first of these that supports the kernel, or the last; and why not the very first."""
        why = ""
        for p in providers:
            with our_fault(f'provider "{p.name}"', kernel.node):
                reason = p.supports(kernel)
            if not reason:
                return p, why
            why = why or reason
        return providers[-1], why

    def send_home(self, kernel: Kernel) -> None:
        self.provider[kernel] = self.first(kernel, [p for p in self.providers if memory_of(p) is LINEAR])[0]


def place(block: Block, providers: Sequence[Provider], asked: int) -> Placement:
    """Assign the kernels of a block and its inner blocks. `asked`: the session asked for so many of the providers, the
    others are for what these cannot do. The last one works in linear memory."""
    out = Placement(providers)
    _assign(block, out)
    if any(memory_of(p) is LINEAR for p in providers[:asked]):
        _send_back_plan_values(block, out)
        _send_back_islands(block, out)
    return out


def _assign(block: Block, out: Placement) -> None:
    for kernel in block.kernels:
        if _computes(kernel):
            out.provider[kernel], why = out.first(kernel, out.providers)
            if why:
                out.reasons[kernel] = why
        for inner in kernel.blocks:
            _assign(inner, out)


def _computes(kernel: Kernel) -> bool:
    return not isinstance(kernel, (Leaf, Alias, Read, Host, If, Loop))


# ── values that the plan waits for ───────────────────────────────────────────────────────────────────────────────────


def _send_back_plan_values(block: Block, out: Placement) -> None:
    """Small values that only reads, conditions and host functions need are made at home."""
    needed_elsewhere = {root(t).uid for t in block.outputs}
    for kernel in reversed(block.kernels):
        for inner in kernel.blocks:
            _send_back_plan_values(inner, out)
        if not _computes(kernel):
            continue
        small = all(sh.estimate(sh.size(t.shape)) <= SMALL for t in (*kernel.outputs, *kernel.inputs))
        if small and needed_elsewhere.isdisjoint(t.uid for t in kernel.outputs) and _feeds_plan(kernel, block):
            if out.memory(kernel) is not LINEAR:
                out.send_home(kernel)
                out.reasons.setdefault(kernel, "the run cannot continue without its value")
        else:
            needed_elsewhere |= {root(t).uid for t in kernel.inputs}


def _feeds_plan(kernel: Kernel, block: Block) -> bool:
    made = {t.uid for t in kernel.outputs}
    return any(
        isinstance(k, (Read, Host, If, Loop)) and any(root(t).uid in made for t in k.inputs) for k in block.kernels
    )


# ── islands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _send_back_islands(block: Block, out: Placement) -> None:
    """Runs of kernels in a memory away from home whose work does not pay for their crossings go home."""
    for kernel in block.kernels:
        for inner in kernel.blocks:
            _send_back_islands(inner, out)
    run: list[Kernel] = []
    memory = LINEAR
    for k in block.kernels:
        if isinstance(k, (Alias, Leaf)):
            continue
        here = out.memory(k)
        if here is not memory:
            _send_back_unless_worth(run, block, memory, out)
            run, memory = [], here
        run.append(k)
    _send_back_unless_worth(run, block, memory, out)


def _send_back_unless_worth(run: Sequence[Kernel], block: Block, memory: Memory, out: Placement) -> None:
    if memory is LINEAR:
        return
    size = sum(sh.estimate(sh.size(t.shape)) * t.dtype.size for t in _copied(run, block, out))
    work = sum(operations(k) for k in run)
    if work < memory.copy_cost + memory.byte_cost * size:
        for k in run:
            out.send_home(k)
            out.reasons[k] = f"{work:.0f} operations are too few to pay for copying {size} bytes"


def _copied(run: Sequence[Kernel], block: Block, out: Placement) -> list[Tensor]:
    """What the kernels of a run read from linear memory, and what of theirs is read there."""
    made = {t.uid for k in run for t in k.outputs}
    read = [t for k in run for t in map(root, k.inputs) if _is_home(t, out)]
    for k in block.kernels:  # none of the run's
        if out.memory(k) is LINEAR:
            read += [t for t in map(root, k.inputs) if t.uid in made]
    read += [t for t in map(root, block.outputs) if t.uid in made]
    return list({t.uid: t for t in read}.values())


def _is_home(t: Tensor, out: Placement) -> bool:
    """Whether a tensor is made in linear memory; constants are loaded wherever they are read."""
    if isinstance(t.kernel, Leaf):
        return t.kernel.kind in ("feed", "block")
    return t.kernel in out.provider and out.memory(t.kernel) is LINEAR


def operations(kernel: Kernel) -> float:
    """A rough count of what a kernel computes."""
    kernel = kernel.definition() if isinstance(kernel, Call) else kernel
    elements = sum(sh.estimate(sh.size(t.shape)) for t in kernel.outputs)
    if isinstance(kernel, Map):
        return elements * (1 + len(walk(kernel.expr)))
    if isinstance(kernel, Reduce):
        return elements * max(sh.estimate(sh.size(kernel.extents)), 1) * 2
    return 4.0 * (elements + sum(sh.estimate(sh.size(t.shape)) for t in kernel.inputs))


__all__ = ["Placement", "operations", "place"]
