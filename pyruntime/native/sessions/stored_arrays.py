"""Stored tensors as NumPy arrays: of training sessions, and of adapters.

Twin of web/worker/models/merged_weights.js."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pyruntime.errors import InvalidInput
from pyruntime.runtime.adapter_places import matrix_shape
from pyruntime.training.adapters.adapter_file import Adapter
from pyruntime.training.adapters.adapter_inputs import AdapterInputs
from pyruntime.training.adapters.lora import Merge
from pyruntime.training.files.safetensors import Stored


class NumpyArrays:
    """NumPy's arrays for a training session (`Arrays` in pyruntime/training/session/core.py)."""

    def stored(self, name: str, x: Any) -> Stored:
        array = np.array(x)
        if array.dtype.kind not in "biuf":
            raise InvalidInput(f'"{name}" needs numbers, got {array.dtype}')
        return stored_of(array)

    def array(self, t: Stored) -> np.ndarray:
        return np.array(self.feed(t))

    def feed(self, t: Stored) -> np.ndarray:
        """In its own type; bfloat16, which NumPy lacks, in float32."""
        return array_of(t) if t.dtype == "bfloat16" else np.frombuffer(t.data, t.dtype).reshape(t.shape)

    def cast(self, t: Stored, dtype: str) -> Stored:
        return t if t.dtype == dtype else Stored(dtype, t.shape, from_float32(array_of(t), dtype))

    def times(self, t: Stored, factor: float) -> Stored:
        return stored_of(np.asarray(array_of(t) * np.float32(factor), np.float32))

    def is_finite(self, t: Stored) -> bool:
        return bool(np.isfinite(array_of(t)).all())

    def with_products(self, w: Stored, merges: Sequence[Merge], values: Mapping[str, Stored]) -> Stored:
        """Sums are in double precision."""
        total = np.asarray(array_of(w), np.float64)
        for m in merges:
            a, b = (x.reshape(matrix_shape(x.shape)) for x in (array_of(values[n]) for n in (m.a, m.b)))
            product = np.matmul(b, a, dtype=np.float64) * m.scale
            total = total + (product if m.is_transposed else product.T).reshape(w.shape)
            if m.magnitudes:
                rows = total.reshape(len(b), -1) if m.is_transposed else total.T
                lengths = np.maximum(np.linalg.norm(rows, axis=1), np.finfo(np.float32).tiny)
                rows = rows * (array_of(values[m.magnitudes]).ravel() / lengths)[:, None]
                total = (rows if m.is_transposed else rows.T).reshape(w.shape)
        return stored_of(total.astype("float64" if w.dtype == "float64" else "float32"))


NUMPY_ARRAYS = NumpyArrays()


def stored_of(x: np.ndarray) -> Stored:
    """Without a copy of contiguous numbers."""
    data = np.ascontiguousarray(x).data.cast("B") if x.size else b""
    return Stored(x.dtype.name, x.shape, data)


def array_of(t: Stored) -> np.ndarray:
    """The numbers of a tensor of an adapter; those of 16 bits in float32."""
    if t.dtype == "bfloat16":
        return (np.frombuffer(t.data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(t.shape)
    array = NUMPY_ARRAYS.feed(t)
    return array.astype(np.float32) if t.dtype == "float16" else array


def for_model(adapter: Adapter, inputs: AdapterInputs) -> Adapter:
    """The adapter with the names and shapes of the inputs that a model has for it; without such inputs unchanged."""
    fed = inputs.places(adapter, "it").fed
    if not fed:
        return adapter
    tensors = {}
    for one in fed:
        t = adapter.tensors[one.tensor]
        array = array_of(t).T if one.is_transposed else array_of(t)
        tensors[one.input] = stored_of(array if one.scale == 1.0 else array * np.float32(one.scale))
    return Adapter(tensors, {}, adapter.versions)


def from_float32(x: np.ndarray, dtype: str) -> bytes:
    """The bytes of an array in this type."""
    if dtype != "bfloat16":
        return np.ascontiguousarray(x, dtype).tobytes()
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FC0, rounded).astype(np.uint16).tobytes()
