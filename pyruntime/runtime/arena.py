"""The best-fit allocator of linear memory and of GPU memory. Addresses and sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.errors import MemoryFault, OutOfMemory

WHOLE = 1 << 32  # bytes that addresses of a linear memory reach
LARGEST = WHOLE - (1 << 16)  # bytes of a linear memory, at most
MARGIN = 64  # bytes behind the last buffer of a linear memory that kernels may read
GPU = 1 << 40  # addresses from here on are bytes of the GPU's memory
ALIGN = 64  # a cache line; SIMD and GPU copies need less
GPU_ALIGN = 256  # of bind group offsets


@dataclass(eq=False, slots=True)
class Span:
    """Memory of a buffer. size: rounded by the arena; memory: number of the further memory that it is in, or 0."""

    address: int
    size: int
    memory: int = 0


class Arena:
    """Allocates from `base` on, and merges free neighbours. It is cheap to copy, so that plans can start from any point
    of a run. chunk: size of the GPU's buffers, whose borders no allocation crosses; 0 for linear memory.

    free: (address, size), sorted; end: all memory from here on is free. weights: bytes that stay for the session; used:
    bytes in use; peak: most bytes in use at once; requested: bytes of all buffers, also of those that took over memory;
    top: the highest address that was used."""

    def __init__(self, base: int, chunk: int = 0) -> None:
        self.base = base
        self.chunk = chunk
        self.free: list[tuple[int, int]] = []
        self.end = base
        self.top = base
        self.weights = 0
        self.used = 0
        self.peak = 0
        self.requested = 0

    def copy(self) -> Arena:
        copy = Arena(self.base, self.chunk)
        copy.free = [*self.free]
        copy.end = self.end
        copy.top = self.top
        copy.weights = self.weights
        copy.used = self.used
        copy.peak = self.peak
        copy.requested = self.requested
        return copy

    def round(self, size: int) -> int:
        """The bytes to allocate for `size`. Errors: OutOfMemory if no buffer of the GPU is that large."""
        if 0 < self.chunk < size:
            raise OutOfMemory(f"a tensor needs {size} bytes, the largest buffer of the GPU has {self.chunk}")
        unit = GPU_ALIGN if self.chunk > 0 else ALIGN
        return -(-max(size, 1) // unit) * unit

    def alloc(self, size: int) -> Span:
        """The smallest free range of at least this size, else memory at the end."""
        rounded = self.round(size)
        best = -1
        for n, (_, available) in enumerate(self.free):
            if available >= rounded and (best < 0 or available < self.free[best][1]):
                best = n
        address = self._extend(rounded) if best < 0 else self._take(best, rounded)
        self.used += rounded
        self.requested += rounded
        self.peak = max(self.peak, self.used)
        return Span(address, rounded)

    def _take(self, n: int, size: int) -> int:
        address, available = self.free[n]
        if available == size:
            self.free.pop(n)
        else:
            self.free[n] = (address + size, available - size)
        return address

    def _extend(self, size: int) -> int:
        address = self.skip_border(self.end, size)
        if address > self.end:
            self.free.append((self.end, address - self.end))
        self.end = address + size
        self.top = max(self.top, self.end)
        return address

    def skip_border(self, address: int, size: int) -> int:
        """The first address from this one on at which `size` bytes fit into one buffer of the GPU."""
        if self.chunk == 0:
            return address
        left = self.chunk - (address - self.base) % self.chunk
        return address + left if size > left else address

    def _is_border(self, address: int) -> bool:
        return self.chunk > 0 and (address - self.base) % self.chunk == 0

    def release(self, span: Span) -> None:
        """Free memory. Errors: MemoryFault if it is not in use."""
        address = span.address
        size = span.size
        n = 0
        while n < len(self.free) and self.free[n][0] < address:
            n += 1
        before = self.free[n - 1][0] + self.free[n - 1][1] if n > 0 else self.base
        after = self.free[n][0] if n < len(self.free) else self.end
        if before > address or address + size > after:
            raise MemoryFault(f"memory at {address} is released, but not in use")
        self.used -= size
        if n < len(self.free) and after == address + size and not self._is_border(after):
            size += self.free[n][1]
            self.free.pop(n)
        if n > 0 and before == address and not self._is_border(address):
            n -= 1
            address = self.free[n][0]
            size += self.free[n][1]
            self.free.pop(n)
        if address + size == self.end:
            self.end = address
        else:
            self.free.insert(n, (address, size))

    def rebuild(self, occupied: list[tuple[int, int]]) -> None:
        """Compute the free list from the spans in use, each an address and the address behind it."""
        self.free = []
        at = self.base
        for start, end in sorted(occupied, key=lambda span: span[0]):
            while at < start:
                stop = start if self.chunk == 0 else min(start, at + self.chunk - (at - self.base) % self.chunk)
                self.free.append((at, stop - at))
                at = stop
            at = end
        self.end = at

    def in_use(self) -> list[tuple[int, int]]:
        """The spans in use, each an address and the address behind it. Neighbours are one span."""
        return spans_between(self.free, self.base, self.end)

    def make_permanent(self) -> None:
        """What is in use counts as weights from now on."""
        self.weights = self.used
        self.peak = self.used
        self.requested = 0
        self.top = self.end

    def content(self) -> str:
        """Equal for arenas that differ in figures only."""
        return f"{self.end}:{','.join([f'{address}+{size}' for address, size in self.free])}"


def spans_between(free: list[tuple[int, int]], base: int, end: int) -> list[tuple[int, int]]:
    """The range from base to end without the free (address, size); neighbours are one span. Errors: MemoryFault if free
    ranges overlap, or one is not below `end`."""
    spans: list[tuple[int, int]] = []
    at = base
    for address, size in [*sorted(free, key=lambda span: span[0]), (end, 0)]:
        if address < at:
            raise MemoryFault(f"memory at {address} is released, but not in use")
        if address > at:
            spans.append((at, address))
        at = address + size
    return spans


def check_size(size: int, further: int, limit: float, option: str) -> None:
    """Errors: OutOfMemory if a linear memory of this size, with further ones, exceeds the session's limit, which is the
    value of an option, or what WebAssembly has. All are in bytes"""
    if size > min(limit - further, LARGEST):
        reason = f"{option} is {int(limit)}" if limit - further < LARGEST else f"WebAssembly has {LARGEST + further}"
        text = f"{size + further} bytes of memory are needed, {reason}"
        raise OutOfMemory(text, hint=f"raise {option} or use smaller inputs")
