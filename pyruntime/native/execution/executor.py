"""Runs a Program natively. Twin of web/run/executor.js; docs/architecture.md describes both.

Memory is planned when shapes are bound, and plans are memoised, so that a repeated run with the same shapes only calls
code (pyruntime/runtime/planner.py).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np

from pyruntime.codegen.linear_memory import CODES_READ, PANEL_ORDER
from pyruntime.errors import ExecutionError, PyRuntimeError, Terminated
from pyruntime.host import ARRAYS
from pyruntime.native.execution.array_parts import run_part
from pyruntime.native.execution.control import run_if, run_loop
from pyruntime.native.execution.gpu_transfers import Transfers
from pyruntime.native.execution.load_program import LoadedPath, LoadedProgram
from pyruntime.native.execution.resident_outputs import Begin, ResidentOutputs, ResidentTensor
from pyruntime.native.execution.timing import Timed
from pyruntime.native.execution.values import Values
from pyruntime.native.memory.linear_memory import LinearMemory
from pyruntime.placement.open_providers import running
from pyruntime.placement.own_memory import OwnMemory
from pyruntime.program import types
from pyruntime.program.dims import Env
from pyruntime.program.format import Program
from pyruntime.providers.wasm.shared_pages import SharedPages
from pyruntime.runtime.order_trial import OrderTrial
from pyruntime.runtime.output_paths import MOST
from pyruntime.runtime.planner import Planner, buffers_of
from pyruntime.runtime.states import Change, State, Transition
from pyruntime.session.memory_report import MemoryReport, Stats

_WORD = struct.Struct("<i")
SHAPES = 64  # shapes of runs whose argument blocks are memoised
SHORT = 0.02  # seconds: steps that take less run without a watchdog, which costs some 30 us


def never() -> bool:
    """No run is to end."""
    return False


class Executor:
    """Runs a Program in one linear memory, one run at a time.

    loaded: what it shares with other executors of the Program; host: linear memory and code (see wasmtime_host.py);
    host_call(id, name, arrays, env): runs a Host kernel; providers: those on arrays that have parts in the Program;
    plan: of this memory; orders: the trial to go on with.
    """

    def __init__(
        self, loaded: LoadedProgram, host: Any, host_call: Any, memory: LinearMemory, plan: Planner, gpu: Any = None,
        orders: OrderTrial | None = None,
    ) -> None:  # fmt: skip
        self.loaded, self.program, self.header, self.sources = loaded, loaded.program, loaded.header, loaded.sources
        self.blocks, self.checked = loaded.blocks, loaded.header["checked"]
        self.host, self.host_call, self.memory, self.plan, self.gpu = host, host_call, memory, plan, gpu
        self.providers = host_call.providers if host_call is not None else ()
        self.own_memory = OwnMemory()
        self.functions = host.load(self.program.part(self.header["modules"]["wasm"]))
        self.values = Values(self.header, host, plan)
        self.transfers = Transfers(self.values, gpu)
        self.residents = ResidentOutputs(self.values)
        self.orders = orders or OrderTrial()
        self._path = loaded.whole  # of the current run, or of the last one
        self._trials: dict[LoadedPath, OrderTrial] = {}  # of other paths
        self.outputs = {o["name"]: o["value"] for o in self.header["outputs"]}
        self.env: Env = {}  # of the last run
        self.stopped: Callable[[], bool] = never  # whether the current run is to end
        self.timings: list[Timed] | None = None
        self.twins: list[Executor] = []
        self.is_closed = False
        self.changing: Collection[str] = ()  # names of steps that change the states of the current run
        self.has_changed_states = False  # whether the current run has begun to
        self._threads = host.threads
        self._bytes_at_start = 0

    @classmethod
    def load(
        cls, program: Program, host: Any, sources: Mapping[str, Any], host_call: Any = None, limit: int = 1 << 32,
        gpu: Any = None, pages: Sequence[int] = (),
    ) -> Executor:  # fmt: skip
        """The first executor of a Program. sources: of weights, by name; limit: bytes of memory it may use; pages:
        files with the weights, from `share_weights` of a process with the same Program."""
        shared = [SharedPages(file, ()) for file in pages]  # which close the files, whatever fails
        loaded = LoadedProgram(program, sources)
        host.add_memories(loaded.header.get("memories", ()))
        if gpu is not None:
            gpu.load(program.part(loaded.header["modules"]["webgpu"]), gpu_calls(loaded.header))
        memory = LinearMemory(host, sum(loaded.header.get("memories", ())), limit)
        executor = cls(loaded, host, host_call, memory, Planner(loaded.header, memory, gpu, SHAPES), gpu)
        loaded.run_init(executor, is_filled=bool(shared))
        if shared:
            spans = [executor.plan.root.place.arena.in_use(), *[[(0, len(memory))] for memory in host.further]]
            for page, span in zip(shared, spans, strict=True):
                page.spans = span
            host.adopt(shared)
        executor._bytes_at_start = len(host.memory)
        return executor

    def twin(self) -> Executor:
        """Another executor of this session, for runs at the same time: it shares the memory of the weights, and has one
        thread. Not for Programs on the GPU. Errors: OutOfMemory."""
        other = self.sibling(1, self.host_call)
        self.twins.append(other)
        return other

    def sibling(self, threads: int, host_call: Any) -> Executor:
        """Like `twin`, for another session, which may live longer."""
        host = self.host.twin(self.share_weights(), threads)
        memory = LinearMemory(host, self.memory.further, self.memory.limit)
        other = Executor(self.loaded, host, host_call, memory, self.plan.twin(memory), orders=deepcopy(self.orders))
        other._bytes_at_start = len(host.memory)
        return other

    def share_weights(self) -> Sequence[SharedPages]:
        """The pages of the weights, and of each further memory. Errors: OutOfMemory."""
        pages: Sequence[SharedPages] = self.host.share(self.plan.root.place.arena.in_use())
        return pages

    def share_cores(self, others: int) -> None:
        """While `others` runs are under way, the next run has that many threads less."""
        self._threads = max(self.host.threads - others, 1)

    def memory_report(self) -> MemoryReport:
        """Of this executor and its twins."""
        return self._own_memory().with_twins([twin._own_memory() for twin in self.twins])

    def _own_memory(self) -> MemoryReport:
        root, plan = self.plan.root.place, self.plan
        providers = {"wasm": Stats.of_arena(root.arena, plan.linear_figures, self.memory.further)}
        if self.gpu is None:
            return MemoryReport.of(providers, self.host.size)
        providers["webgpu"] = Stats.of_arena(root.gpu, plan.gpu_figures)
        return MemoryReport.of(providers, self.host.size, self.gpu.host.own.tensor_bytes)

    @property
    def has_grown(self) -> bool:
        """Whether runs may have taken memory that a new executor would not have."""
        return self.gpu is not None or len(self.host.memory) > self._bytes_at_start or bool(self.twins)

    def close(self) -> None:
        """Free the memory. No run may be under way."""
        for other in self.twins:
            other.close()
        self.is_closed = True
        self.residents.copy_all_out()
        self.own_memory.close()
        self.host.close()
        if self.gpu is not None:
            self.gpu.host.close()

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self, feeds: Mapping[str, Any], names: Collection[str] | None = None, on_gpu: Collection[str] = (),
        resident: Collection[str] = (), stopped: Callable[[], bool] = never,
    ) -> dict[str, Any]:  # fmt: skip
        """Outputs by name. The caller has checked the feeds' names and types.

        feeds: in storage layout (see `NUMPY`), GPU tensors, resident ones, or lists of them for sequences; names: of
        the outputs to return, or all; on_gpu, resident: outputs that stay on the GPU or in linear memory if they can;
        stopped: whether the run is to end.
        """
        if self.providers:
            with running(self.providers):
                return self._run(feeds, names, on_gpu, resident, stopped)
        return self._run(feeds, names, on_gpu, resident, stopped)

    def _run(
        self, feeds: Mapping[str, Any], names: Collection[str] | None, on_gpu: Collection[str],
        resident: Collection[str], stopped: Callable[[], bool],
    ) -> dict[str, Any]:  # fmt: skip
        self.stopped = stopped
        self.plan.limit()
        self.values.hosts = dict(self.loaded.strings)
        names = self.outputs.keys() if names is None else names
        if (path := self.loaded.path(names)) is not self._path:
            self._take_path(path)
        inputs = path.inputs
        given = [self._feed(spec, feeds) for spec in inputs]
        env = {symbol: given[n].shape[axis] for symbol, n, axis in path.symbols}
        if self.plan.guards.dims:
            self.plan.guards.compute(env, set(env))
        fed = dict(zip(path.buffers, given, strict=True))
        start = self.residents.begin(fed, env)
        stored = [
            (b, x.stored() if isinstance(x, ResidentTensor) else x) for b, x in fed.items() if b not in start.resident
        ]
        try:
            arrays = self.transfers.begin_run(stored, names, on_gpu, env)
            state = self.bind_inputs(start, env, arrays)
            for spec in inputs:
                if spec["buffer"] in arrays:
                    self.values.write(state, spec, arrays[spec["buffer"]])
            return self.results(self._run_timed(state), names, resident)
        except BaseException:
            self.transfers.abandon()
            raise

    def _take_path(self, path: LoadedPath) -> None:
        """Run this path from now on. Each path has a trial of its own, which compares times of whole runs."""
        if len(self._trials) > MOST:
            self._trials.clear()
        self._trials[self._path] = self.orders
        self.orders = self._trials.get(path) or OrderTrial()
        self._path = path

    def can_run(self, names: Collection[str], feeds: Collection[str]) -> bool:
        """Whether these feeds suffice for these outputs."""
        return all(spec["name"] in feeds for spec in self.loaded.path(names).inputs)

    @staticmethod
    def _feed(spec: types.Input, feeds: Mapping[str, Any]) -> Any:
        """The feed of one of the Program's inputs."""
        x = feeds.get(spec["name"])
        if "item" in spec:
            x = x[spec["item"]] if x else None
        if x is None:
            raise PyRuntimeError(f'no feed for input "{spec["name"]}"')
        return x

    def bind_inputs(self, start: Begin, env: Env, arrays: Mapping[int, Any]) -> State:
        """Set symbols, and allocate the inputs. env: dims and capacities of inputs; arrays: by buffer, the inputs
        without memory."""
        key = f"{list(env.values())}{list(arrays)}"

        def change(change: Change) -> None:
            change.env.update(env)
            self.plan.guards.bound(change.env, set(change.env))
            self.plan.take(change, [*arrays])

        return self.plan.advance(start.root, key, change)

    def _run_timed(self, state: State) -> State:
        """Run all steps, and tell the trial of read orders how long they took."""
        _WORD.pack_into(self.host.memory, PANEL_ORDER, self.orders.order)
        _WORD.pack_into(self.host.memory, CODES_READ, 0)
        start = time.perf_counter()
        state = self._run_steps(self._path.steps, state)
        taken = time.perf_counter() - start
        if self.timings is None:  # else kernels ran one by one
            self.orders.took(_WORD.unpack_from(self.host.memory, CODES_READ)[0], taken)
        return state

    def results(self, state: State, names: Collection[str], resident: Collection[str]) -> dict[str, Any]:
        """Collect the results."""
        self.env = state.env
        results: dict[str, Any] = dict(self.residents.leave(state, set(names) & set(resident)))
        results |= {n: self.transfers.result(n, self.outputs[n], state) for n in names if n not in results}
        self.transfers.end_run()
        self.values.hosts = {}
        return results

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def run_block(self, number: int, state: State) -> State:
        return self._run_steps(self.blocks[number], state)

    def _run_steps(self, steps: Sequence[tuple[types.Step, str]], state: State) -> State:
        for step, key in steps:
            state = self.run_step(step, state, key)
        return state

    def run_step(self, step: types.Step, state: State, key: str) -> State:
        self.check()
        if self.changing and step.get("fn") in self.changing:
            self.has_changed_states = True
        if step["op"] == "wasm":
            return self.run_wasm(step, state, key)
        if step["op"] == "gpu":
            return self.run_gpu(step, state, key)
        if step["op"] == "copy":
            return self.transfers.run(step, state, key)
        if step["op"] == "read":
            return self.run_read(step, state, key)
        if step["op"] == "host":
            return self.run_host(step, state, key)
        return run_if(self, step, state, key) if step["op"] == "if" else run_loop(self, step, state, key)

    def check(self) -> None:
        """Errors: Terminated if the run is to end."""
        if self.stopped():
            raise self._terminated()

    @staticmethod
    def _terminated() -> Terminated:
        return Terminated("the run was stopped", hint="RunOptions.terminate is set")

    def run_wasm(self, step: types.WasmStep, state: State, key: str) -> State:
        found = state.next.get(key)
        if found is None or found.generation != self.plan.tables.generation:
            try:
                found = self.plan.plan_calls(step, state, key)
            except KeyError as e:
                raise ExecutionError(f"symbol {e} is not bound", node=step["calls"][0]["node"]) from None
        if self.timings is not None:
            self._timed(step, found.table)
        else:
            self._call(self.functions[step["fn"]], found)
        self.check_faults()
        return found.state

    def check_faults(self) -> None:
        """Errors: ExecutionError if a kernel found an index out of range"""
        if self.checked and (fault := self.host.take_fault()):
            raise self.values.fault(*fault)

    @property
    def has_threads(self) -> bool:
        """Whether steps that are worth several threads get them."""
        return self._threads > 1

    def _call(self, function: Any, plan: Transition) -> None:
        """Run a step's kernels, with a watchdog if they may take long. Errors: Terminated."""
        job = partial(function, plan.table, 0, 1, 0)
        if plan.is_parallel and self.has_threads:
            job = partial(function.spmd, plan.table, threads=self._threads)
        start = time.perf_counter()
        if plan.layout.duration < SHORT:
            job()
        elif not self.host.watched(job, self.stopped):
            raise self._terminated()
        plan.layout.duration = time.perf_counter() - start

    def run_gpu(self, step: types.GpuStep, state: State, key: str) -> State:
        try:
            found = state.next.get(key) or self.plan.plan_dispatches(step, state, key)
            self.gpu.run(found.prepared, self.check)
        except Terminated:
            raise
        except PyRuntimeError as e:
            nodes = [c["node"] for c in step["calls"]]
            raise e.at(" … ".join(dict.fromkeys([nodes[0], nodes[-1]]))) from e.__cause__
        return found.state

    def _timed(self, step: types.WasmStep, table: int) -> None:
        """Run each call on its own and note its time."""
        assert self.timings is not None
        for call in step["calls"]:
            words = len(call["buffers"]) + len(call["params"])
            work = int(self.host.memory[table + 4 * words :][:4].view(np.int32)[0])
            start = time.thread_time()
            self.functions[call["kernel"]](table, 0, work, 0)
            if call["work"] != 0:
                self.timings.append((f"{call['node']} {call['kernel']}", time.thread_time() - start, "wasm"))
            table += 4 * (words + 1)

    def run_read(self, step: types.ReadStep, state: State, key: str) -> State:
        numbers = [int(x) for x in self.values.fetch(step["value"], state).ravel().tolist()]

        def change(change: Change) -> None:
            change.env.update(zip(step["symbols"], numbers, strict=True))
            self.plan.guards.bound(change.env, set(step["symbols"]))
            change.drop(step["free"])

        after = self.plan.advance(state, f"{key}:{numbers}", change)
        self.residents.bound(after.env)
        return after

    def run_host(self, step: types.HostStep, state: State, key: str) -> State:
        if step["fn"] == ARRAYS:
            return run_part(self, step, state, key)
        arrays = [None if v is None else self.values.fetch(v, state) for v in step["inputs"]]
        results = self.host_call(step["id"], step["fn"], arrays, state.env)
        dims = [x.shape for x in results]

        def change(change: Change) -> None:
            self.plan.bind(change, step["binds"], dims)
            self.plan.take(change, buffers_of(step["outputs"]))

        after = self.plan.advance(state, f"{key}:{dims}", change)
        for value, x in zip(step["outputs"], results, strict=True):
            self.values.write(after, value, x)
        return self.plan.advance(after, f"{key}:free", lambda change: change.drop(step["free"]))


def gpu_calls(header: types.Header) -> list[types.Call]:
    return [call for block in header["blocks"] for s in block["steps"] if s["op"] == "gpu" for call in s["calls"]]
