"""Runs parts of providers on arrays (`ArrayProvider`) in pages. Python does not see the memory of the session there, so
arrays are copies."""

from __future__ import annotations

import math
from functools import cache
from importlib.util import find_spec
from typing import Any

from pyruntime.host.table import ARRAYS, host_function
from pyruntime.ir.dtype import DType
from pyruntime.ir.reference import Array
from pyruntime.ir.storage import code_of, encode
from pyruntime.onnx.weight_values import decode


@host_function(ARRAYS)
def run(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    """attrs: the "part"; the executor adds "shapes" (of the outputs, as ints) and "symbols" (their values)."""
    compiled = attrs["part"]
    inputs = [
        array(bytearray(encode(given[1], t.dtype)), given[0], t.dtype)
        for given, t in zip(args, compiled.part.inputs, strict=True)
        if given is not None
    ]
    outputs = [
        (bytearray(math.prod(shape) * t.dtype.size), shape, t.dtype)
        for shape, t in zip(attrs["shapes"], compiled.part.outputs, strict=True)
    ]
    compiled.bind(inputs, [array(*made) for made in outputs], attrs["symbols"])()
    return [(shape, decode(bytes(data), dtype)) for data, shape, dtype in outputs]


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
