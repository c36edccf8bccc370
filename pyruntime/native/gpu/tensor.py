"""A tensor that stays on the GPU between runs."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np

from pyruntime.errors import DeviceLost, ExecutionError, InvalidInput
from pyruntime.ir import dtype as dt
from pyruntime.native.memory.arrays import NUMPY, from_storage
from pyruntime.runtime.growth import ByteRanges, byte_ranges

BITS = 30  # of a number of rows in memory (passes/caches/growing_caches.py)
TYPES = {d.name for d in dt.ALL if d not in (dt.STRING, dt.F64)}  # element types that the GPU can store


counts = {"live": 0, "bytes": 0, "dropped": 0}  # dropped: collected without `dispose`


class GpuTensor:
    """`run` returns it for an output whose preferred location is "gpu-buffer", and accepts it as a feed. It belongs to
    the device: any session may take it, even after the session that made it is closed. `dispose` or garbage collection
    frees its memory. Errors: InvalidInput after `dispose`, DeviceLost with its device.

    KV caches share memory with capacity for more rows: the feed of a run and the output that appends rows to it. The
    memory is freed with the last of these tensors."""

    location = "gpu-buffer"

    def __init__(self, memory: Any, dtype: str, dims: tuple[int, ...], room: tuple[int, int] | None = None) -> None:
        """room: an axis, and the rows along it for which the memory has capacity; None if the tensor is dense."""
        self.dtype = dtype
        self.dims = dims
        self.replaced = False  # by an output of the current run
        self._room = room
        self._undo = 0  # rows at the end of the memory that keep overwritten rows of this tensor
        self._is_lost = False  # a run that failed may have overwritten its rows
        self._is_disposed = False
        counts["live"] += 1
        self._enter(memory)

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
        """Free its memory now, unless another tensor shares it. A second call does nothing."""
        if not self._is_disposed:
            self._is_disposed = True
            counts["live"] -= 1
            self._leave()

    def _enter(self, memory: Any) -> None:
        if not memory.tensors:
            counts["bytes"] += memory.bytes
        memory.tensors.append(weakref.ref(self))
        self._memory = memory

    def _leave(self) -> None:
        memory = self._memory
        memory.tensors = [ref for ref in memory.tensors if ref() not in (None, self)]
        if not memory.tensors:
            counts["bytes"] -= memory.bytes
            memory.release()

    def memory(self, device: Any = None) -> Any:
        """Return its memory to the provider; device: the device that will use it. Errors: as above, InvalidInput if it
        is on another device, ExecutionError if a run has overwritten its rows."""
        self.separate()
        return self._checked(device)

    def _checked(self, device: Any = None) -> Any:
        memory = self._memory
        if self._is_disposed:
            raise InvalidInput("this GPU tensor was disposed")
        if memory.device.lost:
            raise DeviceLost("this GPU tensor is gone with its device", hint="keep a copy with get_data()")
        if device is not None and device.lost:
            raise DeviceLost("the GPU device is lost")
        if device not in (None, memory.device):
            raise InvalidInput("this GPU tensor is on another device", hint="feed get_data()")
        if self._is_lost:
            hint = "get_data() before a run is fed it keeps it"
            raise ExecutionError("a run that failed may have written its new keys among those of this cache", hint=hint)
        if memory.appended:
            self._verify_appended()
        return memory

    def stored(self) -> np.ndarray[Any, Any]:
        """Its elements in the engine's storage layout."""
        if self._undo:
            return self._restored()
        found: np.ndarray[Any, Any] = self.memory().read(NUMPY[self.dtype], self.ranges())
        return found.reshape(self.dims)

    # ── memory with capacity for more rows ───────────────────────────────────────────────────────────────────────

    def capacity(self, axis: int) -> int:
        """Rows along an axis for which its memory has space; 0 if it has them along another axis."""
        if self._room is None:
            return self.dims[axis]
        return self._room[1] if self._room[0] == axis else 0

    def ranges(self) -> ByteRanges:
        """The bytes of its memory that it takes."""
        item = min(NUMPY[self.dtype].itemsize, 4)
        if self._room is None:
            size = self.size * item
            return ByteRanges(1, size, size, size)
        return byte_ranges(self.dims, *self._room, item)

    def sharing(self) -> list[GpuTensor]:
        """The tensors in its memory, with itself."""
        return [t for ref in self._memory.tensors if (t := ref()) is not None]

    @property
    def is_overwritten(self) -> bool:
        """Whether the end of its memory keeps rows of it."""
        return self._undo > 0

    def note_overwritten(self, undo: int) -> None:
        """A run overwrites rows, and keeps them in the memory's last `undo` rows (passes/caches/growing_caches.py)."""
        self._undo = undo

    def note_failure(self, may_have_run: bool) -> None:
        """That run has failed."""
        self._is_lost, self._undo = may_have_run, 0

    def separate(self) -> None:
        """Put a tensor with overwritten rows into memory of its own."""
        if self._undo:
            x, memory = self.stored(), self._memory
            self._leave()
            self._enter(type(memory)(memory.device, self.ranges().count * self.ranges().length))
            self._undo, self._room = 0, None
            self._memory.write(x, self.ranges())

    def _restored(self) -> np.ndarray[Any, Any]:
        assert self._room is not None
        axis, places = self._room
        dims = (*self.dims[:axis], places, *self.dims[axis + 1 :])
        item = min(NUMPY[self.dtype].itemsize, 4)
        whole = self._checked().read(NUMPY[self.dtype], byte_ranges(dims, *self._room, item))
        whole = whole.reshape(math.prod(dims[:axis]), places, math.prod(dims[axis + 1 :]))
        bits = -(-BITS // whole.shape[2])
        kept = whole[:, places - self._undo : places - bits]
        ends = whole[:, places - bits :].reshape(len(whole), -1)[:, :BITS] != 0
        found = np.array(whole[:, : self.dims[axis]])
        for line, end, old in zip(found, ends @ (1 << np.arange(BITS)), kept, strict=True):
            at = np.arange(end - len(old), end)
            is_own = (at >= 0) & (at < len(line))
            line[at[is_own]] = old[is_own]
        return found.reshape(self.dims)

    def note_appended(self, axis: int, rows: int) -> None:
        """A run writes new rows, which are assumed to come last. rows: after the run."""
        self._memory.appended = [n for n in self._memory.appended if n != (axis, rows)] + [(axis, rows)]

    def _verify_appended(self) -> None:
        """Rows that no run wrote are 0, so new rows came last if the last row is not 0. Programs rarely use a tensor
        again that they have fed, so runs do not wait for this check. Errors: ExecutionError"""
        later = [(axis, rows) for axis, rows in self._memory.appended if rows > self.dims[axis]]
        for axis, rows in later:
            dims = (*self.dims[:axis], rows, *self.dims[axis + 1 :])
            ranges = byte_ranges(dims, axis, self.capacity(axis), min(NUMPY[self.dtype].itemsize, 4))
            data = self._memory.read(NUMPY[self.dtype], ranges).reshape(dims)
            if not np.take(data, rows - 1, axis).reshape(math.prod(dims[:axis]), -1).any(-1).all():
                hint = "get_data() before a run is fed it keeps it; is seqlens_k less than total_sequence_length - 1?"
                raise ExecutionError("a run has written its new keys among those of this cache", hint=hint)
        self._memory.appended = [n for n in self._memory.appended if n not in later]

    def __del__(self) -> None:
        counts["dropped"] += not self._is_disposed
        self.dispose()

    def __repr__(self) -> str:
        return f"GpuTensor({self.dtype}, {list(self.dims)})"
