"""`Session`: a model compiled and run by the native executor. `pyruntime.api.session` is what programs see of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from pyruntime.codegen.choices import Choices
from pyruntime.compiler.compile import Compiled, compile_graph
from pyruntime.compiler.listing import listing
from pyruntime.compiler.user_passes import Pipeline
from pyruntime.errors import DeviceLost, InvalidInput, NeedsValue, OutOfMemory, SessionFailed, our_fault
from pyruntime.frontend.budget import Budget
from pyruntime.frontend.feed_checks import NodeArg, arguments
from pyruntime.frontend.specialise import Needs, required
from pyruntime.frontend.trace_graph import Spec, TensorSpec, declared_specs
from pyruntime.native.execution.host_calls import HostCalls
from pyruntime.native.execution.timing import Timing, timed, timings
from pyruntime.native.execution.verify import Verdict, compare
from pyruntime.native.gpu.device import no_adapter, open_gpu, warn
from pyruntime.native.memory.arena import MemoryReport
from pyruntime.native.sessions.feeds import Feeds
from pyruntime.native.sessions.hosts import engines
from pyruntime.native.sessions.maps import Maps
from pyruntime.native.sessions.options import RunOptions, SessionOptions, check_model, check_options, check_run_options
from pyruntime.native.sessions.presets import PRESETS
from pyruntime.native.sessions.program_cache import ready
from pyruntime.native.sessions.program_file import Exported, is_program, pack, sources_of
from pyruntime.native.sessions.run_queue import Turns
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph, Source
from pyruntime.onnx.sampling import with_sampling
from pyruntime.onnx.weight_values import elements
from pyruntime.placement.provider_list import effective, known, target
from pyruntime.placement.target import Target
from pyruntime.program.explain import explain
from pyruntime.program.footprint import WHOLE

T = TypeVar("T")

MAX_PROGRAMS = 16  # compiled for different values or sequence lengths before the oldest is forgotten


class Session:
    """A model ready to run.

    model: path or bytes of an ONNX model (or anything `pyruntime.onnx.load` takes), or of a Program that `export` wrote
    providers: names in order of preference, of "wasm", "webgpu" and those that others bring (docs/extending.md);
        onnxruntime's "CPUExecutionProvider" means "wasm"
    Errors: InvalidModel, UnsupportedOp, ShapeError name the node at fault.
    """

    @our_fault("opening the session")
    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | Source,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(sess_options, (SessionOptions, type(None))):
            raise InvalidInput(f"sess_options cannot be of type {type(sess_options).__name__}", hint="SessionOptions")
        self.options = sess_options or SessionOptions()
        check_model(model)
        check_options(self.options, is_program(model))
        self._preset = PRESETS[self.options.preset]
        self._choices = Choices(self.options.choices)
        self._pipeline = Pipeline(self.options.graph_optimization_level, self.options.disabled_passes)
        self._providers = known(providers or ["wasm"])
        self._turns = Turns(self._lost)
        self._programs: dict[Any, Any] = {}
        self._needs = Needs()
        self._parts: dict[Any, Any] = {}
        self._dropped = False  # executors were given up after a fault
        self._opened = False  # from a Program that was compiled before
        self._model = os.fspath(model) if isinstance(model, (str, os.PathLike)) else ""
        if is_program(model):
            self._exported = Exported(model)
            self._opened = True
            self._maps = Maps(self._exported.graph)
        else:
            self._maps = Maps(self._pipeline.graph(self._read(model)))
            self._providers = no_adapter(self._providers, self._preset.low_power)
        self._graph = self._maps.graph
        self._feeds = Feeds(self._graph)
        self._staying = self._feeds.staying(self.options.preferred_output_location)
        self._surviving(self._prepare)

    def _read(self, model: Any) -> Graph:
        return self._as_asked(load(model))

    def _as_asked(self, graph: Graph) -> Graph:
        return with_sampling(graph.with_dims(self.options.free_dimension_overrides), self.options.sample_from)

    @property
    def state(self) -> str:
        return "running" if self._turns.taken else "ready"

    # ── description ──────────────────────────────────────────────────────────────────────────────────────────────

    def get_inputs(self) -> list[NodeArg]:
        """Name, type ("tensor(float)", …) and shape (ints, names, None) of each input."""
        return arguments(required(self._maps.declared))

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs that have a default: what is fed in its place makes a Program of its own."""
        return arguments([v for v in self._graph.inputs if v.name in self._graph.weights])

    def get_outputs(self) -> list[NodeArg]:
        """The same of each output."""
        return arguments(self._maps.outputs)

    def get_providers(self) -> list[str]:
        return list(self._providers)

    def memory(self) -> MemoryReport:
        """Weights, peak, reuse and fragmentation, in all and by provider, and what GPU tensors hold."""
        return self._latest().memory()

    def explain(self) -> dict[str, Any]:
        """What became of each node: provider, kernels, what is fused with it (docs/explain.md)."""
        executor = self._latest()
        return explain(executor.header, executor.env)

    def verify(self, input_feed: Mapping[str, Any], tolerance: float = 1e-3) -> Verdict:
        """Run the model on the GPU and on WebAssembly and name the first kernel whose results differ by more than
        `tolerance`, a share of the tensor's largest value. Errors: InvalidInput for a session without the GPU."""
        if self._opened:
            raise InvalidInput("a compiled Program holds no model to verify", hint="open the model")
        self._on_several()
        feeds = self._feeds.check(self._maps.entered(input_feed))
        return self._turns.alone(lambda: self._surviving(lambda: self._compared(feeds, tolerance), feeds))

    def _on_several(self) -> None:
        if effective(self._providers) == ["wasm"]:
            raise InvalidInput("this session runs on WebAssembly alone", hint='create it with providers=["webgpu"]')

    def _compared(self, feeds: Mapping[str, Any], tolerance: float) -> Verdict:
        self._on_several()  # still
        specs, inner = self._specs(feeds)
        away, home = (self._executor(self._graph, specs, inner, reveal=True, at_home=there) for there in (False, True))
        return compare(away, home, self._feeds.stored(feeds), tolerance)

    def listing(self, input_feed: Mapping[str, Any] | None = None, node: str = "", code: bool = False) -> str:
        """The kernels that the model becomes, as text: what they compute, their loops, with `code` also their
        WebAssembly or WGSL (docs/schedules.md). node: a name, an operator or a label that they are of; input_feed: for
        a model that is compiled for feeds."""
        if self._opened:
            raise InvalidInput("a compiled Program holds no kernels to list", hint="open the model")

        feeds = None if input_feed is None else self._feeds.check(input_feed)
        return self._turns.alone(lambda: listing(*self._anew(feeds), node, code))

    def _anew(self, feeds: Mapping[str, Any] | None, **of_host: Any) -> tuple[Compiled, Target]:
        """Compiled for feeds, or for all, to look at; of_host: what is not as this host is."""
        specs, inner = self._specs(feeds)
        _, gpu, engines = self._engines(**of_host)
        chosen = target(self._providers, engines)
        try:
            return self._compiled(self._graph, specs, inner, chosen), chosen
        finally:
            if gpu is not None:
                gpu.host.close()

    def profile(self, input_feed: Mapping[str, Any]) -> list[Timing]:
        """Run once, each kernel on its own; gives their times in the order they ran."""
        feeds = self._feeds.check(self._maps.entered(input_feed))
        return timings(self._turns.alone(lambda: self._surviving(lambda: self._timings(feeds), feeds)))

    def _timings(self, feeds: Mapping[str, Any]) -> list[tuple[str, float]]:
        executor = self._program(feeds)
        with timed(executor) as found:
            executor.run(self._feeds.stored(feeds))
        return found

    def export(self, weights: bool = False) -> bytes:
        """The Program as a file that `InferenceSession` opens without compiling; see `exported.pack`."""
        if () not in self._programs:
            text = "this model is compiled for some feeds when it runs, so there is no Program for all"
            dims = ", ".join(sorted(map(str, self._needs.dims)))
            raise InvalidInput(text, hint=dims and f"fix these dims by free_dimension_overrides: {dims}")
        if self._maps:
            raise InvalidInput("this model takes or gives maps, which a Program in a file cannot")
        made = self._latest()
        program, calls = made.program, made.host_call
        if not self._opened:  # browsers open it, too (docs/design/cpu-kernels.md#code-for-cranelift)
            compiled, _ = self._turns.alone(lambda: self._anew(None, cranelift=False))
            program, calls = compiled.program, HostCalls(compiled.host_kernels, compiled.symbols)
        return pack(made, program, calls, self._graph, self._model, weights)

    def _latest(self) -> Any:
        """The executor compiled last. Errors: SessionFailed if none is yet."""
        if not self._programs:
            raise SessionFailed("this model is compiled when it first runs", hint="run it once")
        return list(self._programs.values())[-1]

    # ── compiling ────────────────────────────────────────────────────────────────────────────────────────────────

    def _prepare(self) -> None:
        """Compile now if the model's input types say enough; else the first run does."""
        try:
            if self._opened:
                self._open(self._exported)
            elif (specs := declared_specs(required(self._graph))) is not None:
                self._programs[()] = self._executor(self._graph, specs)
        except NeedsValue as e:
            if not self._needs:  # else it is known since it was prepared before
                self._needs.add(self._graph, e)
        self._dropped = False

    def _executor(
        self, graph: Graph, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec] | None = None,
        reveal: bool = False, at_home: bool = False,
    ) -> Any:  # fmt: skip
        """For `verify`: reveal (what each kernel makes is an output), at_home (no kernel on the GPU)."""
        from pyruntime.native.sessions.shared_weights import executor

        host, gpu, engines = self._engines()
        chosen = target(self._providers, engines, at_home)
        asked = (specs, constants, self._pipeline.names, reveal, self.options.code_size_limit)
        work = partial(self._compiled, graph, specs, constants, chosen, reveal)
        made = ready(self.options, graph, chosen, asked, work)
        for text in made.remarks:
            self._remark(text)
        if constants is None:
            self._maps.made(made.outputs)
        return executor(made.program, host, sources_of(graph), made.host_call, self._room(), gpu)

    def _engines(self, **of_host: Any) -> tuple[Any, Any, list[Any]]:
        """Linear memory and the GPU (None without one), and the providers that write code for them, as `target` takes
        them."""
        return engines(self.options, self._preset, self._wants_gpu, self._choices, **of_host)

    def _compiled(
        self, graph: Graph, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec] | None, chosen: Target,
        reveal: bool = False,
    ) -> Compiled:  # fmt: skip
        return compile_graph(
            graph, specs, elements, chosen, pipeline=self._pipeline, constants=constants, reveal=reveal,
            budget=Budget(self.options.compile_time_limit, self.options.code_size_limit),
        )  # fmt: skip

    _remark = staticmethod(warn)

    @property
    def _wants_gpu(self) -> bool:
        return "webgpu" in effective(self._providers)

    def _open(self, found: Exported) -> None:
        """Take over a Program that was compiled before."""
        from pyruntime.native.sessions.shared_weights import executor
        from pyruntime.providers.wasm.wasmtime_host import WasmHost

        host = WasmHost(threads=found.program.header.get("threads", 1), relaxed=self.options.relaxed_simd)
        gpu = open_gpu(self._preset.low_power) if "webgpu" in found.program.header["modules"] else None
        self._providers = ["wasm"] if gpu is None else ["webgpu", "wasm"]
        self._programs[()] = executor(found.program, host, found.sources, found.host_call, self._room(), gpu)

    def _take_apart(self, dims: Mapping[str, Sequence[str]]) -> None:
        """From now on dims of these names are different ones. onnxruntime never takes them for the same."""
        for dim, inputs in dims.items():
            text = f'dims named "{dim}" have different sizes in the inputs {", ".join(map(repr, inputs))}'
            if self._opened:
                raise InvalidInput(text, hint="the Program takes them for one; open the model")
            self._remark(f"{text}; from now on they are taken as different dims")
        self._graph = self._graph.with_dims_apart(dims)
        self._feeds = Feeds(self._graph)
        self._needs = Needs()
        self._programs.clear()
        self._parts.clear()
        self._dropped = True

    def _program(self, feeds: Mapping[str, Any]) -> Any:
        """The executor for these feeds, compiled on first need."""
        if apart := self._feeds.differing_dims(feeds):
            self._take_apart(apart)
        if self._dropped:
            self._prepare()
        if () in self._programs and feeds.keys().isdisjoint(self._graph.weights):
            return self._programs[()]
        while True:
            specs, key = self._feeds.specs(feeds, self._needs)
            try:
                inner = self._inner(specs, key, feeds)
                key = (key, tuple(inner.items()))
                if key not in self._programs:
                    if len(self._programs) >= MAX_PROGRAMS:
                        self._programs.pop(next(iter(self._programs)))
                    self._programs[key] = self._executor(self._graph, specs, inner)
                return self._programs[key]
            except NeedsValue as e:
                self._needs.add(self._graph, e)

    def _specs(self, feeds: Mapping[str, Any] | None) -> tuple[Mapping[str, Spec], Mapping[str, TensorSpec]]:
        """What the Program for these feeds is compiled for. Errors: SessionFailed if there is none for all."""
        if feeds is None:
            specs = declared_specs(required(self._graph)) if () in self._programs else None
            if specs is None:
                raise SessionFailed("this model is compiled when it first runs", hint="give the feeds of a run")
            return specs, {}
        self._program(feeds)  # finds what must be compiled for
        specs, key = self._feeds.specs(feeds, self._needs)
        return specs, self._inner(specs, key, feeds)

    def _inner(self, specs: Mapping[str, Spec], key: Any, feeds: Mapping[str, Any]) -> dict[str, TensorSpec]:
        """Values inside the graph that compilation needs: computed by running the part of the graph before them."""

        def compute(part: Graph, constants: Mapping[str, TensorSpec]) -> TensorSpec:
            name = part.outputs[0].name
            place = (name, key, tuple(constants.items()))
            if place not in self._parts:
                if len(self._parts) >= MAX_PROGRAMS:
                    self._parts.pop(next(iter(self._parts)))
                self._parts[place] = self._executor(part, specs, constants)
            return self._feeds.value_of(name, self._parts[place], feeds)

        return self._needs.inner_values(self._graph, compute)

    # ── faults of the GPU ────────────────────────────────────────────────────────────────────────────────────────

    def _surviving(self, work: Callable[[], T], feeds: Mapping[str, Any] | None = None) -> T:
        """What `work`, for these feeds, gives. If the GPU fails, once more with device, pipelines and weights made
        again; if it is gone for good, on WebAssembly. Errors: OutOfMemory if the GPU is still too small, DeviceLost for
        a Program that was compiled for it or a feed that was there."""
        if not self._wants_gpu and not self._opened:
            return work()
        try:
            return work()
        except (DeviceLost, OutOfMemory) as e:
            if isinstance(e, OutOfMemory) and not e.gpu:
                raise
        if feeds is not None:
            self._feeds.check(feeds)  # GPU tensors are gone with their device
        try:
            return self._again(work)
        except DeviceLost as e:
            if self._opened:
                raise
            warn(f"{e.message}; the session continues on WebAssembly")
            self._providers = [p for p in self._providers if p != "webgpu"] or ["wasm"]
            return self._again(work)

    def _change_providers(self, names: Sequence[str]) -> None:
        """Compile again for these. Errors: InvalidInput for a Program that was compiled before."""
        if self._opened:
            raise InvalidInput("a compiled Program is for the providers that it was compiled for")
        self._providers = no_adapter(known(names), self._preset.low_power)
        self._again(lambda: self._surviving(self._prepare))

    def _again(self, work: Callable[[], T]) -> T:
        """With nothing kept of what was compiled and loaded before."""
        for executor in (*self._programs.values(), *self._parts.values()):
            if executor.gpu is not None:
                executor.gpu.host.close()
        self._programs.clear()
        self._parts.clear()
        self._dropped = True
        return work()

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None, *, preferred_output_location: str | Mapping[str, str] | None = None,
    ) -> list[Any]:  # fmt: skip
        """The outputs (all if `output_names` is None) as numpy arrays, lists for sequences, None for empty optionals,
        GpuTensors where the preferred location (here or in the options) is "gpu-buffer" and the session has a GPU.

        Feeds are arrays or GpuTensors. Thread-safe, and side by side on the CPU. Errors: InvalidInput for a feed with a
        wrong name, type, rank or dim, before anything runs; Terminated if `run_options` say so. The session stays
        usable.
        """
        return self._results(output_names, input_feed, run_options, preferred_output_location)

    @our_fault("the run")
    def _results(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None,
        location: str | Mapping[str, str] | None = None, hold: Collection[str] = (),
    ) -> list[Any]:  # fmt: skip
        """`run`; outputs in `hold` are ResidentTensors where later runs can be fed them as they lie."""
        check_run_options(run_options)
        names = self._feeds.outputs(output_names)
        stay = self._staying if location is None else self._feeds.staying(location)
        feeds = self._feeds.check(self._maps.entered(input_feed))

        def stopped() -> bool:
            return run_options is not None and run_options.terminate

        header, results = self._anyhow(feeds, names, stay, hold, stopped)
        return [self._maps.left(n, self._feeds.output(header, n, results[n])) for n in names]

    @property
    def _side_by_side(self) -> bool:
        """Whether runs may be under way at the same time, each in memory of its own. A GPU is one queue."""
        return self._preset.side_by_side and not self._wants_gpu and self.options.memory_limit >= WHOLE

    def _anyhow(self, feeds: Mapping[str, Any], *asked: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """A run, beside others if it may be and there is memory for both."""
        if self._side_by_side:
            with suppress(OutOfMemory):
                return self._beside(feeds, *asked)
        return self._turns.alone(lambda: self._surviving(lambda: self._attempt(feeds, *asked), feeds))

    def _beside(
        self, feeds: Mapping[str, Any], names: Sequence[str], stay: set[str], hold: Collection[str],
        stopped: Callable[[], bool],
    ) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
        """A run while others are under way."""

        def work(executor: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            executor.stopped = stopped
            return executor.header, executor.run(self._feeds.stored(feeds), names, stay, hold)

        return self._turns.beside(lambda: self._program(feeds), work, lambda x: x.residents.has(feeds.values()))

    def _attempt(
        self, feeds: Mapping[str, Any], names: Sequence[str], stay: set[str], hold: Collection[str],
        stopped: Callable[[], bool],
    ) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
        """A run; a full memory is tried once more without what only other feeds need, or shapes that grow."""
        running: list[Any] = []

        def once() -> tuple[dict[str, Any], dict[str, Any]]:
            executor = self._program(feeds)
            running[:] = [executor]
            executor.stopped = stopped
            executor.helped_by(0)
            executor.planner.restrict(self._room(executor))
            return executor.header, executor.run(self._feeds.stored(feeds), names, stay, hold)

        try:
            return once()
        except OutOfMemory as e:
            if e.gpu or not any([self._drop_others(running), *(x.planner.tighten() for x in running)]):
                raise
        return once()

    # ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _room(self, executor: Any = None) -> int:
        """Bytes of linear memory that a new executor, or this one, may have. Without a limit below what any memory can
        have, others do not count."""
        if self.options.memory_limit >= WHOLE:
            return self.options.memory_limit
        others = [e for e in (*self._programs.values(), *self._parts.values()) if e is not executor]
        return self.options.memory_limit - sum(e.host.size for e in others)

    def _drop_others(self, running: Sequence[Any]) -> bool:
        """Close all executors but the one of the run, its twins too; whether there were any. They are made again when
        they are needed."""
        kept = {key: e for key, e in self._programs.items() if e in running}
        others = [e for e in (*self._programs.values(), *self._parts.values()) if e not in running]
        others += [twin for executor in running for twin in executor.twins]
        self._keep(kept)
        for executor in others:
            executor.close()
        for executor in running:
            executor.twins.clear()
        return bool(others)

    def _keep(self, kept: dict[Any, Any]) -> None:
        self._dropped = self._dropped or (() in self._programs and () not in kept)
        self._programs = kept
        self._parts.clear()

    def _lost(self, inside: Sequence[Any] | None) -> None:
        """See `Turns`. What is lost is made again when it is needed; a memory is not freed in whose kernel a thread
        that is no more seems to be."""
        found = {} if inside is None else self._programs
        self._keep({key: e for key, e in found.items() if not {e, *e.twins} & {*(inside or ())}})

    def trim(self) -> None:
        """Give back memory that larger runs took, which cannot shrink in place: each Program whose memory has grown
        gets a new one, with its constants. Plans and what was compiled for inner values are forgotten."""
        self._turns.alone(lambda: self._surviving(self._trim))

    def _trim(self) -> None:
        if self._dropped:
            return
        for executor in self._parts.values():
            executor.close()
        self._parts.clear()
        try:
            for key, executor in self._programs.items():
                if executor.grown:
                    self._programs[key] = self._renewed(executor)
        except BaseException:
            self._drop_others([])
            raise

    def _renewed(self, old: Any) -> Any:
        """The same Program in a memory of its own. The old one is closed first: there need not be room for two."""
        old.close()
        host = type(old.host)(threads=old.host.threads, relaxed=old.host.relaxed)
        gpu = open_gpu(self._preset.low_power) if old.gpu is not None else None
        return type(old).load(old.program, host, old.sources, old.host_call, self._room(old), gpu)
