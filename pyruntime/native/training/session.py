"""Trains a model natively. `pyruntime.TrainingSession` is its public form."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from pyruntime.arguments import checks_arguments
from pyruntime.errors import our_fault
from pyruntime.native.execution.forks import in_children
from pyruntime.native.sessions.session import Session
from pyruntime.native.sessions.state_values import NativeStates
from pyruntime.native.sessions.stored_arrays import NUMPY_ARRAYS
from pyruntime.native.tools.quantization import SESSIONS
from pyruntime.onnx.edit import FileModel
from pyruntime.onnx.graph import Graph
from pyruntime.onnx.sources import External, MemorySource, beside
from pyruntime.options import SessionOptions, absolute, check_training_options, own
from pyruntime.quantization.folded import folded
from pyruntime.quantization.host import Host
from pyruntime.runtime.training_steps import StepResult
from pyruntime.training.graph.traced_functions import traced
from pyruntime.training.session.core import Parameter, TrainingCore
from pyruntime.training.session.file_writing import write_file

T = TypeVar("T")


@checks_arguments()
class TrainingSession(TrainingCore):
    """A model and what trains it. See `pyruntime.TrainingSession` in docs/training.md.

    model: an ONNX model, as `InferenceSession` takes it
    options: see `OPTIONS` in pyruntime/training/graph/recipe.py
    Errors: InvalidInput names the option; NotDifferentiable names the node and the weights that need it."""

    @our_fault("opening the training session")
    def __init__(
        self, model: Any, *, sess_options: SessionOptions | None = None, providers: Sequence[Any] | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        check_training_options(sess_options)
        options = traced(options)  # which can be pickled

        def opened(graph: Graph, memory: int) -> _StepSession:
            session = _StepSession(model, sess_options, providers, read=lambda _: graph)
            session.programs.keeps_one = memory > 0
            return session

        super().__init__(model, options, NUMPY_ARRAYS, opened)
        self._given = {"sess_options": sess_options and own(sess_options), "providers": providers, **options}
        in_children(self._after_fork)

    def _after_fork(self) -> None:
        """A session that another thread of the parent was changing has neither the old weights nor the new ones."""
        if self._turn.acquire(blocking=False):
            self._turn.release()
        else:
            self._turn, self._is_released = RLock(), True

    def export(self, path: str | os.PathLike[str] | None = None, *, average: bool = False) -> bytes:
        """See `TrainingCore.export`. With `scales="lsq"`, weights are codes in the file."""
        data = super().export(None if self._recipe.scales == "lsq" else path, average=average)
        if self._recipe.scales == "lsq":
            external = External(beside(self._model) if isinstance(self._model, (str, os.PathLike)) else None)
            source = MemorySource(data)
            file = Host((), SESSIONS).result(folded(lambda: FileModel(source, external)))
            data = file.read(0, file.size)
            if path is not None:
                write_file(Path(path), data)
        return data

    def __getstate__(self) -> dict[str, Any]:
        """For `pickle` and `copy`: what the session was opened with, and a checkpoint. Errors: SessionFailed for a
        session that is released"""
        return {"model": absolute(self._model), "given": self._given, "checkpoint": self.state()}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        TrainingSession.__init__(self, state["model"], **state["given"])
        self.load(state["checkpoint"])


class _StepSession(Session):
    """Runs the graph of the steps."""

    @property
    def id(self) -> int:
        return self.watch.id

    def tell(self, kind: str, **event: Any) -> None:
        self.watch.tell(kind, **event)

    def with_states(self, work: Callable[[NativeStates], T]) -> T:
        return self.alone(lambda: work(self.programs.state_values))


__all__ = ["Parameter", "StepResult", "TrainingSession"]
