"""Assigns kernels to providers.

Every kernel first goes to the first provider of the session's list that supports it. Then kernels that do not pay on
that provider move to the first provider in linear memory that supports them: kernels whose values the executor must
read before it can go on (reads, conditions, host functions), and islands of kernels whose work is small against the
bytes that are copied for them. If the session names no provider in linear memory, no kernels move; the last provider of
the list runs kernels that no other provider supports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pyruntime.codegen.provider import LINEAR, Memory, Provider, memory_of
from pyruntime.errors import our_fault
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Alias, Block, Call, Host, If, Kernel, Leaf, Loop, Loops, Read, Tensor, root
from pyruntime.placement.open_providers import OpenProvider
from pyruntime.placement.operations import operations
from pyruntime.placement.parts import runs_of
from pyruntime.placement.taken_calls import Taken

SMALL = 4096  # elements: up to this size, tensors that only the executor reads are computed in linear memory


@dataclass
class Placement:
    """taken: the answers of providers about calls, from before passes changed these; provider: of each kernel; reasons:
    why a kernel is not on the session's first provider."""

    providers: Sequence[Provider]
    taken: Taken = field(default_factory=dict)
    provider: dict[Kernel, Provider] = field(default_factory=dict)
    reasons: dict[Kernel, str] = field(default_factory=dict)

    def memory(self, kernel: Kernel) -> Memory:
        """The memory in which a kernel works; linear memory for kernels without a provider."""
        found = self.provider.get(kernel)
        return LINEAR if found is None else memory_of(found)

    def first(self, kernel: Kernel, providers: Sequence[Provider]) -> tuple[Provider, str]:
        """The first of these providers that supports the kernel, else the last; and why it is not the session's
        first."""
        why = ""
        for p in providers:
            if not (reason := self._against(p, kernel)):
                return p, why
            why = why or reason
        return providers[-1], why

    def _against(self, p: Provider, kernel: Kernel) -> str:
        """The reason why a provider does not run a kernel, or ""."""
        if not isinstance(p, OpenProvider):
            with our_fault(f'provider "{p.name}"', kernel.node):
                return p.supports(kernel)
        if isinstance(kernel, Loops) and kernel.bases:
            return "it changes a tensor in place"
        if isinstance(kernel, Call) and kernel in self.taken:
            answer = self.taken[kernel]
            return "" if answer.taker is p else answer.why.get(p.name, "a provider before it has taken the call")
        return p.supports(kernel)

    def move(self, kernels: Sequence[Kernel], providers: Sequence[Provider], why: str) -> None:
        """Move kernels, and not the reshapes between them, to the first of these providers that supports each."""
        for k in kernels:
            if k in self.provider:
                self.provider[k] = self.first(k, providers)[0]
                self.reasons.setdefault(k, why)

    def move_to_linear_memory(self, kernel: Kernel) -> None:
        self.provider[kernel] = self.first(kernel, [p for p in self.providers if memory_of(p) is LINEAR])[0]


def place(block: Block, providers: Sequence[Provider], requested: int, taken: Taken) -> Placement:
    """Assign the kernels of a block and its inner blocks. requested: the number of providers that the session names, at
    the start of the list; the others run kernels that these do not support. The last one works in linear memory."""
    out = Placement(providers, taken)
    _assign(block, out)
    if any(memory_of(p) is LINEAR for p in providers[:requested]):
        _move_values_of_executor(block, out)
        _move_islands(block, out)
    for n, p in enumerate(providers):
        if isinstance(p, OpenProvider) and p.takes_parts:
            for run in [*runs(block, out, p)]:
                is_whole = any(isinstance(k, Call) and isinstance(k.meaning, Block) for k in run)
                if not is_whole and (why := p.too_costly(run)):  # whole nodes stay where they are
                    out.move(run, providers[n + 1 :], why)
    return out


def runs(block: Block, placement: Placement, provider: OpenProvider) -> Iterator[list[Kernel]]:
    """The kernels of a provider, as far as it runs them as one."""
    return runs_of(block, lambda k: placement.provider.get(k) is provider, provider.takes_parts)


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


# ── values that the executor reads ───────────────────────────────────────────────────────────────────────────────────


def _move_values_of_executor(block: Block, out: Placement) -> None:
    """Compute small values that only reads, conditions and host functions need in linear memory."""
    needed_elsewhere = {root(t).uid for t in block.outputs}
    for kernel in reversed(block.kernels):
        for inner in kernel.blocks:
            _move_values_of_executor(inner, out)
        if not _computes(kernel):
            continue
        small = all(sh.estimate(sh.size(t.shape)) <= SMALL for t in (*kernel.outputs, *kernel.inputs))
        if small and needed_elsewhere.isdisjoint(t.uid for t in kernel.outputs) and _is_for_executor(kernel, block):
            if out.memory(kernel) is not LINEAR:
                out.move_to_linear_memory(kernel)
                out.reasons.setdefault(kernel, "the run cannot continue without its value")
        else:
            needed_elsewhere |= {root(t).uid for t in kernel.inputs}


def _is_for_executor(kernel: Kernel, block: Block) -> bool:
    made = {t.uid for t in kernel.outputs}
    return any(
        isinstance(k, (Read, Host, If, Loop)) and any(root(t).uid in made for t in k.inputs) for k in block.kernels
    )


# ── islands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _move_islands(block: Block, out: Placement) -> None:
    """Move consecutive kernels of another memory to linear memory if their work does not pay for the copies."""
    for kernel in block.kernels:
        for inner in kernel.blocks:
            _move_islands(inner, out)
    run: list[Kernel] = []
    memory = LINEAR
    for k in block.kernels:
        if isinstance(k, (Alias, Leaf)):
            continue
        here = out.memory(k)
        if here is not memory:
            _move_unless_worth(run, block, memory, out)
            run, memory = [], here
        run.append(k)
    _move_unless_worth(run, block, memory, out)


def _move_unless_worth(run: Sequence[Kernel], block: Block, memory: Memory, out: Placement) -> None:
    if memory is LINEAR:
        return
    size = sum(sh.estimate(sh.size(t.shape)) * t.dtype.size for t in _copied(run, block, out))
    work = sum(operations(k) for k in run)
    if work < memory.copy_cost + memory.byte_cost * size:
        for k in run:
            out.move_to_linear_memory(k)
            out.reasons[k] = f"{work:.0f} operations are too few to pay for copying {size} bytes"


def _copied(run: Sequence[Kernel], block: Block, out: Placement) -> list[Tensor]:
    """The tensors that consecutive kernels read from linear memory, and their results that are read in linear
    memory."""
    made = {t.uid for k in run for t in k.outputs}
    read = [t for k in run for t in map(root, k.inputs) if _is_in_linear_memory(t, out)]
    for k in block.kernels:  # kernels outside of these
        if out.memory(k) is LINEAR:
            read += [t for t in map(root, k.inputs) if t.uid in made]
    read += [t for t in map(root, block.outputs) if t.uid in made]
    return list({t.uid: t for t in read}.values())


def _is_in_linear_memory(t: Tensor, out: Placement) -> bool:
    """Whether a kernel makes a tensor in linear memory. Constants do not count: they are loaded wherever they are
    read."""
    if isinstance(t.kernel, Leaf):
        return t.kernel.kind in ("feed", "block")
    return t.kernel in out.provider and out.memory(t.kernel) is LINEAR
