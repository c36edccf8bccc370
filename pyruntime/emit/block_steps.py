"""A block's kernels in order → its steps: runs of one provider's kernels become segments, with copies between memories
before whoever reads there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyruntime.codegen.provider import LINEAR, Memory
from pyruntime.emit.control_steps import ControlSteps
from pyruntime.emit.lifetimes import Step
from pyruntime.emit.segments import Segments
from pyruntime.ir.blocks import own_inputs
from pyruntime.ir.kernel import Alias, Host, If, Kernel, Loop, Read, Tensor

LONGEST = 1000  # kernels of a segment: planning its memory takes time and memory by the square of their number


class BlockSteps:
    """The steps of one block. prefix: of its segments' names; readers: how many kernels read a tensor, by uid."""

    def __init__(self, segments: Segments, control: ControlSteps, prefix: str, readers: Counter[int]) -> None:
        self.segments = segments
        self.control = control
        self.residency = segments.residency
        self.prefix = prefix
        self.readers = readers
        self.steps: list[Step] = []
        self.pending: list[Kernel] = []  # of one provider: the segment that is not written yet

    def add(self, kernel: Kernel) -> None:
        if isinstance(kernel, Alias):
            return
        if isinstance(kernel, (Read, Host, If, Loop)):
            self.flush()
            self.copy_missing(own_inputs(kernel), LINEAR)
            self.steps.append(self.control.step(kernel))
            self.residency.made_at(kernel.outputs, LINEAR)
            return
        provider = self.segments.target.provider
        if self.pending and (provider(kernel) is not provider(self.pending[0]) or len(self.pending) == LONGEST):
            self.flush()
        where = self.residency.where(kernel)
        self.copy_missing(own_inputs(kernel), where)  # never made by a pending kernel: those are of the same provider
        self.pending.append(kernel)
        self.residency.made_at(kernel.outputs, where)

    def flush(self) -> None:
        """Write the segment of the pending kernels."""
        if self.pending:
            name = f"{self.prefix}_{len(self.steps)}"
            self.steps.append(self.segments.step(name, self.pending, self._private()))
            self.pending = []

    def copy_missing(self, tensors: Sequence[Tensor], where: Memory) -> None:
        """Copy to a memory those of the tensors that are not there."""
        missing = self.residency.missing(tensors, where)
        if missing:
            copies = [self.residency.add_copy(t, where) for t in missing]
            tensor = self.segments.buffers.tensor
            pairs = [[tensor(t), tensor(copy)] for t, copy in zip(missing, copies, strict=True)]
            self.steps.append(Step({"op": "copy", "to": where.name, "pairs": pairs}, [*missing, *copies], copies))

    def _private(self) -> set[int]:
        """What a pending kernel makes for one other of them, and nobody else."""
        read = {t.uid for k in self.pending for t in k.inputs}
        made = {t.uid for k in self.pending for t in k.outputs}
        return {uid for uid in made & read if self.readers[uid] == 1}


__all__ = ["BlockSteps"]
