"""Linear memory, as planners use it: its limit, and argument blocks in it."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from pyruntime.native.memory.argument_blocks import ArgumentBlocks, Words
from pyruntime.native.memory.budgets import growth
from pyruntime.program import types
from pyruntime.runtime.arena import MARGIN, WHOLE, check_size


class LinearMemory:
    """host: the memory itself; further: bytes of further memories; limit: bytes of all of them together."""

    def __init__(self, host: Any, further: int, limit: int) -> None:
        self.host = host
        self.further = further
        self.restrict(limit)

    def restrict(self, limit: int) -> None:
        """Limit the bytes from now on. Errors: OutOfMemory if the further memories are larger."""
        self.limit = limit
        self._check(0)

    def _check(self, size: int) -> None:
        check_size(size, self.further, self.limit if self.limit < WHOLE else inf, "memory_limit")

    def ensure(self, end: int) -> None:
        self._check(end + MARGIN)
        more = end + MARGIN - len(self.host.memory)
        if more > 0:
            with growth("linear", more):
                self.host.grow(end + MARGIN)

    def blocks(self, calls: list[types.Call]) -> ArgumentBlocks:
        return ArgumentBlocks(calls)

    def write_words(self, address: int, words: Words) -> None:
        self.host.memory[address : address + 4 * len(words)] = words.astype(np.int32).view(np.uint8)
