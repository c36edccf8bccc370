"""Trains a model natively. `pyruntime.TrainingSession` is its public form; pyruntime/pyodide/training.py
is the same in Pyodide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyruntime.errors import InvalidInput, our_fault
from pyruntime.native.gpu.device import warn
from pyruntime.native.sessions.adapter_values import array_of, files_of, from_float32, merged
from pyruntime.native.sessions.session import Session
from pyruntime.native.training.weight_vectors import joined, split
from pyruntime.onnx.graph import Weight
from pyruntime.options import SessionOptions
from pyruntime.session.memory_report import MemoryReport
from pyruntime.training.adapters.adapter_file import Adapter
from pyruntime.training.files.safetensors import Stored
from pyruntime.training.session.core import Parameter, StepResult, TrainingCore


class TrainingSession(TrainingCore[np.ndarray]):
    """A model and what trains it. See `pyruntime.TrainingSession` in docs/training.md.

    model: an ONNX model, as `InferenceSession` takes it
    options: loss, optimizer, schedule, trainable, lora, frozen, accumulate, mode, clip, proximal, seed,
        on_nan, loss_scale, step_outputs, memory
    Errors: InvalidInput names the option; NotDifferentiable names the node and the weights that need it."""

    @our_fault("opening the training session")
    def __init__(
        self, model: Any, *, sess_options: SessionOptions | None = None, providers: Sequence[Any] | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(model, options)
        self._session = Session(model, sess_options, providers, read=lambda _: self._training.graph)
        self._session.programs.keeps_one = self._recipe.memory > 0

    def get_contiguous_parameters(self, trainable_only: bool = True) -> np.ndarray:
        """The trained weights as one vector of float32, in the order of `parameters()`, each row-major; with
        trainable_only=False followed by running statistics."""
        values = self.weights()
        return joined(values[name] for name in self._shapes(trainable_only))

    def load_parameters_buffer(self, buffer: Any, trainable_only: bool = True) -> None:
        """Replace weights by such a vector, for example an average of several sessions'. buffer: an array, or bytes"""
        self.set_weights(split(buffer, self._shapes(trainable_only)))

    @property
    def id(self) -> int:
        """Its number in events."""
        return self._session.watch.id

    def metrics(self) -> Mapping[str, Any]:
        """What the session has counted, as of `InferenceSession`; a step is a run, with `accumulate` one more."""
        return self._session.metrics()

    def explain(self) -> dict[str, Any]:
        """Which node runs where, and why."""
        return self._session.explain()

    def memory(self) -> MemoryReport:
        """What the session holds, and its peak so far."""
        return self._session.memory()

    def trim(self) -> None:
        """Free memory that runs have taken."""
        self._session.trim()

    def release(self) -> None:
        """Free all memory. Later work is refused with SessionFailed."""
        self._session.release()

    # ── for the core ─────────────────────────────────────────────────────────────────────────────────────────────

    def _checked(self, feeds: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
        return self._session.check_feeds(feeds, names)

    def _outputs(self, names: Sequence[str], feeds: Mapping[str, Any], options: Any) -> list[Any]:
        return self._session.run(names, feeds, options)

    def _floats(self, values: Sequence[float]) -> np.ndarray:
        return np.array(values, np.float32)

    def _fitted(self, name: str, x: Any) -> Any:
        if name not in self._training.targets:
            return x
        wanted = self._session.feeds.types[name].dtype.name  # type: ignore[union-attr]
        array = np.asarray(x)
        if array.dtype.name == wanted or wanted == "int64" and array.dtype.kind not in "iu":
            return array
        return array.astype(wanted) if array.dtype.kind in "iuf" else array

    def _tell(self, kind: str, **event: Any) -> None:
        self._session.watch.tell(kind, **event)

    def _warn(self, text: str) -> None:
        warn(text)

    def _states(self) -> dict[str, np.ndarray]:
        session = self._session
        return session.alone(session.programs.state_values.read)

    def _replace(self, values: Mapping[str, np.ndarray]) -> None:
        session = self._session
        session.alone(lambda: session.programs.state_values.replace(values))

    def _update(self, values: Mapping[str, np.ndarray]) -> None:
        session = self._session
        session.alone(lambda: session.programs.state_values.update(values))

    def _initial(self, w: Weight) -> np.ndarray:
        return np.frombuffer(w.read(), w.dtype.name).reshape(w.shape)

    def _given(self, name: str, x: Any, w: Weight) -> np.ndarray:
        if np.shape(x) != w.shape:
            raise InvalidInput(f'"{name}" has shape {list(w.shape)}, not {list(np.shape(x))}')
        if np.asarray(x).dtype.kind not in "biuf":
            raise InvalidInput(f'"{name}" needs numbers, got {np.asarray(x).dtype}')
        return np.array(x, w.dtype.name)

    def _loaded(self, t: Stored, w: Weight) -> np.ndarray:
        return array_of(t).astype(w.dtype.name, copy=False)

    def _stored(self, value: np.ndarray) -> Stored:
        data = np.ascontiguousarray(value).data.cast("B") if value.size else b""
        return Stored(value.dtype.name, value.shape, data)

    def _in_type(self, value: np.ndarray, dtype: str) -> bytes:
        return from_float32(value, dtype)

    def _merged(self, values: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return merged(self._training, values)

    def _adapter_files(self, path: Path, adapter: Adapter) -> Mapping[Path, bytes]:
        return files_of(path, adapter)


__all__ = ["Parameter", "StepResult", "TrainingSession"]
