"""The target of a compilation: providers in order, their routines, and their code writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.codegen.provider import (
    LINEAR,
    CodeProvider,
    CodeWriter,
    HostProvider,
    Memory,
    Provider,
    Routine,
    RowLimits,
    memory_of,
)
from pyruntime.errors import our_fault
from pyruntime.ir.kernel import Block, Call, Kernel, Tensor, View
from pyruntime.ir.rewriting import rewrite_kernels
from pyruntime.placement.placement import Placement, place


class Target:
    """providers: in order of preference; the last one works in linear memory
    writers: the code writers by provider's name
    requested: the number of providers that the session names, at the start; the others run kernels that these do not
    support `place` must be called before the first segment.
    """

    def __init__(self, providers: Sequence[Provider], writers: Mapping[str, CodeWriter], requested: int) -> None:
        self.providers = providers
        self.writers = writers
        self.requested = requested
        self.placement = Placement(providers)
        self.rows = RowLimits(*[min(limits) for limits in zip(*[w.rows for w in writers.values()], strict=True)])
        self.scratch = max(w.scratch for w in writers.values())
        self.routines: dict[str, Any] = {}
        for n, p in enumerate(providers):
            for name, routine in writers[p.name].routines.items() if p.name in writers else ():
                self.routines.setdefault(name, _Claimed(routine, providers[:n]))

    def place(self, main: Block) -> None:
        """Assign the Program's kernels to providers. Kernels of a provider in Python become Host kernels."""
        if len(self.providers) == 1:
            return
        self.placement = place(main, self.providers, self.requested)
        rewrite_kernels(main, self._step)

    def _step(self, kernel: Kernel) -> Kernel | None:
        provider = self.placement.provider.get(kernel)
        if not isinstance(provider, HostProvider):
            return None
        with our_fault(f'provider "{provider.name}"', kernel.node):
            step = provider.step(kernel)
        step.provider = provider.name
        if kernel in self.placement.reasons:
            self.placement.reasons[step] = self.placement.reasons[kernel]
        return step

    def provider(self, kernel: Kernel) -> CodeProvider:
        """The provider that writes the kernel's code."""
        found: Any = self.placement.provider.get(kernel, self.providers[-1])
        return found

    def memory(self, kernel: Kernel) -> Memory:
        return self.placement.memory(kernel)

    @property
    def memories(self) -> list[Memory]:
        """The memories besides linear memory."""
        found = [memory_of(p) for p in self.providers]
        return [m for m in dict.fromkeys(found) if m is not LINEAR]


class CpuOnly(Target):
    """Runs all kernels on the last provider, but optimises them as for the other providers: `verify` compares the same
    kernels on both."""

    def place(self, main: Block) -> None:
        pass


class _Claimed:
    """A routine of a provider, restricted to calls that no provider before it supports."""

    def __init__(self, inner: Routine, before: Sequence[Provider]) -> None:
        self.inner = inner
        self.before = before

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

    def packs_in_runs(self, call: Call, operand: int) -> Kernel | None:
        return self.inner.packs_in_runs(call, operand)
