"""The target of a compilation: providers in order, their routines, and their code writers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pyruntime.codegen.provider import LINEAR, CodeProvider, CodeWriter, Memory, Provider, RowLimits, memory_of
from pyruntime.ir.kernel import Block, Call, Kernel, Tensor
from pyruntime.ir.rewriting import rewrite_kernels
from pyruntime.placement.open_providers import OpenProvider, part_of
from pyruntime.placement.own_memory import keep_on_devices
from pyruntime.placement.parts import join
from pyruntime.placement.placement import Placement, place, runs
from pyruntime.placement.taken_calls import Answer, SharedRoutine, Taken, WholeNode


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
        self.products = all(w.products for w in writers.values())
        self.routines: dict[str, Any] = {}
        self.taken: Taken = {}
        for n, p in enumerate(providers):
            for name, routine in writers[p.name].routines.items() if p.name in writers else ():
                if name not in self.routines:
                    self.routines[name] = SharedRoutine(routine, providers[:n], providers[n + 1 :], self.taken)

    @property
    def takes_node(self) -> Callable[[Call], bool] | None:
        """Whether a provider runs the call of a whole node. None if no provider takes whole nodes; those after one that
        writes code get none."""
        asked: list[OpenProvider] = []
        for p in self.providers:
            if not isinstance(p, OpenProvider):
                break
            asked += [p] if p.takes_nodes else []
        return partial(self._take_node, asked) if asked else None

    def _take_node(self, asked: Sequence[OpenProvider], call: Call) -> bool:
        taker = next((p for p in asked if p.supports_node(call)), None)
        if taker is not None:
            self.taken[call] = Answer(taker)
            self.routines.setdefault(call.routine, WholeNode(self.taken))
        return taker is not None

    def place(self, init: Block, main: Block, outputs: Sequence[Tensor]) -> None:
        """Assign the Program's kernels to providers. Those of a provider on arrays become Host kernels. outputs: of the
        Program"""
        if len(self.providers) == 1:
            return
        self.placement = place(main, self.providers, self.requested, self.taken)
        once = {t.uid for k in init.kernels for t in k.outputs}
        for p in self.providers:
            if isinstance(p, OpenProvider):
                join(main, [*runs(main, self.placement, p)], outputs, partial(self._step, p, once))
        self._return_calls(init, main)
        if any(isinstance(p, OpenProvider) and p.has_memory for p in self.providers):
            keep_on_devices(main, outputs)

    def _step(
        self, provider: OpenProvider, once: set[int], kernels: Sequence[Kernel], outputs: Sequence[Tensor]
    ) -> Kernel:
        step = provider.step(part_of(kernels, outputs, once))
        self._took_over(step, *kernels)
        return step

    def _took_over(self, new: Kernel, *kernels: Kernel) -> None:
        """A kernel has taken the place of others, which are not on the first provider for the same reasons."""
        for k in kernels:
            if k in self.placement.reasons:
                self.placement.reasons.setdefault(new, self.placement.reasons[k])

    def _return_calls(self, init: Block, main: Block) -> None:
        """Return calls that a provider on arrays was to take, and does not run in the end, to the engine's."""

        def returned(kernel: Kernel) -> Sequence[Kernel] | None:
            if not isinstance(kernel, Call) or kernel not in self.taken:
                return None
            if not isinstance(self.taken[kernel].taker, OpenProvider):
                return None
            made: Sequence[Kernel] = self.routines[kernel.routine].returned(kernel)
            for new in made:
                if kernel in self.placement.provider:
                    self.placement.provider[new] = self.placement.provider[kernel]
                self._took_over(new, kernel)
            return made

        if any(isinstance(answer.taker, OpenProvider) for answer in self.taken.values()):
            rewrite_kernels(init, returned)
            rewrite_kernels(main, returned)

    def provider(self, kernel: Kernel) -> CodeProvider:
        """The provider that writes the kernel's code."""
        found: Any = self.placement.provider.get(kernel, self.providers[-1])
        return found

    def memory(self, kernel: Kernel) -> Memory:
        return self.placement.memory(kernel)

    @property
    def places(self) -> dict[str, str]:
        """The names of the providers that write code, by the kind of their steps."""
        written: list[Any] = [p for p in self.providers if p.name in self.writers]
        return {p.op: p.name for p in written}

    @property
    def memories(self) -> list[Memory]:
        """The memories besides linear memory."""
        found = [memory_of(p) for p in self.providers]
        return [m for m in dict.fromkeys(found) if m is not LINEAR]


class CpuOnly(Target):
    """Runs all kernels on the last provider, but optimises them as for the other providers: `verify` compares the same
    kernels on both."""

    def place(self, init: Block, main: Block, outputs: Sequence[Tensor]) -> None:
        self._return_calls(init, main)
