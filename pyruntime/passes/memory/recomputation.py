"""Recomputation: a step of training computes activations again in its backward pass, where keeping them until then
would take more memory than the session may have (docs/design/training.md#recomputation)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyruntime.errors import OutOfMemory
from pyruntime.ir.copies import Copies, can_copy
from pyruntime.ir.kernel import Block, Kernel, Tensor, root
from pyruntime.passes.memory.lifetimes import Lifetimes, Peak

BACKWARD = "gradient of "  # labels of the kernels of a backward pass begin with it
AT_ONCE = 4  # of the choices, this part is made before costs are estimated again
SMALL = 8  # an operand that is smaller than the value by this factor is kept for it


def recompute(block: Block, outputs: Sequence[Tensor], limit: int, scratch: int) -> None:
    """Add copies of kernels, so that the block needs at most this many bytes. outputs: tensors that leave it; scratch:
    see `CodeWriter`

    Errors: OutOfMemory tells what is needed, and what could be reached"""
    late = next((k for k in block.kernels if k.node.startswith(BACKWARD)), None)
    if late is None:
        return
    search = _Search(Lifetimes(block.kernels, late, outputs, scratch), limit)
    if again := search.found():
        block.kernels = _with_copies(block.kernels, late, again)


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
        first = peak = lives.peak(())
        while peak.bytes > self.limit:
            choices = self._choices(peak, refused)
            if not choices:
                raise self._too_much(first.bytes, peak.bytes)
            count = min(self._enough(choices, peak.bytes - self.limit), -(-len(choices) // AT_ONCE))
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

    @staticmethod
    def _enough(choices: Sequence[_Choice], excess: int) -> int:
        """How many choices save the excess together."""
        for n, choice in enumerate(choices):
            excess -= choice.saved
            if excess <= 0:
                return n + 1
        return len(choices)

    def _choices(self, peak: Peak, refused: set[int]) -> list[_Choice]:
        values = [v for v in peak.alive() if v >= 0 and v not in refused and self._may_copy(v)]
        choices = [self._choice(v, peak) for v in values]
        return sorted([c for c in choices if c.saved > 0], key=lambda c: c.cost / c.saved)

    def _may_copy(self, v: int) -> bool:
        """Whether v is an activation that a kernel can compute again."""
        lives = self.lives
        n = lives.maker.get(v, lives.late)
        if n >= lives.late or v in lives.kept or v in self.fixed:
            return False
        return can_copy(lives.ops[n].kernel) and not lives.ops[n].changes

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

    def _too_much(self, needed: int, reached: int) -> OutOfMemory:
        fixed = sum(map(self.lives.size, self.lives.staying))
        text = f"a step needs {needed} bytes, {fixed} of them for weights and moments, and memory is {self.limit}"
        hint = f"{reached} bytes would do, with what can be computed again; or use a smaller batch"
        return OutOfMemory(text, hint=hint)


def _with_copies(kernels: Sequence[Kernel], late: Kernel, again: set[int]) -> list[Kernel]:
    """The kernels, from `late` on with copies of those that make these values before their first reader."""
    place, copies = kernels.index(late), Copies({})
    found = list(kernels[:place])

    def use(t: Tensor) -> None:
        if root(t).uid in again and t.uid not in copies.of:
            for x in t.kernel.inputs:
                use(x)
            found.append(copies.copy(t.kernel))

    for kernel in kernels[place:]:
        for t in kernel.inputs:
            use(t)
        reads_copies = any(t.uid in copies.of for t in kernel.inputs)
        found.append(copies.rewired(kernel) if reads_copies else kernel)
    return found
