"""Caches that kernels on the GPU grow in place: past and present share memory with capacity for more rows
(docs/design/kv-caches.md#on-the-gpu). Twin of web/gpu/caches.js."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.errors import ShapeError
from pyruntime.native.execution.values import Values
from pyruntime.native.gpu.tensor import GpuTensor
from pyruntime.native.memory.arrays import NUMPY
from pyruntime.program import types
from pyruntime.program.dims import Env, compile_dim
from pyruntime.runtime.growth import byte_ranges, capacity_on_gpu, first_new_row


@dataclass(eq=False, slots=True)
class _Cache:
    """An input that lies in the buffer of an output on the GPU. name, value: of the output; axis: along which the
    buffer has capacity; least: the capacity that a run needs; fresh: number of new rows that may overwrite old ones;
    undo: number of rows at the end of the memory that keep these; total: rows after a run; is_fixed: a run makes no
    more rows than it is fed."""

    spec: types.Input
    name: str
    value: Any
    axis: int
    least: Callable[[Env], int]
    fresh: Callable[[Env], int] | None
    undo: Callable[[Env], int] | None
    total: Callable[[Env], int]
    is_fixed: bool


@dataclass(eq=False, slots=True)
class _Fed:
    """The feed of a cache in this run. capacity: of the memory that the run works in; is_alone: no other feed is in the
    feed's memory; memory: None before the run needs it."""

    cache: _Cache
    x: Any
    capacity: int
    is_alone: bool
    memory: Any = None


class GpuCaches:
    """Of one executor. inputs: buffers of inputs that only the GPU reads."""

    def __init__(self, values: Values, gpu: Any, inputs: Collection[int]) -> None:
        self.values = values
        self.gpu = gpu
        header = values.header
        pairs = [(s["buffer"], t["buffer"]) for c in _copies(header) for s, t in c["pairs"]]
        on_gpu, in_linear_memory = dict(pairs), {}
        for source, target in pairs:
            in_linear_memory[target] = source
        outputs = {o["value"]["buffer"]: o for o in header["outputs"] if o["value"] and "room" in o["value"]}
        by_source = {in_linear_memory[b]: o for b, o in outputs.items() if b in in_linear_memory}
        self._by_input: dict[int, _Cache] = {}
        for spec in header["inputs"]:
            output = by_source.get(on_gpu.get(spec["buffer"], -1))
            if "room" in spec and spec["buffer"] in inputs and output is not None:
                self._by_input[spec["buffer"]] = _cache(spec, output)
        self._fed: dict[int, _Fed] = {}
        # feeds whose rows this run overwrites, and the number of the first submission that may do so
        self._overwritten: list[tuple[GpuTensor, int]] = []

    def begin(self, feeds: Sequence[tuple[int, Any]], on_gpu: Collection[str], env: Env) -> set[int]:
        """Choose the memory of caches that start or stay on the GPU, and set the symbols of their capacities. feeds: by
        buffer; on_gpu: outputs that stay there. Returns the buffers of these feeds."""
        self.end()
        if not self._by_input:
            return set()
        memories = [x.memory(self.gpu.host.own) for _, x in feeds if isinstance(x, GpuTensor)]
        for b, x in feeds:
            cache = self._by_input.get(b)
            if cache is None or not (cache.name in on_gpu or isinstance(x, GpuTensor)):
                continue
            capacity = env[cache.spec["room"]["places"]] = self._capacity(cache, x, env)
            is_alone = isinstance(x, GpuTensor) and memories.count(x.memory()) == 1
            self._fed[b] = _Fed(cache, x, capacity, is_alone)
        return set(self._fed)

    def _capacity(self, cache: _Cache, x: Any, env: Env) -> int:
        least = cache.least(env)
        if isinstance(x, GpuTensor):
            least += 0 if x.replaced else self._spare(cache, x, env)
            if x.capacity(cache.axis) >= least or x.replaced:
                return x.capacity(cache.axis)
        enough = self.values.plan.least_capacity(cache.spec["buffer"], least)
        if cache.is_fixed:
            return enough
        ranges = byte_ranges(x.shape, cache.axis, x.shape[cache.axis], self._item(cache))
        return max(enough, capacity_on_gpu(least, ranges, self.gpu.host.chunk))

    @staticmethod
    def _spare(cache: _Cache, x: GpuTensor, env: Env) -> int:
        """Rows beyond the least that let a run keep what it overwrites. `least` of a cache that may grow has rows for
        new keys, which a single item's run needs only if it overwrites none."""
        if cache.undo is None or cache.fresh is None:
            return 0
        return cache.undo(env) - (0 if cache.is_fixed or x.shape[0] > 1 else cache.fresh(env))

    def memory(self, b: int, env: Env) -> Any:
        """The memory in which the run appends to the feed of buffer `b`, with the feed's rows; None for other buffers.
        env: after the steps that set the number of rows."""
        fed = self._fed.get(b)
        if fed is None:
            return None
        if fed.memory is None:
            x, cache = fed.x, fed.cache
            if cache.total(env) > fed.capacity:
                rows = f"{cache.total(env)} rows, the memory that it is bound to {fed.capacity}"
                raise ShapeError(f'output "{cache.name}" has {rows}')
            if isinstance(x, GpuTensor):
                shared = x.memory()
                is_free = fed.is_alone and x.capacity(cache.axis) == fed.capacity and self._leaves_tensors(fed, env)
                fed.memory = shared if is_free else self._copy(fed, shared)
            else:
                fed.memory = self._new_memory(fed)
                fed.memory.write(x, byte_ranges(x.shape, cache.axis, fed.capacity, self._item(cache)))
        return fed.memory

    def _leaves_tensors(self, fed: _Fed, env: Env) -> bool:
        """Whether the run may write into the memory of its feed: it changes no row of a tensor that still exists, or
        only rows of the feed, which it keeps. The end of the memory keeps the rows of one run."""
        x, axis, total = fed.x, fed.cache.axis, fed.cache.total(env)
        undo = 0 if fed.cache.undo is None else fed.cache.undo(env)
        fresh = None if fed.cache.fresh is None else fed.cache.fresh(env)
        first = x.shape[axis] if fresh is None else first_new_row(x.shape[0], x.shape[axis], total, fresh)
        others = [t for t in x.sharing() if not t.replaced]
        changed = [t for t in others if t.shape[axis] > first]
        if any(t.is_overwritten for t in others) or changed not in ([], [x]):
            return False
        if changed:
            if not undo or total + undo > fed.capacity:
                return False
            x.note_overwritten(undo)
            self._overwritten.append((x, self.gpu.host.submission))
        if fresh is not None and first > 0:
            x.note_appended(axis, total)
        return True

    def _new_memory(self, fed: _Fed) -> Any:
        x, cache = fed.x, fed.cache
        shape = [*x.shape]
        shape[cache.axis] = fed.capacity
        count = 1
        for d in shape:
            count *= d
        return self.gpu.tensor_memory(NUMPY[cache.spec["dtype"]], count)

    def _copy(self, fed: _Fed, old: Any) -> Any:
        """New memory with the rows of a GPU tensor."""
        x, axis, item = fed.x, fed.cache.axis, self._item(fed.cache)
        new = self._new_memory(fed)
        source, target = x.ranges(), byte_ranges(x.shape, axis, fed.capacity, item)
        if not self.gpu.copy_rows(old, source, new, target):
            new.write(x.stored(), target)
        return new

    def _item(self, cache: _Cache) -> int:
        return min(NUMPY[cache.spec["dtype"]].itemsize, 4)

    def keeps(self, name: str) -> bool:
        """Whether the output of this name stays in the memory of its feed."""
        return any(fed.cache.name == name for fed in self._fed.values())

    def result(self, name: str, env: Env) -> GpuTensor | None:
        """The output of this name, if it stays in the memory of its feed."""
        for fed in self._fed.values():
            cache = fed.cache
            if cache.name == name and fed.memory is not None:
                shape = self.values.shape(cache.value, env)
                return GpuTensor(fed.memory, cache.value["dtype"], shape, (cache.axis, fed.capacity))
        return None

    def abandon(self) -> None:
        """The run failed, and its commands since the last submission are dropped."""
        for x, submission in self._overwritten:
            x.note_failure(may_have_run=self.gpu.host.submission > submission)
        self.end()

    def end(self) -> None:
        self._fed, self._overwritten = {}, []


def _cache(spec: types.Input, output: Any) -> _Cache:
    room, value = spec["room"], output["value"]
    axis = room["axis"]
    fresh, undo = (compile_dim(room[key]) if key in room else None for key in ("mixed", "undo"))
    total, before = value["dims"][axis], spec["dims"][axis]
    least, is_fixed = compile_dim(room["least"]), total == before
    return _Cache(spec, output["name"], value, axis, least, fresh, undo, compile_dim(total), is_fixed)


def _copies(header: types.Header) -> list[types.CopyStep]:
    return [step for step in header["blocks"][1]["steps"] if step["op"] == "copy"]
