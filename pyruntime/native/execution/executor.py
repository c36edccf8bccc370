"""Runs a Program natively. web/run/executor.js is its mirror; docs/architecture.md describes what both do.

Memory is planned when shapes are bound and memoised: `Plan` holds the addresses a step needs, and for a wasm step the
argument blocks already written to memory, so a repeated run with the same shapes only calls code.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy, deepcopy
from functools import partial
from typing import Any, cast

import numpy as np

from pyruntime.codegen.linear_memory import CODES_READ, PANEL_ORDER
from pyruntime.errors import ExecutionError, PyRuntimeError, ShapeError, Terminated
from pyruntime.native.execution.faults import raise_fault
from pyruntime.native.execution.guards import Guards
from pyruntime.native.execution.order_trial import OrderTrial
from pyruntime.native.execution.resident_outputs import HeldOutputs, HeldTensor
from pyruntime.native.gpu.transfers import Transfers
from pyruntime.native.memory.arena import MemoryReport
from pyruntime.native.memory.argument_blocks import ArgumentBlocks
from pyruntime.native.memory.arrays import NUMPY, unpack
from pyruntime.native.memory.planner import Env, Plan, Planner, Run, Sizes, Step
from pyruntime.program import types
from pyruntime.program.dims import compile_dim, compile_dims, symbols
from pyruntime.program.footprint import start_up
from pyruntime.program.format import Program

# Steps without calls, which free buffers by themselves.
Releasing = types.CopyStep | types.ReadStep | types.HostStep | types.IfStep | types.LoopStep

_WORD = struct.Struct("<i")
PART = 1 << 23  # bytes of a weight that are read at once
SHORT = 0.02  # seconds: steps that took less are run without a watch, which costs some 30 us


class Executor:
    """program: what to run; host: linear memory and code (see wasmtime_host.py); sources: name -> Source of
    weights; host_call(id, arrays): runs a Host kernel; limit: bytes of memory the session may use."""

    def __init__(
        self, program: Program, host: Any, sources: Mapping[str, Any], host_call: Any = None, limit: int = 1 << 32,
        gpu: Any = None,
    ) -> None:  # fmt: skip
        self.program = program
        self.header = cast("types.Header", program.header)  # as `validate` found it, or the compiler wrote it
        self.host = host
        self.sources = sources
        self.host_call = host_call
        host.add_memories(self.header.get("memories", ()))
        self.functions = host.load(program.part(self.header["modules"]["wasm"]))
        self.checked = self.header["checked"]
        self._uids = 0
        self.blocks = [[self._step(s) for s in b["steps"]] for b in self.header["blocks"]]
        self.guards = Guards(self.header)
        self.gpu = gpu
        if gpu is not None:
            gpu.load(program.part(self.header["modules"]["webgpu"]))
        self.planner = Planner(self.header, host, gpu, limit)
        self.constant_host: dict[int, Any] = {}
        self.timings: list[tuple[str, float]] | None = None
        self.transfers = Transfers(self)
        self.roomy = {i["buffer"]: i for i in self.header["inputs"] if "room" in i}
        self._shapes: dict[int, Callable[[Env], tuple[int, ...]]] = {}
        self.env: Env = {}  # of the last run
        self.stopped: Callable[[], bool] = lambda: False  # whether the run is to end
        self.twins: list[Executor] = []
        self._threads = host.threads
        self.held = HeldOutputs(self)
        self.orders = OrderTrial()
        self._start()
        self._begun = len(host.memory)

    # ── start-up ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _step(self, json: types.Step) -> Step[types.Step]:
        self._uids += 1
        step = Step(json, uid=self._uids)
        if json["op"] in ("wasm", "gpu"):
            dims = [d for c in json["calls"] for d in (*c["params"], c["work"])]
            step.blocks = ArgumentBlocks(json["calls"])
            sizes = [self.header["buffers"][b]["size"] for b in {b for c in json["calls"] for b in c["buffers"]}]
            step.symbols = tuple(sorted(frozenset().union(*map(symbols, [*dims, *sizes]))))
        return step

    def _start(self) -> None:
        """Load the constants and run the init block."""
        run = Run({}, self.constant_host)
        kept, loads = start_up(self.header)
        for b in kept:  # what stays lies first, what only init needs behind it: no holes remain
            run.addresses[b] = self.planner.place(b, self._size(b, {}))
        self.planner.placed = set(kept)
        for (_, constants), step in zip(loads, [None, *self.blocks[0]], strict=True):
            for c in constants:
                if "strings" in c:
                    run.host[c["buffer"]] = self.constant_host[c["buffer"]] = c["strings"]
                else:
                    run.addresses[c["buffer"]] = self._load(c)
            run.state = self.planner.note()
            if step is not None:
                self.run_step(step, run)
        self.transfers.end()
        self.planner.make_permanent(run.state)
        self.persistent = run.addresses

    def _load(self, c: types.SourceConstant | types.BlobConstant) -> int:
        if "source" in c and not c["unpack"] and not self.header["buffers"][c["buffer"]].get("memory"):
            return self._load_plain(c)
        if "blob" in c:
            data = self.program.part(c["blob"])
        else:
            data = self.sources[c["source"]].read(c["offset"], c["size"])
        size = self._size(c["buffer"], {}) if c["unpack"] else len(data)
        raw = np.frombuffer(data, np.uint8)
        if self.header["buffers"][c["buffer"]].get("memory"):
            address = self.planner.place(c["buffer"], size)
            raw = unpack(raw, c["unpack"], c["signed"], size) if c["unpack"] else raw
            self.gpu.write(address, raw if c["unpack"] else raw.view(NUMPY[c["dtype"]]))
            return address
        address, target = self._room_for(c["buffer"], size)
        target[:] = unpack(raw, c["unpack"], c["signed"], size) if c["unpack"] else raw
        return address

    def _room_for(self, buffer: int, size: int) -> tuple[int, np.ndarray]:
        """The address of a constant in its linear memory, and the bytes there."""
        address = self.planner.place(buffer, size)
        found = self.header["buffers"][buffer].get("further")
        memory = self.host.further[found[0] - 1] if found else self.host.memory
        return address, memory[address : address + size]

    def _load_plain(self, c: types.SourceConstant) -> int:
        """In parts: no copy of a large weight lies beside it."""
        address, target = self._room_for(c["buffer"], c["size"])
        for start in range(0, c["size"], PART):
            part = target[start : start + PART]
            part[:] = np.frombuffer(self.sources[c["source"]].read(c["offset"] + start, len(part)), np.uint8)
        return address

    def twin(self) -> Executor:
        """Another one for the same Program, which may run at the same time: the weights are the same memory, what runs
        write is its own. It has one thread. Not for Programs on the GPU. Errors: OutOfMemory."""
        other = self.sibling(1, self.host_call)
        self.twins.append(other)
        return other

    def sibling(self, threads: int, host_call: Any) -> Executor:
        """The same for another session, which may live longer."""
        other = copy(self)
        other.host, other.host_call = self.host.twin(self.planner.permanent, threads), host_call
        other.functions = other.host.load(self.program.part(self.header["modules"]["wasm"]))
        other.planner = self.planner.twin(other.host)
        other.transfers, other.held = Transfers(other), HeldOutputs(other)
        other.orders = deepcopy(self.orders)
        other.twins, other._threads, other.env, other.timings = [], threads, {}, None
        other._begun = len(other.host.memory)
        return other

    def helped_by(self, others: int) -> None:
        """So many runs of others are under way: the next run has as many threads less."""
        self._threads = max(self.host.threads - others, 1)

    def memory(self) -> MemoryReport:
        """What the session holds."""
        return self.planner.memory().with_twins([t.planner.memory() for t in self.twins])

    @property
    def grown(self) -> bool:
        """Whether runs may have taken memory that a fresh executor has not."""
        return self.gpu is not None or len(self.host.memory) > self._begun or bool(self.twins)

    def close(self) -> None:
        """Free the memory. Nothing must run any more."""
        for other in self.twins:
            other.close()
        self.held.let_go()
        self.host.close()
        if self.gpu is not None:
            self.gpu.host.close()

    def _size(self, buffer: int, env: Env) -> int:
        return Sizes(self.planner.sizes, env)[buffer]

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self, feeds: Mapping[str, Any], names: Collection[str] | None = None, stay: Collection[str] = (),
        hold: Collection[str] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """The outputs (`names`, or all) for feeds given in storage layout (see `NUMPY`), as GPU tensors or held ones,
        sequences as lists; those in `stay` are left on the GPU if they can be, those in `hold` where they are in linear
        memory. The caller has checked names and types."""
        self.planner.limit()
        run = Run(dict(self.persistent), dict(self.constant_host))
        outputs = {o["name"]: o["value"] for o in self.header["outputs"]}
        wanted = outputs.keys() if names is None else names
        at_home = self._begin(run, feeds, wanted, stay)
        self.guards.check(run.env, set(run.env))
        try:
            self._enter(run, at_home)
            self._run_in_order(run)
            self.env = run.env
            results: dict[str, Any] = dict(self.held.leave(run, set(wanted) & set(hold)))
            results |= {n: self.transfers.result(n, outputs[n], run) for n in wanted if n not in results}
            self.transfers.end()
        except BaseException:
            self.transfers.abandon()
            raise
        return results

    def _begin(
        self, run: Run, feeds: Mapping[str, Any], wanted: Collection[str], stay: Collection[str]
    ) -> list[tuple[int, Any]]:
        """The feeds by buffer that have to come into linear memory; symbols have values."""
        given = [(spec["buffer"], self._given(spec, feeds)) for spec in self.header["inputs"]]
        for spec, (_, x) in zip(self.header["inputs"], given, strict=True):
            self._bind(spec["dims"], x.shape, run.env)
        there = self.held.begin(run, dict(given))
        given = [(b, x.stored() if isinstance(x, HeldTensor) else x) for b, x in given if b not in there]
        return self.transfers.begin(run, given, wanted, stay)

    @staticmethod
    def _given(spec: types.Input, feeds: Mapping[str, Any]) -> Any:
        """The feed of one of the Program's inputs."""
        x = feeds.get(spec["name"])
        if "item" in spec:
            x = x[spec["item"]] if x else None
        if x is None:
            raise PyRuntimeError(f'no feed for input "{spec["name"]}"')
        return x

    @staticmethod
    def _bind(dims: list[Any], shape: tuple[int, ...], env: Env) -> None:
        for d, n in zip(dims, shape, strict=True):
            if isinstance(d, str):
                env[d] = n

    def _enter(self, run: Run, given: Sequence[tuple[int, np.ndarray]]) -> None:
        """Feeds come into linear memory, those by their buffers that are not on the GPU."""
        strings = {b: x for b, x in given if self.header["buffers"][b].get("host")}
        plain = [(b, x) for b, x in given if b not in strings]

        self.planner.take(run, "enter", {b: self._size(b, run.env) if b in self.roomy else x.nbytes for b, x in plain})
        run.host.update(strings)
        for b, x in plain:
            if b in self.roomy:
                self.part(self.roomy[b], run)[...] = x
            else:
                self.write(run.addresses[b], x)

    def _run_in_order(self, run: Run) -> None:
        """All steps; how long they take tells in which order the next run reads codes."""
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
        plan = self.planner.known(run, key)
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
        """Runs a step's kernels; one that may take long so that it can be stopped. Errors: Terminated."""
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
        """Each call on its own, with its time."""
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
        values = self.fetch(step.json["value"], run).ravel().tolist()
        run.env.update(zip(step.json["symbols"], map(int, values), strict=True))
        self.guards.check(run.env, set(step.json["symbols"]))
        self.held.learned(run.env)
        self.release(step, run)

    def release(self, step: Step[Releasing], run: Run) -> None:
        if doomed := [run.addresses[b] for b in step.json["free"] if b in run.addresses]:
            self.planner.give_back(run, ("free", step.uid), doomed)

    def _run_host(self, step: Step[types.HostStep], run: Run) -> None:
        json = step.json
        arrays = [None if v is None else self.fetch(v, run) for v in json["inputs"]]
        results = self.host_call(json["id"], json["fn"], arrays, run.env)
        for output, axis, name in json["binds"]:
            run.env[name] = results[output].shape[axis]
        self.guards.check(run.env, {name for _, _, name in json["binds"]})
        self.make(step, run, [(v["buffer"], r) for v, r in zip(json["outputs"], results, strict=True)])
        self.release(step, run)

    def make(self, step: Step[types.Step], run: Run, arrays: list[tuple[int, np.ndarray]]) -> None:
        """Allocate buffers for arrays and fill them; strings stay outside memory."""
        plain = [(b, a) for b, a in arrays if a.dtype != object]
        run.host.update({b: a for b, a in arrays if a.dtype == object})

        self.planner.take(run, ("make", step.uid), {b: a.nbytes for b, a in plain})
        for b, a in plain:
            self.write(run.addresses[b], a)

    def _run_if(self, step: Step[types.IfStep], run: Run) -> None:
        json = step.json
        number = json["then"] if self.fetch(json["condition"], run).item() else json["orelse"]
        self.run_block(number, run)
        made = self.header["blocks"][number]["outputs"]
        self._hand_over(json, made, run)
        self.release(step, run)

    def _hand_over(self, json: types.IfStep, made: list[types.TensorValue], run: Run) -> None:
        """A body's outputs become the step's: addresses pass, dims are bound."""
        for output, axis, name in json["binds"]:
            run.env[name] = compile_dim(made[output]["dims"][axis])(run.env)
        self.guards.check(run.env, {name for _, _, name in json["binds"]})
        for outer, inner in zip(json["outputs"], made, strict=True):
            if inner["buffer"] in run.addresses:
                run.addresses[outer] = run.addresses[inner["buffer"]]
            else:
                run.host[outer] = run.host[inner["buffer"]]

    def _run_loop(self, step: Step[types.LoopStep], run: Run) -> None:
        from pyruntime.native.execution.control_flow import run_loop

        run_loop(self, step, run)
        self.release(step, run)

    # ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def shape(self, value: types.Input | types.TensorValue, env: Env) -> tuple[int, ...]:
        found = self._shapes.get(id(value))
        if found is None:  # header values live as long as the executor does
            found = self._shapes[id(value)] = compile_dims(value["dims"])
        shape = found(env)
        if min(shape, default=0) < 0:
            raise ShapeError(f"an output cannot have the shape {list(shape)}")
        return shape

    def bytes_of(self, buffer: int, run: Run) -> int:
        return self._size(buffer, run.env)

    def write(self, address: int, x: np.ndarray) -> None:
        self.host.memory[address : address + x.nbytes] = np.ascontiguousarray(x).reshape(-1).view(np.uint8)

    def part(self, value: types.Input | types.TensorValue, run: Run) -> np.ndarray:
        """A tensor where it lies, in a buffer with more places along an axis."""
        axis, dtype = value["room"]["axis"], NUMPY[value["dtype"]]
        shape, places = list(self.shape(value, run.env)), compile_dim(value["room"]["places"])(run.env)
        rows, shape[axis] = shape[axis], places
        size = math.prod(shape) * dtype.itemsize
        if rows > places or size > self.bytes_of(value["buffer"], run):
            raise ShapeError(f"{rows} places along axis {axis} are more than there is room for, {places}")
        address = run.addresses[value["buffer"]]
        whole = self.host.memory[address : address + size].view(dtype).reshape(shape)
        return whole[(slice(None),) * axis + (slice(rows),)]

    def fetch(self, value: types.Value, run: Run) -> Any:
        """A copy of a value: an array, a list of them for a sequence, None for an empty optional."""
        if value is None:
            return None
        if "items" in value:
            return [self.fetch(v, run) for v in value["items"]]
        shape = self.shape(value, run.env)
        if value["buffer"] in run.host:
            return np.array(run.host[value["buffer"]], dtype=object).reshape(shape)
        if "room" in value:
            return self.part(value, run).copy()
        dtype = NUMPY[value["dtype"]]
        size = math.prod(shape) * dtype.itemsize
        address = run.addresses[value["buffer"]]
        return self.host.memory[address : address + size].view(dtype).reshape(shape).copy()
