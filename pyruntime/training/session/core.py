"""What `TrainingSession` does natively and in Pyodide: steps, checkpoints, exports. pyruntime/runtime/training_steps.py
decides which runs a call needs; subclasses open what runs the graph, and name the type of arrays."""

from __future__ import annotations

import json
import os
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import nan, prod
from pathlib import Path
from threading import RLock
from typing import Any

from pyruntime.arguments import checks_arguments
from pyruntime.errors import InvalidInput, PyRuntimeError, SessionFailed, file_bytes
from pyruntime.frontend.feed_checks import check_given, differing_dims, shared_dims
from pyruntime.onnx import load
from pyruntime.onnx.edit import export_plan
from pyruntime.onnx.graph import Graph, TensorType, Weight
from pyruntime.onnx.sources import FileSource, MemorySource
from pyruntime.runtime.fitting import FitEpoch, FitPlan, row_order
from pyruntime.runtime.step_numbers import StepNumbers
from pyruntime.runtime.trained_weights import (
    AVERAGE,
    GRADIENT,
    IDLE,
    START,
    TrainedWeight,
    TrainedWeights,
    go_on_from,
    metadata_of,
)
from pyruntime.runtime.training_steps import APPLY, LOSS, NUMBERS, RESULT, StepResult, StepRun, TrainingSteps
from pyruntime.session.memory_report import MemoryReport
from pyruntime.session.model_source import check_model
from pyruntime.session.specialisation import text_of_differing_dims
from pyruntime.training.adapters.adapter_file import Adapter, adapter_files
from pyruntime.training.adapters.lora import Lora
from pyruntime.training.files import safetensors
from pyruntime.training.files.safetensors import Stored
from pyruntime.training.graph.option_checks import not_negative, patterns
from pyruntime.training.graph.recipe import Recipe, recipe_of
from pyruntime.training.graph.training_graph import training_graph
from pyruntime.training.session.file_writing import assembled, write_file
from pyruntime.training.session.fitting import Data, FitResult, as_given, fit
from pyruntime.training.session.label_errors import placed_labels
from pyruntime.training.session.places import Arrays, StepSession


@dataclass(frozen=True, slots=True)
class Parameter:
    """reason: why it is trained: the end of a sentence that begins with "it"."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Input:
    """shape: numbers, names of dims, and None for dims without a name; None if the rank is not known"""

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: str | None


def step_numbers(recipe: Recipe) -> StepNumbers:
    scale = 1.0 if recipe.loss_scale is None else recipe.loss_scale
    return StepNumbers(recipe.step_settings, recipe.schedule, recipe.schedule_settings, recipe.seed, scale)


@checks_arguments("__init__")
class TrainingCore:
    """A model and what trains it. open_session: for the graph of the steps; memory: bytes that a step may need, or 0"""

    def __init__(
        self, model: Any, options: Mapping[str, Any], arrays: Arrays, open_session: Callable[[Graph, int], Any]
    ) -> None:  # fmt: skip
        self._recipe = recipe_of(options)
        self._model = model
        self._arrays = arrays
        self._training = training = training_graph(self._read(model), self._recipe)
        self._numbers = step_numbers(training.recipe)
        names, graph = (*training.weights, *training.statistics), training.graph
        weights = [TrainedWeight(n, list(graph.weights[n].shape), graph.weights[n].dtype.name) for n in names]
        moments = {name: [*shape] for name, shape in training.moments.items()}
        self._trained = TrainedWeights(weights, len(training.weights), self._recipe.copies, moments)
        types = {v.name: v.type.dtype for v in graph.inputs if isinstance(v.type, TensorType)}
        self._targets = {n: str(types[n]) for n in training.targets}
        self._steps = TrainingSteps(
            self._numbers, self._recipe.accumulates, [*training.targets], [*training.outputs],
            [*training.step_outputs.values()], self._trained,
        )  # fmt: skip
        self.step_outputs: dict[str, Any] = {}  # of the last batch
        self._opened: StepSession = open_session(graph, self._recipe.memory)
        self._is_released = False
        self._turn = RLock()  # threads that call one session make their steps one after the other

    def _read(self, model: Any) -> Graph:
        check_model(model)
        return load(model)

    @property
    def _session(self) -> Any:
        """What runs the steps. Errors: SessionFailed after `release`"""
        if self._is_released:
            raise SessionFailed("this session is released", hint="create another")
        return self._opened

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(
        self, feeds: Mapping[str, Any], *, rate: float | None = None, run_options: Any = None
    ) -> StepResult:  # fmt: skip
        """Compute the loss of a batch and its gradients, and change the weights. feeds: the model's inputs, and the
        targets of the loss; rate: of learning, in place of the schedule's."""
        with self._turn:
            return self._perform(self._steps.step(_checked(rate)), feeds, run_options)

    def steps(
        self, batches: Iterable[Mapping[str, Any]], *, rate: float | None = None, run_options: Any = None
    ) -> list[StepResult]:
        """A step with each batch. Errors: those of `step`, naming the batch; the steps before it are made"""
        found: list[StepResult] = []
        with self._turn:
            for feeds in batches:
                try:
                    found.append(self.step(feeds, rate=rate, run_options=run_options))
                except PyRuntimeError as e:
                    e.message = f"batch {len(found) + 1}: {e.message}"
                    raise
        return found

    def accumulate(self, feeds: Mapping[str, Any], *, run_options: Any = None) -> StepResult:
        """Add the gradients of a batch to those of earlier ones, for a later `apply`."""
        with self._turn:
            return self._perform(self._steps.accumulate(), feeds, run_options)

    def gradients(self, feeds: Mapping[str, Any], *, run_options: Any = None) -> dict[str, Any]:
        """The gradients of the loss of a batch by name of the weight, without a step and before `clip`. Operators are
        as in a step, and running statistics change. The session needs the option accumulate. Errors: ExecutionError if
        the gradients are not finite"""
        with self._turn:
            self._steps.check_gradients(self._perform(self._steps.gradients(), feeds, run_options))
            states = self._states()
            return {w.name: self._arrays.array(states[GRADIENT + w.name]) for w in self._trained.changing()}

    def apply(
        self, *, rate: float | None = None, sum: bool = False, run_options: Any = None
    ) -> StepResult:  # fmt: skip
        """Change the weights by the mean of the gradients that wait (sum: by their sum)."""
        with self._turn:
            return self._perform(self._steps.apply(_checked(rate), sum), {}, run_options)

    def evaluate(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, *, average: bool = False,
        run_options: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The loss of a batch, as "loss", if feeds has its targets, and these outputs of the model. Operators are as in
        inference. average: with the averages of the weights"""
        for name in outputs or ():
            if name not in self._training.outputs:
                known = ", ".join(self._training.outputs)
                raise InvalidInput(f'output "{name}" does not exist', hint=f"outputs are {known}")
        run = self._steps.evaluate([*feeds], [*(outputs or ())])
        fed = self._feeds(run, feeds)
        with self._averaged(average), placed_labels(self._targets, fed, self._arrays):
            results = self._session.run(run.outputs, fed, run_options)
        found = dict(zip(run.outputs, results, strict=True))
        return {"loss": found.pop(LOSS).tolist(), **found} if LOSS in found else found

    def fit(
        self, dataset: Any, *, epochs: int = 1, batch_size: int = 32, validation: Any = None,
        callbacks: Sequence[Callable[[Any], Any]] = (), shuffle: bool = True, seed: int | None = None,
        patience: int | None = None, keep_best: bool = True, run_options: Any = None,
    ) -> FitResult:  # fmt: skip
        """Steps over a set of data, several times. See docs/training.md.

        dataset, validation: arrays by name, whose rows make batches of batch_size; a list or other iterable of batches;
            or a function of the epoch's number that returns one of these
        callbacks: called with the result of each step and of each epoch; False ends the work
        seed: of the order of rows and lists (shuffle), by default that of the session; each call has other orders
        patience: ends after so many epochs without a lower loss; keep_best: of the held-out data, at the end"""
        plan = FitPlan(epochs, batch_size, patience)
        data = Data(dataset, batch_size, self._training.targets, self._rows_of)
        held = None if validation is None else Data(validation, batch_size, self._training.targets, self._rows_of)
        key, first = self._recipe.seed if seed is None else seed, self._numbers.batch
        order = (lambda count, epoch: row_order(count, key, first + epoch)) if shuffle else as_given
        own = [self._observe_epoch] if self._recipe.schedule == "plateau" else []
        return fit(self, plan, data, held, order, [*own, *callbacks], self._keep if keep_best else None, run_options)

    def _keep(self) -> Callable[[], None]:
        """What sets the weights back to those of now. The proximal term goes on holding them near the same values."""
        values = self._weights()
        return lambda: self._update(values)

    def _observe_epoch(self, done: FitEpoch | StepResult) -> None:
        if isinstance(done, FitEpoch):
            self.observe(done.loss if done.validation is None else done.validation)

    def _rows_of(self, name: str, x: Any) -> Callable[[list[int]], Any]:
        """What returns some rows of an array. NumPy's need no copy of the whole."""
        if hasattr(x, "__array_interface__"):
            return lambda rows: x[rows]
        t = self._arrays.stored(name, x)
        size, data = len(t.data) // max(t.shape[0], 1), memoryview(t.data)

        def taken(rows: list[int]) -> Any:
            part = b"".join(data[n * size : (n + 1) * size] for n in rows)
            return self._arrays.feed(Stored(t.dtype, (len(rows), *t.shape[1:]), part))

        return taken

    def observe(self, value: float) -> float:
        """Tell the schedule "plateau" a value, such as the loss of held-out data, which may lower the rate; returns the
        rate of the next step. Errors: InvalidInput for another schedule"""
        with self._turn:
            return self._steps.observe(float(value))

    def _perform(self, run: StepRun, feeds: Mapping[str, Any], options: Any) -> StepResult:
        """Make a run and those that follow from it."""
        fed = self._feeds(run, feeds)
        found = self._session.check_feeds(fed, run.outputs)
        types = {v.name: v.type for v in self._training.graph.inputs}
        for dim, names in differing_dims(shared_dims(types), found).items():
            if not set(names).isdisjoint(self._training.targets):
                raise InvalidInput(text_of_differing_dims(dim, names))
        with placed_labels(self._targets, fed, self._arrays):
            result, *rest = self._session.run(run.outputs, found, options)
        if run.outputs[0] == RESULT:
            self.step_outputs = dict(zip(self._training.step_outputs, rest, strict=True))
        outcome = self._steps.ended(run, result.tolist())
        if outcome.warning:
            warnings.warn(f"pyruntime: {outcome.warning}", RuntimeWarning, stacklevel=3)
        self._session.tell(outcome.event, batch=outcome.batch, **asdict(outcome.result))
        return outcome.result if outcome.following is None else self._perform(outcome.following, {}, options)

    def _feeds(self, run: StepRun, feeds: Mapping[str, Any]) -> dict[str, Any]:
        check_given(feeds)
        found = {name: self._fitted(name, x) for name, x in feeds.items()} | {NUMBERS: self._floats(run.numbers)}
        if self._recipe.accumulates:
            found[APPLY] = self._floats([0.0] * run.applies)
        return found

    def _floats(self, values: Sequence[float]) -> Any:
        return self._arrays.feed(Stored("float32", (len(values),), array("f", values).tobytes()))

    def _fitted(self, name: str, x: Any) -> Any:
        """A feed; a target in the type of its input: labels may be any integers, other targets any numbers."""
        wanted = self._targets.get(name)
        stored = None if wanted is None else self._arrays.stored(name, x)
        if wanted is None or stored is None or stored.dtype == wanted:
            return x
        fits = stored.dtype.startswith(("int", "uint")) or wanted != "int64" and stored.dtype.startswith("float")
        return self._arrays.feed(self._arrays.cast(stored, wanted)) if fits else x

    # ── weights ──────────────────────────────────────────────────────────────────────────────────────────────────

    def parameters(self) -> list[Parameter]:
        """Name, shape and type of the weights that are trained, and why they are."""
        reasons = self._training.reasons
        return [Parameter(w.name, tuple(w.shape), w.dtype, reasons.get(w.name, "")) for w in self._trained.listed(True)]

    def inputs(self) -> list[Input]:
        """Name, shape and type of what a step is fed: inputs of the model, and targets."""
        types = {v.name: v.type for v in self._training.graph.inputs if v.name not in (NUMBERS, APPLY)}
        tensors = [(n, t) for n, t in types.items() if isinstance(t, TensorType)]
        return [Input(n, t.shape, None if t.dtype is None else str(t.dtype)) for n, t in tensors]

    def weights(self, *, average: bool = False) -> dict[str, Any]:
        """Copies of the weights that are trained (average: of their averages), and of running statistics, by name."""
        with self._turn:
            values = self._weights() | (self._averages() if average else {})
        return {name: self._arrays.array(t) for name, t in values.items()}

    def _weights(self) -> dict[str, Stored]:
        values, weights = self._states(), self._training.graph.weights
        return {w.name: values.get(w.name) or stored_weight(weights[w.name]) for w in self._trained.weights}

    def _states(self) -> dict[str, Stored]:
        """Those that are not as at the start."""
        return dict(self._session.with_states(lambda states: states.read()))

    def _update(self, values: Mapping[str, Stored]) -> None:
        self._session.with_states(lambda states: states.update(values))

    def state(self) -> bytes:
        """A checkpoint: a safetensors file with weights, the optimiser's moments, and the numbers of steps."""
        with self._turn:
            tensors = {n: x for n, x in {**self._weights(), **self._states()}.items() if not n.startswith(IDLE)}
            metadata = metadata_of(self._numbers, self._trained, self._recipe.optimizer, repr)
        return safetensors.write(tensors, metadata)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint. A file of that name is replaced at the end, in one step."""
        write_file(Path(path), self.state())

    def load(self, checkpoint: bytes | str | os.PathLike[str]) -> None:
        """Go on from a checkpoint, or begin with the weights of a safetensors file. Errors: InvalidInput for a file
        that does not fit the model or the options; nothing has changed then."""
        data = file_bytes(checkpoint) if isinstance(checkpoint, (str, os.PathLike)) else bytes(checkpoint)
        tensors, metadata = safetensors.read(data)
        others = self._trained.not_loaded({name: t.dtype for name, t in tensors.items()}, metadata)
        fitting = self._trained.fitting({name: list(t.shape) for name, t in tensors.items()})
        values = {name: self._arrays.cast(tensors[name], w.dtype) for name, w in fitting.items()}
        with self._turn:
            go_on_from(metadata, self._numbers, self._trained, self._recipe.optimizer, number_of)
            weights = self._training.graph.weights
            values |= {n: stored_weight(weights[n]) for n in self._training.statistics if n not in values}
            values |= self._copied(values, START, AVERAGE)
            self._session.with_states(lambda states: states.replace(values))
        if others:
            warnings.warn(f"pyruntime: {others}", RuntimeWarning, stacklevel=3)

    def freeze(self, names: str | Sequence[str]) -> list[str]:
        """Steps no longer change these weights, nor what the optimiser keeps of them, and the norm of gradients is
        that of the others. names: names or patterns; returns the names of all weights that are frozen now. Errors:
        InvalidInput for a pattern that no trained weight fits"""
        return self._freeze(names, True)

    def unfreeze(self, names: str | Sequence[str] = "*") -> list[str]:
        """Steps change these weights again, all without names; returns as `freeze`."""
        return self._freeze(names, False)

    def _freeze(self, names: str | Sequence[str], is_frozen: bool) -> list[str]:
        with self._turn:
            return self._trained.freeze([*(patterns("names", names) or ())], is_frozen)

    def set_weights(self, values: Mapping[str, Any]) -> None:
        """Replace weights, for example by an average of several sessions'."""
        self._set({name: self._arrays.stored(name, x) for name, x in values.items()})

    def _set(self, values: Mapping[str, Stored]) -> None:
        for name, t in values.items():
            self._trained.check(name, list(t.shape))
        new = {name: self._arrays.cast(t, self._trained.named(name).dtype) for name, t in values.items()}
        with self._turn:
            self._update(new | self._copied(new, START))

    def _copied(self, values: Mapping[str, Stored], *prefixes: str) -> dict[str, Stored]:
        """Values of states that begin with those of weights. prefixes: of their names"""
        return {state: values[name] for state, name in self._trained.copied([*values], [*prefixes])}

    @contextmanager
    def _averaged(self, average: bool) -> Iterator[None]:
        """In which the weights are their averages, if that is wanted. Before the first step both are the same. Errors:
        InvalidInput without the option ema"""
        with self._turn:
            found = self._averages() if average else {}
            own = {name: x for name, x in self._weights().items() if name in found}
            self._update(found) if found else None
            try:
                yield
            finally:
                self._update(own) if found else None

    def _averages(self) -> dict[str, Stored]:
        self._trained.check_average()
        states = self._states() if self._numbers.step else {}
        return {w.name: states[AVERAGE + w.name] for w in self._trained.listed(True) if AVERAGE + w.name in states}

    def get_parameters_size(self, trainable_only: bool = True) -> int:
        """How many numbers `get_contiguous_parameters` returns."""
        return self._trained.size(trainable_only)

    def get_contiguous_parameters(self, trainable_only: bool = True) -> Any:
        """The trained weights as one vector of float32, in the order of `parameters()`, each row-major; with
        trainable_only=False followed by running statistics."""
        return self._arrays.array(joined(self._trained, trainable_only, self._weights(), self._arrays))

    def load_parameters_buffer(self, buffer: Any, trainable_only: bool = True) -> None:
        """Replace weights by such a vector, for example an average of several sessions'. buffer: an array, or bytes"""
        self._set(split(self._trained, trainable_only, buffer, self._arrays))

    # ── the session ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def id(self) -> int:
        """Its number in events."""
        return self._opened.id

    def metrics(self) -> Mapping[str, Any]:
        """What the session has counted, as of `InferenceSession`; a step is a run, with `accumulate` one more."""
        return self._opened.metrics()

    def explain(self) -> dict[str, Any]:
        """Which node runs where, and why."""
        found: dict[str, Any] = self._session.explain()
        return found

    def memory(self) -> MemoryReport:
        """What the session holds, and its peak so far."""
        found: MemoryReport = self._session.memory()
        return found

    def trim(self) -> None:
        """Free memory that runs have taken."""
        self._session.trim()

    def release(self) -> None:
        """Free all memory. Later work is refused with SessionFailed."""
        self._opened.release()
        self._is_released = True

    # ── adapters and models ──────────────────────────────────────────────────────────────────────────────────────

    def adapter(self) -> bytes:
        """The adapters alone: a safetensors file with PEFT's names, and its configuration in the metadata. Errors:
        InvalidInput for a session without the option lora"""
        return self._adapter().to_safetensors()

    def save_adapter(self, path: str | os.PathLike[str]) -> None:
        """Write the adapters alone: a file (.safetensors or .onnx_adapter), or else a folder as PEFT's."""
        for target, data in adapter_files(Path(path), self._adapter(), self._arrays.times).items():
            write_file(target, data)

    def _adapter(self) -> Adapter:
        lora = self._lora()
        values = self._weights()
        return Adapter({n: values[n] for n in lora.names}, json.loads(lora.config()))

    def _lora(self) -> Lora:
        if self._training.lora is None:
            raise InvalidInput("this session trains no adapters", hint='create it with lora={"rank": 8}')
        return self._training.lora

    def export(self, path: str | os.PathLike[str] | None = None, *, average: bool = False) -> bytes:
        """The model with the new weights (average: their averages), in ONNX's format; also written to `path`, at the
        end and in one step. A model with external data still needs those files."""
        with self._turn:
            values = self._weights() | (self._averages() if average else {})
        for name, merges in self._training.merges.items():
            w = values.get(name) or stored_weight(self._training.base.weights[name])
            values[name] = self._arrays.with_products(w, merges, values)
        source = FileSource(self._model) if isinstance(self._model, (str, os.PathLike)) else MemorySource(self._model)
        plan = export_plan(source, self._training.exported, *self._training.written)
        data = assembled(plan, source, lambda name, dtype: bytes(self._arrays.cast(values[name], dtype).data))
        if path is not None:
            write_file(Path(path), data)
        return data

    @property
    def loss_scale(self) -> float:
        """What the loss of the next batch is multiplied by, so that small gradients are no zeros in float16."""
        return self._numbers.loss_scale

    def __enter__(self) -> TrainingCore:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def stored_weight(w: Weight) -> Stored:
    """A weight as the model has it."""
    return Stored(w.dtype.name, w.shape, w.read())


def joined(weights: TrainedWeights, trainable_only: bool, values: Mapping[str, Stored], arrays: Arrays) -> Stored:
    """The weights as one vector of float32."""
    data = b"".join(arrays.cast(values[w.name], "float32").data for w in weights.listed(trainable_only))
    return Stored("float32", (len(data) // 4,), data)


def split(weights: TrainedWeights, trainable_only: bool, vector: Any, arrays: Arrays) -> dict[str, Stored]:
    """The parts of a vector that `joined` made. vector: an array of floats, or bytes. Errors: InvalidInput"""
    if isinstance(vector, (bytes, bytearray)):
        if len(vector) % 4:
            raise InvalidInput(f"the vector has {len(vector)} bytes", hint="float32 has 4 bytes a number")
        numbers = Stored("float32", (len(vector) // 4,), bytes(vector))
    else:
        numbers = arrays.stored("the vector", vector)
    weights.check_vector(prod(numbers.shape), numbers.dtype, arrays.is_finite(numbers), trainable_only)
    data, parts, first = memoryview(arrays.cast(numbers, "float32").data), {}, 0
    for w in weights.listed(trainable_only):
        end = first + 4 * prod(w.shape)
        parts[w.name] = Stored("float32", tuple(w.shape), data[first:end])
        first = end
    return parts


def _checked(rate: float | None) -> float | None:
    """Errors: InvalidInput"""
    return None if rate is None else not_negative("rate", rate)


def number_of(text: str) -> float:
    """NaN for a text that is no number."""
    try:
        return float(text)
    except ValueError:
        return nan
