"""Places weights that do not fit the first linear memory in further ones, at addresses that the compiler chooses
(docs/design/memory.md#weights-over-4-gib).

Results of runs, and everything that the executor itself reads, lie in the first memory. Further memories hold only
constants that kernels of the CPU alone read.
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
from pyruntime.runtime.arena import ALIGN, WHOLE

ROOM = 1 << 30  # bytes of the first memory that are left for runs; more if init repacks a larger weight
SMALL = 1 << 16  # bytes: smaller weights stay in the first memory, because their kernels would need variants
FIRST = 1 << 16  # the first address in a further memory: kernels may compute addresses before their operands
PADDING = 1 << 16  # bytes at the end of a further memory that kernels may read
LARGEST = WHOLE - FIRST - 2 * PADDING  # browsers allow a page less than 4 GiB


@runtime_checkable
class ManyMemories(Protocol):
    """A code writer whose kernels can read operands in further memories. further: numbers of memories by tensor's
    uid."""

    memories: bool
    further: dict[int, int]


class FurtherMemories:
    """places: number (from 1) of the memory and address, by uid; ends: bytes in use of each memory."""

    def __init__(self) -> None:
        self.places: dict[int, tuple[int, int]] = {}
        self.ends: list[int] = []

    def fill(self, candidates: Iterable[tuple[int, int]], room: int) -> None:
        """Move candidates (uid, bytes), the largest first, until the rest fit into `room`. So few kernels need
        variants."""
        left = sum(size for _, size in candidates)
        for uid, size in sorted(candidates, key=lambda c: -c[1]):
            if left <= room or size < SMALL:
                return
            if size <= LARGEST:
                self.places[uid] = self._place(size)
                left -= size

    def _place(self, size: int) -> tuple[int, int]:
        n = next((n for n, end in enumerate(self.ends) if end + size <= FIRST + LARGEST), len(self.ends))
        if n == len(self.ends):
            self.ends.append(FIRST)
        address = self.ends[n]
        self.ends[n] = -(-(address + size) // ALIGN) * ALIGN
        return n + 1, address

    @property
    def memories(self) -> list[int]:
        """Sizes of the further memories in bytes."""
        return [end + PADDING for end in self.ends]


def place_weights(
    init: Block, main: Block, residency: Residency, target: Target, elsewhere: set[int]
) -> FurtherMemories:
    """Choose the weights for further memories, and set the code writers' `further`. elsewhere: uids of tensors that
    must be in the first memory."""
    found = FurtherMemories()
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
    """By uid, bytes of constants and results of init that only kernels of these code writers read."""
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
