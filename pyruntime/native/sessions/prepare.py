"""Feeds of zeros for `session.prepare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pyruntime.ir import dtype as dt
from pyruntime.native.memory.arrays import NUMPY, from_storage
from pyruntime.onnx.graph import OptionalType, TensorType, Value
from pyruntime.runtime.prepared_shapes import PreparedInput, prepared_shapes


def zeros(inputs: Sequence[Value], dims: Mapping[str, Any]) -> dict[str, Any]:
    """A tensor of zeros for each input that a run needs. dims: sizes by the name of a dim, or of all dims by the name
    of an input. Errors: InvalidInput"""
    types = {v.name: v.type.elem if isinstance(v.type, OptionalType) else v.type for v in inputs}
    tensors = {name: kind for name, kind in types.items() if isinstance(kind, TensorType) and kind.dtype is not None}
    declared = [
        PreparedInput(
            v.name, getattr(types[v.name], "shape", None), v.name in tensors, not isinstance(v.type, OptionalType)
        )
        for v in inputs
    ]
    sizes = {name: list(x) if isinstance(x, tuple) else x for name, x in dims.items()}
    return {name: _zeros(tensors[name], shape) for name, shape in prepared_shapes(declared, sizes, repr).items()}


def _zeros(kind: TensorType, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    assert kind.dtype is not None
    if kind.dtype is dt.STRING:
        return np.full(shape, "", object)
    return from_storage(np.zeros(shape, NUMPY[kind.dtype.name]), kind.dtype)
