"""Argument blocks, which a step's kernels read: for each call addresses of its buffers, its parameters, its work.
Twin of web/run/argument_blocks.js."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pyruntime.errors import ShapeError
from pyruntime.program import types
from pyruntime.program.dims import Env, distinct_dims

LARGEST = 2**31 - 1  # of parameters and work: kernels count in int32
Words = np.ndarray[tuple[int], np.dtype[np.int64]]


class ArgumentBlocks:
    """Those of one step. A decoder's step has thousands of words and writes them for each token, but few differ: each
    distinct number is evaluated once. length: words."""

    def __init__(self, calls: Sequence[types.Call]) -> None:
        self._calls = calls
        self._numbers, self._places = distinct_dims([d for c in calls for d in (*c["params"], c["work"])])
        self._buffers: list[int] = []  # of each address
        addresses: list[int] = []  # positions of addresses, and of numbers
        numbers: list[int] = []
        at = 0
        for call in calls:
            middle = at + len(call["buffers"])
            end = middle + len(call["params"]) + 1
            self._buffers += call["buffers"]
            addresses += range(at, middle)
            numbers += range(middle, end)
            at = end
        self.length = at
        self._address_positions = np.array(addresses, np.int64)
        self._number_positions = np.array(numbers, np.int64)
        self._order = np.array(self._places, np.int64)

    def with_addresses(self, address: Callable[[int], int]) -> Words:
        words: Words = np.zeros(self.length, np.int64)
        found = {b: address(b) for b in dict.fromkeys(self._buffers)}
        words[self._address_positions] = [found[b] for b in self._buffers]
        return words

    def fill(self, words: Words, env: Env) -> Words:
        """Errors: ShapeError for a number that does not fit int32."""
        numbers = self._numbers(env)
        for n, x in enumerate(numbers):
            if abs(x) > LARGEST:
                raise ShapeError(f"a kernel would need the number {x}, the largest is {LARGEST}", node=self._node(n))
        words = words.copy()
        words[self._number_positions] = np.array(numbers, np.int64)[self._order]
        return words

    def _node(self, number: int) -> str:
        """The first node with a call that has this number."""
        nodes = [c["node"] for c in self._calls for _ in (*c["params"], c["work"])]
        return nodes[self._places.index(number)]
