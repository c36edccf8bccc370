"""Turns the kernels of a block into steps: consecutive kernels of one provider become a segment, and copy steps move
tensors to another memory before a kernel reads them there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyruntime.codegen.provider import LINEAR, Memory
from pyruntime.emit.control_steps import ControlSteps
from pyruntime.emit.lifetimes import Step
from pyruntime.emit.segments import Segments
from pyruntime.ir.blocks import own_inputs
from pyruntime.ir.kernel import Alias, Host, If, Kernel, Loop, Loops, Read, Tensor, updates_state

LONGEST = 1000  # kernels of a segment: planning takes time and memory proportional to the square of their number


class BlockSteps:
    """The steps of one block. prefix: start of its segments' names; readers: number of readers of a tensor, by uid."""

    def __init__(self, segments: Segments, control: ControlSteps, prefix: str, readers: Counter[int]) -> None:
        self.segments = segments
        self.control = control
        self.residency = segments.residency
        self.prefix = prefix
        self.readers = readers
        self.steps: list[Step] = []
        self.pending: list[Kernel] = []  # kernels of one provider, not yet written as a segment

    def add(self, kernel: Kernel) -> None:
        if isinstance(kernel, Alias):
            return
        if isinstance(kernel, (Read, Host, If, Loop)):
            self.flush()
            self.copy_missing(own_inputs(kernel), LINEAR)
            self.steps.append(self.control.step(kernel))
            self.residency.mark_made(kernel.outputs, LINEAR)
            return
        provider = self.segments.target.provider
        if self.pending and (
            provider(kernel) is not provider(self.pending[0]) or len(self.pending) == LONGEST
            or updates_state(kernel) and not updates_state(self.pending[-1])
        ):  # fmt: skip
            self.flush()
        where = self.residency.where(kernel)
        # no pending kernel makes a missing tensor, because all pending kernels work in this kernel's memory
        changed = kernel.bases if isinstance(kernel, Loops) else ()
        self.copy_missing([*own_inputs(kernel), *changed], where)
        self.pending.append(kernel)
        self.residency.mark_made(kernel.outputs, where)
        for t in changed:
            self.residency.mark_updated(t, where)

    def flush(self) -> None:
        """Write the pending kernels as a segment."""
        if self.pending:
            name = f"{self.prefix}_{len(self.steps)}"
            self.steps.append(self.segments.step(name, self.pending, self._private()))
            self.pending = []

    def copy_missing(self, tensors: Sequence[Tensor], where: Memory) -> None:
        """Copy tensors to a memory, unless they are there already."""
        missing = self.residency.missing(tensors, where)
        if missing:
            copies = [self.residency.add_copy(t, where) for t in missing]
            tensor = self.segments.buffers.tensor
            pairs = [[tensor(t), tensor(copy)] for t, copy in zip(missing, copies, strict=True)]
            self.steps.append(Step({"op": "copy", "to": where.name, "pairs": pairs}, [*missing, *copies], copies))

    def _private(self) -> set[int]:
        """Uids of tensors that a pending kernel makes and only one other pending kernel reads, maybe as a reshape."""
        made = {t.uid for k in self.pending for t in k.outputs}
        private = set()
        for t in (t for k in self.pending for t in k.inputs):
            while self.readers[t.uid] == 1:
                if t.uid in made:
                    private.add(t.uid)
                if not isinstance(t.kernel, Alias):
                    break
                t = t.kernel.base
        return private
