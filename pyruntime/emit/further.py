"""Weights that do not fit one linear memory lie in further ones, at addresses of the compiler
(docs/design/memory.md#weights-over-4-gib).

What a run makes, and all that an executor itself looks at, is in the first. In the others is only what stays for the
session and what kernels of the CPU alone read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from pyruntime.codegen.provider import LINEAR
from pyruntime.emit.residency import Residency
from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import all_kernels, compute_kernels, own_inputs
from pyruntime.ir.dtype import STRING
from pyruntime.ir.kernel import Block, Host, If, Leaf, Loop, Read, Tensor, root
from pyruntime.placement.target import Target
from pyruntime.program.footprint import ALIGN, WHOLE

ROOM = 1 << 30  # of the first, for what runs make; more where init brings a larger weight into another layout
SMALL = 1 << 16  # bytes: less is not worth a kernel of its own
FIRST = 1 << 16  # the first address in a further memory: kernels may count from in front of their operands
BEHIND = 1 << 16  # bytes at its end, which kernels may read
MOST = WHOLE - FIRST - 2 * BEHIND  # browsers give a page less than all


@runtime_checkable
class ManyMemories(Protocol):
    """A code writer whose kernels may find operands elsewhere. further: memories of tensors, by uid."""

    memories: bool
    further: dict[int, int]


class Further:
    """places: memory (from 1) and address of what lies in further ones, by uid; ends: bytes of each."""

    def __init__(self) -> None:
        self.places: dict[int, tuple[int, int]] = {}
        self.ends: list[int] = []

    def fill(self, candidates: Iterable[tuple[int, int]], room: int) -> None:
        """The largest go (uid, bytes), until the others fit into `room`. Few kinds of kernels have others then."""
        left = sum(size for _, size in candidates)
        for uid, size in sorted(candidates, key=lambda c: -c[1]):
            if left <= room or size < SMALL:
                return
            if size <= MOST:
                self.places[uid] = self._place(size)
                left -= size

    def _place(self, size: int) -> tuple[int, int]:
        n = next((n for n, end in enumerate(self.ends) if end + size <= FIRST + MOST), len(self.ends))
        if n == len(self.ends):
            self.ends.append(FIRST)
        address = self.ends[n]
        self.ends[n] = -(-(address + size) // ALIGN) * ALIGN
        return n + 1, address

    @property
    def memories(self) -> list[int]:
        """The bytes of each further memory."""
        return [end + BEHIND for end in self.ends]


def choose(init: Block, main: Block, residency: Residency, target: Target, elsewhere: set[int]) -> Further:
    """What goes to further memories, told to the code writers; elsewhere: uids of what must be in the first one."""
    found = Further()
    writers = [w for w in target.writers.values() if isinstance(w, ManyMemories) and w.memories]
    if not writers:
        return found
    weights = _weights(init, main, residency, target)
    inner = [t for k in all_kernels(main) for b in k.blocks for t in b.outputs]
    looked_at = [t for b in (init, main) for k in all_kernels(b) if isinstance(k, _STEPS) for t in own_inputs(k)]
    fixed = elsewhere | {root(t).uid for t in (*inner, *looked_at)}
    candidates = {uid: size for uid, size in weights.items() if uid not in fixed}
    raw = [_bytes(root(t)) for k in init.kernels for t in k.inputs if isinstance(root(t).kernel, Leaf)]
    found.fill(list(candidates.items()), WHOLE - max(ROOM, 5 * max(raw, default=0) // 4))
    for writer in writers:
        writer.further.update({uid: memory for uid, (memory, _) in found.places.items()})
    return found


_STEPS = (Read, Host, If, Loop)


def _weights(init: Block, main: Block, residency: Residency, target: Target) -> dict[int, int]:
    """Bytes of constants, and of what init makes of them, that kernels of these writers read and nobody else."""
    made = {t.uid for k in compute_kernels(init) for t in k.outputs}
    sizes: dict[int, int] = {}
    others: set[int] = set()
    for kernel in compute_kernels(main):
        able = isinstance(target.writers.get(target.provider(kernel).name), ManyMemories)
        for t in map(root, kernel.inputs):
            if t.uid not in made and not (isinstance(t.kernel, Leaf) and t.kernel.kind in ("weight", "constant")):
                continue
            if able and residency.where(kernel) is LINEAR and t.dtype is not STRING:
                sizes[t.uid] = _bytes(t)
            else:
                others.add(t.uid)
    return {uid: size for uid, size in sizes.items() if uid not in others}


def _bytes(t: Tensor) -> int:
    count = sh.size(t.shape)
    return count * t.dtype.size if isinstance(count, int) else 0


__all__ = ["Further", "choose"]
