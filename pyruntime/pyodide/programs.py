"""The Programs of a session in Pyodide, on the executor of web/."""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any, NamedTuple

import pyruntime.errors
from pyruntime.browser import Compilation, PageCompiler
from pyruntime.errors import ExecutionError, OutOfMemory, PyRuntimeError, SessionFailed
from pyruntime.exports import compile_for_file, embed, with_types
from pyruntime.frontend.feed_checks import required_inputs
from pyruntime.frontend.trace_graph import Spec, TensorSpec
from pyruntime.host.arrays import CopiedArrays
from pyruntime.ir.dtype import BY_NAME
from pyruntime.onnx.graph import Graph, Source
from pyruntime.placement.open_providers import running
from pyruntime.program.types import TensorValue
from pyruntime.pyodide.tensors import Tensor
from pyruntime.pyodide.waiting import Work
from pyruntime.runtime.metrics import EngineCounts
from pyruntime.session.model_source import about, weight_sources
from pyruntime.session.needs import Given, GivenTensor
from pyruntime.session.specialisation import ProgramTable, Specialiser, output_paths
from pyruntime.training.files.safetensors import Stored
from pyruntime.training.session.state_values import StateValues, zeros_of


class Programs(Specialiser["Program"]):
    """The Programs of a session, each with a memory of its own."""

    def __init__(
        self, graph: Graph, compiler: PageCompiler, js: Any, memory_limit: int, gpu_timeout: float = 0
    ) -> None:
        """gpu_timeout: seconds; 0: without a GPU"""
        super().__init__(graph)
        self._compiler, self._js, self._memory_limit, self._gpu_timeout = compiler, js, memory_limit, gpu_timeout
        self._sources = weight_sources(graph)
        self.state_values = _States()
        self.counts = _Counts()
        self._freed: Report | None = None  # of the Program that was dropped last
        self._inner_values: ProgramTable[TensorSpec] = ProgramTable()

    def compile(self, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec] | None) -> Program:
        self.counts.compiled += 1
        compiled = self._compiler.compile(self.graph, specs, constants)
        if constants is None:
            self.outputs = compiled.outputs
        compilation = Compilation(compiled)
        try:
            return Program(self._js, compilation, self._sources, self._memory_limit, self._gpu_timeout)
        except OutOfMemory:
            if not self.table:
                raise
            self.forget()  # frees the memory of the Programs for other feeds
            self.is_prepared = True  # do not compile the Program for all feeds again
            return Program(self._js, compilation, self._sources, self._memory_limit, self._gpu_timeout)

    def _find(self, feeds: Mapping[str, Any], names: Sequence[str]) -> Program:
        """The Program that makes these outputs from these feeds."""
        if all(v.name in feeds for v in required_inputs(self.graph)):
            return self.program(feeds)
        return self.program_for(feeds, names)

    def part(self, names: Sequence[str]) -> Specialiser[Program]:
        part = Programs(self.graph_for(names), self._compiler, self._js, self._memory_limit, self._gpu_timeout)
        part.state_values, part.counts = self.state_values, self.counts
        return self.share_needs(part)

    def export(self, providers: Sequence[str], assume: Sequence[str], more: Mapping[str, Any]) -> bytes:
        """A file with the Program for all feeds. more: further entries of "types" in it"""
        compiled = partial(self._compiler.compile_elsewhere, self.graph, self.requirements_for_all())
        made = compile_for_file(providers, assume, 1, compiled)
        program = with_types(made.program, self.graph, self.outputs, {**about(self.graph), **more})
        return embed(program, self._sources).to_bytes()

    def can_run(self, program: Program, names: Sequence[str], feeds: Collection[str]) -> bool:
        return all(spec["name"] in feeds for spec in program.paths.find(list(names)).inputs)

    @property
    def on_gpu(self) -> bool:
        return self._gpu_timeout > 0

    def opened(self) -> Work[None]:
        """Wait until the Programs can run. Errors: those of the GPU"""
        for program in self.table.values():
            yield from program.opened()

    def run(self, feeds: Mapping[str, Any], names: Sequence[str]) -> Work[list[Any]]:
        """The outputs. After a fault of a provider that users have added, the nodes at fault leave it, and the run is
        repeated."""
        added = self._compiler.added
        while True:
            try:
                return (yield from self._run(feeds, names))
            except ExecutionError as e:
                if not added.leave(e):
                    raise
                self.forget()
                self.prepare()

    def _run(self, feeds: Mapping[str, Any], names: Sequence[str]) -> Work[list[Any]]:
        program = self._find(feeds, names)
        try:
            yield from program.opened()
        except PyRuntimeError:
            self.forget()  # the next run compiles it again
            raise
        with self.state_values.during_run(program, names):
            return (yield from program.run(feeds, names))

    def latest(self) -> Report:
        """Of the Program that was compiled last, also after its memory was freed. Errors: SessionFailed if there is
        none."""
        if self.table:
            program = next(reversed(self.table.values()))
            return Report(program.header, program.figures())
        if self._freed is None:
            raise SessionFailed("this model is compiled when it first runs", hint="run it once")
        return self._freed

    def engine_counts(self) -> EngineCounts:
        """Of all Programs so far, with the memory of those that are there."""
        tables = [self.table, *[part.table for part in self.parts.values()]]
        found = [program.figures() for table in tables for program in table.values()]
        runs, planned, held = (sum(f[key] for f in found) for key in ("runs", "planned", "arena"))
        counts = self.counts
        return EngineCounts(0, 0, counts.compiled, counts.runs + runs, counts.planned + planned, held)

    def drop(self, program: Program) -> None:
        figures = program.figures()
        self._freed = Report(program.header, {**figures, "arena": 0})
        self.counts.runs += figures["runs"]
        self.counts.planned += figures["planned"]
        self.state_values.drop([program])
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


class Report(NamedTuple):
    """Of one Program. figures: see web/pyodide.js"""

    header: Any
    figures: dict[str, Any]


@dataclass(slots=True)
class _Counts:
    """compiled: Programs of a session so far; runs, planned: of those that are dropped (see PlanCounts)"""

    compiled: int = 0
    runs: int = 0
    planned: int = 0


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


class Program:
    """A Program on the executor of web/."""

    def __init__(
        self, js: Any, compiled: Compilation, sources: Mapping[str, Source], memory_limit: int, gpu_timeout: float = 0
    ) -> None:
        from pyodide.ffi import create_proxy, to_js

        self._js, self._compiled = js, compiled
        self.header: Any = compiled.program.header
        self.paths = output_paths(self.header)
        self.changing: Collection[str] = ()  # names of the steps that change states in the next run
        self.has_changed_states = False  # whether the last run has begun to
        self._failed: Exception | None = None  # of a host step

        def read(offset: int, size: int, name: str = "") -> Any:
            return to_js(memoryview(sources[name or ""].read(offset, size)))

        self._proxies = [create_proxy(read), create_proxy(self._step), create_proxy(self._bind)]
        blob = to_js(memoryview(compiled.blob))
        self._executor, self._on_gpu = None, gpu_timeout > 0
        read_file, step, bind = self._proxies
        parts = compiled.parts.described()
        self._opening: Any = js.open(compiled.json, blob, read_file, step, parts, bind, memory_limit, gpu_timeout)
        if not self._on_gpu:
            self._take(self._opening)

    def _take(self, answer: Any) -> None:
        self._opening = None
        try:
            self._executor = self._answer(answer)
        except PyRuntimeError:
            self.release()
            raise

    def opened(self) -> Work[None]:
        """Wait for the shaders."""
        if self._opening is not None:
            answer = yield self._opening
            if self._opening is not None:  # no other run has waited for it meanwhile
                self._take(answer)

    def run(self, feeds: Mapping[str, Any], names: Sequence[str]) -> Work[list[Any]]:
        from js import Object
        from pyodide.ffi import to_js

        wire = to_js({name: _wire(x) for name, x in feeds.items()}, dict_converter=Object.fromEntries)
        with running([*self._compiled.parts.providers.values()]):
            given = (wire, to_js(names), to_js([*self.changing]))
            if self._on_gpu:
                answer = yield self._js.runInTurn(self._executor, *given)
            else:
                answer = self._js.run(self._executor, *given)
            found = self._answer(answer)
        self.has_changed_states = answer.hasChangedStates
        return [result_of(x) for x in found]

    def figures(self) -> dict[str, Any]:
        """What reports need of the executor: see web/pyodide.js."""
        if self._executor is None:  # it could not be opened
            none = dict.fromkeys(("weights", "peak", "requested", "top"), 0)
            return {"env": {}, "runs": 0, "planned": 0, "memory": none, "arena": 0}
        return json.loads(self._js.figures(self._executor))

    def states(self) -> dict[str, Stored]:
        """Copies of the states."""
        values: Mapping[str, TensorValue] = self.header.get("states", {})
        found = self._answer(self._js.readStates(self._executor))
        return {
            n: zeros_of(v)._replace(data=data.to_bytes()) for (n, v), data in zip(values.items(), found, strict=True)
        }

    def set_states(self, values: Mapping[str, Stored]) -> None:
        from js import Object
        from pyodide.ffi import to_js

        data = {name: memoryview(t.data) for name, t in values.items()}
        self._answer(self._js.writeStates(self._executor, to_js(data, dict_converter=Object.fromEntries)))

    def _step(self, number: int, inputs: str, symbols: str) -> str:
        """Run a host step. Its exception is raised when the executor has returned."""
        try:
            return self._compiled.host(number, inputs, symbols)
        except Exception as error:
            self._failed = error
            return ""

    def _bind(self, number: int, dims: str, symbols: str) -> NotedArrays:
        with self.noting_failure():
            return NotedArrays(self._compiled.parts.bind(number, dims, symbols), self)

    @contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Inside the block, JavaScript calls Python. An exception is raised again when the executor has returned."""
        try:
            yield
        except Exception as error:
            self._failed = error
            raise

    def _answer(self, answer: Any) -> Any:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        return value_of(answer)

    def release(self) -> None:
        """Free the memory. Needed because JavaScript's references to Python functions keep the Program alive."""
        if self._executor is not None:
            self._js.release(self._executor)
        while self._proxies:
            self._proxies.pop().destroy()


class NotedArrays:
    """The arrays of a part of a provider, for JavaScript."""

    def __init__(self, arrays: CopiedArrays, program: Program) -> None:
        self.buffer = arrays.buffer
        self._arrays, self._program = arrays, program

    def run(self) -> None:
        with self._program.noting_failure():
            self._arrays.run()


class _States(StateValues[Program]):
    def fetch(self, executor: Program) -> dict[str, Stored]:
        return executor.states()

    def put(self, executor: Program, values: Mapping[str, Stored]) -> None:
        executor.set_states(values)


def value_of(answer: Any) -> Any:
    """What a call of the executor returned. Errors: those that it threw"""
    if not hasattr(answer, "error"):
        return answer.value
    payload = json.loads(answer.error)
    kind = getattr(pyruntime.errors, payload["type"], None)
    if isinstance(kind, type) and issubclass(kind, PyRuntimeError):
        raise kind(payload["message"], node=payload["node"], hint=payload["hint"])
    raise SessionFailed(f"{payload['type']}: {payload['message']}")


def _wire(x: Any) -> Any:
    """Convert a feed for the executor."""
    if x is None or isinstance(x, list):
        return x and [_wire(item) for item in x]
    data = memoryview(x.data) if isinstance(x.data, bytes) else x.data
    return {"type": x.dtype.name, "dims": list(x.shape), "data": data}


def result_of(found: Any) -> Any:
    if not found:
        return None
    if not hasattr(found, "dims"):
        return [result_of(item) for item in found]
    data = found.data.to_bytes() if hasattr(found.data, "to_bytes") else found.data.to_py()
    return Tensor(BY_NAME[found.type], tuple(found.dims.to_py()), data)


def executor() -> Any:
    """The executor, run in the surrounding page or program. Errors: SessionFailed if the wheel has no executor"""
    import js

    code = files("pyruntime.pyodide") / "executor.js"
    if not code.is_file():
        raise SessionFailed("this wheel was built without executor.js", hint="npm run build, then build the wheel")
    name = f"__pyruntime_{pyruntime.__version__}"  # named by version, because a page may install another wheel later
    if not hasattr(js, name):
        setattr(js, name, js.Function.new(f"{code.read_text()};return executor")())
    return getattr(js, name)
