"""Trains with the artifacts of onnxruntime-training. `pyruntime.api.training` has their names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyruntime.native.sessions.stored_arrays import NUMPY_ARRAYS, from_float32
from pyruntime.native.training.session import TrainingSession
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph, Weight
from pyruntime.onnx.ort_checkpoint import Checkpoint, Moments, read_checkpoint, weight_of, write_checkpoint
from pyruntime.onnx.sources import FileSource
from pyruntime.options import SessionOptions
from pyruntime.runtime.trained_weights import GRADIENT, OPTIMIZER
from pyruntime.training.files.artifact_export import inference_plan
from pyruntime.training.graph.artifacts import MOMENTS, Artifacts, artifacts
from pyruntime.training.session.core import stored_weight
from pyruntime.training.session.file_writing import assembled, write_file

Path_ = str | os.PathLike[str]


class ArtifactSession(TrainingSession):
    """train, optimizer: the models; checkpoint: where parameters and moments begin; options: more of `TrainingSession`,
    such as proximal"""

    def __init__(
        self, train: Path_, checkpoint: Checkpoint, optimizer: Path_ | None = None,
        sess_options: SessionOptions | None = None, providers: Sequence[Any] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.artifacts: Artifacts = artifacts(load(train), checkpoint, None if optimizer is None else load(optimizer))
        made = {**self.artifacts.options, "step_outputs": self.artifacts.outputs[1:], **options}
        super().__init__(train, sess_options=sess_options, providers=providers, **made)
        if not self.artifacts.corrects:
            self._numbers.beta1 = self._numbers.beta2 = 0.0
        kinds = MOMENTS.get(self._recipe.optimizer, {})
        moments = {
            f"{OPTIMIZER}{kinds[kind]}/{name}": stored_weight(w)
            for name, each in checkpoint.moments.items()
            for kind, w in each.items()
            if kind in kinds
        }
        if moments:
            self._update(moments)
            self._numbers.step = checkpoint.step

    def _read(self, model: Any) -> Graph:
        return self.artifacts.graph

    def run_step(self, feeds: Mapping[str, Any]) -> tuple[Any, ...]:
        """Add the gradients of a batch. Returns the loss and the other outputs of the training model."""
        loss = self.accumulate(feeds).loss
        return (np.array(loss, np.float32), *self.step_outputs.values())

    def run_evaluation(self, feeds: Mapping[str, Any]) -> tuple[Any, ...]:
        found = self.evaluate(feeds, list(self.artifacts.outputs))
        return tuple(found[name] for name in self.artifacts.outputs)

    def run_optimizer(self, rate: float) -> None:
        """Make a step with the sums of the gradients, which stay until `reset_gradients`."""
        waiting = self._numbers.waiting
        self.apply(rate=rate, sum=True)
        self._numbers.waiting = waiting

    def reset_gradients(self) -> None:
        """The next batch begins new sums."""
        self._numbers.waiting = 0

    def gradient(self, name: str) -> np.ndarray | None:
        found = self._states().get(GRADIENT + name) if self._numbers.waiting else None
        return None if found is None else NUMPY_ARRAYS.array(found)

    def moments(self) -> Moments:
        values, kinds = self._states(), MOMENTS.get(self._recipe.optimizer, {})
        found: Moments = {}
        for name in self._training.weights:
            each = {theirs: values.get(f"{OPTIMIZER}{ours}/{name}") for theirs, ours in kinds.items()}
            found[name] = {theirs: weight_of(theirs, bytes(t.data), t.shape) for theirs, t in each.items() if t}
        return {name: each for name, each in found.items() if each}

    @property
    def steps_made(self) -> int:
        return self._numbers.step


def stored(name: str, x: np.ndarray) -> Weight:
    return weight_of(name, np.ascontiguousarray(x, np.float32).tobytes(), x.shape)


def array_of(w: Weight) -> np.ndarray:
    return NUMPY_ARRAYS.array(stored_weight(w))


def open_checkpoint(path: Path_) -> Checkpoint:
    return read_checkpoint(FileSource(path, "checkpoint"))  # weights are found by the names of sources


def save_checkpoint(path: Path_, checkpoint: Checkpoint) -> None:
    write_file(Path(path), write_checkpoint(checkpoint))


def export_for_inference(
    model: Path_, target: Path_, outputs: Sequence[str], parameters: Mapping[str, np.ndarray],
    like: Mapping[str, Weight],
) -> None:  # fmt: skip
    """Write the part of an evaluation model that computes these outputs, with these parameters. like: their types"""
    source = FileSource(model)
    plan = inference_plan(source, outputs, like, like)
    data = assembled(plan, source, lambda name, dtype: from_float32(parameters[name], dtype))
    write_file(Path(target), data)
