"""Linear memory, as planners use it: its limit, and argument blocks in it. Twin of web/run/memory.js."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.errors import OutOfMemory
from pyruntime.native.memory.argument_blocks import ArgumentBlocks, Words
from pyruntime.native.memory.budgets import growth
from pyruntime.program import types
from pyruntime.runtime.arena import WHOLE

MARGIN = 64  # bytes behind the last buffer that kernels may read


class LinearMemory:
    """host: the memory itself; further: bytes of further memories; limit: bytes of all of them together."""

    def __init__(self, host: Any, further: int, limit: int) -> None:
        self.host = host
        self.further = further
        self.restrict(limit)

    def restrict(self, limit: int) -> None:
        """Limit the bytes from now on. Errors: OutOfMemory if the further memories are larger."""
        if limit < WHOLE and limit < self.further:
            text = f"{self.further} bytes of memory are needed for weights, memory_limit is {limit}"
            raise OutOfMemory(text, hint="raise memory_limit")
        self.limit = limit
        self._own = limit if limit >= WHOLE else limit - self.further

    def ensure(self, end: int) -> None:
        if end > self._own:
            hint = "raise memory_limit or use smaller inputs"
            raise OutOfMemory(f"{end} bytes of memory are needed, memory_limit is {self._own}", hint=hint)
        more = end + MARGIN - len(self.host.memory)
        if more > 0:
            with growth("linear", more):
                self.host.grow(end + MARGIN)

    def blocks(self, calls: list[types.Call]) -> ArgumentBlocks:
        return ArgumentBlocks(calls)

    def write_words(self, address: int, words: Words) -> None:
        self.host.memory[address : address + 4 * len(words)] = words.astype(np.int32).view(np.uint8)
