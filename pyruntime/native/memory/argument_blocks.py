"""Argument blocks, which a step's kernels read: for each call addresses of its buffers, its parameters, its work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from pyruntime.errors import ShapeError
from pyruntime.program import types
from pyruntime.program.dims import distinct_dims

LARGEST = 2**31 - 1  # of parameters and work: kernels count in int32
Words = np.ndarray[tuple[int], np.dtype[np.int64]]


class ArgumentBlocks:
    """Those of one step. A decoder's step has thousands of words and writes them for each token, but few differ: each
    distinct number is evaluated once."""

    def __init__(self, calls: Sequence[types.Call]) -> None:
        self.calls = calls
        self._numbers, self._places = distinct_dims([d for c in calls for d in (*c["params"], c["work"])])
        self._buffers = list(dict.fromkeys([b for c in calls for b in c["buffers"]]))

    def words(self, addresses: Mapping[int, int], env: Mapping[str, int]) -> Words:
        """Errors: ShapeError for a number that does not fit int32."""
        numbers = self._numbers(env)
        for n, x in enumerate(numbers):
            if abs(x) > LARGEST:
                raise ShapeError(f"a kernel would need the number {x}, the largest is {LARGEST}", node=self._node(n))
        words: Words = np.array([*[addresses[b] for b in self._buffers], *numbers], np.int64)[self._order]
        return words

    def _node(self, number: int) -> str:
        """The first node with a call that has this number."""
        nodes = [c["node"] for c in self.calls for _ in (*c["params"], c["work"])]
        return nodes[self._places.index(number)]

    @cached_property
    def _order(self) -> Words:
        """For each word its index in the distinct addresses followed by the distinct numbers."""
        place = {b: n for n, b in enumerate(self._buffers)}
        order: list[int] = []
        numbers = iter(self._places)
        for call in self.calls:
            order += [place[b] for b in call["buffers"]]
            order += [len(place) + next(numbers) for _ in (*call["params"], call["work"])]
        return np.array(order, np.int64)


__all__ = ["ArgumentBlocks", "Words"]
