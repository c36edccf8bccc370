"""`Session`: a model compiled and run by the native executor. `pyruntime.api.session` is its public form."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pyruntime.compiler.half_ranges import HalfRanges
from pyruntime.compiler.listing import listing
from pyruntime.errors import ExecutionError, InvalidInput, OutOfMemory, SessionFailed, UnsupportedSizes, our_fault
from pyruntime.frontend.feed_checks import NodeArg, arguments, check_given, required_inputs
from pyruntime.frontend.maps import without_maps
from pyruntime.native.execution.executor import Executor
from pyruntime.native.execution.timing import Timed, Timing, timed, timings
from pyruntime.native.execution.verify import RangeVerdict, Verdict, check_ranges, compare
from pyruntime.native.gpu.device import warn
from pyruntime.native.memory.budgets import is_limited, remove_holder, with_room
from pyruntime.native.sessions.adapters import NativeAdapters, adapters_of_program
from pyruntime.native.sessions.compiler import Compiler
from pyruntime.native.sessions.exporting import export
from pyruntime.native.sessions.feeds import Feeds, stored
from pyruntime.native.sessions.maps import Maps
from pyruntime.native.sessions.prepare import zeros
from pyruntime.native.sessions.process_stats import free_when_collected
from pyruntime.native.sessions.program_file import Exported, is_program
from pyruntime.native.sessions.programs import ExportedProgram, Programs
from pyruntime.native.sessions.recovery import Recovery
from pyruntime.native.sessions.run_queue import RunQueue
from pyruntime.native.sessions.session_trial import SessionTrial
from pyruntime.native.sessions.shared_weights import share_with_processes
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph, Source
from pyruntime.options import NATIVE, SessionOptions, check_options, own
from pyruntime.placement.provider_list import effective, known
from pyruntime.runtime.adapter_places import ALL_A, ALL_B
from pyruntime.runtime.arena import WHOLE
from pyruntime.runtime.explain import explain
from pyruntime.runtime.metrics import EngineCounts
from pyruntime.session.memory_report import MemoryReport
from pyruntime.session.model_source import check_model
from pyruntime.session.run_options import RunOptions, check_run_options
from pyruntime.session.specialisation import FOR_ALL, Requirements
from pyruntime.session.states import SessionState, StateMachine
from pyruntime.session.watch import Watch

T = TypeVar("T")
_RUN = our_fault("the run")
_Outputs = tuple[Mapping[str, Any], dict[str, Any]]  # values of the Program's header, and results, by name


class _Run(NamedTuple):
    """gpu_outputs: names of outputs to leave on the GPU; resident: names of outputs that may stay in the executor's
    memory; is_stopped: polled while kernels run; needs_sizes: the Program for all sizes refused these"""

    feeds: Mapping[str, Any]
    names: Sequence[str]
    gpu_outputs: Collection[str]
    resident: Collection[str]
    is_stopped: Callable[[], bool]
    needs_sizes: bool = False


class Session:
    """A model ready to run.

    model: path or bytes of an ONNX model (or anything `read` takes), or of a Program that `export` wrote
    providers: names, or pairs of a name and options, in order of preference, of "wasm", "webgpu" and those that others
        bring (docs/extending.md); onnxruntime's "CPUExecutionProvider" means "wasm"
    read: reads the graph of a model; warn: gets the warnings of compilation; has_fallback: see `set_fallback`
    on_kernels: gets the times of the kernels of each run, and the providers; such runs are not concurrent
    name: of the session in events; by default that of the model
    Errors: InvalidModel, UnsupportedOp, ShapeError name the node at fault.

    `InferenceSession` documents the methods that it passes on.
    """

    @our_fault("opening the session")
    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | Source,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        *,
        read: Callable[[Any], Graph] = load,
        warn: Callable[[str], None] = warn,
        on_kernels: Callable[[list[Timed], float], None] | None = None,
        has_fallback: bool = True,
        name: str = "",
    ) -> None:
        if not isinstance(sess_options, (SessionOptions, type(None))):
            raise InvalidInput(f"sess_options cannot be of type {type(sess_options).__name__}", hint="SessionOptions")
        self.options = own(sess_options or SessionOptions())
        self.on_kernels = on_kernels
        check_model(model)
        is_exported = is_program(model)
        check_options(self.options, NATIVE, is_exported)
        self._path = os.fspath(model) if isinstance(model, (str, os.PathLike)) else ""
        self.watch = watch = Watch(name or os.path.basename(self._path))
        states = self._states = StateMachine(lambda: queue.is_busy, lambda state: watch.tell("state", state=str(state)))
        self.compiler = Compiler(self.options, known(providers or ["wasm"]), warn)
        if is_exported:
            exported = Exported(model)
            self._declared = exported.graph
            self.adapters = adapters_of_program(exported, self.options.adapters)
            border = without_maps(self._declared)
            self.programs: Programs = ExportedProgram(exported, border.graph, self.compiler, states)
            self.programs.choose(providers, bool(self.options.preferred_output_location), has_fallback)
        else:
            self._declared = self.compiler.settings.prepare(read(model))
            self.adapters = NativeAdapters(self._declared, self.options.adapters)
            border = without_maps(self.adapters.graph)
            on_gpu = bool(self.options.preferred_output_location)
            self.compiler.choose_providers(providers or ["wasm"], on_gpu, has_fallback)
            self.programs = Programs(border.graph, self.compiler, states)
        self._trial = self._new_trial()
        self._maps = Maps(border)
        self._required = required_inputs(border.graph)
        self.feeds = Feeds(border.graph, self.programs.uses)
        self._gpu_outputs = self.feeds.gpu_outputs(self.options.preferred_output_location)
        if self._gpu_outputs and "webgpu" not in effective(known(providers or ["wasm"])):
            text = "preferred_output_location cannot be 'gpu-buffer': the session has no GPU"
            raise InvalidInput(text, hint='providers=["webgpu", "wasm"]')
        self._recovery = Recovery(self.programs, has_fallback)
        queue = self._queue = RunQueue(self.programs.after_fork)
        self.last_used = 0.0
        self._end = free_when_collected(self, self.programs)
        with_room(self, lambda: queue.exclusive(lambda: self._recovery.run(self.programs.prepare)))
        watch.name = watch.name or self._declared.name
        watch.created()

    @property
    def state(self) -> SessionState:
        return self._states.state

    @property
    def graph(self) -> Graph:
        """The graph that Programs are compiled from."""
        return self.programs.graph

    @property
    def executors(self) -> dict[Hashable, Executor]:
        """The executors of the Programs, by the key of the feeds that a Program runs."""
        return self.programs.table

    # ── description ──────────────────────────────────────────────────────────────────────────────────────────────

    def get_inputs(self) -> list[NodeArg]:
        return arguments([v for v in required_inputs(self._declared) if v.name not in self.adapters.inputs])

    def get_overridable_initializers(self) -> list[NodeArg]:
        return arguments([v for v in self._declared.inputs if v.name in self._declared.weights])

    def get_outputs(self) -> list[NodeArg]:
        return arguments(self._maps.outputs(self._declared.outputs, self.programs.outputs))

    def get_providers(self) -> list[str]:
        return list(self.compiler.providers)

    def memory(self) -> MemoryReport:
        return self.latest().memory_report()

    def metrics(self) -> Mapping[str, Any]:
        programs, plans = self.programs, self.programs.plan_counts
        compiled, held = self.compiler.compiled, programs.bytes
        engine = EngineCounts(self._states.recovered, self._queue.waiting, compiled, plans.runs, plans.planned, held)
        return self.watch.report(engine)

    def explain(self) -> dict[str, Any]:
        executor = self.latest()
        moved = self._recovery.moved
        report = explain(executor.header, executor.env, moved)
        memories = {} if executor.host_call is None else executor.host_call.memories
        native_code = executor.host.native.name
        return {**report, "providers": self.compiler.report(), "memories": memories, "native_code": native_code}

    def latest(self) -> Executor:
        """The executor that was compiled last. Errors: SessionFailed if there is none."""
        if self.state is SessionState.RELEASED:
            raise SessionFailed("this session is released", hint="create another")
        if not self.executors and self._trial is not None:
            self._queue.exclusive(lambda: None)  # the session may be moving to other providers
        if not self.executors:
            raise SessionFailed("this model is compiled when it first runs", hint="run it once")
        return next(reversed(self.executors.values()))

    # ── inspection of kernels ────────────────────────────────────────────────────────────────────────────────────

    def check_ranges(self, input_feed: Mapping[str, Any]) -> RangeVerdict:
        self.programs.require_model("check", hint="open the model")
        feeds = self.check_feeds(input_feed)

        def work() -> RangeVerdict:
            specs, constants, _ = self.programs.requirements_of(feeds)
            ranges = HalfRanges(self.graph, specs, constants)
            limit = self.programs.memory_left()
            executor, _ = self.compiler.load(ranges.graph, specs, ranges.constants, limit, cpu_only=True)
            return check_ranges(executor, ranges.entries, stored(feeds))

        return self.run_alone(work, feeds)

    def verify(self, input_feed: Mapping[str, Any], tolerance: float = 1e-3) -> Verdict:
        self.programs.require_model("verify", hint="open the model")
        self._require_several_providers()
        feeds = self.check_feeds(input_feed)

        def work() -> Verdict:
            self._require_several_providers()  # checked again, because the GPU may be lost
            requirements = self.programs.requirements_of(feeds)
            placed, on_cpu = (self._load_with_all_results(requirements, cpu_only) for cpu_only in (False, True))
            return compare(placed, on_cpu, stored(feeds), tolerance)

        return self.run_alone(work, feeds)

    def _require_several_providers(self) -> None:
        if effective(self.compiler.providers) == ["wasm"]:
            raise InvalidInput("this session runs on WebAssembly alone", hint='create it with providers=["webgpu"]')

    def _load_with_all_results(self, requirements: Requirements, cpu_only: bool) -> Executor:
        specs, constants, _ = requirements
        limit = self.programs.memory_left()
        return self.compiler.load(self.graph, specs, constants, limit, all_results=True, cpu_only=cpu_only)[0]

    def listing(self, input_feed: Mapping[str, Any] | None = None, node: str = "", code: bool = False) -> str:
        self.programs.require_model("list kernels of", hint="open the model")
        feeds = None if input_feed is None else self.feeds.check(input_feed)

        def work() -> str:
            specs, constants, _ = self.programs.requirements_of(feeds)
            return listing(*self.compiler.compile_only(self.graph, specs, constants), node, code)

        return self._queue.exclusive(work)

    def profile(self, input_feed: Mapping[str, Any], repeat: int = 1) -> list[Timing]:
        if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
            raise InvalidInput(f"repeat cannot be {repeat!r}", hint="a whole number from 1 on")
        feeds = self.check_feeds(input_feed)

        def work() -> list[Timing]:
            executor = self.programs.program(feeds)
            with timed(executor, repeat) as found:
                executor.run(stored(feeds))
            return timings(found)

        return self.run_alone(work, feeds)

    def export(
        self, weights: bool = False, relaxed: bool = False, providers: Sequence[str] | None = None,
        assume: Sequence[str] = (),
    ) -> bytes:  # fmt: skip
        if FOR_ALL not in self.executors:
            text = "this model is compiled for some feeds when it runs, so there is no Program for all"
            dims = ", ".join(sorted(map(str, self.programs.needs.dims)))
            raise InvalidInput(text, hint=dims and f"fix these dims by free_dimension_overrides: {dims}")
        if self._maps:
            raise InvalidInput("this model takes or gives maps, which a Program in a file cannot")
        if isinstance(self.programs, ExportedProgram):
            return self.programs.export(weights)
        about = {**self.programs.about(), **self.adapters.in_file()}
        return export(self.programs, about, self._queue.exclusive, self._path, weights, relaxed, providers, assume)

    def share_weights(self) -> None:
        """Let other processes of this user map the weights from now on."""
        for executor in self.executors.values():
            share_with_processes(executor)

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None, *, preferred_output_location: str | Mapping[str, str] | None = None,
        resident: Collection[str] = (),
    ) -> list[Any]:  # fmt: skip
        """resident: outputs that stay in the executor's memory, as ResidentTensors, if later runs can use them in
        place"""
        start = time.perf_counter()
        try:
            with _RUN:
                results = self._run_checked(output_names, input_feed, run_options, preferred_output_location, resident)
        except BaseException as error:
            self.watch.failed(start, error)
            raise
        self.watch.succeeded(start)
        return results

    def _run_checked(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None,
        location: str | Mapping[str, str] | None, resident: Collection[str],
    ) -> list[Any]:  # fmt: skip
        check_run_options(run_options)
        names = self.feeds.outputs(output_names)
        gpu_outputs = self._gpu_outputs if location is None else self.feeds.gpu_outputs(location)
        active = () if run_options is None else run_options.adapters
        feeds = self.check_feeds(input_feed, names, active)

        def is_stopped() -> bool:
            return run_options is not None and run_options.terminate

        start = time.perf_counter()
        values, results = self._run(_Run(feeds, names, gpu_outputs, resident, is_stopped))
        if self._trial is not None and self.feeds.has_all(feeds):
            self._trial.took(feeds, names, time.perf_counter() - start)
        return [self._maps.from_tensor(n, self.feeds.output(values[n], results[n])) for n in names]

    def check_feeds(
        self, input_feed: Mapping[str, Any], names: Sequence[str] | None = None,
        active: Sequence[tuple[Any, float]] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """Check feeds, convert maps, and add those of adapters. names: of the outputs of the run, or all; active:
        adapters, with weights. Errors: InvalidInput"""
        feeds = self._maps.to_tensors(input_feed)
        if added := self.adapters.feeds(active):
            check_given(feeds)
            feeds = {**added, **feeds}
        return self.feeds.check(feeds, names)

    def run_alone(self, work: Callable[[], T], feeds: Mapping[str, Any], names: Sequence[str] | None = None) -> T:
        """Return the result of `work` for these checked feeds, while no run is under way. After a fault of the GPU,
        repeat it. names: of the outputs, or all"""
        attempt = lambda: self._recovery.run(work, lambda: self.feeds.check(feeds, names))  # noqa: E731
        return with_room(self, lambda: self._queue.exclusive(attempt))

    def alone(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, while no run is under way."""
        return self._queue.exclusive(work)

    def _run(self, run: _Run) -> _Outputs:
        """If the Program for all sizes refuses these, run again with a Program for them."""
        try:
            return self._run_queued(run)
        except UnsupportedSizes:
            may_leave_gpu = self._recovery.is_enabled or not self.compiler.uses_gpu
            if not (may_leave_gpu and self.programs.has_model and self.feeds.has_all(run.feeds)):
                raise
        return self._run_queued(run._replace(needs_sizes=True))

    def _run_queued(self, run: _Run) -> _Outputs:
        """Run concurrently with other runs if that is possible and memory suffices, else alone."""
        try:
            if self._runs_side_by_side:
                try:
                    return self._run_side_by_side(run)
                except (OutOfMemory, MemoryError):
                    pass
                except ExecutionError as e:
                    if not e.provider or not self._queue.exclusive(partial(self._recovery.leave, e, True)):
                        raise
            return self.run_alone(lambda: self._run_with_all_memory(run), run.feeds, run.names)
        finally:
            self.last_used = time.monotonic()

    @property
    def _runs_side_by_side(self) -> bool:
        """Whether runs may be concurrent: not on a GPU, which has one queue, or on a provider that forbids it, and not
        with a memory limit of the session or the process, which holds for one run."""
        compiler = self.compiler
        if compiler.added and not all(p.concurrent for n, p in compiler.added.items() if n in compiler.providers):
            return False
        if self.on_kernels is not None or compiler.preset.saves_power or is_limited() or self.programs.has_states:
            return False
        return self.options.memory_limit >= WHOLE and not compiler.uses_gpu

    def _run_side_by_side(self, run: _Run) -> _Outputs:
        def work(executor: Executor) -> _Outputs:
            return executor.outputs, self._results(executor, run)

        feeds = run.feeds
        return self._queue.concurrent(lambda: self._executor(run), work, lambda x: x.residents.has(feeds.values()))

    def _executor(self, run: _Run) -> Executor:
        if run.needs_sizes and (found := self.programs.program_for_sizes(run.feeds)):
            return found
        if self.feeds.has_all(run.feeds):
            return self.programs.program(run.feeds)
        return self.programs.program_for(run.feeds, run.names)

    def _run_with_all_memory(self, run: _Run) -> _Outputs:
        """If the memory is full, run again without other executors, and without room for shapes to grow."""
        running: list[Executor] = []
        try:
            return self._run_once(run, running)
        except OutOfMemory as e:
            freed = not e.gpu and [self.programs.forget_others(running), *(x.plan.tighten() for x in running)]
            if not freed or not any(freed):
                raise
        return self._run_once(run, running)

    def _run_once(self, run: _Run, running: list[Executor]) -> _Outputs:
        """running: gets the executor"""
        executor = self._executor(run)
        running[:] = [executor]
        executor.share_cores(0)
        if self.programs.keeps_one:
            self.programs.free_others(executor)
        executor.memory.restrict(self.programs.memory_left(executor))
        with self.programs.state_values.during_run(executor, run.names):
            if self.on_kernels is None:
                return executor.outputs, self._results(executor, run)
            start = time.monotonic()
            with timed(executor) as found:
                results = self._results(executor, run)
        self.on_kernels(found, start)
        return executor.outputs, results

    @staticmethod
    def _results(executor: Executor, run: _Run) -> dict[str, Any]:
        return executor.run(stored(run.feeds), run.names, run.gpu_outputs, run.resident, run.is_stopped)

    # ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def set_providers(self, names: Sequence[Any]) -> None:
        """Compile again for these providers. Errors: InvalidInput for a Program that was compiled before."""

        def work() -> None:
            if not self.programs.has_model:
                raise InvalidInput("a compiled Program cannot change its providers")
            self.compiler.choose_providers(names, has_fallback=self._recovery.is_enabled)
            self._trial = self._new_trial()
            self._recovery.moved = []
            self.programs.restart()
            self._recovery.run(self.programs.prepare)

        self._queue.exclusive(work)

    def _new_trial(self) -> SessionTrial | None:
        """A trial for the provider "auto", if there is anything to compare with."""
        return SessionTrial(self.programs, weakref.WeakMethod(self._move)) if self.compiler.candidates else None

    def _move(self, trial: SessionTrial, winner: str) -> None:
        """Compile again for the candidate that has won this trial."""

        def work() -> None:
            if self._trial is not trial or self.state is SessionState.RELEASED:
                return
            before = self.compiler.providers
            self.compiler.set_providers(self.compiler.candidates[winner])
            self.programs.restart()
            try:
                self._recovery.run(self.programs.prepare)
            except BaseException:
                self.compiler.set_providers(before)
                self.programs.restart()
                self._recovery.run(self.programs.prepare)  # `explain` and `memory` need a Program
                raise

        self._queue.exclusive(work)

    def set_fallback(self, is_enabled: bool) -> None:
        """Set whether work that fails because of the GPU is repeated, if need be on the next provider (the
        default)."""
        self._recovery.is_enabled = is_enabled

    def prepare(self, dims: Mapping[str, int | Sequence[int]]) -> None:
        inputs, of_adapters = self._required, self.adapters.inputs
        own = zeros([v for v in inputs if v.name not in of_adapters], dims)
        ranks = zeros([v for v in inputs if v.name in (ALL_A, ALL_B)], self.adapters.dims) if self.adapters.dims else {}
        feeds = self.feeds.check({**self.adapters.feeds(), **ranks, **own})

        def work() -> None:
            executor = self.programs.program(feeds)
            executor.plan.begin_reserve()
            env: Mapping[str, int] = {}
            try:
                executor.run(stored(feeds))
                env = executor.env
            finally:
                executor.plan.end_reserve(dict(env))

        self.run_alone(work, feeds)

    def trim(self) -> None:
        self._queue.exclusive(lambda: self._recovery.run(self.programs.trim))

    def release(self) -> None:
        """Free all memory. Later work is refused with SessionFailed."""

        def work() -> None:
            self.programs.state_values.forget()
            self.programs.forget_others([])
            self.programs.forget()  # so that later work prepares, which a released session refuses
            self._states.enter(SessionState.RELEASED)
            self.compiler.added.close()

        self._queue.exclusive(work)
        self._end.detach()
        remove_holder(self)

    # ── for budgets ──────────────────────────────────────────────────────────────────────────────────────────────

    def free_if_idle(self) -> bool:
        return self._queue.exclusive_if_idle(self.programs.park)

    @property
    def is_busy(self) -> bool:
        return self._queue.is_busy
