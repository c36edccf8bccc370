"""What a session compiles for: providers in order, whose routines the passes ask, and their code writers."""

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
    """providers: in order of preference, the last in linear memory; writers: the code writers, by provider's name;
    asked: the session asked for so many of the providers, the others take what these cannot. `place` must be called
    before the first segment."""

    def __init__(self, providers: Sequence[Provider], writers: Mapping[str, CodeWriter], asked: int) -> None:
        self.providers = providers
        self.writers = writers
        self.asked = asked
        self.placement = Placement(providers)
        self.rows = RowLimits(*[min(limits) for limits in zip(*[w.rows for w in writers.values()], strict=True)])
        self.routines: dict[str, Any] = {}
        for n, p in enumerate(providers):
            for name, routine in writers[p.name].routines.items() if p.name in writers else ():
                self.routines.setdefault(name, _Claimed(routine, providers[:n]))

    def place(self, main: Block) -> None:
        """Assign the kernels of the program; those of a provider in Python become its steps."""
        if len(self.providers) == 1:
            return
        self.placement = place(main, self.providers, self.asked)
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
        """What writes the kernel's code."""
        found: Any = self.placement.provider.get(kernel, self.providers[-1])
        return found

    def memory(self, kernel: Kernel) -> Memory:
        return self.placement.memory(kernel)

    @property
    def memories(self) -> list[Memory]:
        """Those besides linear memory."""
        found = [memory_of(p) for p in self.providers]
        return [m for m in dict.fromkeys(found) if m is not LINEAR]


class AtHome(Target):
    """Compiles the very kernels that another target would have placed, all of them by the last provider: what `verify`
    compares with."""

    def place(self, main: Block) -> None:
        pass


class _Claimed:
    """A routine of a provider, for the calls that none of the providers before it supports."""

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


__all__ = ["AtHome", "Target"]
