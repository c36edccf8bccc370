"""What `TrainingSession` does natively and in Pyodide: steps, checkpoints, exports. Subclasses run the Programs, and
have values of their own type (NumPy arrays, or Pyodide's tensors). Twin of
web/page/training/session.js."""

from __future__ import annotations

import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pyruntime.errors import InvalidInput
from pyruntime.frontend.feed_checks import differing_dims
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph, Weight
from pyruntime.onnx.sources import FileSource, MemorySource
from pyruntime.runtime.step_numbers import FIRST_SCALE, StepNumbers
from pyruntime.session.specialisation import text_of_differing_dims
from pyruntime.training.adapters.adapter_file import Adapter
from pyruntime.training.adapters.lora import Lora
from pyruntime.training.adapters.side_nodes import side_nodes
from pyruntime.training.files import safetensors
from pyruntime.training.files.model_export import export_plan
from pyruntime.training.graph.graph_names import APPLIED, APPLY, IDLE, LOSS, NUMBERS, RESULT, START, state_of
from pyruntime.training.graph.recipe import DYNAMIC, Recipe, not_negative, recipe_of
from pyruntime.training.graph.training_graph import training_graph
from pyruntime.training.session.checkpoints import counts_of, metadata_of
from pyruntime.training.session.file_writing import assembled, write_file

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class StepResult:
    """loss: of the batch, before the step; norm: of all gradients; rate: of learning; step: number of steps so far;
    applied: whether weights were changed: not if the loss or a gradient is not finite"""

    loss: float
    norm: float
    rate: float
    step: int
    applied: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    shape: tuple[int, ...]
    dtype: str


def step_numbers(recipe: Recipe) -> StepNumbers:
    s, timing = recipe.settings, recipe.schedule_settings
    get = timing.get
    return StepNumbers(
        s["rate"], s.get("beta1", 0.0), s.get("beta2", 0.0), recipe.schedule, get("warmup", 0.0), get("steps", 0.0),
        get("end", 0.0), get("every", 1.0), get("factor", 1.0), recipe.seed,
        loss_scale=recipe.loss_scale or FIRST_SCALE, is_dynamic=recipe.loss_scale == DYNAMIC,
    )  # fmt: skip


class TrainingCore(ABC, Generic[V]):
    """A model and what trains it. V: the type of values of weights"""

    def __init__(self, model: Any, options: Mapping[str, Any]) -> None:
        self._recipe = recipe_of(options)
        self._model = model
        self._training = training_graph(self._read(model), self._recipe)
        self._numbers = step_numbers(self._training.recipe)
        self.step_outputs: dict[str, Any] = {}  # of the last batch

    def _read(self, model: Any) -> Graph:
        return load(model)

    # ── of subclasses ────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _checked(self, feeds: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
        """Feeds of a run for these outputs, as values with a shape. Errors: InvalidInput"""

    @abstractmethod
    def _outputs(self, names: Sequence[str], feeds: Mapping[str, Any], options: Any) -> list[Any]:
        """Run for these outputs. Those that the caller gets have `tolist`, too."""

    @abstractmethod
    def _floats(self, values: Sequence[float]) -> Any:
        """A feed of float32."""

    @abstractmethod
    def _fitted(self, name: str, x: Any) -> Any:
        """A feed; a target in the type of its input: labels may be any integers, other targets any numbers."""

    @abstractmethod
    def _tell(self, kind: str, **event: Any) -> None:
        """An event of the session."""

    @abstractmethod
    def _warn(self, text: str) -> None: ...

    @abstractmethod
    def _states(self) -> dict[str, V]:
        """Copies of the values that are not as at the start."""

    @abstractmethod
    def _replace(self, values: Mapping[str, V]) -> None:
        """All values; those that are not given become zeros."""

    @abstractmethod
    def _update(self, values: Mapping[str, V]) -> None:
        """Some values."""

    @abstractmethod
    def _initial(self, w: Weight) -> V: ...

    @abstractmethod
    def _given(self, name: str, x: Any, w: Weight) -> V:
        """A new value that the caller gives for a weight. Errors: InvalidInput"""

    @abstractmethod
    def _loaded(self, t: safetensors.Stored, w: Weight) -> V:
        """A tensor of a file in the type of the weight."""

    @abstractmethod
    def _stored(self, value: V) -> safetensors.Stored: ...

    @abstractmethod
    def _in_type(self, value: V, dtype: str) -> bytes:
        """Bytes for a model file."""

    @abstractmethod
    def _merged(self, values: Mapping[str, V]) -> Mapping[str, V]:
        """These weights, and those of the model with the products of adapters added."""

    @abstractmethod
    def _adapter_files(self, path: Path, adapter: Adapter) -> Mapping[Path, bytes]: ...

    @abstractmethod
    def release(self) -> None:
        """Free all memory. Later work is refused with SessionFailed."""

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(
        self, feeds: Mapping[str, Any], *, rate: float | None = None, run_options: Any = None
    ) -> StepResult:  # fmt: skip
        """Compute the loss of a batch and its gradients, and change the weights. feeds: the model's inputs, and the
        targets of the loss; rate: of learning, in place of the schedule's."""
        rate = None if rate is None else not_negative("rate", rate)
        if self._recipe.accumulates:
            if self._numbers.waiting:
                raise InvalidInput("gradients of earlier batches wait for a step", hint="call apply()")
            first = self.accumulate(feeds, run_options=run_options)
            if not self._numbers.waiting:  # its gradients are not finite
                return first
            last = self.apply(rate=rate, run_options=run_options)
            return StepResult(first.loss, last.norm, last.rate, last.step, last.applied)
        numbers = self._numbers
        used = numbers.rate_now() if rate is None else rate
        loss, good, norm = self._run(RESULT, feeds, used, 1.0, run_options)
        numbers.batch += 1
        return self._stepped(loss, good, norm, used, numbers.adapts(math.isfinite(loss), bool(good)))

    def accumulate(self, feeds: Mapping[str, Any], *, run_options: Any = None) -> StepResult:
        """Add the gradients of a batch to those of earlier ones, for a later `apply`."""
        self._require_accumulation()
        numbers = self._numbers
        used = numbers.rate_now()
        loss, good, norm = self._run(RESULT, feeds, used, 1.0, run_options)
        numbers.batch += 1
        numbers.waiting += bool(good) or numbers.waiting > 0
        if not numbers.adapts(math.isfinite(loss), bool(good)) and not good:
            self._warn_of(loss, norm)
        return self._told("batch", StepResult(loss, norm, used, numbers.step, False))

    def apply(
        self, *, rate: float | None = None, sum: bool = False, run_options: Any = None
    ) -> StepResult:  # fmt: skip
        """Change the weights by the mean of the gradients that wait (sum: by their sum)."""
        self._require_accumulation()
        numbers = self._numbers
        if not numbers.waiting:
            raise InvalidInput("no gradients wait for a step", hint="call accumulate(feeds) first")
        used = numbers.rate_now() if rate is None else not_negative("rate", rate)
        scale = 1.0 if sum else 1.0 / numbers.waiting
        _, good, norm = self._run(APPLIED, {}, used, scale, run_options, 1)
        numbers.waiting = 0
        return self._stepped(float("nan") if not good else 0.0, good, norm, used)

    def evaluate(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, *, run_options: Any = None
    ) -> dict[str, Any]:  # fmt: skip
        """The loss of a batch, as "loss", if feeds has its targets, and these outputs of the model. Operators are as in
        inference."""
        has_targets = all(name in feeds for name in self._training.targets)
        names = list(outputs or ([] if has_targets else self._training.outputs))
        wanted = [LOSS, *names] if has_targets else names
        results = self._outputs(wanted, self._feeds(feeds, 0.0, 1.0, 0), run_options)
        found = dict(zip(wanted, results, strict=True))
        return {"loss": found[LOSS].tolist(), **{n: found[n] for n in names}} if has_targets else found

    def _run(
        self, name: str, feeds: Mapping[str, Any], rate: float, scale: float, options: Any, apply: int = 0
    ) -> tuple[float, float, float]:  # fmt: skip
        """Loss, whether it and the gradients are finite, norm of the gradients."""
        found = self._checked(self._feeds(feeds, rate, scale, apply), [name])
        types = {v.name: v.type for v in self._training.graph.inputs}
        for dim, names in differing_dims(types, found).items():
            if not set(names).isdisjoint(self._training.targets):
                raise InvalidInput(text_of_differing_dims(dim, names))
        also = self._training.step_outputs if name == RESULT else {}
        result, *rest = self._outputs([name, *also.values()], found, options)
        if name == RESULT:
            self.step_outputs = dict(zip(also, rest, strict=True))
        loss, good, norm = result.tolist()
        return loss, good, norm

    def _feeds(self, feeds: Mapping[str, Any], rate: float, scale: float, apply: int) -> dict[str, Any]:
        if not isinstance(feeds, Mapping):
            raise InvalidInput(f"feeds must be a dict of tensors by name, got {type(feeds).__name__}")
        numbers = self._floats(self._numbers.numbers(rate, scale))
        found = {name: self._fitted(name, x) for name, x in feeds.items()} | {NUMBERS: numbers}
        if self._recipe.accumulates:
            found[APPLY] = self._floats([0.0] * apply)
        return found

    def _stepped(
        self, loss: float, good: float, norm: float, rate: float, has_new_scale: bool = False
    ) -> StepResult:  # fmt: skip
        """has_new_scale: a smaller scale of the loss may help the next step, so that there is nothing to tell"""
        numbers = self._numbers
        if good:
            numbers.step += 1
        elif not has_new_scale:
            self._warn_of(loss, norm)
        return self._told("step", StepResult(loss, norm, rate, numbers.step, bool(good)))

    def _told(self, kind: str, result: StepResult) -> StepResult:
        """The result, of which listeners of "session" hear."""
        self._tell(kind, batch=self._numbers.batch, **asdict(result))
        return result

    def _warn_of(self, loss: float, norm: float) -> None:
        what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradients have norm {norm}"
        step, batch = self._numbers.step + 1, self._numbers.batch
        self._warn(f"step {step} (batch {batch}) changed no weight: {what}; a lower rate or clip may help")

    def _require_accumulation(self) -> None:
        if not self._recipe.accumulates:
            raise InvalidInput("this session makes a step of each batch", hint="create it with accumulate=True")

    # ── weights ──────────────────────────────────────────────────────────────────────────────────────────────────

    def parameters(self) -> list[Parameter]:
        """Name, shape and type of the weights that are trained."""
        weights = self._training.graph.weights
        return [Parameter(n, weights[n].shape, weights[n].dtype.name) for n in self._training.weights]

    def weights(self) -> dict[str, Any]:
        """Copies of the weights that are trained, and of running statistics, by name."""
        return dict(self._weights())

    def _weights(self) -> dict[str, V]:
        values, weights = self._states(), self._training.graph.weights
        names = [*self._training.weights, *self._training.statistics]
        return {n: values[n] if n in values else self._initial(weights[n]) for n in names}

    def state(self) -> bytes:
        """A checkpoint: a safetensors file with weights, the optimiser's moments, and the numbers of steps."""
        values = {n: x for n, x in {**self._weights(), **self._states()}.items() if not n.startswith(IDLE)}
        tensors = {n: self._stored(x) for n, x in values.items()}
        return safetensors.write(tensors, metadata_of(self._numbers, self._recipe))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint. A file of that name is replaced at the end, in one step."""
        write_file(Path(path), self.state())

    def load(self, checkpoint: bytes | str | os.PathLike[str]) -> None:
        """Go on from a checkpoint, or begin with the weights of a safetensors file. Errors: InvalidInput for a file
        that does not fit the model or the options; nothing has changed then."""
        data = Path(checkpoint).read_bytes() if isinstance(checkpoint, (str, os.PathLike)) else bytes(checkpoint)
        tensors, metadata = safetensors.read(data)
        known = {*self._training.weights, *self._training.statistics}
        values = {n: self._from_file(n, t) for n, t in tensors.items() if state_of(n) in known}
        missing = [n for n in self._training.weights if n not in values]
        if missing:
            raise InvalidInput(f'the checkpoint has no weight "{missing[0]}"', hint="it belongs to another model")
        counts = counts_of(metadata, self._numbers, self._recipe)
        weights = self._training.graph.weights
        values |= {n: self._initial(weights[n]) for n in self._training.statistics if n not in values}
        if not any(name.startswith(START) for name in values):
            values |= self._anchors(values)
        self._replace(values)
        for key, n in counts.items():
            setattr(self._numbers, key, n)

    def _from_file(self, name: str, t: safetensors.Stored) -> V:
        weight = self._training.graph.weights[state_of(name)]
        if tuple(t.shape) != weight.shape:
            raise InvalidInput(f'"{name}" has shape {list(weight.shape)}, in the checkpoint {list(t.shape)}')
        return self._loaded(t, weight)

    def set_weights(self, values: Mapping[str, Any]) -> None:
        """Replace weights, for example by an average of several sessions'."""
        known = {*self._training.weights, *self._training.statistics}
        if unknown := [name for name in values if name not in known]:
            raise InvalidInput(f'"{unknown[0]}" is not trained', hint=f"weights are {', '.join(sorted(known))}")
        given = {name: self._given(name, x, self._training.graph.weights[name]) for name, x in values.items()}
        self._update(given | self._anchors(given))

    def _anchors(self, values: Mapping[str, V]) -> dict[str, V]:
        """What the proximal term holds weights near, from now on: the values that were loaded last."""
        names = self._training.weights if self._recipe.proximal else ()
        return {START + name: values[name] for name in names if name in values}

    def get_parameters_size(self, trainable_only: bool = True) -> int:
        """How many numbers `get_contiguous_parameters` returns."""
        return sum(math.prod(shape) for shape in self._shapes(trainable_only).values())

    def _shapes(self, trainable_only: bool) -> dict[str, tuple[int, ...]]:
        names = self._training.weights if trainable_only else (*self._training.weights, *self._training.statistics)
        return {name: self._training.graph.weights[name].shape for name in names}

    # ── adapters and models ──────────────────────────────────────────────────────────────────────────────────────

    def adapter(self) -> bytes:
        """The adapters alone: a safetensors file with PEFT's names, and its configuration in the metadata. Errors:
        InvalidInput for a session without the option lora"""
        return self._adapter().to_safetensors()

    def save_adapter(self, path: str | os.PathLike[str]) -> None:
        """Write the adapters alone: a file (.safetensors or .onnx_adapter), or else a folder as PEFT's."""
        for target, data in self._adapter_files(Path(path), self._adapter()).items():
            write_file(target, data)

    def _adapter(self) -> Adapter:
        lora = self._lora()
        values = self._weights()
        return Adapter({n: self._stored(values[n]) for n in lora.names}, json.loads(lora.config()))

    def _lora(self) -> Lora:
        if self._training.lora is None:
            raise InvalidInput("this session trains no adapters", hint='create it with lora={"rank": 8}')
        return self._training.lora

    def export(self, path: str | os.PathLike[str] | None = None) -> bytes:
        """The model with the new weights, in ONNX's format; also written to `path`, at the end and in one step. A model
        with external data still needs those files."""
        values = self._merged(self._weights())
        source = FileSource(self._model) if isinstance(self._model, (str, os.PathLike)) else MemorySource(self._model)
        plan = export_plan(source, self._training.exported, *side_nodes(self._training.beside))
        data = assembled(plan, source, lambda name, dtype: self._in_type(values[name], dtype))
        if path is not None:
            write_file(Path(path), data)
        return data

    @property
    def loss_scale(self) -> float:
        """What the loss of the next batch is multiplied by, so that small gradients are no zeros in float16."""
        return self._numbers.loss_scale

    def __enter__(self) -> TrainingCore[V]:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
