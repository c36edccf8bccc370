"""Recomputation: a step of training computes activations again in its backward pass, where keeping them until then
would take more memory than the session may have (docs/design/training.md#recomputation)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from pyruntime.errors import OutOfMemory
from pyruntime.ir.copies import Copies, can_copy
from pyruntime.ir.kernel import Alias, Block, Kernel, Tensor, root
from pyruntime.passes.memory.lifetimes import Lifetimes, Peak, copy_of

# Costs are estimated again after this part of the choices. The limit only ends the search, so what an error says can be
# reached is reached.
AT_ONCE = 1 / 32
SMALL = 8  # an operand that is smaller than the value by this factor is kept for it


def recompute(block: Block, outputs: Sequence[Tensor], limit: int, scratch: int, on_gpu: bool) -> None:
    """Add copies of kernels, so that the block needs at most this many bytes. outputs: tensors that leave it; scratch:
    see `CodeWriter`; on_gpu: whether a GPU runs it, or most of it

    Errors: OutOfMemory tells what is needed, and what could be reached"""
    late = next((k for k in block.kernels if k.is_backward and not isinstance(k, Alias)), None)
    if late is None:
        return
    lives = Lifetimes(block.kernels, late, outputs, scratch, on_gpu)
    if lives.given().bytes > limit:
        again = _Search(lives, limit).found()
        block.kernels = _Writer(block.kernels, lives).written(again)


@dataclass(slots=True)
class _Choice:
    """values: that are computed again together; saved: bytes at the peak; cost: of their ops"""

    values: set[int]
    saved: int
    cost: float


class _Search:
    """Chooses the values that are computed again, cheapest first by the bytes that each saves at the peak."""

    def __init__(self, lives: Lifetimes, limit: int) -> None:
        self.lives, self.limit = lives, limit
        self.again: set[int] = set()
        late = [op for op in lives.ops[lives.late :] if not can_copy(op.kernel)]
        self.fixed = {v for op in late for v in op.reads}  # these kernels cannot read copies

    def found(self) -> set[int]:
        lives, refused = self.lives, set[int]()
        peak = lives.peak(())
        while peak.bytes > self.limit:
            choices = self._choices(peak, refused)
            if not choices:
                raise self._too_much(peak.bytes)
            count = ceil(len(choices) * AT_ONCE)
            while count:
                tried = self.again.union(*[c.values for c in choices[:count]])
                new = lives.peak(tried)
                if new.bytes <= peak.bytes:
                    self.again, peak = tried, new
                    break
                if count == 1:
                    refused |= choices[0].values
                count //= 2
        return self.again

    def _choices(self, peak: Peak, refused: set[int]) -> list[_Choice]:
        values = [v for v in peak.alive() if v >= 0 and v not in refused and self._may_copy(v)]
        choices = [self._choice(v, peak) for v in values]
        return sorted([c for c in choices if c.saved > 0], key=lambda c: c.cost / c.saved)

    def _may_copy(self, v: int) -> bool:
        """Whether v is an activation that a kernel can compute again."""
        lives = self.lives
        n = lives.maker.get(v, lives.late)
        return n < lives.late and v not in lives.kept and v not in self.fixed and lives.ops[n].may_move

    def _choice(self, v: int, peak: Peak) -> _Choice:
        """v, and what has to be computed again for it because it is not kept."""
        lives = self.lives
        found = _Choice({v}, lives.size(v), 0.0)
        todo = [v]
        while todo:
            op = lives.ops[lives.maker[todo.pop()]]
            found.cost += op.cost
            for x in op.reads:
                if x in found.values or x in lives.staying:
                    continue
                if x in self.again or not self._is_kept(x, peak):
                    if x not in self.again and (not self._may_copy(x) or lives.size(x) * SMALL <= lives.size(v)):
                        found.saved -= lives.size(x)  # it is kept longer
                        continue
                    found.values.add(x)
                    todo.append(x)
        return found

    def _is_kept(self, x: int, peak: Peak) -> bool:
        return x in self.lives.kept or peak.last.get(x, -1) > peak.at

    def _too_much(self, reached: int) -> OutOfMemory:
        needed = self.lives.given().bytes
        fixed = sum(map(self.lives.size, self.lives.staying))
        text = f"a step needs {needed} bytes, {fixed} of them for weights and moments, and memory is {self.limit}"
        hint = f"{reached} bytes would do, with what can be computed again; or use a smaller batch"
        return OutOfMemory(text, hint=hint)


class _Writer:
    """Writes the kernels in the order that a search found. Reshapes come before their first readers."""

    def __init__(self, kernels: Sequence[Kernel], lives: Lifetimes) -> None:
        self.lives = lives
        self.found: list[Kernel] = []
        self.copies = Copies({})
        self.reshapes = {k.outputs[0].uid: k for k in kernels if isinstance(k, Alias)}

    def written(self, again: set[int]) -> list[Kernel]:
        for run in self.lives.runs(again):
            kernel = self.lives.ops[run.op].kernel
            for t in kernel.inputs:
                self._reshape(t, copy_of(root(t).uid) in run.reads)
            if any(v < 0 for v in run.makes):
                kernel = self.copies.copy(kernel)
            elif any(v < 0 for v in run.reads):
                kernel = self.copies.rewired(kernel)
            self.found.append(kernel)
        return [*self.found, *self.reshapes.values()]

    def _reshape(self, t: Tensor, is_copy: bool) -> None:
        """Record the kernel of a reshaped tensor, or a copy of it, unless it is there."""
        if not isinstance(t.kernel, Alias) or (t.uid in self.copies.of if is_copy else t.uid not in self.reshapes):
            return
        self._reshape(t.kernel.base, is_copy)
        self.found.append(self.copies.copy(t.kernel) if is_copy else self.reshapes.pop(t.uid))
