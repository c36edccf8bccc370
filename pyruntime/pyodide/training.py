"""`TrainingSession` for Pyodide, where Python may have no NumPy."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, TypeVar

from pyruntime.errors import InvalidInput, our_fault
from pyruntime.ir.dtype import BY_NAME
from pyruntime.ir.reference import round_float
from pyruntime.ir.storage import encode
from pyruntime.onnx.graph import Graph
from pyruntime.options import SessionOptions, check_training_options
from pyruntime.pyodide.programs import executor, value_of
from pyruntime.pyodide.session import InferenceSession
from pyruntime.pyodide.tensors import Tensor, to_output, to_tensor
from pyruntime.training.adapters.lora import Merge
from pyruntime.training.files.safetensors import Stored
from pyruntime.training.session.core import TrainingCore
from pyruntime.training.session.state_values import StateValues

T = TypeVar("T")


class TrainingSession(TrainingCore):
    """A model and what trains it, as the native one (docs/training.md).

    Feeds are as of `InferenceSession`; weights and outputs are NumPy arrays if NumPy is installed, else `Tensor`s."""

    @our_fault("opening the training session")
    def __init__(
        self, model: Any, *, sess_options: SessionOptions | None = None, providers: Sequence[Any] | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        check_training_options(sess_options)
        opened = lambda graph, _: _StepSession(graph, model, sess_options, providers)  # noqa: E731
        super().__init__(model, options, _Arrays(), opened)


class _StepSession(InferenceSession):
    """Runs the graph of the steps."""

    _can_have_gpu = False

    def __init__(
        self, graph: Graph, model: Any, options: SessionOptions | None, providers: Sequence[Any] | None
    ) -> None:  # fmt: skip
        self._graph = graph
        super().__init__(model, options, providers)

    def _read(self, model: Any) -> Graph:
        return self._graph

    def _providers(self, listed: Sequence[Any], has_gpu: bool = False) -> dict[str, Any]:
        return {**super()._providers(listed, has_gpu), "training": True}

    def check_feeds(self, input_feed: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
        return self.tensors(input_feed, names)

    @property
    def id(self) -> int:
        return self.watch.id

    def tell(self, kind: str, **event: Any) -> None:
        self.watch.tell(kind, **event)

    def with_states(self, work: Callable[[StateValues[Any]], T]) -> T:
        return work(self.programs.state_values)

    def release(self) -> None:
        self.trim()


class _Arrays:
    """Arrays of callers in Pyodide (`Arrays` in pyruntime/training/session/core.py)."""

    def stored(self, name: str, x: Any) -> Stored:
        tensor = to_tensor(name, x, None)
        if tensor.dtype.kind not in "biuf":
            raise InvalidInput(f'"{name}" needs numbers, got {tensor.dtype}')
        return Stored(tensor.dtype.name, tensor.shape, tensor.data)

    def array(self, t: Stored) -> Any:
        return to_output(self.feed(t))

    def feed(self, t: Stored) -> Tensor:
        return Tensor(BY_NAME[t.dtype], tuple(t.shape), bytes(t.data))

    def cast(self, t: Stored, dtype: str) -> Stored:
        to = BY_NAME[dtype]
        if t.dtype == dtype:
            return t
        values = [round_float(float(v), to) if to.is_float else int(v) for v in self.feed(t).flat()]
        return Stored(dtype, t.shape, encode(values, to))

    def times(self, t: Stored, factor: float) -> Stored:
        return Stored("float32", t.shape, array("f", [v * factor for v in self.feed(t).flat()]).tobytes())

    def is_finite(self, t: Stored) -> bool:
        return all(map(isfinite, self.feed(t).flat()))

    def with_products(self, w: Stored, merges: Sequence[Merge], values: Mapping[str, Stored]) -> Stored:
        """By JavaScript, because products in Python take seconds."""
        from js import Object
        from pyodide.ffi import to_js

        products = [[m.a, m.b, m.scale, m.is_transposed, m.magnitudes] for m in merges]
        matrices = {n: memoryview(values[n].data) for m in merges for n in (m.a, m.b, m.magnitudes) if n}
        given = to_js(matrices, dict_converter=Object.fromEntries)
        merged = json.dumps({"shape": w.shape, "products": products})
        data = value_of(executor().merge(merged, w.dtype, to_js(memoryview(w.data)), given)).to_bytes()
        return Stored("float64" if w.dtype == "float64" else "float32", w.shape, data)


__all__ = ["TrainingSession"]
