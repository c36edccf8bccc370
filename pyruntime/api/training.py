"""onnxruntime-training's names (`onnxruntime.training.api`), for its artifacts:

    from pyruntime.api.training import CheckpointState, LinearLRScheduler, Module, Optimizer

See docs/training.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from pyruntime.api.ort_value import OrtValue
from pyruntime.arguments import checks_arguments
from pyruntime.errors import InvalidInput
from pyruntime.native.sessions.stored_arrays import NUMPY_ARRAYS
from pyruntime.native.training.artifact_session import (
    ArtifactSession,
    array_of,
    export_for_inference,
    open_checkpoint,
    save_checkpoint,
    stored,
)
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph, Weight, tensor_type
from pyruntime.onnx.ort_checkpoint import Checkpoint
from pyruntime.options import SessionOptions
from pyruntime.runtime.trained_weights import TrainedWeight, TrainedWeights
from pyruntime.training.session.core import joined, split

Path = str | os.PathLike[str]
Property = int | float | str
_PROVIDERS = {"cpu": ["wasm"], "webgpu": ["webgpu", "wasm"], "cuda": ["webgpu", "wasm"], "dml": ["webgpu", "wasm"]}
RATE = 1e-3  # of learning, until it is set


@checks_arguments()
class CheckpointState:
    """Parameters, moments of the optimiser, and properties. `load_checkpoint` makes it."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._module: Module | None = None
        self.parameters = Parameters(self)
        self.properties = Properties(checkpoint.properties)

    @classmethod
    def load_checkpoint(cls, checkpoint_uri: Path) -> CheckpointState:
        return cls(open_checkpoint(checkpoint_uri))

    @classmethod
    def save_checkpoint(
        cls, state: CheckpointState, checkpoint_uri: Path, include_optimizer_state: bool = False
    ) -> None:  # fmt: skip
        """Write the file; onnxruntime-training opens it. One of that name is replaced at the end, in one step."""
        given = state._current()
        if not include_optimizer_state:
            given = Checkpoint(given.trained, given.frozen, given.is_nominal, properties=given.properties)
        save_checkpoint(checkpoint_uri, given)

    def _current(self) -> Checkpoint:
        """With the values of the session, if there is one."""
        kept, module, session = self._checkpoint, self._module, self._session
        if module is None or session is None:
            return kept
        kept.trained = {n: stored(n, x) for n, x in session.weights().items() if n in kept.trained}
        kept.moments, kept.step, kept.rate = session.moments(), session.steps_made, module._rate
        return kept

    @property
    def _session(self) -> ArtifactSession | None:
        return None if self._module is None else self._module._session

    def _weight(self, name: str) -> Weight:
        found = {**self._checkpoint.trained, **self._checkpoint.frozen}
        if name not in found:
            raise KeyError(f"Parameter {name} not found.")
        return found[name]


class Parameter:
    def __init__(self, state: CheckpointState, name: str) -> None:
        self._state = state
        self.name = name

    @property
    def data(self) -> np.ndarray:
        session = self._state._session
        if session is not None and self.requires_grad:
            return session.weights()[self.name]
        return array_of(self._state._weight(self.name))

    @data.setter
    def data(self, value: Any) -> None:
        self._state.parameters[self.name] = value

    @property
    def grad(self) -> np.ndarray | None:
        session = self._state._session
        return session.gradient(self.name) if session is not None and self.requires_grad else None

    @property
    def requires_grad(self) -> bool:
        return self.name in self._state._checkpoint.trained

    def __repr__(self) -> str:
        return f"Parameter(name={self.name}, requires_grad={self.requires_grad})"


class Parameters:
    """The parameters of a checkpoint by name."""

    def __init__(self, state: CheckpointState) -> None:
        self._state = state

    def __getitem__(self, name: str) -> Parameter:
        self._state._weight(name)
        return Parameter(self._state, name)

    def __setitem__(self, name: str, value: Any) -> None:
        old, new = self._state._weight(name), np.array(value, np.float32)
        if new.shape != old.shape:
            raise InvalidInput(f'"{name}" has shape {list(old.shape)}, not {list(new.shape)}')
        checkpoint, module = self._state._checkpoint, self._state._module
        if module is not None and module._session is not None and name in checkpoint.trained:
            module._session.set_weights({name: new})
            return
        (checkpoint.trained if name in checkpoint.trained else checkpoint.frozen)[name] = stored(name, new)
        if module is not None:
            module._close()

    def __contains__(self, name: object) -> bool:
        return name in self._state._checkpoint.trained or name in self._state._checkpoint.frozen

    def __iter__(self) -> Iterator[tuple[str, Parameter]]:
        for name in (*self._state._checkpoint.trained, *self._state._checkpoint.frozen):
            yield name, Parameter(self._state, name)

    def __len__(self) -> int:
        return len(self._state._checkpoint.trained) + len(self._state._checkpoint.frozen)


class Properties:
    """The user's own values in a checkpoint, by name: int, float or str."""

    def __init__(self, values: dict[str, Property]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Property:
        if name not in self._values:
            raise KeyError(f"Property {name} not found.")
        return self._values[name]

    def __setitem__(self, name: str, value: Property) -> None:
        if type(value) not in (int, float, str):
            raise InvalidInput(f'property "{name}" cannot be {type(value).__name__}', hint="give an int, float or str")
        self._values[name] = value

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[tuple[str, Property]]:
        return iter(self._values.items())

    def __len__(self) -> int:
        return len(self._values)


@checks_arguments()
class Module:
    """A training model with the parameters of a checkpoint. Its session is created by the first call that needs it.

    device: "cpu", or "webgpu" (also under the name "cuda"); options: more of `TrainingSession`, such as proximal"""

    def __init__(
        self, train_model_uri: Path, state: CheckpointState, eval_model_uri: Path | None = None, device: str = "cpu",
        session_options: SessionOptions | None = None, **options: Any,
    ) -> None:  # fmt: skip
        kind = device.partition(":")[0]
        if kind not in _PROVIDERS:
            raise InvalidInput(f'device cannot be "{device}"', hint=f"known: {', '.join(_PROVIDERS)}")
        if state._module is not None:
            raise InvalidInput("the checkpoint belongs to another Module", hint="load it again")
        self.training = True
        self._paths = train_model_uri, eval_model_uri
        self._graph: Graph = load(train_model_uri)
        self._state, self._providers, self._options = state, _PROVIDERS[kind], session_options
        self._more = options
        self._optimizer: Path | None = None
        self._rate = state._checkpoint.rate or RATE
        self._session: ArtifactSession | None = None
        state._module = self
        self._names = self._parameter_names()

    def __call__(self, *user_inputs: Any) -> Any:
        """A step of training, or an evaluation: the outputs of the model, of which the loss is first. user_inputs: in
        the order of `input_names()`, as arrays or as OrtValues, as which the outputs come back."""
        session = self._opened()
        names = session.artifacts.inputs
        if len(user_inputs) != len(names):
            raise InvalidInput(
                f"the model has {len(names)} inputs, {len(user_inputs)} were given", hint=", ".join(names)
            )
        are_values = all(isinstance(x, OrtValue) for x in user_inputs)
        feeds = {n: x.numpy() if isinstance(x, OrtValue) else x for n, x in zip(names, user_inputs, strict=True)}
        found = session.run_step(feeds) if self.training else session.run_evaluation(feeds)
        results = tuple(OrtValue.ortvalue_from_numpy(x) for x in found) if are_values else found
        return results if len(results) > 1 else results[0]

    def train(self, mode: bool = True) -> Module:
        self.training = mode
        return self

    def eval(self) -> Module:
        return self.train(False)

    def lazy_reset_grad(self) -> None:
        """The next step of training begins new sums of gradients."""
        self._opened().reset_gradients()

    def input_names(self) -> list[str]:
        return [*self._opened().artifacts.inputs]

    def output_names(self) -> list[str]:
        return [*self._opened().artifacts.outputs]

    # ── parameters ───────────────────────────────────────────────────────────────────────────────────────────────

    def get_parameters_size(self, trainable_only: bool = True) -> int:
        return self._listed(trainable_only).size(True)

    def get_contiguous_parameters(self, trainable_only: bool = False) -> OrtValue:
        """The parameters as one vector, in the order of the training model's inputs."""
        listed, parameters = self._listed(trainable_only), self._state.parameters
        values = {w.name: NUMPY_ARRAYS.stored(w.name, parameters[w.name].data) for w in listed.weights}
        return OrtValue.ortvalue_from_numpy(NUMPY_ARRAYS.array(joined(listed, True, values, NUMPY_ARRAYS)))

    def copy_buffer_to_parameters(self, buffer: Any, trainable_only: bool = True) -> None:
        """Replace parameters by such a vector, which also completes a nominal checkpoint."""
        vector = buffer.numpy() if isinstance(buffer, OrtValue) else buffer
        checkpoint, parts = self._state._checkpoint, split(self._listed(trainable_only), True, vector, NUMPY_ARRAYS)
        values = {name: NUMPY_ARRAYS.array(t) for name, t in parts.items()}
        if self._session is None or not trainable_only:
            self._close()
            for name, x in values.items():
                (checkpoint.trained if name in checkpoint.trained else checkpoint.frozen)[name] = stored(name, x)
            checkpoint.is_nominal = any(
                w.source is None for w in (*checkpoint.trained.values(), *checkpoint.frozen.values())
            )
        else:
            self._session.set_weights(values)

    def export_model_for_inferencing(self, inference_model_uri: Path, graph_output_names: list[str]) -> None:
        """Write an ONNX model with the current parameters, which computes these values. Needs the evaluation model."""
        model = self._paths[1]
        if model is None:
            raise InvalidInput(
                "an inference model is made of the evaluation model", hint="create Module with eval_model_uri"
            )
        names = self._names
        like = {n: self._state._weight(n) for n in names}
        values = {n: self._state.parameters[n].data for n in names}
        export_for_inference(model, inference_model_uri, graph_output_names, values, like)

    def _parameter_names(self) -> list[str]:
        return [v.name for v in self._graph.inputs if v.name in self._state.parameters]

    def _listed(self, trainable_only: bool) -> TrainedWeights:
        """The parameters, in the order of the training model's inputs."""
        types = {v.name: tensor_type(v.type) for v in self._graph.inputs}
        names = [n for n in self._names if not trainable_only or n in self._state._checkpoint.trained]
        shapes = {n: t.shape if (t := types[n]) is not None else None for n in names}
        weights = [TrainedWeight(n, [int(d or 0) for d in shape or ()], "float32") for n, shape in shapes.items()]
        return TrainedWeights(weights, len(weights), [], {})

    # ── the session ──────────────────────────────────────────────────────────────────────────────────────────────

    def _opened(self) -> ArtifactSession:
        if self._session is None:
            checkpoint = self._state._checkpoint
            if checkpoint.is_nominal:
                raise InvalidInput("the checkpoint has no values", hint="copy_buffer_to_parameters(buffer) gives them")
            self._session = ArtifactSession(
                self._paths[0], checkpoint, self._optimizer, self._options, self._providers, **self._more
            )
        return self._session

    def _close(self) -> None:
        """Keep what the session has, for the next one."""
        if self._session is not None:
            self._state._current()
            self._session.release()
            self._session = None


@checks_arguments()
class Optimizer:
    """Makes steps with the gradients of a module, as its model says: AdamW or SGD, with a limit of the norm."""

    def __init__(self, optimizer_uri: Path, module: Module) -> None:
        self._module = module
        module._close()
        module._optimizer = optimizer_uri

    def step(self) -> None:
        self._module._opened().run_optimizer(self._module._rate)

    def set_learning_rate(self, learning_rate: float) -> None:
        self._module._rate = float(learning_rate)

    def get_learning_rate(self) -> float:
        return self._module._rate


@checks_arguments()
class LinearLRScheduler:
    """Sets the rate of learning: from 0 to initial_lr in the steps of the warm-up, then to 0 at the last step."""

    def __init__(
        self, optimizer: Optimizer, warmup_step_count: int, total_step_count: int, initial_lr: float
    ) -> None:  # fmt: skip
        self._optimizer, self._initial = optimizer, initial_lr
        self._warmup, self._total = warmup_step_count, total_step_count
        optimizer.set_learning_rate(initial_lr)

    def step(self) -> None:
        session = self._optimizer._module._session
        done = session.steps_made if session is not None else self._optimizer._module._state._checkpoint.step
        if done < self._warmup:
            share = done / self._warmup
        else:
            share = max(0.0, (self._total - done) / max(1, self._total - self._warmup))
        self._optimizer.set_learning_rate(self._initial * share)
