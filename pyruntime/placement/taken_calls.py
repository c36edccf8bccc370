"""Which provider takes a call of a routine. Providers are asked once, before passes change the call; the one that takes
it then answers their questions in place of the routine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyruntime.codegen.provider import Provider, Routine
from pyruntime.ir.blocks import is_constant
from pyruntime.ir.expr import index
from pyruntime.ir.kernel import Block, Call, Kernel, Map, Tensor, View
from pyruntime.ir.rewriting import take_over
from pyruntime.placement.open_providers import OpenProvider


@dataclass(slots=True)
class Answer:
    """The answers about one call.

    taker: the provider that takes it; None: that of the routine; why: by provider's name, why not that one; unpacked:
    by number, the tensors and views of operands that the taker has brought into a layout of its own
    """

    taker: Provider | None = None
    why: dict[str, str] = field(default_factory=dict)
    unpacked: dict[int, tuple[Tensor, View | None]] = field(default_factory=dict)

    def ask(self, providers: Sequence[Provider], call: Call) -> None:
        """Ask these providers in order. Calls of constants alone run once, on an engine's provider."""
        is_once = all(map(is_constant, call.inputs))
        for p in providers:
            self.why[p.name] = why = "it runs once" if is_once and isinstance(p, OpenProvider) else p.supports(call)
            if not why:
                self.taker = p
                return


Taken = dict[Call, Answer]


class SharedRoutine:
    """A routine of an engine's provider, with the session's providers before it and after it.

    A provider before it that supports a call takes the call: one on arrays as it is, one that writes code as its
    definition. Those after it are asked about calls that the routine does not claim."""

    def __init__(self, inner: Routine, before: Sequence[Provider], after: Sequence[Provider], taken: Taken) -> None:
        self._inner = inner
        self._before = before
        self._after = [p for p in after if isinstance(p, OpenProvider)]
        self._taken = taken

    def _answer(self, call: Call) -> Answer:
        if call not in self._taken:
            self._taken[call] = answer = Answer()
            answer.ask(self._before, call)
        return self._taken[call]

    def _taker(self, call: Call) -> OpenProvider | None:
        taker = self._answer(call).taker
        return taker if isinstance(taker, OpenProvider) else None

    def prepare(self, call: Call) -> list[Kernel]:
        answer = self._answer(call)
        if answer.taker is not None:
            return []
        made = self._inner.prepare(call)
        self._taken.update({k: answer for k in made if isinstance(k, Call)})
        return made

    def claims(self, call: Call) -> bool:
        answer = self._answer(call)
        if answer.taker is None:
            if self._inner.claims(call):
                return True
            answer.ask(self._after, call)
        return isinstance(answer.taker, OpenProvider)

    def taker(self, call: Call) -> str:
        taker = self._taker(call)
        return "" if taker is None else taker.name

    def reads(self, call: Call, operand: int, view: View) -> bool:
        """Only if the routine could run the call, too: it gets the call if the provider does not run it in the end,
        and the definition reads no views."""
        taker = self._taker(call)
        accepts = taker is None or self._inner.claims(call) and taker.reads(call, operand, view)
        return accepts and self._inner.reads(call, operand, view)

    def fuses(self, call: Call, out: Tensor, order: tuple[int, ...], epilogue: Any) -> bool:
        taker = self._taker(call)
        accepts = taker is None or taker.fuses(call, out, order, epilogue)
        return accepts and self._inner.fuses(call, out, order, epilogue)

    def packs(self, call: Call, operand: int) -> Kernel | None:
        taker = self._taker(call)
        if taker is None:
            return self._inner.packs(call, operand)
        packing = taker.packs(call, operand)
        if packing is not None:
            self._answer(call).unpacked[operand] = call.operand(operand), call.strided.get(operand)
        return packing

    def packs_in_runs(self, call: Call, operand: int) -> Kernel | None:
        return self._inner.packs_in_runs(call, operand) if self._taker(call) is None else None

    def returned(self, call: Call) -> list[Kernel]:
        """What the engine's providers run in place of a call that its taker does not run in the end."""
        for n, (operand, view) in self._answer(call).unpacked.items():
            call.args = (*call.args[:n], operand, *call.args[n + 1 :])
            call.packed -= {n}
            if view is not None:
                call.strided[n] = view
        return [call if self._inner.claims(call) else call.definition()]


class WholeNode(Routine):
    """The routine of whole nodes, which only their taker runs. It has no views and epilogues, because the kernels that
    may have to replace the call read its operands and make its results."""

    def __init__(self, taken: Taken) -> None:
        self._taken = taken

    def claims(self, call: Call) -> bool:
        return True

    def taker(self, call: Call) -> str:
        taker = self._taken[call].taker
        return "" if taker is None else taker.name

    def packs(self, call: Call, operand: int) -> Kernel | None:
        taker = self._taken[call].taker
        return taker.packs(call, operand) if isinstance(taker, OpenProvider) else None

    def returned(self, call: Call) -> list[Kernel]:
        """The kernels of the node, and copies of their results to those of the call."""
        assert isinstance(call.meaning, Block)
        kernels: list[Kernel] = []
        for k in call.meaning.kernels:
            kernels.append(k.definition() if isinstance(k, Call) else k)
            take_over(kernels[-1], k)
        for made, out in zip(call.meaning.outputs, call.outputs, strict=True):
            copy = Map(made.at(*[index(n) for n in range(made.rank)]))
            copy.replaces(call, (out,))
            out.kernel, out.index = copy, 0
            kernels.append(copy)
        call.outputs = kernels[-1].outputs
        return kernels
