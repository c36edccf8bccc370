"""Buffers with guard bytes in a host's memory, for testing kernels."""

from functools import partial

import numpy as np

GUARD = 64
FILL = 0xA5


def parallel(host, jobs):
    """Run job t on thread t; raises the first error."""
    for error in filter(None, host.errors(jobs)):
        raise error


def share(host, kernel, args, units):
    """A call in two halves: on two threads at once where the host has them, else one after the other."""
    halves = [partial(kernel.calls[t % host.threads], args, t * units // 2, (t + 1) * units // 2, t) for t in (0, 1)]
    if host.threads == 2:
        parallel(host, halves)
    else:
        for half in halves:
            half()


class Arena:
    """`put` places arrays with guards around them; `check` fails if a guard changed. All memory outside the arrays is
    NaN-like rubbish, so that a kernel that uses what it read past a buffer gives itself away."""

    def __init__(self, host, size=1 << 20):
        host.grow(size)
        self.memory = host.memory
        self.memory[:] = FILL
        self.memory.view(np.float32)[1024:] = np.nan
        self.top = 4096
        self.guards = []

    def put(self, array):
        array = np.ascontiguousarray(array)
        start = -(-(self.top + GUARD) // 64) * 64
        end = start + array.nbytes
        assert end + GUARD < len(self.memory)
        self.memory[start:end] = array.view(np.uint8).reshape(-1)
        self.guards += [(start - GUARD, start), (end, end + GUARD)]
        self.top = end + GUARD
        self.before = {g: self.memory[slice(*g)].copy() for g in self.guards}
        return start

    def get(self, address, shape):
        n = int(np.prod(shape)) * 4
        return self.memory[address : address + n].view(np.float32).reshape(shape).copy()

    def arguments(self, *words):
        self.memory[256 : 256 + 4 * len(words)] = np.array(words, np.int64).astype(np.uint32).view(np.uint8)
        return 256

    def check(self):
        for g, before in self.before.items():
            assert np.array_equal(self.memory[slice(*g)], before), f"wrote outside a buffer at {g}"
