"""Blocks of kernels → Program: numbers buffers, finds lifetimes, lets the provider write the segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyruntime.codegen.loop_ir import Param, Site
from pyruntime.codegen.provider import LINEAR, CodeProvider, Invocation, Memory
from pyruntime.frontend.trace_graph import Feed, Translation
from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import own_inputs, readers_of
from pyruntime.ir.dtype import STRING
from pyruntime.ir.kernel import Alias, Binds, Block, Host, If, Kernel, Leaf, Loop, Read, Tensor, root
from pyruntime.ir.shape import AnyDim, to_json
from pyruntime.ir.storage import encode
from pyruntime.ir.symbol import Symbol
from pyruntime.onnx.graph import Weight
from pyruntime.program.format import Program
from pyruntime.program.residency import Crossings
from pyruntime.program.target import Target
from pyruntime.program.values import tensors_of

MEMORY = ":memory:"  # a weight's source whose bytes are in no file: the program carries them


@dataclass(slots=True)
class _Step:
    """A step under construction, and which tensors it uses."""

    json: dict[str, Any]
    uses: list[Tensor]
    calls: list[Invocation] = field(default_factory=list)


class Emitter:
    """Makes one Program. `host_kernels` collects kernels that Host steps refer to by number, `symbols` what the Program
    calls its symbols."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.crossings = Crossings(target.memory, target.memories)
        self.buffers: list[dict[str, Any]] = []
        self.numbers: dict[int, int] = {}
        self.constants: list[dict[str, Any]] = []
        self.blocks: list[dict[str, Any]] = [{}, {}]
        self.blob = bytearray()
        self.host_kernels: list[Host] = []
        self.symbols: dict[Symbol, str] = {}  # the Program's own names for them
        self.persistent: set[int] = set()
        self.checked: dict[str, int] = {}  # nodes whose indices are checked, by number from 1
        self.within: dict[int, str] = {}  # id of a kernel that runs as part of another -> that one's node

    def program(self, name: str, init: Block, main: Translation) -> Program:
        self.target.place(main.block)
        constants_only = self._persistent(init, main)
        carried = self.crossings.constants(init, main.block)
        self.persistent |= {t.uid for t in self.crossings.twins.values()}
        self.blocks[0] = self._block(init, 0, self.persistent, constants_only, carried)
        self.persistent |= {self.crossings.at(t, where).uid for t, where in carried}
        outputs = [t for v in main.outputs.values() for t in tensors_of(v)]
        self.blocks[1] = self._block(main.block, 1, self.persistent, leaving=outputs)
        header = {
            "name": name,
            "inputs": [self._input(f) for f in main.feeds],
            "outputs": [{"name": n, "value": self.value(v)} for n, v in main.outputs.items()],
            "buffers": self.buffers,
            "constants": self.constants,
            "checked": list(self.checked),
            "guards": [[self._dim(c), *told] for c, *told in [*main.guards, *self._extents(main)]],
            "blocks": self.blocks,
            "modules": {name: self._append(w.finish()) for name, w in self.target.writers.items()},
            "symbols": {name: str(s) for s, name in self.symbols.items()},
        }
        return Program(header, bytes(self.blob))

    def _extents(self, main: Translation) -> list[tuple[Any, str, str]]:
        """Guards of the dims that a memory bounds."""
        dims = sorted({s for f in main.feeds for d in f.tensor.shape for s in sh.symbols(d)})
        return [
            (
                sh.compare("lt", sh.dim_of(s), m.extent),
                f'dim "{s}": a dim of {m.extent} or more is too large for {m.title}\'s integers',
                "",
            )
            for m in self.crossings.away
            if m.extent
            for s in dims
        ]

    def _persistent(self, init: Block, main: Translation) -> set[int]:
        """Constants and what init makes stay if main uses them; gives the constants that only init uses."""
        used = {root(t).uid for t in self.crossings.uses_at_home(main.block)}
        used |= {root(t).uid for v in main.outputs.values() for t in tensors_of(v)}
        made = {t.uid for k in init.kernels for t in k.outputs}
        leaves = {root(t).uid for k in init.kernels for t in k.inputs if isinstance(root(t).kernel, Leaf)}
        everywhere = made | leaves
        self.persistent = {u for u in used if u in everywhere}
        return leaves - self.persistent

    # ── symbols ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _symbol(self, s: Symbol) -> str:
        if s not in self.symbols:
            self.symbols[s] = f"s{len(self.symbols)}"
        return self.symbols[s]

    def _dim(self, d: AnyDim) -> Any:
        return to_json(d, self._symbol)

    def _binds(self, binds: Binds) -> list[Any]:
        return [[position, axis, self._symbol(s)] for position, axis, s in binds]

    # ── values ───────────────────────────────────────────────────────────────────────────────────────────────────

    def buffer(self, t: Tensor) -> int:
        """The number of the buffer that holds a tensor; aliases share one."""
        base = root(t)
        if base.uid not in self.numbers:
            number = self.numbers[base.uid] = len(self.buffers)
            if base.dtype is STRING:
                self.buffers.append({"size": 0, "host": True})
            else:
                memory = self.crossings.memory(base)
                self.buffers.append({"size": self._dim(sh.size(base.shape) * min(base.dtype.size, memory.widest))})
                if memory is not LINEAR:
                    self.buffers[-1]["memory"] = memory.name
            if isinstance(base.kernel, Leaf) and base.kernel.kind in ("weight", "constant"):
                self.constants.append({"buffer": number, "dtype": base.dtype.name, **self._constant(base)})
        return self.numbers[base.uid]

    def _constant(self, t: Tensor) -> dict[str, Any]:
        value = t.kernel.value  # type: ignore[attr-defined]
        if isinstance(value, Weight):
            if value.strings is not None:
                return {"strings": [s.decode("utf-8", "replace") for s in value.strings]}
            assert value.source is not None
            unpack = value.dtype.bits if value.dtype.bits < 8 else 0
            place = {"unpack": unpack, "signed": value.dtype.kind == "i"}
            if value.source.name == MEMORY:
                return {"blob": self._append(value.read()), **place}
            return {"source": value.source.name, "offset": value.offset, "size": value.size, **place}
        if t.dtype is STRING:
            return {"strings": [str(s) for s in value]}
        return {"blob": self._append(encode(value, t.dtype)), "unpack": 0, "signed": False}

    def _append(self, data: bytes) -> list[int]:
        self.blob += b"\0" * (-len(self.blob) % 16)
        place = [len(self.blob), len(data)]
        self.blob += data
        return place

    def _tensor(self, t: Tensor) -> dict[str, Any]:
        number = self.buffer(self.crossings.at(t, LINEAR))
        return {"buffer": number, "dtype": t.dtype.name, "dims": [self._dim(d) for d in t.shape]}

    def _input(self, f: Feed) -> dict[str, Any]:
        name, *items = f.path
        return {"name": name, **({"item": items[0]} if items else {}), **self._tensor(f.tensor)}

    def value(self, v: Any) -> Any:
        if isinstance(v, Tensor):
            return self._tensor(v)
        return {"items": [self.value(i) for i in v.items]} if hasattr(v, "items") else None

    # ── blocks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _block(
        self, block: Block, number: int, keep: set[int], free_constants: set[int] | None = None,
        carried: Sequence[tuple[Tensor, Memory]] = (), leaving: Sequence[Tensor] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """`keep`: uids that this block must not free; `carried`: tensors that it copies to a memory in the end;
        `leaving`: those that must be in linear memory then (besides its outputs)."""
        owned = {t.uid for t in block.inputs[2:]} | (free_constants or set())
        outer = self.crossings.enter()
        steps = self._steps(block, number, carried, [*block.outputs, *leaving])
        keep = keep | {root(self.crossings.at(t, LINEAR)).uid for t in (*block.outputs, *leaving)}
        keep |= {self.crossings.at(t, where).uid for t, where in carried}
        made = {t.uid for k in block.kernels if not isinstance(k, Alias) for t in k.outputs}
        made |= {t.uid for s in steps for c in s.calls for t in c.scratch} | self.crossings.made
        if number == 1:
            owned |= {root(t).uid for s in steps for t in s.uses if _is_feed(root(t))}
        given = {
            t.uid for k in block.kernels if isinstance(k, Host | If | Loop) for t in k.outputs
        } | self.crossings.made
        unused = self._lifetimes(steps, (owned | made) - keep, made - given)
        names = [self.numbers[u] for u in unused if u in self.numbers and u in {t.uid for t in block.inputs}]
        done = {
            "inputs": [self._tensor(t) for t in block.inputs],
            "unused": names,
            "steps": [s.json for s in steps],
            "outputs": [self._tensor(t) for t in block.outputs],
        }
        if number != 1:  # the program's outputs are described after its main block
            self.crossings.leave(outer, keep_twins=number == 0)
        return done

    def _steps(
        self, block: Block, number: int, carried: Sequence[tuple[Tensor, Memory]], leaving: Sequence[Tensor]
    ) -> list[_Step]:
        """Runs of kernels of one provider become segments; between them copies and steps of control."""
        steps: list[_Step] = []
        pending: list[Kernel] = []
        crossings = self.crossings
        readers = readers_of(block, [*block.outputs, *leaving, *[t for t, _ in carried]])

        def flush() -> None:
            if pending:
                provider = self.target.provider(pending[0])
                private = self._private(pending, readers)
                steps.append(self._segment(f"run_{number}_{len(steps)}", pending, private, provider))
                pending.clear()

        def bring(tensors: Sequence[Tensor], where: Memory) -> None:
            missing = crossings.missing(tensors, where)
            if missing:
                steps.append(self._copy(missing, where))

        for kernel in block.kernels:
            if isinstance(kernel, Alias):
                continue
            control = isinstance(kernel, Read | Host | If | Loop)
            where = LINEAR if control else crossings.where(kernel)
            if control or (pending and self.target.provider(kernel) is not self.target.provider(pending[0])):
                flush()
            bring(own_inputs(kernel), where)  # never made by a pending kernel: those are of the same provider
            if control:
                steps.append(self._control(kernel))  # type: ignore[arg-type]
            else:
                pending.append(kernel)
            crossings.made_at(kernel.outputs, where)
        flush()
        for where in crossings.away:
            bring([t for t, to in carried if to is where], where)
        bring(leaving, LINEAR)
        return steps

    def _copy(self, tensors: Sequence[Tensor], where: Memory) -> _Step:
        """Copies of tensors in another memory."""
        twins = [self.crossings.cross(t, where) for t in tensors]
        pairs = [[self._place(t), self._place(twin)] for t, twin in zip(tensors, twins, strict=True)]
        return _Step({"op": "copy", "to": where.name, "pairs": pairs}, [*tensors, *twins])

    def _place(self, t: Tensor) -> dict[str, Any]:
        return {"buffer": self.buffer(t), "dtype": t.dtype.name, "dims": [self._dim(d) for d in t.shape]}

    def _private(self, kernels: Sequence[Kernel], readers: Counter[int]) -> set[int]:
        """What a kernel of a segment makes for one other of the segment."""
        read = {t.uid for k in kernels for t in k.inputs}
        made = {t.uid for k in kernels for t in k.outputs}
        return {uid for uid in made & read - self.persistent if readers[uid] == 1}

    def _segment(self, name: str, kernels: Sequence[Kernel], private: set[int], by: CodeProvider) -> _Step:
        calls = self.target.writers[by.name].segment(name, kernels, private)
        self._note_within(kernels, private - {t.uid for c in calls for t in c.tensors})
        for c in calls:
            self.crossings.made_at(c.scratch, by.memory)
            c.tensors = [self.crossings.at(t, by.memory) for t in c.tensors]
        json: dict[str, Any] = {
            "op": by.op,
            "fn": name,
            "calls": [self._call(c) for c in calls],
        }
        forks = {c.split for c in calls if c.split != 0}
        if forks:
            json["fork"] = 1 if 1 in forks else self._dim(sum(forks))
        return _Step(json, [t for c in calls for t in c.tensors], calls)

    def _param(self, p: Param) -> AnyDim:
        """A node whose indices are checked becomes its number, from 1."""
        return self.checked.setdefault(p.node, len(self.checked) + 1) if isinstance(p, Site) else p

    def _note_within(self, kernels: Sequence[Kernel], absent: set[int]) -> None:
        """`absent`: what no call reads or writes, since its maker runs as part of its reader."""
        readers = {t.uid: k for k in kernels for t in k.inputs if t.uid in absent}
        for kernel in reversed(kernels):
            reader = readers.get(kernel.outputs[0].uid)
            if reader is not None:
                self.within[id(kernel)] = self.within.get(id(reader), reader.node)

    def _call(self, c: Invocation) -> dict[str, Any]:
        return {
            "node": c.node,
            "kernel": c.function,
            "buffers": [self.buffer(t) for t in c.tensors],
            "params": [self._dim(self._param(p)) for p in c.params],
            "work": self._dim(c.work),
            "inplace": [[self.buffer(a), self.buffer(b)] for a, b in c.inplace],
        }

    def _control(self, kernel: Read | Host | If | Loop) -> _Step:
        json: dict[str, Any] = {"op": type(kernel).__name__.lower(), "node": kernel.node}
        if isinstance(kernel, Read):
            json |= {"value": self._tensor(kernel.source), "symbols": [self._symbol(s) for s in kernel.symbols]}
        elif isinstance(kernel, Host):
            json |= self._host(kernel)
        else:
            json |= self._branch(kernel) if isinstance(kernel, If) else self._loop(kernel)
        memories = (LINEAR, *self.crossings.away)
        inputs = [self.crossings.at(t, where) for t in kernel.inputs for where in memories]
        return _Step(json, [*inputs, *kernel.outputs])

    def _host(self, kernel: Host) -> dict[str, Any]:
        self.host_kernels.append(kernel)
        return {
            "fn": kernel.fn,
            "id": len(self.host_kernels) - 1,
            "inputs": [None if a is None else self._tensor(a) for a in kernel.args],
            "outputs": [self._tensor(t) for t in kernel.outputs],
            "binds": self._binds(kernel.binds),
        }

    def _branch(self, kernel: If) -> dict[str, Any]:
        return {
            "condition": self._tensor(kernel.condition),
            "then": self._inner(kernel.then),
            "orelse": self._inner(kernel.orelse),
            "outputs": [self.buffer(t) for t in kernel.outputs],
            "binds": self._binds(kernel.binds),
        }

    def _loop(self, kernel: Loop) -> dict[str, Any]:
        return {
            "trip": None if kernel.trip is None else self._tensor(kernel.trip),
            "condition": None if kernel.condition is None else self._tensor(kernel.condition),
            "carried": [self._tensor(t) for t in kernel.carried],
            "body": self._inner(kernel.body),
            "outputs": [self._tensor(t) for t in kernel.outputs],
            "enters": self._binds(kernel.enters),
            "binds": self._binds(kernel.binds),
        }

    def _inner(self, block: Block) -> int:
        number = len(self.blocks)
        self.blocks.append({})
        self.blocks[number] = self._block(block, number, self.persistent)
        return number

    # ── lifetimes ────────────────────────────────────────────────────────────────────────────────────────────────

    def _lifetimes(self, steps: list[_Step], owned: set[int], made: set[int]) -> set[int]:
        """Write `alloc` (what the block makes, where first used) and `free` (what it owns, where last used) into calls
        and steps; gives the owned tensors that nothing uses."""
        left = set(owned)
        for step in reversed(steps):
            self._frees(step, left)
        waiting = set(made)
        for step in steps:
            for call, json in zip(step.calls, step.json.get("calls", ()), strict=True):
                fresh = [u for u in _ordered(root(t).uid for t in call.tensors) if u in waiting]
                json["alloc"] = [self.numbers[u] for u in fresh]
                waiting.difference_update(fresh)
        return left

    def _frees(self, step: _Step, left: set[int]) -> None:
        if not step.calls:
            dying = [u for u in _ordered(root(t).uid for t in step.uses) if u in left]
            step.json["free"] = [self.numbers[u] for u in dying]
            left.difference_update(dying)
            return
        for call, json in zip(reversed(step.calls), reversed(step.json["calls"]), strict=True):
            dying = [u for u in _ordered(root(t).uid for t in call.tensors) if u in left]
            json["free"] = [self.numbers[u] for u in dying]
            left.difference_update(dying)


def _is_leaf(t: Tensor) -> bool:
    return isinstance(t.kernel, Leaf)


def _is_feed(t: Tensor) -> bool:
    return isinstance(t.kernel, Leaf) and t.kernel.kind == "feed"


def _ordered(uids: Any) -> list[int]:
    return list(dict.fromkeys(uids))


__all__ = ["Emitter"]
