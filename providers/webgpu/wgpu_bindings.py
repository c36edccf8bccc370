"""Parameter blocks at dynamic offsets of one buffer, and cached bind groups: between the tokens of a decoder only the
numbers in the blocks change (docs/design/gpu.md#bind-group-cache).

web/gpu/bindings.js is its twin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import wgpu

SLOT = 256  # alignment of parameter blocks in bytes
LEAST = 1 << 16  # least bytes of the buffer of parameter blocks
MOST = 1 << 23  # a larger buffer is freed when plans are dropped
GROUPS = 1 << 14  # most cached bind groups

_USAGE = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


class Parameters:
    """Parameter blocks of a session, in one buffer. top: bytes in use; epoch: how often all blocks were dropped."""

    def __init__(self, host: Any) -> None:
        self.host = host
        self.buffer: Any = None
        self.top = 0
        self.epoch = 0

    def put(self, blocks: Sequence[bytes]) -> list[int]:
        """Write blocks. Returns their offsets."""
        data, offsets = bytearray(), []
        for block in blocks:
            offsets.append(self.top + len(data))
            data += block.ljust(-(-len(block) // SLOT) * SLOT, b"\0")
        if data:
            self._reserve(self.top + len(data))
            self.host.own.write((self.buffer, self.top), bytes(data))
            self.top += len(data)
        return offsets

    def _reserve(self, size: int) -> None:
        """Grow to `size` bytes, and keep the blocks."""
        old = self.buffer
        if old is not None and old.size >= size:
            return
        enough = max(size, LEAST, 0 if old is None else 2 * old.size)
        new = self.host.own.checked("parameters", lambda: self.host.device.create_buffer(size=enough, usage=_USAGE))
        if old is not None:
            self.host.copy([((old, 0), (new, 0), old.size)])
            self.host.flush()
            old.destroy()
        self.buffer = new
        self.host.generation += 1

    def forget(self) -> None:
        """The planner has dropped its plans, and all work that uses blocks is submitted."""
        self.top = 0
        self.epoch += 1
        if self.buffer is not None and self.buffer.size > MOST:
            self.close()

    def close(self) -> None:
        if self.buffer is not None:
            self.buffer.destroy()
        self.buffer, self.top = None, 0
        self.host.generation += 1


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
