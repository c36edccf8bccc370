"""Plans where each buffer lies after each step, once for each path through the Program; later runs look plans up.

web/run/plan.js is its twin. A `Plan` has the addresses of a step, and for a wasm step its argument blocks in memory,
so a repeated run with the same shapes only calls code. For shapes that change, such as KV caches that grow with each
token, a `Layout` has spare capacity, so that only parameters are computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from pyruntime.codegen.linear_memory import RESERVED
from pyruntime.errors import OutOfMemory
from pyruntime.native.memory.arena import Arena, MemoryReport, spans_between
from pyruntime.native.memory.argument_blocks import ArgumentBlocks, Words
from pyruntime.native.memory.joint_arena import JointArena, JointState
from pyruntime.native.memory.step_layout import Layout, Span, live_ranges
from pyruntime.program import types
from pyruntime.program.dims import Evaluate, compile_dim, compile_dims
from pyruntime.program.footprint import WHOLE

PLANS = 64  # argument tables that fit the table region before all plans are forgotten
STATES = 4096  # arena states before all are forgotten: new shapes in every run, or round of a loop, do not pile up
PARAMETERS = 4 << 20  # bytes of parameter blocks on the GPU, likewise

ROUND = "round"  # key of the plan that begins a round of a loop
LEAST = 1 << 12  # spare bytes of a buffer that grows: a short cache soon grows by more than a quarter
VARIES = -1  # marks buffers whose size has changed, in place of the size

Env = dict[str, int]


@dataclass(slots=True)
class Plan:
    """table: address of the step's argument blocks; fork: whether some call is worth more than one thread."""

    layout: Layout
    table: int = 0
    fork: bool = False


S = TypeVar("S", bound=types.Step, covariant=True)


@dataclass(slots=True)
class Step(Generic[S]):
    """A step with its dims compiled. blocks: of its calls; sizes: of the buffers that it makes."""

    json: S
    symbols: tuple[str, ...] = ()
    blocks: ArgumentBlocks | None = None
    uid: int = 0
    sizes: Callable[[Env], tuple[int, ...]] | None = None


def calls_of(step: types.Step) -> list[types.Call]:
    """Those of a wasm or GPU step; other steps have none."""
    return step["calls"] if "calls" in step else []


class Run:
    """The state of one run: values of symbols, addresses of buffers, strings by buffer, the arena state. For
    `Transfers`: feeds on the GPU by buffer, names of the outputs to return and of those that stay on the GPU, and the
    tensors of the latter."""

    __slots__ = ("addresses", "env", "gpu_feeds", "gpu_results", "names", "on_gpu", "state", "strings")

    def __init__(self, addresses: dict[int, int], strings: dict[int, Any]) -> None:
        self.env: Env = {}
        self.addresses = addresses
        self.strings = strings
        self.state = 0
        self.gpu_feeds: dict[int, Any] = {}
        self.names: set[str] = set()
        self.on_gpu: set[str] = set()
        self.gpu_results: dict[str, Any] = {}


class Observer(Protocol):
    """The planner calls it while it makes plans: `allocated` and `freed` before the `advanced` of the step that they
    belong to, `laid_out` after it, for the buffers that the step's calls make and free."""

    def allocated(self, address: int, size: int) -> None: ...

    def freed(self, address: int) -> None: ...

    def laid_out(self, calls: Sequence[types.Call], addresses: Mapping[int, int], sizes: Mapping[int, int]) -> None: ...

    def advanced(self, made: Mapping[int, int]) -> None:
        """made: the addresses of the buffers that the step made."""


class Planner:
    """Of one executor: its memories, argument blocks and plans. limit: bytes that it may use.

    A state of the arena is a number, its index in `states`; 0 is that before a run. `plans` leads from a state, by the
    key of a step, to the plan and so to the state after the step."""

    def __init__(self, header: types.Header, host: Any, gpu: Any, limit: int) -> None:
        self.header = header
        self.host = host
        self.gpu = gpu
        self.sizes = [b["size"] if isinstance(b["size"], int) else compile_dim(b["size"]) for b in header["buffers"]]
        calls = [c for b in header["blocks"] for s in b["steps"] for c in calls_of(s)]
        words = sum(len(c["buffers"]) + len(c["params"]) + 1 for c in calls)
        self.tables = Arena(RESERVED, max(PLANS * words * 4, 1 << 16))
        self.further = sum(header.get("memories", ()))  # bytes of further memories, whose addresses the compiler gave
        self.arena = JointArena(RESERVED + self.tables.limit, 0, gpu.host.chunk if gpu is not None else 0)
        self.restrict(limit)
        self.placed: set[int] = set()  # while constants are loaded: buffers that have their memory already
        self.observer: Observer | None = None
        self.plans: dict[Any, Plan] = {}
        self._set_root()

    def _set_root(self) -> None:
        """Runs begin in the arena's present state. Forget all plans."""
        self.root = self.arena.snapshot()
        self.restart()

    def alloc(self, size: int, memory: str = "") -> int:
        """memory: "" for linear memory, else the GPU's. Errors: OutOfMemory."""
        address = self.arena.alloc(size, bool(memory))
        self._grow_memory()
        if self.observer is not None:
            self.observer.allocated(address, size)
        return address

    def place(self, buffer: int, size: int) -> int:
        """An address for a constant, or for what is made while constants are loaded."""
        found = self.header["buffers"][buffer]
        return found["further"][1] if "further" in found else self.alloc(size, found.get("memory", ""))

    def free(self, address: int) -> None:
        self.arena.free(address)
        if self.observer is not None:
            self.observer.freed(address)

    def _grow_memory(self) -> None:
        """Up to the highest address planned."""
        top = self.arena.linear.top + 64
        if top > len(self.host.memory):
            self.host.grow(top)
        if self.gpu is not None:
            self.gpu.reserve(self.arena.gpu.top)

    def add_state(self) -> int:
        """A number for the arena's present state."""
        self.states.append(self.arena.snapshot())
        return len(self.states) - 1

    def look_up(self, run: Run, key: Any) -> Plan | None:
        """The plan of this key in the run's state, if there is one; then the run advances by it."""
        plan = self.plans.get((run.state, key))
        if plan is not None:
            run.state = plan.layout.after
            run.addresses.update(plan.layout.addresses)
        return plan

    def advance(self, run: Run, key: Any, work: Callable[[], Plan]) -> Plan:
        """The plan of this key, made by `work` the first time; the run advances by it."""
        plan = self.look_up(run, key)
        if plan is not None:
            return plan
        if len(self.states) > STATES:
            self._restart_in(run)
        self.plans[run.state, key] = plan = work()
        self.look_up(run, key)
        return plan

    def allocate(self, run: Run, where: Any, sizes: Mapping[int, int], memory: str = "") -> None:
        """Allocate buffers of these bytes; where: names the step."""

        def allocate(layout: Layout) -> None:
            for b in sizes:
                layout.addresses[b] = self.alloc(layout.capacity[b], memory)

        what = (where, *sizes)
        self.advance(run, (where, *sizes.items()), lambda: Plan(self._layout(run, what, sizes, sizes, allocate)))

    def release(self, run: Run, where: Any, addresses: Sequence[int]) -> None:
        """Free the memory at these addresses; where: names the step."""
        key = (where, *addresses)

        def free(_: Layout) -> None:
            for address in addresses:
                self.free(address)

        self.advance(run, key, lambda: Plan(self._layout(run, key, {}, (), free)))

    def _layout(
        self, run: Run, where: Any, sizes: Mapping[int, int], made: Iterable[int], allocate: Callable[[Layout], None]
    ) -> Layout:
        """An earlier layout for `where` that fits these sizes, or a new one. In that, buffers whose size has changed
        since the last one get spare capacity, because all states after a new layout are new."""
        earlier = self._layouts.setdefault((run.state, where), [])
        if self.observer is None and (found := next((x for x in earlier if x.fits(sizes)), None)):
            return found
        now = {b: sizes[b] for b in made}
        last = self._last_sizes.get(where, now) if self.observer is None else now
        capacity = {b: size if size == last.get(b) else size + size // 4 + LEAST for b, size in now.items()}
        layout = Layout(capacity=capacity, needed=sum(now.values()))
        self._last_sizes[where] = {b: size if size == last.get(b) else VARIES for b, size in now.items()}
        self._has_spare |= capacity != now
        self.arena.restore(self.states[run.state])
        allocate(layout)
        layout.after = self.add_state()
        earlier.append(layout)
        if self.observer is not None:
            self.observer.advanced(layout.addresses)
        return layout

    def begin_round(self, run: Run) -> None:
        """In a loop: if an earlier round began in an equal state, go on in that one, which has plans."""
        if self.look_up(run, ROUND) is not None:
            return
        self.arena.restore(self.states[run.state])
        content = (self.arena.content(), frozenset(run.addresses.items()), frozenset(run.env.items()))
        number = self._by_content.setdefault(content, run.state)
        self.plans[run.state, ROUND] = Plan(Layout(after=number))
        run.state = number

    def start_from(self, run: Run, snapshot: JointState, addresses: Mapping[int, int]) -> None:
        """Begin a run with buffers of an earlier run at these addresses; snapshot: the arena after that run."""
        self.arena.restore(snapshot)
        self.arena.linear.free_all_but(addresses.values())
        run.addresses.update(addresses)
        content = (self.arena.content(), frozenset(addresses.items()))
        if content not in self._by_content:
            self._by_content[content] = self.add_state()
        run.state = self._by_content[content]

    def make_permanent(self, state: int) -> None:
        """Buffers in use in this state are constants: runs start from it."""
        self.arena.restore(self.states[state])
        self.arena.make_permanent()
        self.placed.clear()
        self._set_root()

    def twin(self, host: Any) -> Planner:
        """For another linear memory with the same bytes in `permanent`. It has no plans yet."""
        linear = self.arena.linear
        other = Planner(self.header, host, None, self.further + linear.base + linear.limit)
        other.arena.restore(self.root)
        other.make_permanent(other.add_state())
        return other

    @property
    def permanent(self) -> list[Span]:
        """Where constants are in linear memory. Runs write to the gaps, which the init block freed."""
        return spans_between(self.root.linear.free, self.arena.linear.base, self.root.linear.end)

    def restrict(self, limit: int) -> None:
        """Limit the bytes of all linear memories together from now on."""
        if limit < WHOLE and limit < self.further:
            text = f"{self.further} bytes of memory are needed for weights, memory_limit is {limit}"
            raise OutOfMemory(text, hint="raise memory_limit")
        own = limit if limit >= WHOLE else limit - self.further
        self.arena.linear.limit = own - self.arena.linear.base

    def limit(self) -> None:
        """Before a run: forget all plans if there are too many."""
        if len(self.states) > STATES or (self.gpu is not None and self.gpu.parameter_bytes > PARAMETERS):
            self.restart()

    def restart(self) -> None:
        """Forget all states and plans."""
        self.states: list[JointState] = [self.root]
        self._layouts: dict[Any, list[Layout]] = {}  # by the state before, and the step
        self._last_sizes: dict[Any, dict[int, int]] = {}  # in layouts, by step
        self._has_spare = False  # whether some layout has spare capacity
        self._by_content: dict[Any, int] = {}  # states in which a round, or a run, began
        self.forget()

    def tighten(self) -> bool:
        """After a run that ran out of memory: plan the next one without spare capacity. False if there was none."""
        had_spare = self._has_spare
        self.restart()
        return had_spare

    def forget(self) -> None:
        """Drop all plans. A run that goes on makes those that it needs again."""
        self.plans.clear()
        if self.gpu is not None:
            self.gpu.forget()
        self.tables = Arena(self.tables.base, self.tables.limit)

    def _restart_in(self, run: Run) -> None:
        """`restart` within a run: a long loop may make many states."""
        state = self.states[run.state]
        self.restart()
        self.states.append(state)
        run.state = 1

    def memory(self) -> MemoryReport:
        tensors = self.gpu.host.own.tensor_bytes if self.gpu is not None else 0
        found = self.arena.by_provider(self.gpu is not None)
        wasm = found["wasm"]
        found["wasm"] = replace(wasm, weights=wasm.weights + self.further, top=wasm.top + self.further)
        return MemoryReport.of(found, self.host.size, tensors)

    def lay_out(self, step: Step[types.WasmStep | types.GpuStep], run: Run) -> Plan:
        """Addresses for the buffers that the calls make, and the argument blocks."""
        assert step.blocks is not None
        sizes, calls = Sizes(self.sizes, run.env), step.json["calls"]
        made = [b for c in calls for b in c["alloc"] if b not in self.placed]
        if step.sizes is None:
            step.sizes = compile_dims([self.header["buffers"][b]["size"] for b in made])
        sizes.update(zip(made, step.sizes(run.env), strict=True))

        def allocate(layout: Layout) -> None:
            on_gpu = {b for b in made if self.header["buffers"][b].get("memory")}
            found = live_ranges(calls, sizes, layout, run.addresses, self.placed, on_gpu)
            if step.json["op"] == "gpu":
                others = {b for c in calls for b in c["buffers"]}.difference(made)
                layout.spans = {b: self.arena.gpu.span(run.addresses[b], sizes[b]) for b in others}
            self.arena.lay_out(dict.fromkeys(found.values()), len(calls))
            self._grow_memory()
            layout.spans |= {b: found[b].size for b in on_gpu}
            layout.addresses.update({b: found[b].address for b in made})
            if self.observer is not None:
                self.observer.laid_out(calls, {**run.addresses, **layout.addresses}, sizes)

        layout = self._layout(run, step.uid, sizes, made, allocate)
        words = step.blocks.words({**run.addresses, **layout.addresses}, run.env)
        if step.json["op"] == "gpu":
            return Plan(layout, self.gpu.prepare(calls, layout.spans, words.tolist()))
        return Plan(layout, self._table(words))

    def _table(self, words: Words) -> int:
        try:
            address = self.tables.alloc(4 * len(words))
        except OutOfMemory:
            self.forget()
            address = self.tables.alloc(4 * len(words))
        if self.tables.base + self.tables.limit > len(self.host.memory):
            self.host.grow(self.tables.base + self.tables.limit + 64)
        self.host.memory[address : address + 4 * len(words)] = words.astype(np.int32).view(np.uint8)
        return address


class Sizes(dict[int, int]):
    """Sizes of buffers in bytes, evaluated on demand."""

    def __init__(self, buffers: Sequence[int | Evaluate], env: Env) -> None:
        self.buffers = buffers
        self.env = env

    def __missing__(self, b: int) -> int:
        size = self.buffers[b]
        self[b] = value = size if isinstance(size, int) else size(self.env)
        return value


__all__ = ["Env", "Observer", "Plan", "Planner", "Run", "Sizes", "Step", "calls_of"]
