"""Linear memory and the GPU's, planned as one: addresses from GPU on are bytes of the GPU's arena."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from pyruntime.errors import OutOfMemory
from pyruntime.native.memory.arena import Arena, Stats
from pyruntime.native.memory.step_layout import Tenant

GPU = 1 << 40
GPU_ALIGN = 256  # of bind group offsets


class Memories(Arena):
    """The arena of linear memory, with that of the GPU beside it, over buffers of `chunk` bytes."""

    def __init__(self, base: int, limit: int, chunk: int = 0) -> None:
        super().__init__(base, limit)
        self.gpu = Arena(GPU, GPU, chunk)  # the device tells when it is full

    def _over(self, end: int) -> OutOfMemory:
        """In bytes of linear memory, as the session's limit is: what lies below the arena counts."""
        hint = "raise memory_limit or use smaller inputs"
        return OutOfMemory(f"{end} bytes of memory are needed, memory_limit is {self.base + self.limit}", hint=hint)

    def alloc_gpu(self, size: int) -> int:
        """An address (from GPU on) whose offset is aligned for bindings."""
        return self.gpu.alloc(max(-(-size // GPU_ALIGN) * GPU_ALIGN, GPU_ALIGN))

    def free(self, address: int) -> None:
        if address >= GPU:
            self.gpu.free(address)
        else:
            super().free(address)

    def lay_out(self, those: Iterable[Tenant], calls: int) -> None:
        remote = [t for t in those if t.away or t.address >= GPU]
        for t in remote:
            t.size = max(-(-t.size // GPU_ALIGN) * GPU_ALIGN, GPU_ALIGN)
        super().lay_out([t for t in those if not t.away and t.address < GPU], calls)
        self.gpu.lay_out(remote, calls)

    def make_permanent(self) -> None:
        super().make_permanent()
        self.gpu.make_permanent()

    def by_provider(self, gpu: bool) -> dict[str, Stats]:
        return {"wasm": self.stats(), "webgpu": self.gpu.stats()} if gpu else {"wasm": self.stats()}

    def snapshot(self) -> Any:
        return super().snapshot(), self.gpu.snapshot()

    def content(self) -> Hashable:
        return super().content(), self.gpu.content()

    def restore(self, state: Any) -> None:
        super().restore(state[0])
        self.gpu.restore(state[1])


__all__ = ["GPU", "GPU_ALIGN", "Memories"]
