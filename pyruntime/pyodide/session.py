"""`InferenceSession` in a Pyodide: onnxruntime's, for a Python that cannot wait, on WebAssembly and one thread."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import pyruntime.errors
from pyruntime.browser import Compilation, Model
from pyruntime.errors import (
    InvalidInput,
    InvalidModel,
    OutOfMemory,
    PyRuntimeError,
    SessionFailed,
    not_found,
    our_fault,
)
from pyruntime.frontend.feed_checks import NodeArg, arguments, check_names, differing_dims
from pyruntime.frontend.specialise import required
from pyruntime.ir.dtype import BY_NAME
from pyruntime.onnx.sources import FileSource, MemorySource, beside
from pyruntime.placement.provider_list import known
from pyruntime.pyodide.tensors import Tensor, presented, received

MAX_PROGRAMS = 16  # compiled for different values or sequence lengths before the oldest is forgotten


@dataclass(slots=True)
class SessionOptions:
    """graph_optimization_level: disabled, basic, extended, layout or all; memory_limit: bytes of memory a Program may
    use; free_dimension_overrides: numbers for named dims of inputs."""

    graph_optimization_level: str = "all"
    memory_limit: int = 1 << 32
    free_dimension_overrides: dict[str, int] = field(default_factory=dict)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """As onnxruntime spells it."""
        self.free_dimension_overrides[name] = size


class InferenceSession:
    """A model ready to run: its path (in Pyodide's file system) or its bytes.

    Feeds are NumPy's arrays, nested lists, or anything with a buffer (memoryview, array.array); outputs NumPy's arrays
    where NumPy is installed, else `Tensor`s, with `shape`, `tolist()` and a buffer.
    Errors: InvalidModel, UnsupportedOp, ShapeError name the node at fault.
    """

    def __init__(
        self, path_or_bytes: Any, sess_options: SessionOptions | None = None, providers: Sequence[Any] | None = None
    ) -> None:
        self._options = sess_options or SessionOptions()
        if "webgpu" in known(providers or ["wasm"]):
            warnings.warn("Python in Pyodide cannot wait for the GPU; the session runs on WebAssembly", stacklevel=2)
        self._js = _executor()
        self._files = _Files(path_or_bytes)
        with our_fault("opening the model"):
            self._model = Model(self._files.read, self._files.size, {
                "graphOptimizationLevel": self._options.graph_optimization_level, "external": self._files,
                "freeDimensionOverrides": self._options.free_dimension_overrides, **self._js.codeFeatures().to_py(),
            })  # fmt: skip
        self._programs: dict[str, _Program] = {}
        if self._model.main is not None:
            self._programs[""] = self._opened(self._model.main)

    def __del__(self) -> None:
        for program in getattr(self, "_programs", {}).values():
            program.release()

    def get_inputs(self) -> list[NodeArg]:
        """Name, type ("tensor(float)", …) and shape (ints, names, None) of each input."""
        return arguments(required(self._model.graph))

    def get_outputs(self) -> list[NodeArg]:
        return arguments(self._model.graph.outputs)

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """The outputs of these names, all of them for None. Errors: InvalidInput names the feed at fault; the session
        stays usable."""
        if run_options is not None:
            raise InvalidInput("a run in Pyodide has no options", hint="run_options=None")
        names = [o.name for o in self.get_outputs()]
        for name in output_names or ():
            if name not in names:
                raise InvalidInput(f'output "{name}" does not exist', hint=f"outputs are {names}")
        names = list(output_names or names)
        feeds = self._received(input_feed)
        with our_fault("running the model"):
            results = self._program(feeds).run(feeds, names)
        return [self._presented(name, result) for name, result in zip(names, results, strict=True)]

    def _received(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise InvalidInput(f"feeds must be a dict of tensors by name, got {type(given).__name__}")
        types = {v.name: v.type for v in self._model.graph.inputs}
        check_names(given, types, [v.name for v in required(self._model.graph)])
        return {name: received(name, x, types[name]) for name, x in given.items()}

    def _presented(self, name: str, result: Any) -> Any:
        """What a program gets of an output: of a ZipMap's a dict for each row, by class."""
        classes = self._model.classes.get(name)
        if classes is None:
            return [presented(t) for t in result] if isinstance(result, list) else result and presented(result)
        scores, columns = result.flat(), len(classes)
        if not result.shape or result.shape[-1] != columns:
            raise InvalidInput(f'output "{name}": {columns} classes do not fit scores of shape {result.shape}')
        rows = [scores[at : at + columns] for at in range(0, len(scores), columns)]
        return [dict(sorted(zip(classes, row, strict=True))) for row in rows]

    # ── Programs ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _program(self, feeds: Mapping[str, Any]) -> _Program:
        """For these feeds, compiled on first need."""
        types = {v.name: v.type for v in self._model.graph.inputs}
        if apart := differing_dims(types, feeds):
            warnings.warn(f"dims named {', '.join(apart)} differ; from now on they are different dims", stacklevel=3)
            self._forget()
            self._model.take_apart(json.dumps(list(apart)))
            if self._model.main is not None:
                self._programs[""] = self._opened(self._model.main)
        key = self._key(feeds)
        while key not in self._programs:
            values = json.loads(self._model.needs)["values"]
            described = {name: _described(x, name in values, True) for name, x in feeds.items()}
            compiled = self._model.specialise(json.dumps(described))
            key = self._key(feeds)  # what has to be known may have grown
            if compiled is not None:
                if len(self._programs) >= MAX_PROGRAMS:
                    self._programs.pop(next(iter(self._programs))).release()
                self._programs[key] = self._opened(compiled)
        return self._programs[key]

    def _key(self, feeds: Mapping[str, Any]) -> str:
        """Equal for feeds that one Program runs."""
        needs = json.loads(self._model.needs)
        if needs["defaults"] is not None and feeds.keys().isdisjoint(needs["defaults"]):
            return ""
        return json.dumps(
            {n: _described(x, n in needs["values"], n in needs["dims"]) for n, x in sorted(feeds.items())}
        )

    def _opened(self, compiled: Compilation) -> _Program:
        try:
            return _Program(self._js, compiled, self._files, self._options.memory_limit)
        except OutOfMemory:
            if not self._programs:
                raise
            self._forget()  # Programs for other feeds
            return _Program(self._js, compiled, self._files, self._options.memory_limit)

    def _forget(self) -> None:
        for program in self._programs.values():
            program.release()
        self._programs.clear()


def _described(x: Any, values: bool, dims: bool) -> Any:
    """A feed as the compiler is told of it (`pyruntime.browser`)."""
    if x is None or isinstance(x, list):
        return x and [_described(item, values, dims) for item in x]
    found = {"dtype": x.dtype.name, "dims": list(x.shape) if dims or values else len(x.shape)}
    return {**found, "data": x.flat()} if values else found


class _Files(Mapping[str, int]):
    """A model and the files of its external data, beside it: sizes by location."""

    def __init__(self, model: Any) -> None:
        path = isinstance(model, (str, os.PathLike))
        if not path and not isinstance(model, (bytes, bytearray, memoryview)):
            raise InvalidInput(f"a model is given by its path or its bytes, not as {type(model).__name__}")
        try:
            self._sources: dict[str, Any] = {"": FileSource(model) if path else MemorySource(model, "")}
        except FileNotFoundError:
            raise not_found(model) from None
        except OSError as e:
            raise InvalidModel(f'"{os.fspath(model)}" cannot be read: {e}') from None
        self._beside = beside(model) if path else None
        self.size = self._sources[""].size

    def read(self, offset: int, size: int, name: str = "") -> bytes:
        return self._sources[name].read(offset, size)

    def __getitem__(self, location: str) -> int:
        if location not in self._sources:
            try:
                if self._beside is None:
                    raise KeyError(location)
                self._sources[location] = self._beside(location)
            except OSError:
                raise KeyError(location) from None
        return self._sources[location].size

    def __iter__(self) -> Any:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


class _Program:
    """A Program on the executor of web/."""

    def __init__(self, js: Any, compiled: Compilation, files: _Files, memory_limit: int) -> None:
        from pyodide.ffi import create_proxy, to_js

        self._js, self._compiled = js, compiled
        self._failed: Exception | None = None  # of a host step

        def read(offset: int, size: int, name: str = "") -> Any:
            return to_js(memoryview(files.read(offset, size, name or "")))

        self._proxies = [create_proxy(read), create_proxy(self._step)]
        blob = to_js(memoryview(compiled.blob))
        self._executor = None
        try:
            self._executor = self._answer(js.open(compiled.json, blob, *self._proxies, memory_limit))
        except PyRuntimeError:
            self.release()
            raise

    def run(self, feeds: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
        from js import Object
        from pyodide.ffi import to_js

        wire = to_js({name: _wire(x) for name, x in feeds.items()}, dict_converter=Object.fromEntries)
        return [_result(found) for found in self._answer(self._js.run(self._executor, wire, to_js(names)))]

    def _step(self, number: int, inputs: str, symbols: str) -> str:
        """A host step; what it raises waits until the executor has come back."""
        try:
            return self._compiled.host(number, inputs, symbols)
        except Exception as error:
            self._failed = error
            return ""

    def _answer(self, answer: Any) -> Any:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        if not hasattr(answer, "error"):
            return answer.value
        payload = json.loads(answer.error)
        kind = getattr(pyruntime.errors, payload["type"], None)
        if isinstance(kind, type) and issubclass(kind, PyRuntimeError):
            raise kind(payload["message"], node=payload["node"], hint=payload["hint"])
        raise SessionFailed(f"{payload['type']}: {payload['message']}")

    def release(self) -> None:
        """Gives its memory back. JavaScript holds what it calls in Python, so nothing else does."""
        if self._executor is not None:
            self._js.release(self._executor)
        for proxy in self._proxies:
            proxy.destroy()


def _wire(x: Any) -> Any:
    """A feed for the executor."""
    if x is None or isinstance(x, list):
        return x and [_wire(item) for item in x]
    data = memoryview(x.data) if isinstance(x.data, bytes) else x.data
    return {"type": x.dtype.name, "dims": list(x.shape), "data": data}


def _result(found: Any) -> Any:
    if not found:
        return None
    if not hasattr(found, "dims"):
        return [_result(item) for item in found]
    data = found.data.to_bytes() if hasattr(found.data, "to_bytes") else found.data.to_py()
    return Tensor(BY_NAME[found.type], tuple(found.dims.to_py()), data)


def _executor() -> Any:
    """The executor's code, run in the page or program around. Errors: SessionFailed where that cannot be."""
    import js

    code = files("pyruntime.pyodide") / "executor.js"
    if not code.is_file():
        raise SessionFailed("this wheel was built without executor.js", hint="npm run build, then build the wheel")
    name = f"__pyruntime_{pyruntime.__version__}"  # a page may install another wheel later
    if not hasattr(js, name):
        setattr(js, name, js.Function.new(f"{code.read_text()};return executor")())
    return getattr(js, name)


__all__ = ["InferenceSession", "SessionOptions", "Tensor"]
