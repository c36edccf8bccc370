"""Values of adapters as arrays: products that are added to weights, and files.
Twin of web/worker/models/merged_weights.js."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pyruntime.ir.dtype import BF16
from pyruntime.onnx.graph import Weight
from pyruntime.training.adapters.adapter_file import Adapter, adapter_files
from pyruntime.training.adapters.adapter_inputs import AdapterInputs
from pyruntime.training.files.safetensors import Stored
from pyruntime.training.graph.training_graph import Training


def initial(w: Weight) -> np.ndarray:
    """The numbers of a weight of the model."""
    if w.dtype is BF16:
        return (np.frombuffer(w.read(), np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(w.shape)
    return np.frombuffer(w.read(), w.dtype.name).reshape(w.shape)


def merged(training: Training, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """These weights, and those of the model with the products of adapters added. Sums are in double precision."""
    found = dict(values)
    for name, merges in training.merges.items():
        w = values[name] if name in values else initial(training.base.weights[name])
        total = np.asarray(w, np.float64)
        for m in merges:
            product = np.matmul(values[m.b], values[m.a], dtype=np.float64) * m.scale
            total = total + (product if m.is_transposed else product.T)
        found[name] = total.astype(np.float64 if w.dtype == np.float64 else np.float32)
    return found


def files_of(path: Path, adapter: Adapter) -> dict[Path, bytes]:
    """The files to write: one by its ending, or those of a folder as PEFT has it, which is made."""
    return adapter_files(path, adapter, _times)


def _times(t: Stored, factor: float) -> Stored:
    return Stored("float32", t.shape, array_of(t) * np.float32(factor))


def array_of(t: Stored) -> np.ndarray:
    """The numbers of a tensor of an adapter; those of 16 bits in float32."""
    if t.dtype == "bfloat16":
        return (np.frombuffer(t.data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(t.shape)
    array = np.frombuffer(t.data, t.dtype).reshape(t.shape)
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
        array = np.ascontiguousarray(array if one.scale == 1.0 else array * np.float32(one.scale))
        tensors[one.input] = Stored(array.dtype.name, array.shape, array)
    return Adapter(tensors, {}, adapter.versions)


def from_float32(x: np.ndarray, dtype: str) -> bytes:
    """The bytes of an array in this type."""
    if dtype != "bfloat16":
        return np.ascontiguousarray(x, dtype).tobytes()
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FC0, rounded).astype(np.uint16).tobytes()
