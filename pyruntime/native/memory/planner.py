"""Memory plans: where each buffer lies after each step, made once for a way through the Program and found again.

web/run/plan.js is its mirror. `Plan` holds the addresses a step needs, and for a wasm step the argument blocks already
written to memory, so a repeated run with the same shapes only calls code. Where shapes change, as the caches of a
decoder grow with each token, a `Layout` has room for more, and only parameters are computed anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from pyruntime.codegen.linear_memory import RESERVED
from pyruntime.errors import OutOfMemory
from pyruntime.native.memory.arena import Arena, MemoryReport, spans_between
from pyruntime.native.memory.argument_blocks import ArgumentBlocks, Words
from pyruntime.native.memory.joint_arena import Memories
from pyruntime.native.memory.step_layout import tenants
from pyruntime.program import types
from pyruntime.program.dims import Evaluate, compile_dim, compile_dims
from pyruntime.program.footprint import WHOLE

PLANS = 64  # argument tables that fit the table region before all plans are forgotten
STATES = 4096  # arena states kept before all are forgotten: new shapes in every run, or round of a loop, do not pile up

ROUND = "round"  # the key of what begins one
SMALL = 1 << 16  # bytes that a layout may always be made for
LEAST = 1 << 12  # bytes more for a buffer that grows: short caches do so by more than a quarter in few steps
VARIES = -1  # in place of the size of a buffer that had another one before, which it may keep for some tokens
PARAMETERS = 4 << 20  # bytes of parameter blocks on the GPU, likewise

Env = dict[str, int]


@dataclass(slots=True)
class Layout:
    """Where what a step makes lies, if no buffer has more bytes than there is `room` for it, and each of `heirs`
    (output, input), which lies in its input's memory, has that one's size. spans: bytes on the GPU of all that a step
    names, with their room; needed: bytes that it was made for; after: the arena state; seconds: of the step's last
    run."""

    addresses: dict[int, int] = field(default_factory=dict)
    room: dict[int, int] = field(default_factory=dict)
    spans: dict[int, int] = field(default_factory=dict)
    heirs: list[tuple[int, int]] = field(default_factory=list)
    needed: int = 0
    after: int = 0
    seconds: float = math.inf

    def holds(self, sizes: Mapping[int, int]) -> bool:
        """What was made for much more is too far apart: what lies close together stays in cache."""
        if not all(0 <= sizes[b] <= most for b, most in self.room.items()):
            return False
        alike = all(sizes[output] == sizes[source] for output, source in self.heirs)
        return alike and self.needed <= 2 * sum(sizes[b] for b in self.room) + SMALL


@dataclass(slots=True)
class Plan:
    """table: address of the step's argument blocks; fork: whether some call is worth more than one thread."""

    layout: Layout
    table: int = 0
    fork: bool = False


S = TypeVar("S", bound=types.Step, covariant=True)


@dataclass(slots=True)
class Step(Generic[S]):
    """A step with its dims compiled."""

    json: S
    symbols: tuple[str, ...] = ()
    blocks: ArgumentBlocks | None = None  # of its calls
    uid: int = 0
    sizes: Callable[[Env], tuple[int, ...]] | None = None  # of the buffers that it makes


def calls_of(step: types.Step) -> list[types.Call]:
    """The calls of a segment; no other step has some."""
    return step["calls"] if "calls" in step else []


class Run:
    """The state of one run: values of symbols, addresses of buffers, strings by buffer (`host`), the arena state. For
    `Transfers`: feeds on the GPU by buffer, names of the outputs to return and of those that stay on the GPU, and the
    tensors of the latter."""

    __slots__ = ("addresses", "env", "gpu_feeds", "gpu_results", "host", "names", "on_gpu", "state")

    def __init__(self, addresses: dict[int, int], host: dict[int, Any]) -> None:
        self.env: Env = {}
        self.addresses = addresses
        self.host = host
        self.state = 0
        self.gpu_feeds: dict[int, Any] = {}
        self.names: set[str] = set()
        self.on_gpu: set[str] = set()
        self.gpu_results: dict[str, Any] = {}


class Observer(Protocol):
    """Is told while plans are made. `allocated` and `freed` come before the `advanced` of the step that they belong to;
    what the calls of a step make and free is told by `laid_out`, after it."""

    def allocated(self, address: int, size: int) -> None: ...

    def freed(self, address: int) -> None: ...

    def laid_out(self, calls: Sequence[types.Call], addresses: Mapping[int, int], sizes: Mapping[int, int]) -> None: ...

    def advanced(self, made: Mapping[int, int]) -> None:
        """made: the addresses of the buffers that the step made."""


class Planner:
    """Of one session: linear memory and the GPU's, the argument blocks, and the plans. limit: bytes that it may use."""

    def __init__(self, header: types.Header, host: Any, gpu: Any, limit: int) -> None:
        self.header = header
        self.host = host
        self.gpu = gpu
        self.sizes = [b["size"] if isinstance(b["size"], int) else compile_dim(b["size"]) for b in header["buffers"]]
        calls = [c for b in header["blocks"] for s in b["steps"] for c in calls_of(s)]
        words = sum(len(c["buffers"]) + len(c["params"]) + 1 for c in calls)
        self.tables = Arena(RESERVED, max(PLANS * words * 4, 1 << 16))
        chunk = gpu.host.chunk if gpu is not None else 0
        self.further = sum(header.get("memories", ()))  # bytes of further memories, whose addresses the compiler gave
        self.arena = Memories(RESERVED + self.tables.limit, 0, chunk)
        self.restrict(limit)
        self.placed: set[int] = set()  # while starting: buffers that have their memory already
        self.plans: dict[Any, Plan] = {}
        self.root = self.arena.snapshot()
        self.states: list[Any] = [self.root]
        self._layouts: dict[Any, list[Layout]] = {}  # by the state before, and what is laid out
        self._last: dict[Any, dict[int, int]] = {}  # sizes in layouts, from any state, by what is laid out
        self._roomy = False  # whether some layout has more room than was needed
        self._rounds: dict[Any, int] = {}  # states in which a round, or a run, began, by what is in them
        self.observer: Observer | None = None

    def alloc(self, size: int, memory: str = "") -> int:
        """memory: "" for linear memory, else the GPU's. Errors: OutOfMemory."""
        address = self.arena.alloc_gpu(size) if memory else self.arena.alloc(size)
        self._reach()
        if self.observer is not None:
            self.observer.allocated(address, size)
        return address

    def place(self, buffer: int, size: int) -> int:
        """The address of what stays, or is there while starting, in its memory."""
        found = self.header["buffers"][buffer]
        return found["further"][1] if "further" in found else self.alloc(size, found.get("memory", ""))

    def free(self, address: int) -> None:
        self.arena.free(address)
        if self.observer is not None:
            self.observer.freed(address)

    def _reach(self) -> None:
        """Memory for all that was planned."""
        if self.arena.top + 64 > len(self.host.memory):
            self.host.grow(self.arena.top + 64)
        if self.gpu is not None:
            self.gpu.reserve(self.arena.gpu.top)

    def note(self) -> int:
        """Name the arena's present state."""
        self.states.append(self.arena.snapshot())
        return len(self.states) - 1

    def known(self, run: Run, key: Any) -> Plan | None:
        """The plan of this key from where a run is, if there is one; the run is behind it then."""
        plan = self.plans.get((run.state, key))
        if plan is not None:
            run.state = plan.layout.after
            run.addresses.update(plan.layout.addresses)
        return plan

    def advance(self, run: Run, key: Any, work: Callable[[], Plan]) -> Plan:
        """What `work` plans for a state and key is planned once and found afterwards."""
        plan = self.known(run, key)
        if plan is not None:
            return plan
        if len(self.states) > STATES:
            self._forget_but(run)
        self.plans[run.state, key] = plan = work()
        self.known(run, key)
        return plan

    def take(self, run: Run, where: Any, sizes: Mapping[int, int], memory: str = "") -> None:
        """Memory for buffers with these bytes; where: what takes it."""

        def allocate(layout: Layout) -> None:
            for b in sizes:
                layout.addresses[b] = self.alloc(layout.room[b], memory)

        what = (where, *sizes)
        self.advance(run, (where, *sizes.items()), lambda: Plan(self._layout(run, what, sizes, sizes, allocate)))

    def give_back(self, run: Run, where: Any, addresses: Sequence[int]) -> None:
        """The memory at these addresses; where: what gives it back."""
        key = (where, *addresses)

        def free(_: Layout) -> None:
            for address in addresses:
                self.free(address)

        self.advance(run, key, lambda: Plan(self._layout(run, key, {}, (), free)))

    def _layout(
        self, run: Run, where: Any, sizes: Mapping[int, int], made: Iterable[int], allocate: Callable[[Layout], None]
    ) -> Layout:
        """One that was made before for `where` and has room for these sizes; else one with as much room as buffers
        take, and more for those that had another size in one before: behind a step that is laid out anew all states are
        new."""
        before = self._layouts.setdefault((run.state, where), [])
        if self.observer is None and (found := next((x for x in before if x.holds(sizes)), None)):
            return found
        now = {b: sizes[b] for b in made}
        last = self._last.get(where, now) if self.observer is None else now
        room = {b: size if size == last.get(b) else size + size // 4 + LEAST for b, size in now.items()}
        layout = Layout(room=room, needed=sum(now.values()))
        self._last[where] = {b: size if size == last.get(b) else VARIES for b, size in now.items()}
        self._roomy |= room != now
        self.arena.restore(self.states[run.state])
        allocate(layout)
        layout.after = self.note()
        before.append(layout)
        if self.observer is not None:
            self.observer.advanced(layout.addresses)
        return layout

    def begin_round(self, run: Run) -> None:
        """In a loop: where a run was in an earlier round, all that follows is planned already."""
        if self.known(run, ROUND) is not None:
            return
        self.arena.restore(self.states[run.state])
        content = (self.arena.content(), frozenset(run.addresses.items()), frozenset(run.env.items()))
        number = self._rounds.setdefault(content, run.state)
        self.plans[run.state, ROUND] = Plan(Layout(after=number))
        run.state = number

    def start_from(self, run: Run, snapshot: Any, there: Mapping[int, int]) -> None:
        """A run begins with buffers that an earlier one left at these addresses; snapshot: the arena as it was then."""
        self.arena.restore(snapshot)
        self.arena.keep(there.values())
        run.addresses.update(there)
        content = (self.arena.content(), frozenset(there.items()))
        if content not in self._rounds:
            self._rounds[content] = self.note()
        run.state = self._rounds[content]

    def make_permanent(self, state: int) -> None:
        """What lies there in this state stays for good: runs start from it."""
        self.arena.restore(self.states[state])
        self.arena.make_permanent()
        self.placed.clear()
        self.root = self.arena.snapshot()
        self.restart()

    def twin(self, host: Any) -> Planner:
        """For another linear memory with the same bytes in `permanent`; no plans are made yet."""
        other = Planner(self.header, host, None, self.further + self.arena.base + self.arena.limit)
        other.arena.restore(self.root)
        other.make_permanent(other.note())
        return other

    @property
    def permanent(self) -> list[tuple[int, int]]:
        """Where in linear memory what stays for good begins and ends. What `init` freed between, runs write."""
        (free, _, end, *_), _ = self.root
        return spans_between(free, self.arena.base, end)

    def restrict(self, limit: int) -> None:
        """From now on so many bytes of linear memory may be used, of all memories together."""
        if limit < WHOLE and limit < self.further:
            text = f"{self.further} bytes of memory are needed for weights, memory_limit is {limit}"
            raise OutOfMemory(text, hint="raise memory_limit")
        own = limit if limit >= WHOLE else limit - self.further
        self.arena.limit = own - self.arena.base

    def limit(self) -> None:
        """Before a run: states and plans do not pile up without end."""
        if len(self.states) > STATES or (self.gpu is not None and self.gpu.parameter_bytes > PARAMETERS):
            self.restart()

    def restart(self) -> None:
        """The next run is planned anew."""
        self.states = [self.root]
        self._layouts = {}
        self._last = {}
        self._roomy = False
        self._rounds = {}
        self.forget()

    def tighten(self) -> bool:
        """After a run for which memory was short: the next one has no more room than it needs. Whether it had."""
        roomy = self._roomy
        self.restart()
        return roomy

    def forget(self) -> None:
        """Drop all plans; those of a run in progress are made again as it meets them."""
        self.plans.clear()
        if self.gpu is not None:
            self.gpu.forget()
        self.tables = Arena(self.tables.base, self.tables.limit)

    def _forget_but(self, run: Run) -> None:
        """Also what a long loop left behind, but for where the run is."""
        here = self.states[run.state]
        self.restart()
        self.states.append(here)
        run.state = 1

    def memory(self) -> MemoryReport:
        tensors = self.gpu.host.own.bytes_held if self.gpu is not None else 0
        found = self.arena.by_provider(self.gpu is not None)
        wasm = found["wasm"]
        found["wasm"] = replace(wasm, weights=wasm.weights + self.further, top=wasm.top + self.further)
        return MemoryReport(found, self.host.size, tensors)

    def lay_out(self, step: Step[types.WasmStep | types.GpuStep], run: Run) -> Plan:
        """Memory for what the calls make, what dies given back, and the argument blocks."""
        assert step.blocks is not None
        sizes, calls = Sizes(self.sizes, run.env), step.json["calls"]
        made = [b for c in calls for b in c["alloc"] if b not in self.placed]
        if step.sizes is None:
            step.sizes = compile_dims([self.header["buffers"][b]["size"] for b in made])
        sizes.update(zip(made, step.sizes(run.env), strict=True))

        def allocate(layout: Layout) -> None:
            away = {b for b in made if self.header["buffers"][b].get("memory")}
            found = tenants(calls, sizes, layout, run.addresses, self.placed, away)
            if step.json["op"] == "gpu":
                there = {b for c in calls for b in c["buffers"]}.difference(made)
                layout.spans = {b: self.arena.gpu.span(run.addresses[b], sizes[b]) for b in there}
            self.arena.lay_out(dict.fromkeys(found.values()), len(calls))
            self._reach()
            layout.spans |= {b: found[b].size for b in away}
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
        if self.arena.base > len(self.host.memory):
            self.host.grow(self.arena.base + 64)
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
