"""onnxruntime's `InferenceSession` for Pyodide. Python cannot wait for promises in Pyodide, so sessions run WebAssembly
on one thread."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Hashable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import pyruntime.errors
from pyruntime.browser import Compilation, PageCompiler
from pyruntime.errors import InvalidInput, OutOfMemory, PyRuntimeError, SessionFailed, our_fault
from pyruntime.frontend.feed_checks import NodeArg, arguments, check_names, required_inputs
from pyruntime.frontend.maps import classes
from pyruntime.frontend.trace_graph import Spec, TensorSpec
from pyruntime.ir.dtype import BY_NAME
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph, Source
from pyruntime.options import PYODIDE, SessionOptions, check_options
from pyruntime.placement.provider_list import is_auto, known
from pyruntime.pyodide.tensors import Tensor, to_output, to_tensor
from pyruntime.session.model_source import check_model, weight_sources
from pyruntime.session.needs import Given, GivenTensor
from pyruntime.session.specialisation import ProgramTable, Specialiser, output_paths


class InferenceSession:
    """A model ready to run: its path (in Pyodide's file system) or its bytes.

    Feeds are NumPy's arrays, nested lists, or anything with a buffer (memoryview, array.array); outputs are NumPy's
    arrays if NumPy is installed, else `Tensor`s, with `shape`, `tolist()` and a buffer.
    Errors: InvalidModel, UnsupportedOp, ShapeError name the node at fault.
    """

    def __init__(
        self, path_or_bytes: Any, sess_options: SessionOptions | None = None, providers: Sequence[Any] | None = None
    ) -> None:
        options = sess_options or SessionOptions()
        check_options(options, PYODIDE)
        if "webgpu" in known(providers or ["wasm"]) and not is_auto(providers or []):
            warnings.warn("Python in Pyodide cannot wait for the GPU; the session runs on WebAssembly", stacklevel=2)
        check_model(path_or_bytes)
        js = _executor()
        with our_fault("opening the model"):
            compiler = PageCompiler(options, js.codeFeatures().to_py())
            border = compiler.prepare(load(path_or_bytes))
            self._classes = {name: classes(node) for name, node in border.scores.items()}
            self._programs = _Programs(border.graph, compiler, js, options.memory_limit)
            self._programs.prepare()

    def __del__(self) -> None:
        if hasattr(self, "_programs"):
            self._programs.forget()

    def get_inputs(self) -> list[NodeArg]:
        """Name, type ("tensor(float)", …) and shape (ints, names, None) of each input."""
        return arguments(required_inputs(self._programs.graph))

    def get_outputs(self) -> list[NodeArg]:
        return arguments(self._programs.outputs)

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """The outputs with these names, or all outputs for None. Errors: InvalidInput names the feed at fault; the
        session stays usable."""
        if run_options is not None:
            raise InvalidInput("a run in Pyodide has no options", hint="run_options=None")
        names = [o.name for o in self.get_outputs()]
        for name in output_names or ():
            if name not in names:
                raise InvalidInput(f'output "{name}" does not exist', hint=f"outputs are {names}")
        names = list(output_names or names)
        feeds = self._tensors(input_feed, names)
        with our_fault("running the model"):
            results = self._programs.find(feeds, names).run(feeds, names)
        return [self._output(name, result) for name, result in zip(names, results, strict=True)]

    def _tensors(self, given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise InvalidInput(f"feeds must be a dict of tensors by name, got {type(given).__name__}")
        graph = self._programs.graph
        types = {v.name: v.type for v in graph.inputs}
        given = {name: x for name, x in given.items() if name not in graph.unused}
        required = [v.name for v in required_inputs(graph)]
        if not given.keys() >= set(required):
            uses = self._programs.uses()
            required = [name for name in required if any(name in uses[output] for output in names)]
        check_names(given, types, required)
        return {name: to_tensor(name, x, types[name]) for name, x in given.items()}

    def _output(self, name: str, result: Any) -> Any:
        """Convert an output for the caller: that of a ZipMap becomes a dict for each row, by class."""
        classes = self._classes.get(name)
        if classes is None:
            return [to_output(t) for t in result] if isinstance(result, list) else result and to_output(result)
        scores, columns = result.flat(), len(classes)
        if not result.shape or result.shape[-1] != columns:
            raise InvalidInput(f'output "{name}": {columns} classes do not fit scores of shape {result.shape}')
        rows = [scores[at : at + columns] for at in range(0, len(scores), columns)]
        return [dict(sorted(zip(classes, row, strict=True))) for row in rows]


class _Programs(Specialiser["_Program"]):
    """The Programs of a session, each with a memory of its own."""

    def __init__(self, graph: Graph, compiler: PageCompiler, js: Any, memory_limit: int) -> None:
        super().__init__(graph)
        self._compiler, self._js, self._memory_limit = compiler, js, memory_limit
        self._sources = weight_sources(graph)
        self._inner_values: ProgramTable[TensorSpec] = ProgramTable()

    def compile(self, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec] | None) -> _Program:
        compiled = self._compiler.compile(self.graph, specs, constants)
        if constants is None:
            self.outputs = compiled.outputs
        compilation = Compilation(compiled)
        try:
            return _Program(self._js, compilation, self._sources, self._memory_limit)
        except OutOfMemory:
            if not self.table:
                raise
            self.forget()  # frees the memory of the Programs for other feeds
            self.is_prepared = True  # do not compile the Program for all feeds again
            return _Program(self._js, compilation, self._sources, self._memory_limit)

    def find(self, feeds: Mapping[str, Any], names: Sequence[str]) -> _Program:
        """The Program that makes these outputs from these feeds."""
        if all(v.name in feeds for v in required_inputs(self.graph)):
            return self.program(feeds)
        return self.program_for(feeds, names)

    def part(self, names: Sequence[str]) -> Specialiser[_Program]:
        return self.share_needs(_Programs(self.graph_for(names), self._compiler, self._js, self._memory_limit))

    def can_run(self, program: _Program, names: Sequence[str], feeds: Collection[str]) -> bool:
        return all(spec["name"] in feeds for spec in program.paths.find(list(names)).inputs)

    def drop(self, program: _Program) -> None:
        program.release()

    def describe(self, feeds: Mapping[str, Any]) -> dict[str, Given]:
        return {name: _described(x) for name, x in feeds.items()}

    def evaluate(
        self, part: Graph, specs: Mapping[str, Spec], key: Hashable, constants: Mapping[str, TensorSpec],
        feeds: Mapping[str, Any],
    ) -> TensorSpec:  # fmt: skip
        """Memoised, because the interpreter is slow."""
        given = (part.outputs[0].name, *((name, _hashable(x)) for name, x in feeds.items()))
        inner = super().evaluate
        return self._inner_values.find(given, lambda: inner(part, specs, key, constants, feeds))


def _described(x: Any) -> Given:
    if x is None or isinstance(x, list):
        return x and [_described(item) for item in x]
    return GivenTensor(x.dtype, x.shape, x.flat)


def _hashable(x: Any) -> Hashable:
    if x is None:
        return None
    if isinstance(x, list):
        return tuple(_hashable(item) for item in x)
    return (x.shape, x.data if isinstance(x.data, bytes) else tuple(x.data))


class _Program:
    """A Program on the executor of web/."""

    def __init__(self, js: Any, compiled: Compilation, sources: Mapping[str, Source], memory_limit: int) -> None:
        from pyodide.ffi import create_proxy, to_js

        self._js, self._compiled = js, compiled
        self.paths = output_paths(compiled.program.header)
        self._failed: Exception | None = None  # of a host step

        def read(offset: int, size: int, name: str = "") -> Any:
            return to_js(memoryview(sources[name or ""].read(offset, size)))

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
        """Run a host step. Its exception is raised when the executor has returned."""
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
        """Free the memory. Needed because JavaScript's references to Python functions keep the Program alive."""
        if self._executor is not None:
            self._js.release(self._executor)
        for proxy in self._proxies:
            proxy.destroy()


def _wire(x: Any) -> Any:
    """Convert a feed for the executor."""
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
    """The executor, run in the surrounding page or program. Errors: SessionFailed if the wheel has no executor"""
    import js

    code = files("pyruntime.pyodide") / "executor.js"
    if not code.is_file():
        raise SessionFailed("this wheel was built without executor.js", hint="npm run build, then build the wheel")
    name = f"__pyruntime_{pyruntime.__version__}"  # named by version, because a page may install another wheel later
    if not hasattr(js, name):
        setattr(js, name, js.Function.new(f"{code.read_text()};return executor")())
    return getattr(js, name)


__all__ = ["InferenceSession", "SessionOptions", "Tensor"]
