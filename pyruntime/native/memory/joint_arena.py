"""Linear memory and GPU memory, planned together: addresses from GPU on are bytes of the GPU's arena."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from pyruntime.native.memory.arena import Arena, ArenaState, Stats
from pyruntime.native.memory.step_layout import LiveRange

GPU = 1 << 40
GPU_ALIGN = 256  # of bind group offsets


class JointState(NamedTuple):
    linear: ArenaState
    gpu: ArenaState


class JointArena:
    """base, limit: of linear memory; chunk: size of a GPU buffer."""

    def __init__(self, base: int, limit: int, chunk: int = 0) -> None:
        self.linear = Arena(base, limit)
        self.gpu = Arena(GPU, GPU, chunk)  # the device reports when it is full

    def alloc(self, size: int, on_gpu: bool = False) -> int:
        return self.gpu.alloc(_gpu_rounded(size)) if on_gpu else self.linear.alloc(size)

    def free(self, address: int) -> None:
        (self.gpu if address >= GPU else self.linear).free(address)

    def lay_out(self, ranges: Iterable[LiveRange], calls: int) -> None:
        linear: list[LiveRange] = []
        gpu: list[LiveRange] = []
        for r in ranges:
            (gpu if r.on_gpu or r.address >= GPU else linear).append(r)
        for r in gpu:
            r.size = _gpu_rounded(r.size)
        self.linear.lay_out(linear, calls)
        self.gpu.lay_out(gpu, calls)

    def make_permanent(self) -> None:
        self.linear.make_permanent()
        self.gpu.make_permanent()

    def by_provider(self, gpu: bool) -> dict[str, Stats]:
        return {"wasm": self.linear.stats(), "webgpu": self.gpu.stats()} if gpu else {"wasm": self.linear.stats()}

    def snapshot(self) -> JointState:
        return JointState(self.linear.snapshot(), self.gpu.snapshot())

    def content(self) -> Hashable:
        """See `Arena.content`."""
        return self.linear.content(), self.gpu.content()

    def restore(self, state: JointState) -> None:
        self.linear.restore(state.linear)
        self.gpu.restore(state.gpu)


def _gpu_rounded(size: int) -> int:
    return max(-(-size // GPU_ALIGN) * GPU_ALIGN, GPU_ALIGN)


__all__ = ["GPU", "GPU_ALIGN", "JointArena", "JointState"]
