"""Compiles the graphs of a native session for its providers on this host, and loads Programs into executors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pyruntime.compiler.compile import Compiled, compile_graph
from pyruntime.compiler.settings import Settings
from pyruntime.exports import needs_of
from pyruntime.frontend.trace_graph import Spec, TensorSpec
from pyruntime.native.execution.executor import Executor
from pyruntime.native.gpu.device import adapter_choice, gpu_engine, open_gpu, usable
from pyruntime.native.sessions.program_cache import ready
from pyruntime.native.sessions.run_queue import cores
from pyruntime.native.sessions.shared_weights import load_executor
from pyruntime.onnx.graph import Graph, Value
from pyruntime.onnx.weight_values import elements
from pyruntime.options import PRESETS, SessionOptions
from pyruntime.placement.open_providers import OpenProviders
from pyruntime.placement.provider_list import (
    allows_software,
    effective,
    in_auto,
    is_auto,
    known,
    open_providers,
    target,
)
from pyruntime.placement.target import Target
from pyruntime.providers import BASE, ENGINES
from pyruntime.session.model_source import weight_sources
from pyruntime.session.specialisation import Requirements

RIVAL = "the GPU"  # its name among the candidates of a trial


class Compiler:
    """providers: names in order of preference; named: those that the caller named; timed: with "auto",
    those that the session begins with; candidates: those that a trial compares with them, by the name that `explain`
    gives them; why_not_gpu: why this host's GPU is named and not used, or ""; refused: by node, why
    it does not run on the GPU; added: providers of others, open for this session; settings: may be replaced between
    compilations; compiled: number of Programs that it has compiled, without those from the cache; adapter: the
    AdapterChoice of its GPU"""

    def __init__(self, options: SessionOptions, providers: Sequence[str], warn: Callable[[str], None]) -> None:
        self.options = options
        self.preset = PRESETS[options.preset or "throughput"]
        self.settings = Settings(options)
        self.refused: Mapping[str, str] = {}
        self.warn = warn
        self.compiled = 0
        self.why_not_gpu = ""
        self.timed: list[str] = []
        self.candidates: dict[str, list[str]] = {}
        self.named = list(providers)
        self.adapter = adapter_choice([], self.preset.saves_power)
        self.added = OpenProviders()
        self.set_providers(providers)

    def choose_providers(self, providers: Sequence[Any], on_gpu: bool = False, has_fallback: bool = True) -> None:
        """Use those of these providers that this host has, all again for all nodes. on_gpu: outputs stay on the GPU,
        even on a software adapter. Errors: NoAdapter, if without fallback"""
        measures = is_auto(providers) and not on_gpu
        others = in_auto(providers) if measures else []
        before, self.added = self.added, open_providers([*providers, *others], self.threads, has_fallback)
        before.close()
        self.refused = {}
        self.adapter = adapter_choice(providers, self.preset.saves_power)
        self.named = ["auto"] if measures else known(providers)
        allows = on_gpu or allows_software(providers)
        listed = [name for name in known(providers) if name in ENGINES or name in self.added]
        timeout = self.options.gpu_timeout
        names, self.why_not_gpu = usable(listed, timeout, self.adapter, allows, has_fallback, not measures)
        self.timed = [n for n in names if n != "webgpu"]
        self.candidates = {}
        if measures:
            base = self.timed.index(BASE)
            added = [n for n in others if n in self.added]
            self.candidates = {n: [*self.timed[:base], n, *self.timed[base:]] for n in added}
            self.candidates |= {RIVAL: names} if "webgpu" in names else {}
        self.set_providers(self.timed if measures else names)

    def set_providers(self, providers: Sequence[str]) -> None:
        self.providers = list(providers)
        self.uses_gpu = "webgpu" in effective(providers)  # cached, because every run needs it

    @property
    def threads(self) -> int:
        return self.options.intra_op_num_threads or int(min(self.preset.native_threads, cores()))

    def report(self) -> dict[str, Any]:
        """For `explain`: the providers that the caller named, those that the session uses, and why the GPU is not one
        of them."""
        return {"named": self.named, "used": effective(self.providers), "why": self.why_not_gpu}

    def open_hosts(self, **features: Any) -> tuple[Any, Any, list[Any]]:
        """Linear memory, the GPU (None without one), and the providers that write code for them, as `target` takes
        them. features: replace those of this host's WebAssembly, for code that runs elsewhere."""
        from pyruntime.providers.wasm import provider

        host = self.open_memory(self.threads)
        choices = self.settings.choices
        writer = provider.code_writer(**host.target | features, choices=choices)
        gpu = self.open_gpu() if self.uses_gpu else None
        return host, gpu, [(provider, writer), *([] if gpu is None else [gpu_engine(gpu, choices, self.refused)])]

    def open_memory(self, threads: int) -> Any:
        """Linear memory, and what runs WebAssembly in it."""
        from pyruntime.providers.wasm.wasmtime_host import WasmHost

        options = self.options
        return WasmHost(threads=threads, relaxed=options.relaxed_simd, native=options.native_code)

    def open_gpu(self) -> Any:
        return open_gpu(self.adapter, self.options.gpu_timeout)

    def compile(
        self, graph: Graph, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec] | None, chosen: Target,
        all_results: bool = False,
    ) -> Compiled:  # fmt: skip
        """all_results: the outputs are the results of all kernels"""
        self.compiled += 1
        return compile_graph(
            graph, specs, elements, chosen, self.settings, constants=constants, all_results=all_results
        )

    def compile_only(
        self, graph: Graph, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec] | None, **features: Any
    ) -> tuple[Compiled, Target]:
        """A Program that will not run here, and the providers and features that it was compiled for; features: see
        `open_hosts`"""
        host, gpu, engines = self.open_hosts(**features)
        chosen = target(self.providers, engines, self.added)
        try:
            return self.compile(graph, specs, constants, chosen), chosen
        finally:
            host.close()
            if gpu is not None:
                gpu.host.close()

    def compile_elsewhere(
        self, graph: Graph, requirements: Requirements, providers: Sequence[str], adapter: Any, relaxed: bool
    ) -> tuple[Compiled, dict[str, Any] | None]:
        """A Program for other hosts, and what it needs of their GPU, None if it does not use it. adapter: the GPU that
        is assumed. Pages run it, too (docs/design/cpu-kernels.md#code-for-cranelift)."""
        from pyruntime.providers.wasm import provider

        host, choices = self.open_memory(self.threads), self.settings.choices
        features = host.target | {"cranelift": False, "native": (), "relaxed": relaxed}
        host.close()
        engines: list[Any] = [(provider, provider.code_writer(**features, choices=choices))]
        writer = None
        if adapter is not None:
            from pyruntime.providers.webgpu.code_writer import GpuProvider

            gpu = GpuProvider(adapter)
            engines.append((gpu, writer := gpu.code_writer(choices=choices)))
        specs, constants, _ = requirements
        compiled = self.compile(graph, specs, constants, target(providers, engines, self.added))
        return compiled, needs_of(compiled, writer, adapter)

    def load(
        self, graph: Graph, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec] | None, memory_limit: int,
        all_results: bool = False, cpu_only: bool = False,
    ) -> tuple[Executor, tuple[Value, ...]]:  # fmt: skip
        """An executor of the Program, compiled or from the cache, and the graph's outputs with their shapes.
        cpu_only: no kernel runs on the GPU."""
        host, gpu, engines = self.open_hosts()
        chosen = target(self.providers, engines, self.added, cpu_only)
        others = (specs, constants, self.settings.cache_key, all_results)
        work = partial(self.compile, graph, specs, constants, chosen, all_results)
        made = ready(self.options, graph, chosen, others, work)
        for text in made.remarks:
            self.warn(text)
        sources, shares = weight_sources(graph), self.options.share_weights
        return load_executor(made.program, host, sources, made.host_call, memory_limit, gpu, shares), made.outputs
