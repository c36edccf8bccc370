"""Values of adapters as arrays: products that are added to weights, and files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pyruntime.ir.dtype import BF16
from pyruntime.learning.adapters.adapter_file import PEFT_FILES, Adapter
from pyruntime.learning.adapters.lora import Lora
from pyruntime.learning.adapters.serving import Serving
from pyruntime.learning.graph import Training
from pyruntime.learning.safetensors import Stored
from pyruntime.onnx.graph import Weight


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


def to_adapter(lora: Lora, values: Mapping[str, np.ndarray]) -> Adapter:
    tensors = {n: Stored("float32", values[n].shape, np.ascontiguousarray(values[n], np.float32)) for n in lora.names}
    return Adapter(tensors, json.loads(lora.config()))


def to_file(lora: Lora, values: Mapping[str, np.ndarray]) -> bytes:
    """A safetensors file."""
    return to_adapter(lora, values).to_safetensors()


def to_files(path: Path, lora: Lora, values: Mapping[str, np.ndarray]) -> dict[Path, bytes]:
    """The files to write: one by its ending, or those of a folder as PEFT has it, which is made."""
    return files_of(path, to_adapter(lora, values))


def files_of(path: Path, adapter: Adapter) -> dict[Path, bytes]:
    if path.suffix == ".safetensors":
        return {path: adapter.to_safetensors()}
    if path.suffix == ".onnx_adapter":
        return {path: folded(adapter).to_onnx_adapter()}
    path.mkdir(parents=True, exist_ok=True)
    config = json.dumps(dict(adapter.config), indent=2).encode()
    weights, settings = PEFT_FILES
    return {path / weights: adapter.to_safetensors(), path / settings: config}


def folded(adapter: Adapter) -> Adapter:
    """Without a configuration: the factors are in B, because ONNX Runtime's format has none."""
    if not adapter.config:
        return adapter
    tensors = dict(adapter.tensors)
    for pair in adapter.pairs():
        if pair.scale != 1.0:
            t = tensors[pair.b]
            tensors[pair.b] = Stored("float32", t.shape, array_of(t) * np.float32(pair.scale))
    return Adapter(tensors, {}, adapter.versions)


def array_of(t: Stored) -> np.ndarray:
    """The numbers of a tensor of an adapter; those of 16 bits in float32."""
    if t.dtype == "bfloat16":
        return (np.frombuffer(t.data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(t.shape)
    array = np.frombuffer(t.data, t.dtype).reshape(t.shape)
    return array.astype(np.float32) if t.dtype == "float16" else array


def for_model(adapter: Adapter, serving: Serving) -> Adapter:
    """The adapter with the names and shapes of the inputs that a model has for it; without such inputs unchanged."""
    fed = serving.places(adapter, "it").fed
    if not fed:
        return adapter
    tensors = {}
    for one in fed:
        t = adapter.tensors[one.tensor]
        array = array_of(t).T if one.is_transposed else array_of(t)
        array = np.ascontiguousarray(array if one.scale == 1.0 else array * np.float32(one.scale))
        tensors[one.input] = Stored(array.dtype.name, array.shape, array)
    return Adapter(tensors, {}, adapter.versions)
