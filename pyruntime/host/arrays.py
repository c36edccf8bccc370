"""Arrays of the parts of providers in Python (`ArrayProvider`) where the executor is JavaScript. Python cannot see the
memory of the session there, so they are copies, which the executor fills and reads (web/run/python_parts.js)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

from pyruntime.ir.dtype import DType
from pyruntime.ir.kernel import root
from pyruntime.ir.storage import code_of
from pyruntime.ir.symbol import Symbol


class CopiedArrays:
    """Those of one plan. part: a `CompiledPart` (placement/open_providers.py); shapes: of its inputs and outputs;
    own_memory: an `OwnMemory` (placement/own_memory.py), for its values that stay in its provider's own memory"""

    def __init__(
        self, part: Any, shapes: Sequence[Sequence[int]], symbols: Mapping[Symbol, int], own_memory: Any
    ) -> None:  # fmt: skip
        self._data: list[bytearray] = []
        arrays = []
        for t, shape in zip([*part.part.inputs, *part.part.outputs], map(tuple, shapes), strict=True):
            is_kept = root(t).uid in part.kept
            self._data.append(bytearray(0 if is_kept else math.prod(shape) * t.dtype.size))
            arrays.append(None if is_kept else array(self._data[-1], shape, t.dtype))
        count = len(part.part.inputs)
        self._job = own_memory.bind(part, arrays[:count], arrays[count:], symbols)

    def buffer(self, n: int) -> bytearray:
        """The bytes of an array: of an input, or after these of an output."""
        return self._data[n]

    def run(self) -> None:
        self._job()


def array(data: bytearray, shape: tuple[int, ...], dtype: DType) -> Any:
    """Elements as an array of NumPy if it is installed, else as a memoryview of this shape, or of one axis if it is
    empty."""
    if _has_numpy():
        import numpy

        return numpy.frombuffer(data, code_of(dtype)).reshape(shape)
    view: Any = memoryview(data)
    return view.cast(code_of(dtype), shape) if data else view.cast(code_of(dtype))


@cache
def _has_numpy() -> bool:
    return find_spec("numpy") is not None
