"""Plans the address of each buffer after each step, once for each path through the Program. Later runs look plans up.

For shapes that change, such as KV caches that grow with each token, a layout has spare capacity, so that only
parameters are computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyruntime.codegen.linear_memory import RESERVED
from pyruntime.program.dims import Env, compile_dim, compile_dims
from pyruntime.program.types import Binds, Call, GpuStep, Header, TensorValue, WasmStep
from pyruntime.runtime.arena import GPU, Arena, Span
from pyruntime.runtime.guards import Guards
from pyruntime.runtime.layout import Capacities, known_sizes, with_spare
from pyruntime.runtime.states import Change, Layout, Place, State, Transition
from pyruntime.runtime.step_layout import LiveRanges

MEMO = 20_000  # transitions: the memo is cleared beyond this number
LAYOUTS = 4096  # layouts: all are dropped beyond this number, also within one long run
TURNS = 4096  # turns of a loop whose argument blocks are memoised, if they take no more than LARGEST_TABLE
LARGEST_TABLE = 1 << 20  # bytes
PARAMETERS = 4 << 20  # bytes of parameter blocks on the GPU: the memo is cleared beyond this size


class Blocks(Protocol):
    """The argument blocks of a step's calls: for each call the addresses of its buffers, its parameters and its work.
    length: words."""

    length: int

    def with_addresses(self, address: Callable[[int], int]) -> Any:
        """The words with addresses, without parameters and work. address: of a buffer."""

    def fill(self, words: Any, env: Env) -> Any:
        """A copy of these words with parameters and work. Errors: ShapeError for one that does not fit int32."""


class LinearMemory(Protocol):
    """What a planner needs of linear memory."""

    def ensure(self, end: int) -> None:
        """Make all bytes below `end` usable. Errors: OutOfMemory."""

    def blocks(self, calls: list[Call]) -> Blocks:
        """The argument blocks of these calls."""

    def write_words(self, address: int, words: Any) -> None:
        """Write words as int32."""


class GpuMemory(Protocol):
    """Memory of a GPU. chunk: bytes of a buffer; no tensor crosses the border between two."""

    chunk: int

    def ensure(self, end: int) -> None:
        """Make all bytes below the address `end` usable."""


class Gpu(Protocol):
    """What a planner needs of a GPU. parameter_bytes: of parameter blocks, since plans were last dropped."""

    memory: GpuMemory
    parameter_bytes: int

    def forget(self) -> None:
        """Drop all that belongs to plans."""

    def prepare(self, calls: list[Call], layout: Layout, words: Any) -> Any:
        """What to run for these calls. layout: with the bytes of each call's buffers; words: argument blocks."""


class Observer(Protocol):
    """Watches a run whose steps the planner plans anew."""

    def changed(self, before: Place, after: Place) -> None:
        """A step without calls has allocated and freed buffers."""

    def laid_out(self, calls: list[Call], layout: Layout, sizes: dict[int, int]) -> None:
        """The calls allocate and free buffers. sizes: bytes, by buffer."""


@dataclass(eq=False, slots=True)
class Tables:
    """The region of linear memory with argument blocks. top: bytes in use; generation: how often it was cleared."""

    base: int
    size: int
    top: int = 0
    generation: int = 0


@dataclass(eq=False, slots=True)
class StepDims:
    """What a step's plans depend on. made: buffers to allocate; inputs: others that outputs may take over; sizes: bytes
    of both; fork: above 0 if some call is worth several threads."""

    made: list[int]
    inputs: list[int]
    sizes: Callable[[Env], Sequence[int]]
    blocks: Blocks
    fork: Callable[[Env], int] | None


@dataclass(eq=False, slots=True)
class Figures:
    """Of one memory, in any run. peak: most bytes in use at once, with weights; requested: bytes of all buffers of a
    run, where equal rounds of a loop count once; top: highest address."""

    peak: int = 0
    requested: int = 0
    top: int = 0

    def add(self, arena: Arena) -> None:
        """Note the end of a step."""
        self.peak = max(self.peak, arena.peak)
        self.requested = max(self.requested, arena.requested)
        self.top = max(self.top, arena.top)


@dataclass(eq=False, slots=True)
class PlanCounts:
    """Of one session. runs: of its executors; planned: runs that needed a new plan, because no earlier one had their
    shapes."""

    runs: int = 0
    planned: int = 0


class Planner:
    """Of one executor. shapes: for how many different shapes of runs argument blocks are memoised."""

    def __init__(self, header: Header, memory: LinearMemory, gpu: Gpu | None, shapes: int) -> None:
        self.header = header
        self.memory = memory
        self.gpu = gpu
        self.shapes = shapes
        self.guards = Guards(header)
        self.size_of = [compile_dim(buffer["size"]) for buffer in header["buffers"]]
        # Constants. The compiler chose the addresses of those in further memories.
        self.constants: dict[int, Span] = {}
        nothing: Env = {}
        for buffer, spec in enumerate(header["buffers"]):
            if "further" in spec:
                self.constants[buffer] = Span(spec["further"][1], self.size_of[buffer](nothing), spec["further"][0])
        self.preallocated: set[int] = set()  # during start-up: buffers that have memory already
        self.tables = Tables(RESERVED, _table_bytes(header, shapes))
        chunk = 0 if gpu is None else gpu.memory.chunk
        self.root = State(Place(Arena(RESERVED + self.tables.size), Arena(GPU, chunk), {}), {})
        self.observer: Observer | None = None
        self.counts = PlanCounts()
        self.transitions = 0
        self.layouts = 0
        self.has_spare_capacity = False
        self.is_reserving = False
        self.reserved: dict[int, int] = {}  # capacities of inputs along their axis, by buffer
        self.linear_figures = Figures()
        self.gpu_figures = Figures()
        self._is_counted = True  # whether the run in progress counts as planned; not during start-up
        self._steps: dict[str, StepDims] = {}
        self._sizes_before: dict[str, list[int]] = {}  # by step, the sizes of its buffers in the last layout
        self._places: dict[str, Place] = {}  # by content
        self._interned: dict[Place, dict[str, State]] = {}  # by place, and values of symbols
        self._starts: dict[Place, dict[str, Place]] = {}  # by place, and some of its buffers: the place with only these

    def twin(self, memory: LinearMemory) -> Planner:
        """For another linear memory with the same constants. It has no plans yet."""
        other = Planner(self.header, memory, None, self.shapes)
        other.constants = self.constants
        other.counts = self.counts
        other._start_at(self.root.place)
        return other

    # ── transitions ──

    def advance(self, state: State, key: str, change: Callable[[Change], None]) -> State:
        """The state after a change, planned on first use."""
        found = state.next.get(key)
        return self._change(state, key, change).state if found is None else found.state

    def advance_interned(self, state: State, key: str, change: Callable[[Change], None]) -> State:
        """Like `advance`. If an equal state is known, the change leads to it, so that equal rounds of a loop share
        plans."""
        found = state.next.get(key)
        if found is None:
            found = self._change(state, key, change)
            found.state = self._interned_state(self._canonical(found.state.place), found.state.env)
        return found.state

    def _change(self, state: State, key: str, change: Callable[[Change], None]) -> Transition:
        step = Change(state.env)
        change(step)

        def fill(layout: Layout) -> None:
            for move in step.moves:
                move(layout.after, layout.capacities.capacities)
            if self.observer is not None:
                self.observer.changed(state.place, layout.after)

        layout = self._layout(state.place, step.name, len(step.buffers), step.sizes, fill)
        return self._remember(state, key, Transition(State(layout.after, step.env), layout))

    def _remember(self, state: State, key: str, transition: Transition) -> Transition:
        state.next[key] = transition
        self.transitions += 1
        if not self._is_counted:
            self._is_counted = True
            self.counts.planned += 1
        return transition

    def start_from(self, place: Place, buffers: list[int]) -> State:
        """The initial state of a run that reuses these buffers of an earlier run. place: at the end of that run."""
        key = ",".join([str(buffer) for buffer in buffers])
        starts = self._starts.setdefault(place, {})
        start = starts.get(key)
        if start is None:
            start = self._canonical(place.with_only(buffers))
            starts[key] = start
        return self._interned_state(start, {})

    def _canonical(self, place: Place) -> Place:
        """The first place with this content, which has layouts."""
        found = place.canonical
        if found is None:
            found = self._places.setdefault(place.content(), place)
            place.canonical = found
        return found

    def _interned_state(self, place: Place, env: Env) -> State:
        """The first state with this place and these values."""
        states = self._interned.setdefault(place, {})
        name = ",".join([f"{symbol}={env[symbol]}" for symbol in sorted(env.keys())])
        return states.setdefault(name, State(place, env))

    # ── layouts ──

    def _layout(
        self, place: Place, step: str, count: int, sizes: Sequence[int], fill: Callable[[Layout], None]
    ) -> Layout:
        """A memoised layout of a step from this place on, if these sizes fit. Else a new one, with spare capacity for
        buffers whose size differs from an earlier layout's, from any place: after a new layout all places are new.

        count: of the buffers to allocate, whose sizes come first; fill: lays out the buffers"""
        if self.observer is None:
            for known in place.layouts.get(step, []):
                if known.capacities.fit(sizes):
                    known.capacities.is_reserved = known.capacities.is_reserved or self.is_reserving
                    return known
        if self.layouts >= LAYOUTS:
            self.tighten()
        self.layouts += 1
        now = list(sizes[:count])
        last = self._sizes_before.get(step)
        if last is None or self.observer is not None:
            last = now
        capacities = with_spare(now, last)
        layout = Layout(place.copy(), Capacities(capacities, sum(now)))
        layout.capacities.is_reserved = self.is_reserving
        self.has_spare_capacity = self.has_spare_capacity or sum(capacities) > layout.capacities.needed
        self._sizes_before[step] = known_sizes(now, last)
        fill(layout)
        self.ensure(layout.after)
        self.linear_figures.add(layout.after.arena)
        self.gpu_figures.add(layout.after.gpu)
        place.layouts.setdefault(step, []).append(layout)
        return layout

    def ensure(self, place: Place) -> None:
        """Grow the memories to contain a place, and what was in use on the way to it."""
        self.memory.ensure(place.arena.top)
        if self.gpu is not None:
            self.gpu.memory.ensure(place.gpu.top)

    def plan_calls(self, step: WasmStep, state: State, key: str) -> Transition:
        """Plan a step on the CPU: assign addresses to buffers, and write the argument blocks."""
        dims = self._dims_of(step["calls"], key, step.get("fork", 0))
        layout = self._lay_out_calls(step["calls"], dims, state, key)
        table = self._write_table(dims.blocks.fill(layout.words, state.env), dims.blocks.length)
        parallel = dims.fork is not None and dims.fork(state.env) > 0
        transition = Transition(State(layout.after, state.env), layout, table, self.tables.generation, parallel)
        return self._remember(state, key, transition)

    def plan_dispatches(self, step: GpuStep, state: State, key: str) -> Transition:
        """Plan a step on the GPU."""
        dims = self._dims_of(step["calls"], key, 0)
        layout = self._lay_out_calls(step["calls"], dims, state, key)
        words = dims.blocks.fill(layout.words, state.env)
        if layout.sizes is None:
            layout.sizes = [[self._size_in(layout, state, b) for b in call["buffers"]] for call in step["calls"]]
        transition = Transition(State(layout.after, state.env), layout)
        if self.gpu is not None:
            transition.prepared = self.gpu.prepare(step["calls"], layout, words)
        return self._remember(state, key, transition)

    def _lay_out_calls(self, calls: list[Call], dims: StepDims, state: State, key: str) -> Layout:
        sizes = dims.sizes(state.env)

        def fill(layout: Layout) -> None:
            buffers = [*dims.made, *dims.inputs]
            by_buffer = dict(zip(buffers, sizes, strict=True))
            ranges = LiveRanges(calls, by_buffer, state.place.spans)
            capacities = dict(zip(dims.made, layout.capacities.capacities, strict=True))
            layout.spans = ranges.find(capacities, {buffer for buffer in dims.made if self.is_on_gpu(buffer)})
            position = dict(zip(buffers, range(len(buffers)), strict=True))
            layout.capacities.in_place = [(position[output], position[source]) for output, source in ranges.in_place]
            layout.after.lay_out_step(layout.spans, len(calls))
            if self.observer is not None:
                self.observer.laid_out(calls, layout, by_buffer)

        layout = self._layout(state.place, key, len(dims.made), sizes, fill)
        if layout.words is None:
            layout.words = dims.blocks.with_addresses(lambda buffer: self._address_in(layout, state, buffer))
        return layout

    def _address_in(self, layout: Layout, state: State, buffer: int) -> int:
        live = layout.spans.get(buffer)
        return self.span(state, buffer).address if live is None else live.address

    def _size_in(self, layout: Layout, state: State, buffer: int) -> int:
        live = layout.spans.get(buffer)
        return self.span(state, buffer).size if live is None else live.size

    def _dims_of(self, calls: list[Call], key: str, fork: Any) -> StepDims:
        known = self._steps.get(key)
        if known is None:
            made = [b for call in calls for b in call["alloc"] if b not in self.preallocated]
            own = set(made)
            inputs = [source for call in calls for _, source in call["inplace"] if source not in own]
            buffers = [self.header["buffers"][b]["size"] for b in [*made, *inputs]]
            parallel = None if fork == 0 else compile_dim(fork)
            known = StepDims(made, inputs, compile_dims(buffers), self.memory.blocks(calls), parallel)
            self._steps[key] = known
        return known

    def _write_table(self, words: Any, length: int) -> int:
        """The address of argument blocks."""
        size = -(-4 * length // 64) * 64
        if self.tables.top + size > self.tables.size:
            self._reuse_tables()
        address = self.tables.base + self.tables.top
        self.tables.top += size
        self.memory.write_words(address, words)
        return address

    def _reuse_tables(self) -> None:
        """Overwrite the argument blocks, which are complete: steps whose plans are older write theirs again."""
        if self.transitions > MEMO:
            self.clear()
        else:
            self.tables.top = 0
            self.tables.generation += 1

    # ── reserves ──

    def begin_reserve(self) -> None:
        """Plan the next run anew, for its shapes and all smaller ones."""
        self.clear()
        self.is_reserving = True

    def end_reserve(self, env: Env) -> None:
        """Inputs with a capacity have at least this one from now on. env: values of symbols in that run."""
        self.is_reserving = False
        for spec in self.header["inputs"]:
            room = spec.get("room")
            if room is not None and room["places"] in env:
                self.reserved[spec["buffer"]] = max(env[room["places"]], self.reserved.get(spec["buffer"], 0))

    def least_capacity(self, buffer: int, least: int) -> int:
        """The capacity of an input for which a run needs `least`."""
        return max(least, self.reserved.get(buffer, 0))

    # ── limits ──

    def limit(self) -> None:
        """Bound the size of the memo, before a run."""
        self.counts.runs += 1
        self._is_counted = False
        if self.transitions > MEMO or (self.gpu is not None and self.gpu.parameter_bytes > PARAMETERS):
            self.clear()

    def clear(self) -> None:
        """Drop all plans, but no layouts. A run in progress plans again what it needs."""
        self.tables.top = 0
        self.tables.generation += 1
        if self.gpu is not None:
            self.gpu.forget()
        self.root.next.clear()
        self._interned.clear()
        self.transitions = 0

    def tighten(self) -> bool:
        """Drop all layouts, so that new ones have no spare capacity. Returns whether some had any."""
        had_spare_capacity = self.has_spare_capacity
        self.root.place.layouts.clear()
        self._starts.clear()
        self._sizes_before.clear()
        self._places.clear()
        self.reserved.clear()
        self.layouts = 0
        self.has_spare_capacity = False
        self.clear()
        return had_spare_capacity

    # ── start-up ──

    def place(self, state: State, buffer: int) -> Span:
        """Allocate a constant, or a buffer that outlives the init block, in the state itself."""
        if buffer not in self.constants:
            state.place.take(buffer, self.size(state.env, buffer), self.is_on_gpu(buffer))
        return self.span(state, buffer)

    def make_permanent(self, state: State) -> None:
        """End the start-up: the buffers in use are constants, and runs start from this state."""
        self.constants.update(state.place.spans)
        self.preallocated.clear()
        self._steps.clear()
        self._start_at(state.place)
        self.tighten()

    def _start_at(self, place: Place) -> None:
        copy = Place(place.arena.copy(), place.gpu.copy(), {})
        copy.arena.make_permanent()
        copy.gpu.make_permanent()
        self.linear_figures = Figures(copy.arena.peak, 0, copy.arena.top)
        self.gpu_figures = Figures(copy.gpu.peak, 0, copy.gpu.top)
        self.root = State(copy, {})

    # ── buffers ──

    def size(self, env: Env, buffer: int) -> int:
        """Bytes."""
        return self.size_of[buffer](env)

    def is_on_gpu(self, buffer: int) -> bool:
        return "memory" in self.header["buffers"][buffer]

    def span(self, state: State, buffer: int) -> Span:
        """The memory of a buffer."""
        found = state.place.spans.get(buffer)
        return self.constants[buffer] if found is None else found

    def take(self, change: Change, buffers: list[int]) -> None:
        """Allocate buffers, except those whose elements are strings."""
        for buffer in buffers:
            if "host" not in self.header["buffers"][buffer]:
                change.take(buffer, self.size(change.env, buffer), self.is_on_gpu(buffer))

    def bind(self, change: Change, binds: Binds, dims: Sequence[Sequence[int]]) -> None:
        """Set symbols to dims of values, and check guards. Errors: ShapeError."""
        for value, axis, symbol in binds:
            change.env[symbol] = dims[value][axis]
        self.guards.bound(change.env, {symbol for _, _, symbol in binds})


def buffers_of(values: list[TensorValue]) -> list[int]:
    return [v["buffer"] for v in values]


def _table_bytes(header: Header, shapes: int) -> int:
    """Bytes for the argument blocks of about this many different shapes, and of the turns of loops whose values
    grow."""
    words = 0
    turn = 0
    for block in header["blocks"]:
        for step in block["steps"]:
            if step["op"] == "wasm":
                words += _step_words(step)
            elif step["op"] == "loop" and len(step["enters"]) > 0:
                inner = header["blocks"][step["body"]]["steps"]
                turn += sum(_step_words(own) for own in inner if own["op"] == "wasm")
    return max(65536, shapes * 4 * words, min(TURNS * 4 * turn, LARGEST_TABLE))


def _step_words(step: WasmStep) -> int:
    """Words of a step's argument blocks, at most, with their alignment."""
    return sum([len(call["buffers"]) + len(call["params"]) + 1 for call in step["calls"]]) + 16
