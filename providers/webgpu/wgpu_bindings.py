"""What dispatches bind: parameter blocks at dynamic offsets of one buffer, and cached bind groups. Between the tokens
of a decoder only the numbers in the blocks change (docs/design/gpu.md#bind-group-cache).
Twin of web/gpu/bindings.js."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import wgpu

from .wgpu_device import TensorMemory

SLOT = 256  # alignment of parameter blocks in bytes
LEAST = 1 << 16  # least bytes of the buffer of parameter blocks
MOST = 1 << 23  # a larger buffer is freed when plans are dropped
GROUPS = 1 << 14  # most cached bind groups

_USAGE = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST


class Parameters:
    """Parameter blocks of a session, in one buffer. top: bytes in use; epoch: how often all blocks were dropped.

    Blocks are written into a copy in the process's memory. A submission first uploads what has changed, in one
    write."""

    def __init__(self, host: Any) -> None:
        self.host = host
        self.buffer: Any = None
        self.top = 0
        self.epoch = 0
        self._bytes = bytearray()
        self._changed = (0, 0)  # the range of bytes that the next submission uploads

    def reserve(self, size: int) -> int:
        """The offset of `size` more bytes."""
        offset = self.top
        self.top += size
        if self.buffer is None or self.buffer.size < self.top:
            self._grow(max(self.top, LEAST, 2 * len(self._bytes)))
        return offset

    def write(self, offset: int, data: bytes | bytearray) -> None:
        """Commands that are not submitted yet must not use these bytes."""
        self._bytes[offset : offset + len(data)] = data
        first, end = self._changed
        self._changed = (min(first, offset), max(end, offset + len(data))) if end else (offset, offset + len(data))

    def upload(self) -> None:
        """Before a submission."""
        first, end = self._changed
        if end:
            self._changed = (0, 0)
            self.host.own.write((self.buffer, first), bytes(memoryview(self._bytes)[first:end]))

    def _grow(self, size: int) -> None:
        self.host.flush()
        new = self.host.own.checked("parameters", lambda: self.host.device.create_buffer(size=size, usage=_USAGE))
        if self.buffer is not None:
            self.buffer.destroy()
        self._changed = (0, len(self._bytes))
        self._bytes.extend(bytes(size - len(self._bytes)))
        self.buffer = new
        self.host.generation += 1

    def forget(self) -> None:
        """The planner has dropped its plans, and all work that uses blocks is submitted."""
        self.top, self._changed = 0, (0, 0)
        self.epoch += 1
        if self.buffer is not None and self.buffer.size > MOST:
            self.close()

    def close(self) -> None:
        if self.buffer is not None:
            self.buffer.destroy()
        self.buffer, self.top, self._changed = None, 0, (0, 0)
        self._bytes = bytearray()
        self.epoch += 1
        self.host.generation += 1


class Region:
    """Parameter blocks of one step. offset: in the buffer; size: in bytes; step: whose blocks it has; submission:
    number of the last submission that uses them."""

    __slots__ = ("offset", "size", "step", "submission")

    def __init__(self, offset: int, size: int) -> None:
        self.offset, self.size = offset, size
        self.step: Any = None
        self.submission = -1


class LayoutBindings:
    """What the dispatches of a step bind in one layout: for each call the addresses and bytes of its buffers and its
    bind group, and regions for parameter blocks. Steps of many shapes share a layout, and only rewrite their blocks.

    starts: offset of each call's block in a region; size: bytes of these blocks"""

    def __init__(self, calls: Sequence[dict[str, Any]], sizes: list[list[int]], words: Sequence[int]) -> None:
        self.calls = calls
        self.sizes = sizes
        self.addresses: list[Sequence[int]] = []
        self.starts: list[int] = []
        self.size = at = 0
        for call in calls:
            count, params = len(call["buffers"]), len(call["params"]) + 1
            self.addresses.append(words[at : at + count])
            at += count + params
            self.starts.append(self.size)
            self.size += self.block(call)
        self.groups: list[Any] = [None] * len(calls)
        self.generation = self.epoch = -1
        self.own: list[Sequence[int]] = [()] * len(calls)  # numbers of the tensors' memories that each group binds
        self.has_own = False
        self.changes = 0  # how often a group was replaced
        self.regions: list[Region] = []

    @staticmethod
    def block(call: dict[str, Any]) -> int:
        """Bytes of a call's parameter block."""
        return -(-4 * (len(call["params"]) + 1) // SLOT) * SLOT

    def differs(self, n: int, own: Sequence[TensorMemory | None]) -> bool:
        """Whether group n binds other memories of tensors."""
        return self.own[n] != _numbers(own)

    def bind(self, n: int, own: Sequence[TensorMemory | None], group: Any) -> None:
        """Set group n."""
        self.groups[n] = group
        self.changes += 1
        self.own[n] = _numbers(own)
        self.has_own = self.has_own or bool(self.own[n])

    def release(self) -> None:
        """Drop the groups that bind memories of tensors, so that these are freed with their tensors."""
        for n, numbers in enumerate(self.own):
            if numbers:
                self.groups[n], self.own[n] = None, ()
        self.has_own = False

    def region(self, step: Any, parameters: Parameters, submission: int) -> Region:
        """The region with the blocks of a step. submission: number of the next one, whose commands may use others."""
        if self.epoch != parameters.epoch:
            self.regions, self.epoch = [], parameters.epoch
        free = None
        for region in self.regions:
            if region.step is step:
                break
            if region.submission != submission and region.size >= step.size:
                free = region
        else:
            if free is None:
                free = Region(parameters.reserve(step.size), step.size)
                self.regions.append(free)
            region = free
            region.step = step
            parameters.write(region.offset, step.blocks())
        region.submission = submission
        return region


def _numbers(own: Sequence[TensorMemory | None]) -> Sequence[int]:
    return [memory.number if memory else 0 for memory in own] if any(own) else ()


class BindGroups:
    """A cache of a session's bind groups, for one generation of its memory."""

    def __init__(self) -> None:
        self._cache: dict[Any, Any] = {}
        self._generation = -1

    def get(self, generation: int, key: Any, make: Callable[[], Any]) -> Any:
        """The bind group of this key, from `make` the first time."""
        if generation != self._generation or len(self._cache) > GROUPS:
            self._cache.clear()
            self._generation = generation
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = make()
        return found
