"""Feeds of zeros for `session.prepare`. Twin of web/session/prepare.js."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pyruntime.errors import InvalidInput
from pyruntime.ir import dtype as dt
from pyruntime.native.memory.arrays import NUMPY, from_storage
from pyruntime.onnx.graph import OptionalType, TensorType, Value
from pyruntime.runtime.prepared_shapes import prepared_shape


def zeros(inputs: Sequence[Value], dims: Mapping[str, Any]) -> dict[str, Any]:
    """A tensor of zeros for each input that a run needs. dims: sizes by the name of a dim, or of all dims by the name
    of an input. Errors: InvalidInput"""
    _check(inputs, dims)
    sizes = {name: size for name, size in dims.items() if isinstance(size, int)}
    needed = [v for v in inputs if v.name in dims and v.name not in sizes or not isinstance(v.type, OptionalType)]
    return {v.name: _zeros(v, sizes, dims.get(v.name) if v.name not in sizes else None) for v in needed}


def _check(inputs: Sequence[Value], dims: Mapping[str, Any]) -> None:
    shapes = [v.type.shape for v in inputs if isinstance(v.type, TensorType) and v.type.shape is not None]
    named = list(dict.fromkeys(d for shape in shapes for d in shape if isinstance(d, str)))
    for name, size in dims.items():
        is_list = isinstance(size, (list, tuple)) and all(map(_is_size, size))
        if not (is_list and any(v.name == name for v in inputs) or _is_size(size) and name in named):
            hint = f"sizes by name of a dim ({', '.join(named)}), or lists by name of an input"
            raise InvalidInput(f'dims cannot have "{name}": {size!r}', hint=hint)


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 0


def _zeros(value: Value, sizes: Mapping[str, int], own: Sequence[int] | None) -> np.ndarray[Any, Any]:
    kind = value.type.elem if isinstance(value.type, OptionalType) else value.type
    if not isinstance(kind, TensorType) or kind.dtype is None or (kind.shape is None and own is None):
        text = f'input "{value.name}" is no tensor of a known type and rank, so its memory cannot be prepared'
        raise InvalidInput(text)
    declared: Sequence[Any] = list(own or ()) if kind.shape is None else kind.shape
    shape = prepared_shape(value.name, declared, sizes, own)
    if kind.dtype is dt.STRING:
        return np.full(shape, "", object)
    return from_storage(np.zeros(shape, NUMPY[kind.dtype.name]), kind.dtype)
