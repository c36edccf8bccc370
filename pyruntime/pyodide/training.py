"""`TrainingSession` for Pyodide. pyruntime/native/training/session.py is its twin."""

from __future__ import annotations

import itertools
import json
import warnings
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite, prod
from pathlib import Path
from typing import Any

from pyruntime.errors import InvalidInput, SessionFailed, our_fault
from pyruntime.ir.dtype import BY_NAME, F32, I64, DType
from pyruntime.ir.reference import round_float
from pyruntime.ir.storage import encode
from pyruntime.onnx.graph import Graph, Weight, tensor_type
from pyruntime.options import SessionOptions
from pyruntime.pyodide.programs import executor, value_of
from pyruntime.pyodide.session import InferenceSession
from pyruntime.pyodide.tensors import Tensor, to_output, to_tensor
from pyruntime.session.events import emit
from pyruntime.session.memory_report import MemoryReport
from pyruntime.training.adapters.adapter_file import Adapter, adapter_files
from pyruntime.training.files.safetensors import Stored
from pyruntime.training.session.core import TrainingCore

_numbers = itertools.count(1)


class TrainingSession(TrainingCore[Tensor]):
    """A model and what trains it, as the native one (docs/training.md).

    Feeds are as of `InferenceSession`; weights and outputs are NumPy arrays if NumPy is installed, else `Tensor`s."""

    @our_fault("opening the training session")
    def __init__(
        self, model: Any, *, sess_options: SessionOptions | None = None, providers: Sequence[Any] | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(model, options)
        self._session = _Session(self._training.graph, model, sess_options, providers)
        self._is_released = False
        self.id = next(_numbers)  # its number in events
        types = {v.name: tensor_type(v.type) for v in self._training.graph.inputs}
        self._targets = {n: t.dtype for n, t in types.items() if t and t.dtype and n in self._training.targets}

    @property
    def _usable(self) -> _Session:
        if self._is_released:
            raise SessionFailed("this session is released", hint="create another")
        return self._session

    def weights(self) -> dict[str, Any]:
        """Copies of the weights that are trained, and of running statistics, by name."""
        return {name: to_output(x) for name, x in self._weights().items()}

    def get_contiguous_parameters(self, trainable_only: bool = True) -> Any:
        """The trained weights as one vector of float32, in the order of `parameters()`, each row-major; with
        trainable_only=False followed by running statistics."""
        values = self._weights()
        data = b"".join(_bytes(_cast(values[name], F32)) for name in self._shapes(trainable_only))
        return to_output(Tensor(F32, (len(data) // 4,), data))

    def load_parameters_buffer(self, buffer: Any, trainable_only: bool = True) -> None:
        """Replace weights by such a vector, for example an average of several sessions'. buffer: anything with a buffer
        of float32, or its bytes"""
        shapes = self._shapes(trainable_only)
        data = bytes(buffer) if isinstance(buffer, (bytes, bytearray)) else _bytes(to_tensor("vector", buffer, None))
        numbers = array("f", data if len(data) % 4 == 0 else b"")
        if len(numbers) != (size := self.get_parameters_size(trainable_only)):
            text = f"the vector has {len(numbers)} numbers of float32, the weights {size}"
            raise InvalidInput(text, hint="give what get_contiguous_parameters() of a session for this model returned")
        if not all(map(isfinite, numbers)):
            raise InvalidInput("the vector has numbers that are not finite")
        parts, first = {}, 0
        for name, shape in shapes.items():
            end = first + 4 * prod(shape)
            parts[name] = Tensor(F32, shape, data[first:end])
            first = end
        self.set_weights(parts)

    def metrics(self) -> Mapping[str, Any]:
        """What the session has counted, as of `InferenceSession`; a step is a run, with `accumulate` one more."""
        return self._session.metrics()

    def explain(self) -> dict[str, Any]:
        """Which node runs where, and why."""
        return self._usable.explain()

    def memory(self) -> MemoryReport:
        """What the session holds, and its peak so far."""
        return self._usable.memory()

    def trim(self) -> None:
        """Free memory that runs have taken."""
        self._usable.programs.forget()

    def release(self) -> None:
        """Free all memory. Later work is refused with SessionFailed."""
        self._session.programs.forget()
        self._is_released = True

    # ── for the core ─────────────────────────────────────────────────────────────────────────────────────────────

    def _checked(self, feeds: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
        return self._usable.tensors(feeds, names)

    def _outputs(self, names: Sequence[str], feeds: Mapping[str, Any], options: Any) -> list[Any]:
        return self._usable.run(names, feeds, options)

    def _floats(self, values: Sequence[float]) -> Tensor:
        return Tensor(F32, (len(values),), array("f", values).tobytes())

    def _fitted(self, name: str, x: Any) -> Any:
        if name not in self._training.targets:
            return x
        wanted = self._targets[name]
        if isinstance(x, (list, tuple, int, float)):
            return x  # numbers without a type
        tensor = to_tensor(name, x, None)
        fits = tensor.dtype.kind in "iu" or wanted is not I64 and tensor.dtype.is_float
        return _cast(tensor, wanted) if fits else tensor

    def _tell(self, kind: str, **event: Any) -> None:
        emit("session", {"type": kind, "session": self.id, "name": self._training.graph.name, **event})

    def _warn(self, text: str) -> None:
        warnings.warn(text, stacklevel=3)

    def _states(self) -> dict[str, Tensor]:
        return self._usable.programs.state_values.read()

    def _replace(self, values: Mapping[str, Tensor]) -> None:
        self._usable.programs.state_values.replace(values)

    def _update(self, values: Mapping[str, Tensor]) -> None:
        self._usable.programs.state_values.update(values)

    def _initial(self, w: Weight) -> Tensor:
        return Tensor(w.dtype, w.shape, w.read())

    def _given(self, name: str, x: Any, w: Weight) -> Tensor:
        tensor = to_tensor(name, x, None)
        if tensor.shape != w.shape:
            raise InvalidInput(f'"{name}" has shape {list(w.shape)}, not {list(tensor.shape)}')
        if tensor.dtype.kind not in "biuf":
            raise InvalidInput(f'"{name}" needs numbers, got {tensor.dtype}')
        return _cast(tensor, w.dtype)

    def _loaded(self, t: Stored, w: Weight) -> Tensor:
        return _cast(Tensor(BY_NAME[t.dtype], tuple(t.shape), bytes(t.data)), w.dtype)

    def _stored(self, value: Tensor) -> Stored:
        return Stored(value.dtype.name, value.shape, value.data)

    def _in_type(self, value: Tensor, dtype: str) -> bytes:
        return _bytes(_cast(value, BY_NAME[dtype]))

    def _merged(self, values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """By JavaScript, because products in Python take seconds."""
        found = dict(values)
        for name, merges in self._training.merges.items():
            w = values[name] if name in values else self._initial(self._training.base.weights[name])
            products = [[m.a, m.b, m.scale, m.is_transposed] for m in merges]
            matrices = {n: values[n].data for m in merges for n in (m.a, m.b)}
            found[name] = _with_products(w, products, matrices)
        return found

    def _adapter_files(self, path: Path, adapter: Adapter) -> Mapping[Path, bytes]:
        return adapter_files(path, adapter, _times)


class _Session(InferenceSession):
    """Runs the graph of the steps."""

    def __init__(
        self, graph: Graph, model: Any, options: SessionOptions | None, providers: Sequence[Any] | None
    ) -> None:  # fmt: skip
        self._graph = graph
        super().__init__(model, options, providers)

    def _read(self, model: Any) -> Graph:
        return self._graph


def _bytes(x: Tensor) -> bytes:
    assert isinstance(x.data, bytes)
    return x.data


def _cast(x: Tensor, to: DType) -> Tensor:
    """The numbers in another type; those that are too large for it are infinite."""
    if x.dtype is to:
        return x
    values = [round_float(float(v), to) for v in x.flat()] if to.is_float else [int(v) for v in x.flat()]
    return Tensor(to, x.shape, encode(values, to))


def _times(t: Stored, factor: float) -> Stored:
    x = Tensor(BY_NAME[t.dtype], tuple(t.shape), bytes(t.data))
    return Stored("float32", x.shape, array("f", [v * factor for v in x.flat()]).tobytes())


def _with_products(w: Tensor, products: list[Any], matrices: Mapping[str, Any]) -> Tensor:
    from js import Object
    from pyodide.ffi import to_js

    values = to_js({n: memoryview(x) for n, x in matrices.items()}, dict_converter=Object.fromEntries)
    merged = json.dumps({"shape": w.shape, "products": products})
    data = value_of(executor().merge(merged, w.dtype.name, to_js(memoryview(_bytes(w))), values)).to_bytes()
    return replace(w, dtype=w.dtype if w.dtype.name == "float64" else F32, data=data)


__all__ = ["TrainingSession"]
