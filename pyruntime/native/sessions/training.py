"""Trains a model natively. `pyruntime.TrainingSession` is its public form; web/page/training/ is its twin."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyruntime.errors import InvalidInput, our_fault
from pyruntime.frontend.feed_checks import differing_dims
from pyruntime.learning import safetensors
from pyruntime.learning.adapters.lora import Lora
from pyruntime.learning.adapters.side_nodes import side_nodes
from pyruntime.learning.export import Piece, export_plan
from pyruntime.learning.graph import training_graph
from pyruntime.learning.names import APPLIED, APPLY, IDLE, LOSS, NUMBERS, RESULT, START, state_of
from pyruntime.learning.recipe import DYNAMIC, Recipe, recipe_of
from pyruntime.native.gpu.device import warn
from pyruntime.native.memory.report import MemoryReport
from pyruntime.native.sessions.adapter_values import array_of, merged, to_file, to_files
from pyruntime.native.sessions.run_options import RunOptions
from pyruntime.native.sessions.session import Session
from pyruntime.native.sessions.weight_vectors import joined, size_of, split
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph, Source
from pyruntime.onnx.sources import FileSource, MemorySource
from pyruntime.options import SessionOptions
from pyruntime.runtime.training import FIRST_SCALE, LEAST_SCALE, MOST_SCALE, StepNumbers
from pyruntime.session.specialisation import text_of_differing_dims

FORMAT = "pyruntime-training/1"
COUNTS = ("step", "batch", "waiting", "good_batches")  # numbers that a checkpoint keeps, beside the weights


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


class TrainingSession:
    """A model and what trains it. See `pyruntime.TrainingSession` in docs/training.md.

    model: an ONNX model, as `InferenceSession` takes it
    options: loss, optimizer, schedule, trainable, lora, frozen, accumulate, mode, clip, proximal, seed,
        on_nan
    Errors: InvalidInput names the option; NotDifferentiable names the node and the weights that need it."""

    @our_fault("opening the training session")
    def __init__(
        self, model: Any, *, sess_options: SessionOptions | None = None, providers: Sequence[Any] | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        self._recipe = recipe_of(options)
        self._model = model
        self._graph = self._read(model)
        self._training = training_graph(self._graph, self._recipe)
        self._session = Session(model, sess_options, providers, read=lambda _: self._training.graph)
        self._numbers = step_numbers(self._training.recipe)
        self.step_outputs: dict[str, Any] = {}  # of the last batch

    def _read(self, model: Any) -> Graph:
        return load(model)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(
        self, feeds: Mapping[str, Any], *, rate: float | None = None, run_options: RunOptions | None = None
    ) -> StepResult:  # fmt: skip
        """Compute the loss of a batch and its gradients, and change the weights. feeds: the model's inputs, and the
        targets of the loss; rate: of learning, in place of the schedule's."""
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

    def accumulate(self, feeds: Mapping[str, Any], *, run_options: RunOptions | None = None) -> StepResult:
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
        self, *, rate: float | None = None, sum: bool = False, run_options: RunOptions | None = None
    ) -> StepResult:  # fmt: skip
        """Change the weights by the mean of the gradients that wait (sum: by their sum)."""
        self._require_accumulation()
        numbers = self._numbers
        if not numbers.waiting:
            raise InvalidInput("no gradients wait for a step", hint="call accumulate(feeds) first")
        used = numbers.rate_now() if rate is None else rate
        scale = 1.0 if sum else 1.0 / numbers.waiting
        _, good, norm = self._run(APPLIED, {}, used, scale, run_options, 1)
        numbers.waiting = 0
        return self._stepped(float("nan") if not good else 0.0, good, norm, used)

    def evaluate(
        self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, *, run_options: RunOptions | None = None
    ) -> dict[str, Any]:  # fmt: skip
        """The loss of a batch, as "loss", if feeds has its targets, and these outputs of the model. Operators are as in
        inference."""
        has_targets = all(name in feeds for name in self._training.targets)
        names = list(outputs or ([] if has_targets else self._training.outputs))
        wanted = [LOSS, *names] if has_targets else names
        results = self._session.run(wanted, self._feeds(feeds, 0.0, 1.0, 0), run_options)
        found = dict(zip(wanted, results, strict=True))
        return {"loss": float(found[LOSS]), **{n: found[n] for n in names}} if has_targets else found

    def _run(
        self, name: str, feeds: Mapping[str, Any], rate: float, scale: float, options: RunOptions | None, apply: int = 0
    ) -> tuple[float, float, float]:  # fmt: skip
        found = self._session.check_feeds(self._feeds(feeds, rate, scale, apply), [name])
        for dim, names in differing_dims(self._session.feeds.types, found).items():
            if not set(names).isdisjoint(self._training.targets):
                raise InvalidInput(text_of_differing_dims(dim, names))
        also = self._training.step_outputs if name == RESULT else {}
        result, *rest = self._session.run([name, *also.values()], found, options)
        if name == RESULT:
            self.step_outputs = dict(zip(also, rest, strict=True))
        loss, good, norm = (float(x) for x in result)
        return loss, good, norm

    def _feeds(self, feeds: Mapping[str, Any], rate: float, scale: float, apply: int) -> dict[str, Any]:
        if not isinstance(feeds, Mapping):
            raise InvalidInput(f"feeds must be a dict of tensors by name, got {type(feeds).__name__}")
        numbers = np.array(self._numbers.numbers(rate, scale), np.float32)
        found = {name: self._fitted(name, x) for name, x in feeds.items()} | {NUMBERS: numbers}
        if self._recipe.accumulates:
            found[APPLY] = np.zeros(apply, np.float32)
        return found

    def _fitted(self, name: str, x: Any) -> Any:
        """A target in the type of its feed: labels may be any integers, other targets any numbers."""
        if name not in self._training.targets:
            return x
        wanted = self._session.feeds.types[name].dtype.name  # type: ignore[union-attr]
        array = np.asarray(x)
        if array.dtype.name == wanted or wanted == "int64" and array.dtype.kind not in "iu":
            return array
        return array.astype(wanted) if array.dtype.kind in "iuf" else array

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
        self._session.watch.tell(kind, batch=self._numbers.batch, **asdict(result))
        return result

    def _warn_of(self, loss: float, norm: float) -> None:
        what = f"the loss is {loss}" if not np.isfinite(loss) else f"the gradients have norm {norm}"
        step, batch = self._numbers.step + 1, self._numbers.batch
        warn(f"step {step} (batch {batch}) changed no weight: {what}; a lower rate or clip may help")

    def _require_accumulation(self) -> None:
        if not self._recipe.accumulates:
            raise InvalidInput("this session makes a step of each batch", hint="create it with accumulate=True")

    # ── weights ──────────────────────────────────────────────────────────────────────────────────────────────────

    def parameters(self) -> list[Parameter]:
        """Name, shape and type of the weights that are trained."""
        weights = self._training.graph.weights
        return [Parameter(n, weights[n].shape, weights[n].dtype.name) for n in self._training.weights]

    def weights(self) -> dict[str, np.ndarray]:
        """Copies of the weights that are trained, and of running statistics, by name."""
        values = self._values()
        names = [*self._training.weights, *self._training.statistics]
        return {n: values[n] if n in values else self._initial(n) for n in names}

    def _initial(self, name: str) -> np.ndarray:
        w = self._training.graph.weights[name]
        return np.frombuffer(w.read(), w.dtype.name).reshape(w.shape)

    def _values(self) -> dict[str, np.ndarray]:
        session = self._session
        return session.alone(session.programs.state_values.read)

    def state(self) -> bytes:
        """A checkpoint: a safetensors file with weights, the optimiser's moments, and the numbers of steps."""
        values = {n: x for n, x in {**self.weights(), **self._values()}.items() if not n.startswith(IDLE)}
        tensors = {
            n: safetensors.Stored(x.dtype.name, x.shape, np.ascontiguousarray(x).data.cast("B") if x.size else b"")
            for n, x in values.items()
        }
        return safetensors.write(tensors, self._metadata())

    def _metadata(self) -> dict[str, str]:
        numbers = self._numbers
        counts = {key: str(getattr(numbers, key)) for key in (*COUNTS, "loss_scale")}
        return {"format": FORMAT, **counts, "optimizer": self._recipe.optimizer, "seed": str(self._recipe.seed)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint. A file of that name is replaced at the end, in one step."""
        write_file(Path(path), self.state())

    def load(self, checkpoint: bytes | str | os.PathLike[str]) -> None:
        """Go on from a checkpoint, or begin with the weights of a safetensors file. Errors: InvalidInput for a file
        that does not fit the model or the options; nothing has changed then."""
        data = Path(checkpoint).read_bytes() if isinstance(checkpoint, (str, os.PathLike)) else bytes(checkpoint)
        tensors, metadata = safetensors.read(data)
        known = {*self._training.weights, *self._training.statistics}
        values = {n: self._loaded(n, t) for n, t in tensors.items() if state_of(n) in known}
        missing = [n for n in self._training.weights if n not in values]
        if missing:
            raise InvalidInput(f'the checkpoint has no weight "{missing[0]}"', hint="it belongs to another model")
        counts: dict[str, float] = {key: _count(metadata, key) for key in COUNTS}
        if self._numbers.is_dynamic and "loss_scale" in metadata:
            counts["loss_scale"] = _scale(metadata["loss_scale"])
        if metadata.get("format") == FORMAT and metadata.get("optimizer") != self._recipe.optimizer:
            text = (
                f"the checkpoint is of optimizer {metadata.get('optimizer')}, the session has {self._recipe.optimizer}"
            )
            raise InvalidInput(text)
        values |= {n: self._initial(n) for n in self._training.statistics if n not in values}
        if not any(name.startswith(START) for name in values):
            values |= self._anchors(values)
        session = self._session
        session.alone(lambda: session.programs.state_values.replace(values))
        for key, n in counts.items():
            setattr(self._numbers, key, n)

    def set_weights(self, values: Mapping[str, Any]) -> None:
        """Replace weights, for example by an average of several sessions'."""
        known = {*self._training.weights, *self._training.statistics}
        for name, x in values.items():
            if name not in known:
                raise InvalidInput(f'"{name}" is not trained', hint=f"weights are {', '.join(sorted(known))}")
            shape = self._training.graph.weights[name].shape
            if np.shape(x) != shape:
                raise InvalidInput(f'"{name}" has shape {list(shape)}, not {list(np.shape(x))}')
            if np.asarray(x).dtype.kind not in "biuf":
                raise InvalidInput(f'"{name}" needs numbers, got {np.asarray(x).dtype}')
        arrays = {name: np.array(x, self._training.graph.weights[name].dtype.name) for name, x in values.items()}
        arrays |= self._anchors(arrays)
        session = self._session
        session.alone(lambda: session.programs.state_values.update(arrays))

    def _anchors(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the proximal term holds weights near, from now on: the values that were loaded last."""
        names = self._training.weights if self._recipe.proximal else ()
        return {START + name: values[name] for name in names if name in values}

    def get_parameters_size(self, trainable_only: bool = True) -> int:
        """How many numbers `get_contiguous_parameters` returns."""
        return size_of(self._shapes(trainable_only))

    def get_contiguous_parameters(self, trainable_only: bool = True) -> np.ndarray:
        """The trained weights as one vector of float32, in the order of `parameters()`, each row-major; with
        trainable_only=False followed by running statistics."""
        values = self.weights()
        return joined(values[name] for name in self._shapes(trainable_only))

    def load_parameters_buffer(self, buffer: Any, trainable_only: bool = True) -> None:
        """Replace weights by such a vector, for example an average of several sessions'. buffer: an array, or bytes"""
        self.set_weights(split(buffer, self._shapes(trainable_only)))

    def _shapes(self, trainable_only: bool) -> dict[str, tuple[int, ...]]:
        names = self._training.weights if trainable_only else (*self._training.weights, *self._training.statistics)
        return {name: self._training.graph.weights[name].shape for name in names}

    def _loaded(self, name: str, t: safetensors.Stored) -> np.ndarray:
        weight = self._training.graph.weights[state_of(name)]
        if tuple(t.shape) != weight.shape:
            raise InvalidInput(f'"{name}" has shape {list(weight.shape)}, in the checkpoint {list(t.shape)}')
        return array_of(t).astype(weight.dtype.name, copy=False)

    def adapter(self) -> bytes:
        """The adapters alone: a safetensors file with PEFT's names, and its configuration in the metadata. Errors:
        InvalidInput for a session without the option lora"""
        return to_file(self._lora(), self.weights())

    def save_adapter(self, path: str | os.PathLike[str]) -> None:
        """Write the adapters alone: a file (.safetensors or .onnx_adapter), or else a folder as PEFT's."""
        for target, data in to_files(Path(path), self._lora(), self.weights()).items():
            write_file(target, data)

    def _lora(self) -> Lora:
        if self._training.lora is None:
            raise InvalidInput("this session trains no adapters", hint='create it with lora={"rank": 8}')
        return self._training.lora

    # ── the rest ─────────────────────────────────────────────────────────────────────────────────────────────────

    def export(self, path: str | os.PathLike[str] | None = None) -> bytes:
        """The model with the new weights, in ONNX's format; also written to `path`, at the end and in one step. A model
        with external data still needs those files."""
        values, exported = merged(self._training, self.weights()), self._training.exported
        source = FileSource(self._model) if isinstance(self._model, (str, os.PathLike)) else MemorySource(self._model)
        plan = export_plan(source, exported, *side_nodes(self._training.beside))
        data = assembled(plan, source, values)
        if path is not None:
            write_file(Path(path), data)
        return data

    @property
    def loss_scale(self) -> float:
        """What the loss of the next batch is multiplied by, so that small gradients are no zeros in float16."""
        return self._numbers.loss_scale

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

    def __enter__(self) -> TrainingSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def assembled(plan: Sequence[Piece], source: Source, values: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a file, from pieces of another one and weights."""
    parts = [
        from_float32(values[piece.weight], piece.dtype) if piece.weight
        else piece.data or source.read(piece.start, piece.size)
        for piece in plan
    ]  # fmt: skip
    return b"".join(parts)


def write_file(target: Path, data: bytes) -> None:
    """Replace a file in one step, so that a program that is killed leaves the old one."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    for part in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
        process = part.name.removeprefix(f".{target.name}.").removesuffix(".part")
        if process.isdecimal() and not _is_running(int(process)):
            part.unlink(missing_ok=True)
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    """Whether there is such a process. On Windows, where a question would end it, all seem to be."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def from_float32(x: np.ndarray, dtype: str) -> bytes:
    """The bytes of an array in this type."""
    if dtype != "bfloat16":
        return np.ascontiguousarray(x, dtype).tobytes()
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FC0, rounded).astype(np.uint16).tobytes()


def _scale(text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not LEAST_SCALE <= scale <= MOST_SCALE:
        raise InvalidInput(f'the checkpoint says loss_scale "{text}"', hint="it is damaged")
    return scale


def _count(metadata: Mapping[str, str], key: str) -> int:
    text = metadata.get(key, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidInput(f'the checkpoint says {key} "{text}"', hint="a number is expected")
    return int(text)
