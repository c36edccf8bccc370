"""A tensor that stays on the GPU between runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyruntime.errors import DeviceLost, InvalidInput
from pyruntime.ir import dtype as dt
from pyruntime.native.memory.arrays import NUMPY, from_storage

TYPES = {d.name for d in dt.ALL if d not in (dt.STRING, dt.F64)}  # element types that the GPU can store


counts = {"live": 0, "bytes": 0, "dropped": 0}  # dropped: collected without `dispose`


class GpuTensor:
    """`run` returns it for an output whose preferred location is "gpu-buffer", and accepts it as a feed. It belongs to
    the device: any session may take it, even after the session that made it is closed. `dispose` or garbage collection
    frees its memory. Errors: InvalidInput after `dispose`, DeviceLost with its device."""

    location = "gpu-buffer"

    def __init__(self, memory: Any, dtype: str, dims: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.dims = dims
        self._memory = memory
        counts["live"] += 1
        counts["bytes"] += memory.bytes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dims

    @property
    def ndim(self) -> int:
        return len(self.dims)

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    def get_data(self) -> np.ndarray[Any, Any]:
        """A copy as an array; waits for the work that makes it."""
        return from_storage(self.stored(), dt.BY_NAME[self.dtype])

    def dispose(self) -> None:
        """Free its memory now. A second call does nothing."""
        if self._memory.buffer is not None:
            counts["live"] -= 1
            counts["bytes"] -= self._memory.bytes
            self._memory.release()

    def memory(self, device: Any = None) -> Any:
        """Return its memory to the provider; device: the device that will use it. Errors: as above, InvalidInput if it
        is on another device."""
        memory = self._memory
        if memory.buffer is None:
            raise InvalidInput("this GPU tensor was disposed")
        if memory.device.lost:
            raise DeviceLost("this GPU tensor is gone with its device", hint="keep a copy with get_data()")
        if device not in (None, memory.device):
            raise InvalidInput("this GPU tensor is on another device", hint="feed get_data()")
        return memory

    def stored(self) -> np.ndarray[Any, Any]:
        """Its elements in the engine's storage layout."""
        found: np.ndarray[Any, Any] = self.memory().read(NUMPY[self.dtype], self.size)
        return found.reshape(self.dims)

    def __del__(self) -> None:
        counts["dropped"] += self._memory.buffer is not None
        self.dispose()

    def __repr__(self) -> str:
        return f"GpuTensor({self.dtype}, {list(self.dims)})"
