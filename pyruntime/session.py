"""`InferenceSession`, with the shape of onnxruntime's Python API, on the native executor."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyruntime.compiler import LEVELS, Compiled, compile_graph
from pyruntime.errors import InvalidInput, NeedsValue, SessionFailed
from pyruntime.feeds import Argument, Feeds, arguments
from pyruntime.graph import Graph, Source, Value
from pyruntime.host import FUNCTIONS
from pyruntime.needs import Needs
from pyruntime.onnx import load
from pyruntime.onnx.values import elements
from pyruntime.translate import Spec, TensorSpec, spec_of

MAX_PROGRAMS = 16  # compiled for different values or sequence lengths before the oldest is forgotten


@dataclass
class SessionOptions:
    """graph_optimization_level: disabled, basic, extended, layout or all; intra_op_num_threads: 0 means one;
    memory_limit: bytes of memory the session may use; relaxed_simd: None means where the host has it."""

    graph_optimization_level: str = "all"
    intra_op_num_threads: int = 0
    memory_limit: int = 1 << 32
    relaxed_simd: bool | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class InferenceSession:
    """A model ready to run.

    model: path or bytes of an ONNX model (or anything `pyruntime.onnx.load` takes)
    providers: names in order of preference, of "wasm" and "webgpu"; onnxruntime's "CPUExecutionProvider" means "wasm"
    Errors: InvalidModel, UnsupportedOp, ShapeError name the node at fault.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | Source,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str] | None = None,
    ) -> None:
        self.state = "initializing"
        self.options = sess_options or SessionOptions()
        if self.options.graph_optimization_level not in LEVELS:
            raise InvalidInput(f"optimisation level {self.options.graph_optimization_level!r}", hint=f"one of {LEVELS}")
        self._providers = _known(providers or ["wasm"])
        self._lock = threading.Lock()
        self._programs: dict[Any, Any] = {}
        self._needs = Needs()
        self._parts: dict[Any, Any] = {}
        self._graph = load(model)
        self._feeds = Feeds(self._graph)
        self._prepare()
        self.state = "ready"

    # ── description ──────────────────────────────────────────────────────────────────────────────────────────────

    def get_inputs(self) -> list[Argument]:
        """Name, type ("tensor(float)", …) and shape (ints, names, None) of each input."""
        return arguments([v for v in self._graph.inputs if v.name not in self._graph.weights])

    def get_outputs(self) -> list[Argument]:
        return arguments(self._graph.outputs)

    def get_providers(self) -> list[str]:
        return list(self._providers)

    def get_modelmeta(self) -> Mapping[str, str]:
        return {"graph_name": self._graph.name, **self._graph.metadata}

    def memory(self) -> Any:
        """Peak, reuse and fragmentation of the arena (see `memory.Stats`)."""
        executors = list(self._programs.values())
        return executors[-1].memory() if executors else None

    # ── compiling ────────────────────────────────────────────────────────────────────────────────────────────────

    def _prepare(self) -> None:
        """Compile now if the model's input types say enough; else the first run does."""
        try:
            specs = {v.name: spec_of(v.name, v.type) for v in self._graph.inputs if v.name not in self._graph.weights}
            self._programs[()] = self._executor(specs)
        except NeedsValue as e:
            self._needs.add(self._graph, e)

    def _executor(self, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec] | None = None) -> Any:
        from providers.wasm import provider
        from providers.wasm.host import WasmHost
        from pyruntime.executor import Executor

        host = WasmHost(relaxed=self.options.relaxed_simd)
        builder: Any = provider.builder(relaxed=host.relaxed, shared=host.shared)
        gpu = None
        if self._providers[0] == "webgpu":
            builder, gpu = self._with_gpu(provider, builder)
        level = self.options.graph_optimization_level
        compiled = compile_graph(self._graph, specs, elements, builder, level=level, constants=constants)
        sources = _Sources(self._graph)
        return Executor(compiled.program, host, sources, _HostCalls(compiled), self.options.memory_limit, gpu)

    def _with_gpu(self, home: Any, builder: Any) -> tuple[Any, Any]:
        """A builder that places kernels on the GPU too, and what runs them there. With "webgpu" alone, everything
        that can be is on the GPU."""
        from providers.webgpu.builder import GpuProvider
        from providers.webgpu.host import GpuHost
        from providers.webgpu.host_run import GpuRunner
        from pyruntime.memories import GPU
        from pyruntime.partition import Placed

        host = GpuHost()
        away = GpuProvider(host.adapter)
        builders = {home.name: builder, away.name: away.builder()}
        return Placed([away, home], builders, only=self._providers == ["webgpu"]), GpuRunner(host, GPU)

    def _program(self, feeds: Mapping[str, Any]) -> Any:
        """The executor for these feeds, compiled on first need."""
        if () in self._programs:
            return self._programs[()]
        while True:
            specs, key = self._feeds.specs(feeds, self._needs)
            try:
                inner = self._inner(specs, key, feeds)
                key = (key, tuple(inner.items()))
                if key not in self._programs:
                    if len(self._programs) >= MAX_PROGRAMS:
                        self._programs.pop(next(iter(self._programs)))
                    self._programs[key] = self._executor(specs, inner)
                return self._programs[key]
            except NeedsValue as e:
                self._needs.add(self._graph, e)

    def _inner(self, specs: Mapping[str, Spec], key: Any, feeds: Mapping[str, Any]) -> dict[str, TensorSpec]:
        """Values inside the graph that compilation needs: computed by running the part of the graph before them."""
        out: dict[str, TensorSpec] = {}
        for name in sorted(self._needs.inner):
            place = (name, key, tuple(out.items()))
            if place not in self._parts:
                self._parts[place] = self._part(name, specs, out)
            out[name] = self._feeds.value_of(name, self._parts[place], feeds)
        return out

    def _part(self, name: str, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec]) -> Any:
        whole, self._graph = self._graph, replace(self._graph, outputs=(Value(name, None),))
        try:
            return self._executor(specs, constants)
        finally:
            self._graph = whole

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: object = None
    ) -> list[Any]:
        """The outputs (all if `output_names` is None) as numpy arrays, lists for sequences, None for empty optionals.

        Thread-safe: runs queue. Errors: InvalidInput for a feed with a wrong name, type, rank or dim, before anything
        runs; the session stays usable.
        """
        names = self._feeds.outputs(output_names)
        feeds = self._feeds.check(input_feed)
        with self._lock:
            if self.state == "failed":
                raise SessionFailed("the session has failed before")
            self.state = "running"
            try:
                executor = self._program(feeds)
                results = executor.run(self._feeds.flat(feeds, executor.header))
            finally:
                self.state = "ready"
        return [self._feeds.output(executor.header, n, results[n]) for n in names]


def _known(providers: Sequence[Any]) -> list[str]:
    names = [p[0] if isinstance(p, tuple) else p for p in providers]
    alias = {"CPUExecutionProvider": "wasm", "cpu": "wasm", "WebGpuExecutionProvider": "webgpu"}
    names = [alias.get(n, n) for n in names]
    for n in names:
        if n not in ("wasm", "webgpu"):
            raise InvalidInput(f'provider "{n}" is not known', hint="wasm and webgpu are")
    return names


class _Sources(dict[str, Source]):
    """Where weights lie, by the name in the program."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._collect(graph)

    def _collect(self, graph: Graph) -> None:
        weights = [*graph.weights.values()]
        nodes = [*graph.nodes, *[n for f in graph.functions.values() for n in f.nodes]]
        while nodes:
            for a in nodes.pop().attrs.values():
                for x in a if isinstance(a, tuple) else (a,):
                    if isinstance(x, Graph):
                        weights += x.weights.values()
                        nodes += x.nodes
                    elif hasattr(x, "source"):
                        weights.append(x)
        for w in weights:
            if w.source is not None:
                self[w.source.name] = w.source


class _HostCalls:
    """Runs Host steps natively: arrays to (shape, list) and back."""

    def __init__(self, compiled: Compiled) -> None:
        self.kernels = compiled.host_kernels

    def __call__(self, number: int, fn: str, arrays: list[Any], env: dict[str, int]) -> list[Any]:
        from pyruntime.feeds import from_python, to_python

        kernel = self.kernels[number]
        bound = {name for _, _, name in kernel.binds}
        attrs = kernel.attrs
        if fn == "reference":
            from pyruntime import shape as sh

            shapes = [tuple(sh.evaluate(d, env) for d in t.shape) for t in kernel.outputs]
            attrs = {**attrs, "shapes": shapes, "symbols": {k: v for k, v in env.items() if k not in bound}}
        args = [None if a is None else to_python(a, t) for a, t in zip(arrays, kernel.args, strict=True)]
        results = FUNCTIONS[fn](args, attrs)
        return [from_python(r, t.dtype) for r, t in zip(results, kernel.outputs, strict=True)]
