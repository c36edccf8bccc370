"""Runs a Program natively. web/run/executor.js is its twin; docs/architecture.md describes what both do.

Memory is planned when shapes are bound, and plans are memoised, so that a repeated run with the same shapes only calls
code (planner.py).
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
from pyruntime.native.execution.faults import raise_fault
from pyruntime.native.execution.gpu_transfers import Transfers
from pyruntime.native.execution.loaded_program import LoadedProgram
from pyruntime.native.execution.resident_outputs import ResidentOutputs, ResidentTensor
from pyruntime.native.execution.values import Values
from pyruntime.native.memory.arena import MemoryReport
from pyruntime.native.memory.planner import Env, Plan, Planner, Run, Step
from pyruntime.program import types
from pyruntime.program.dims import compile_dim
from pyruntime.program.format import Program
from pyruntime.runtime.order_trial import OrderTrial

_WORD = struct.Struct("<i")
SHORT = 0.02  # seconds: steps that take less run without a watchdog, which costs some 30 us


class Executor:
    """Runs a Program in one linear memory, one run at a time.

    loaded: what it shares with other executors of the Program; host: linear memory and code (see wasmtime_host.py);
    host_call(id, name, arrays, env): runs a Host kernel; planner: of this memory; orders: the trial to go on with.
    """

    def __init__(
        self, loaded: LoadedProgram, host: Any, host_call: Any, planner: Planner, gpu: Any = None,
        orders: OrderTrial | None = None,
    ) -> None:  # fmt: skip
        self.loaded, self.program, self.header, self.sources = loaded, loaded.program, loaded.header, loaded.sources
        self.blocks, self.guards, self.checked = loaded.blocks, loaded.guards, loaded.header["checked"]
        self.host, self.host_call, self.planner, self.gpu = host, host_call, planner, gpu
        self.functions = host.load(self.program.part(self.header["modules"]["wasm"]))
        self.values = Values(self.header, host, planner, self.guards)
        self.transfers = Transfers(self.values, gpu)
        self.residents = ResidentOutputs(self.values)
        self.orders = orders or OrderTrial()
        self.growing = {i["buffer"]: i for i in self.header["inputs"] if "room" in i}  # KV caches
        self.env: Env = {}  # of the last run
        self.stopped: Callable[[], bool] = lambda: False  # whether the run is to end
        self.timings: list[tuple[str, float]] | None = None
        self.twins: list[Executor] = []
        self._threads = host.threads
        self.constants = loaded.constants or loaded.load_constants(self.values, gpu, self.run_step)
        self._bytes_at_start = len(host.memory)

    @classmethod
    def load(
        cls, program: Program, host: Any, sources: Mapping[str, Any], host_call: Any = None, limit: int = 1 << 32,
        gpu: Any = None,
    ) -> Executor:  # fmt: skip
        """The first executor of a Program. sources: of weights, by name; limit: bytes of memory it may use."""
        loaded = LoadedProgram(program, sources)
        host.add_memories(loaded.header.get("memories", ()))
        if gpu is not None:
            gpu.load(program.part(loaded.header["modules"]["webgpu"]))
        return cls(loaded, host, host_call, Planner(loaded.header, host, gpu, limit), gpu)

    def twin(self) -> Executor:
        """Another executor of this session, for runs at the same time: it shares the memory of the weights, and has one
        thread. Not for Programs on the GPU. Errors: OutOfMemory."""
        other = self.sibling(1, self.host_call)
        self.twins.append(other)
        return other

    def sibling(self, threads: int, host_call: Any) -> Executor:
        """Like `twin`, for another session, which may live longer."""
        host = self.host.twin(self.planner.permanent, threads)
        return Executor(self.loaded, host, host_call, self.planner.twin(host), orders=deepcopy(self.orders))

    def share_cores(self, others: int) -> None:
        """While `others` runs are under way, the next run has that many threads less."""
        self._threads = max(self.host.threads - others, 1)

    def memory(self) -> MemoryReport:
        """Of this executor and its twins."""
        return self.planner.memory().with_twins([t.planner.memory() for t in self.twins])

    @property
    def has_grown(self) -> bool:
        """Whether runs may have taken memory that a new executor would not have."""
        return self.gpu is not None or len(self.host.memory) > self._bytes_at_start or bool(self.twins)

    def close(self) -> None:
        """Free the memory. No run may be under way."""
        for other in self.twins:
            other.close()
        self.residents.copy_all_out()
        self.host.close()
        if self.gpu is not None:
            self.gpu.host.close()

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self, feeds: Mapping[str, Any], names: Collection[str] | None = None, on_gpu: Collection[str] = (),
        resident: Collection[str] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """Outputs by name. The caller has checked the feeds' names and types.

        feeds: in storage layout (see `NUMPY`), GPU tensors, resident ones, or lists of them for sequences; names: of
        the outputs to return, or all; on_gpu, resident: outputs that stay on the GPU or in linear memory if they can.
        """
        self.planner.limit()
        run = Run(dict(self.constants.addresses), dict(self.constants.strings))
        outputs = {o["name"]: o["value"] for o in self.header["outputs"]}
        names = outputs.keys() if names is None else names
        arrays = self._begin(run, feeds, names, on_gpu)
        self.guards.check(run.env, run.env.keys())
        try:
            self._write_feeds(run, arrays)
            self._run_timed(run)
            self.env = run.env
            results: dict[str, Any] = dict(self.residents.leave(run, set(names) & set(resident)))
            results |= {n: self.transfers.result(n, outputs[n], run) for n in names if n not in results}
            self.transfers.end()
        except BaseException:
            self.transfers.abandon()
            raise
        return results

    def _begin(
        self, run: Run, feeds: Mapping[str, Any], names: Collection[str], on_gpu: Collection[str]
    ) -> list[tuple[int, Any]]:
        """Bind the symbols of the inputs. Returns (buffer, array) of the feeds to write to linear memory."""
        given = [(spec["buffer"], self._feed(spec, feeds)) for spec in self.header["inputs"]]
        for spec, (_, x) in zip(self.header["inputs"], given, strict=True):
            for d, n in zip(spec["dims"], x.shape, strict=True):
                if isinstance(d, str):
                    run.env[d] = n
        in_place = self.residents.begin(run, dict(given))
        given = [(b, x.stored() if isinstance(x, ResidentTensor) else x) for b, x in given if b not in in_place]
        return self.transfers.begin(run, given, names, on_gpu)

    @staticmethod
    def _feed(spec: types.Input, feeds: Mapping[str, Any]) -> Any:
        """The feed of one of the Program's inputs."""
        x = feeds.get(spec["name"])
        if "item" in spec:
            x = x[spec["item"]] if x else None
        if x is None:
            raise PyRuntimeError(f'no feed for input "{spec["name"]}"')
        return x

    def _write_feeds(self, run: Run, arrays: Sequence[tuple[int, np.ndarray]]) -> None:
        strings = {b: x for b, x in arrays if self.header["buffers"][b].get("host")}
        numbers = [(b, x) for b, x in arrays if b not in strings]
        sizes = {b: self.values.size(b, run.env) if b in self.growing else x.nbytes for b, x in numbers}
        self.planner.allocate(run, "enter", sizes)
        run.strings.update(strings)
        for b, x in numbers:
            if b in self.growing:
                rows = self.values.rows(self.growing[b], run)
                rows[...] = np.ascontiguousarray(x).view(np.uint8).reshape(rows.shape)
            else:
                self.values.write(run.addresses[b], x)

    def _run_timed(self, run: Run) -> None:
        """Run all steps, and tell the trial of read orders how long they took."""
        _WORD.pack_into(self.host.memory, PANEL_ORDER, self.orders.order)
        _WORD.pack_into(self.host.memory, CODES_READ, 0)
        start = time.perf_counter()
        self.run_block(1, run)
        taken = time.perf_counter() - start
        if self.timings is None:  # else kernels ran one by one
            self.orders.took(_WORD.unpack_from(self.host.memory, CODES_READ)[0], taken)

    def run_block(self, number: int, run: Run) -> None:
        for step in self.blocks[number]:
            self.run_step(step, run)

    def run_step(self, step: Step[types.Step], run: Run) -> None:
        self._check()
        getattr(self, f"_run_{step.json['op']}")(step, run)

    def _check(self) -> None:
        """Errors: Terminated if the run is to end."""
        if self.stopped():
            raise self._terminated()

    @staticmethod
    def _terminated() -> Terminated:
        return Terminated("the run was stopped", hint="RunOptions.terminate is set")

    def _run_wasm(self, step: Step[types.WasmStep], run: Run) -> None:
        try:
            key = (step.uid, *[run.env[s] for s in step.symbols])
        except KeyError as e:
            raise ExecutionError(f"symbol {e} is not bound", node=step.json["calls"][0]["node"]) from None
        plan = self.planner.look_up(run, key)
        if plan is None:
            plan = self.planner.advance(run, key, lambda: self.planner.lay_out(step, run))
            plan.fork = self.host.threads > 1 and compile_dim(step.json.get("fork", 0))(run.env) > 0
        if self.timings is not None:
            self._timed(step, plan.table)
        else:
            self._call(self.functions[step.json["fn"]], plan)
        if self.checked and (record := self.host.take_fault()):
            raise_fault(record, self.checked)

    def _call(self, function: Any, plan: Plan) -> None:
        """Run a step's kernels, with a watchdog if they may take long. Errors: Terminated."""
        job = partial(function, plan.table, 0, 1, 0)
        if plan.fork and self._threads > 1:
            job = partial(function.spmd, plan.table, threads=self._threads)
        start = time.perf_counter()
        if plan.layout.seconds < SHORT:
            job()
        elif not self.host.watched(job, self.stopped):
            raise self._terminated()
        plan.layout.seconds = time.perf_counter() - start

    def _run_gpu(self, step: Step[types.GpuStep], run: Run) -> None:
        key = (step.uid, *[run.env[s] for s in step.symbols])
        try:
            plan = self.planner.advance(run, key, lambda: self.planner.lay_out(step, run))
            self.gpu.run(plan.table, self._check)
        except Terminated:
            raise
        except PyRuntimeError as e:
            nodes = [c["node"] for c in step.json["calls"]]
            raise e.at(" … ".join(dict.fromkeys([nodes[0], nodes[-1]]))) from e.__cause__

    def _run_copy(self, step: Step[types.CopyStep], run: Run) -> None:
        self.transfers.copy(step, run)

    def _timed(self, step: Step[types.WasmStep], table: int) -> None:
        """Run each call on its own and note its time."""
        assert self.timings is not None
        for call in step.json["calls"]:
            words = len(call["buffers"]) + len(call["params"])
            work = int(self.host.memory[table + 4 * words :][:4].view(np.int32)[0])
            start = time.thread_time()
            self.functions[call["kernel"]](table, 0, work, 0)
            self.timings.append((f"{call['node']} {call['kernel']}", time.thread_time() - start))
            table += 4 * (words + 1)

    # ── control ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _run_read(self, step: Step[types.ReadStep], run: Run) -> None:
        numbers = self.values.fetch(step.json["value"], run).ravel().tolist()
        self.values.bind(run, dict(zip(step.json["symbols"], map(int, numbers), strict=True)))
        self.residents.bound(run.env)
        self.values.release(step, run)

    def _run_host(self, step: Step[types.HostStep], run: Run) -> None:
        json = step.json
        arrays = [None if v is None else self.values.fetch(v, run) for v in json["inputs"]]
        results = self.host_call(json["id"], json["fn"], arrays, run.env)
        self.values.bind(run, {name: results[output].shape[axis] for output, axis, name in json["binds"]})
        self.values.make(step, run, [(v["buffer"], r) for v, r in zip(json["outputs"], results, strict=True)])
        self.values.release(step, run)

    def _run_if(self, step: Step[types.IfStep], run: Run) -> None:
        json = step.json
        number = json["then"] if self.values.fetch(json["condition"], run).item() else json["orelse"]
        self.run_block(number, run)
        results = self.header["blocks"][number]["outputs"]
        dims = {name: compile_dim(results[output]["dims"][axis]) for output, axis, name in json["binds"]}
        self.values.bind(run, {name: dim(run.env) for name, dim in dims.items()})
        for output, result in zip(json["outputs"], results, strict=True):
            self.values.pass_on(result["buffer"], output, run)
        self.values.release(step, run)

    def _run_loop(self, step: Step[types.LoopStep], run: Run) -> None:
        from pyruntime.native.execution.control_flow import run_loop

        run_loop(self.values, self.run_block, step, run)
        self.values.release(step, run)
