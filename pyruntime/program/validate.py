"""Validates a Program: against schema.json, and by rules that a schema cannot express.

Buffers are allocated before use and freed once. Symbols have values before dims use them. A step runs only later
blocks, and each block belongs to one step, so that no cycle exists. Types and memories suit the steps. Kernels are code
and are not inspected (docs/architecture.md, "Programs from files"). web/worker/programs/validate.js does the same;
tests/test_contract.py checks that both give the same messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NoReturn

from pyruntime.errors import InvalidModel
from pyruntime.ir.dtype import BY_NAME
from pyruntime.program.dims import symbols
from pyruntime.program.schema import refusal

Json = Mapping[str, Any]
MEMORIES = {"wasm": "", "gpu": "webgpu"}  # by kind of step: the memory of its calls' buffers
READABLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")


def validate(header: Any, blob: int) -> None:
    """Check a header. blob: size of the blob in bytes. Errors: InvalidModel with the first violation."""
    lists = header if isinstance(header, dict) else {}
    limits = {key: len(lists[key]) for key in ("buffers", "blocks") if isinstance(lists.get(key), list)}
    wrong = refusal(header, {**limits, "blob": blob})
    if wrong:
        _refuse(f"the header{wrong}")
    _Flow(header).program()


def _refuse(what: str) -> NoReturn:
    raise InvalidModel(f"the program is damaged: {what}", hint="export it again")


class _Flow:
    """Visits a Program in the order of execution, and tracks which symbols and buffers have values."""

    def __init__(self, header: Json) -> None:
        self.header = header
        self.buffers: Sequence[Json] = header["buffers"]
        self.known: set[str] = set()  # symbols
        self.live: set[int] = set()  # buffers
        self.entered: set[int] = set()  # blocks

    def program(self) -> None:
        header = self.header
        for n, b in enumerate(self.buffers):
            if isinstance(b["size"], int) and b["size"] < 0:
                _refuse(f"buffer {n} has {b['size']} bytes")
            if "further" in b:
                self._further(b, n)
        for c in header["constants"]:
            self._constant(c)
        self._steps(0, set(self.live))
        inputs = [(v, f'input "{v["name"]}"') for v in header["inputs"]]
        self.known |= {d for v, _ in inputs for d in v["dims"] if isinstance(d, str)}
        for v, what in inputs:
            if "room" in v:
                self._bound([v["room"]["least"], v["room"].get("mixed", 0)], what)
                self.known.add(v["room"]["places"])
        for v, what in inputs:
            self._make([v["buffer"]], what)
        for v, what in inputs:
            self._tensor(v, what)
        if len({(v["name"], v.get("item")) for v, _ in inputs}) < len(inputs):
            _refuse("two inputs have one name")
        if "types" in header:
            _declared(inputs, header["types"]["inputs"])
        self._steps(1, {v["buffer"] for v, _ in inputs})
        for o in header["outputs"]:
            for v in _tensors(o["value"]):
                self._tensor(v, f'output "{o["name"]}"')

    def _further(self, b: Json, n: int) -> None:
        (memory, address), size = b["further"], b["size"]
        sizes = self.header.get("memories", [])
        if memory > len(sizes) or not isinstance(size, int) or address + size > sizes[memory - 1]:
            _refuse(f"buffer {n} does not fit its memory")
        if "host" in b or "memory" in b:
            _refuse(f"buffer {n} is in two memories")

    def _constant(self, c: Json) -> None:
        number, what = c["buffer"], f"the constant of buffer {c['buffer']}"
        buffer = self.buffers[number]
        self._make([number], what)
        if ("strings" in c) != ("host" in buffer):
            _refuse(f"{what} is of another type")
        if "strings" in c:
            return
        size, item = buffer["size"], BY_NAME[c["dtype"]].size
        given = c["blob"][1] if "blob" in c else c["size"]
        count = size // (item if not buffer.get("memory") else min(item, 4)) if isinstance(size, int) and item else -1
        if given != (-(-count * c["unpack"] // 8) if c["unpack"] else count * item):
            _refuse(f"{what} has {given} bytes, which do not fill it")

    # ── values ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _make(self, numbers: Iterable[int], what: str) -> None:
        for n in numbers:
            if n in self.live:
                _refuse(f"{what} makes buffer {n} a second time")
            self.live.add(n)
            self._bound([self.buffers[n]["size"]], what)

    def _drop(self, numbers: Iterable[int], mine: set[int], what: str) -> None:
        for n in numbers:
            if n not in self.live or n not in mine or "further" in self.buffers[n]:
                _refuse(f"{what} frees buffer {n}, which it does not own")
            self.live.discard(n)

    def _bound(self, dims: Iterable[Any], what: str) -> None:
        for d in dims:
            for name in symbols(d) - self.known:
                _refuse(f'{what} mentions "{name}" before it has a value')

    def _tensor(self, v: Json | None, what: str, memory: str = "", kinds: Sequence[str] = ()) -> None:
        """Check that a tensor has a value, is in this memory, has one of these types, and fits its buffer."""
        if v is None:
            return
        buffer, dtype = self.buffers[v["buffer"]], BY_NAME[v["dtype"]]
        if v["buffer"] not in self.live:
            _refuse(f"{what} uses buffer {v['buffer']}, which holds nothing there")
        if (dtype.size == 0) != ("host" in buffer) or (kinds and dtype.name not in kinds):
            _refuse(f"{what} is of type {dtype.name}")
        if buffer.get("memory", "") != memory or "further" in buffer:
            _refuse(f"{what} is in another memory")
        self._bound(v["dims"], what)
        if "room" in v:
            self._bound([v["room"]["places"]], what)
            if v["room"]["axis"] >= len(v["dims"]):
                _refuse(f"{what} has room along axis {v['room']['axis']}, which is not there")
        if all(isinstance(d, int) for d in [*v["dims"], buffer["size"]]):
            item = min(dtype.size, 4) if memory else dtype.size
            if min(v["dims"], default=0) < 0 or prod(v["dims"]) * item > buffer["size"] >= 0 < item:
                _refuse(f"{what} does not fit its buffer")

    def _one(self, v: Json | None, what: str, *kinds: str) -> None:
        """Check that a tensor has a value of one element."""
        self._tensor(v, what, kinds=kinds)
        if v is not None and any(d != 1 for d in v["dims"]):
            _refuse(f"{what} asks for one element, of a tensor of more")

    def _bind(self, binds: Iterable[Any], values: Sequence[Json], what: str) -> None:
        for n, axis, name in binds:
            if n >= len(values) or axis >= len(values[n]["dims"]):
                _refuse(f"{what} binds axis {axis} of value {n}, which is not there")
            self.known.add(name)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _steps(self, number: int, mine: set[int]) -> None:
        """Check a block's steps. mine: buffers that the block may free besides those it makes."""
        before = set(self.live)
        for n, step in enumerate(self.header["blocks"][number]["steps"]):
            what = f"step {n} of block {number}"
            getattr(self, f"_{step['op']}")(step, number, mine, what)
            mine |= self.live - before
            if "free" in step:
                self._drop(step["free"], mine, what)

    def _wasm(self, step: Json, number: int, mine: set[int], what: str) -> None:
        provider = MEMORIES[step["op"]] or step["op"]
        if provider not in self.header["modules"]:
            _refuse(f"{what} has no code for {provider}")
        self._bound([step.get("fork", 0)], what)
        for n, call in enumerate(step["calls"]):
            self._call(call, mine, MEMORIES[step["op"]], f"call {n} of {what}")

    _gpu = _wasm

    def _call(self, call: Json, mine: set[int], memory: str, what: str) -> None:
        self._make(call["alloc"], what)
        mine |= set(call["alloc"])
        for b in call["buffers"]:
            if b not in self.live:
                _refuse(f"{what} uses buffer {b}, which holds nothing there")
            if "host" in self.buffers[b] or self.buffers[b].get("memory", "") != memory:
                _refuse(f"{what} uses buffer {b}, which is in another memory")
        self._bound([*call["params"], call["work"]], what)
        if isinstance(call["work"], int) and call["work"] < 0:
            _refuse(f"{what} has {call['work']} units of work")
        if not {*call["alloc"], *call["free"]} <= {*call["buffers"]}:
            _refuse(f"{what} makes or frees what it does not use")
        if not all(a in call["alloc"] and b in call["buffers"] for a, b in call["inplace"]):
            _refuse(f"{what} takes over what it does not use")
        self._drop(call["free"], mine, what)

    def _copy(self, step: Json, number: int, mine: set[int], what: str) -> None:
        memory = "" if step["to"] == "wasm" else step["to"]
        for source, target in step["pairs"]:
            self._tensor(source, what, self.buffers[source["buffer"]].get("memory", ""))
            self._make([target["buffer"]], what)
            self._tensor(target, what, memory)
            if source["dtype"] != target["dtype"] or source["dims"] != target["dims"]:
                _refuse(f"{what} copies a tensor to one of another shape")

    def _read(self, step: Json, number: int, mine: set[int], what: str) -> None:
        self._tensor(step["value"], what, kinds=READABLE)
        dims = step["value"]["dims"]
        if not all(isinstance(d, int) for d in dims) or prod(dims) != len(step["symbols"]):
            _refuse(f"{what} reads another number of elements than it has symbols")
        self.known |= set(step["symbols"])

    def _host(self, step: Json, number: int, mine: set[int], what: str) -> None:
        for v in step["inputs"]:
            self._tensor(v, what)
        self._bind(step["binds"], step["outputs"], what)
        self._made(step["outputs"], what)
        if "host" in self.header:
            told = self.header["host"][step["id"]] if step["id"] < len(self.header["host"]) else None
            given = [[v and v["dtype"] for v in step[key]] for key in ("inputs", "outputs")]
            if told is None or given != [told["inputs"], told["outputs"]]:
                _refuse(f"{what} is not the host function that it says")

    def _made(self, values: Iterable[Json], what: str) -> None:
        for v in values:
            self._make([v["buffer"]], what)
            self._tensor(v, what)

    def _if(self, step: Json, number: int, mine: set[int], what: str) -> None:
        self._one(step["condition"], what, "bool")
        for branch in (step["then"], step["orelse"]):
            made = self._inner(branch, number, set(), what)
            if len(made) != len(step["outputs"]):
                _refuse(f"{what} has {len(step['outputs'])} outputs, its branch {len(made)}")
            self._bind(step["binds"], made, what)
        self._make(step["outputs"], what)

    def _loop(self, step: Json, number: int, mine: set[int], what: str) -> None:
        self._one(step["trip"], what, "int64")
        self._one(step["condition"], what, "bool")
        for v in step["carried"]:
            self._tensor(v, what)
        body = self.header["blocks"][step["body"]]
        types = _carried_types(step, body, what)
        known = set(self.known)
        self._bind(step["enters"], body["inputs"], what)
        self._make([v["buffer"] for v in body["inputs"]], what)
        for v, kind in zip(body["inputs"], ("int64", "bool", *types), strict=False):
            self._tensor(v, what, kinds=(kind,))
        made = self._inner(step["body"], number, {v["buffer"] for v in body["inputs"]}, what)
        if made[0]["dtype"] != "bool" or any(d != 1 for d in made[0]["dims"]):
            _refuse(f"the condition that {what} goes on by is not one bool")
        self.live -= {v["buffer"] for v in body["inputs"]}
        self.known = known
        self._bind(step["binds"], step["outputs"], what)
        self._made(step["outputs"], what)

    def _inner(self, number: int, outer: int, mine: set[int], what: str) -> Sequence[Json]:
        """The outputs of a block that a step of block `outer` runs. Afterwards only these outputs have values."""
        if number <= outer or number in self.entered:
            _refuse(f"{what} runs block {number}, which is not its own")
        self.entered.add(number)
        block = self.header["blocks"][number]
        before = set(self.live)
        self._drop(block["unused"], mine, what)
        self._steps(number, mine)
        outputs: Sequence[Json] = block["outputs"]
        for v in outputs:
            self._tensor(v, f"an output of block {number}")
        if not {v["buffer"] for v in outputs}.isdisjoint(before - mine):
            _refuse(f"an output of block {number} is not its own")
        self.live = before
        return outputs


def _declared(inputs: Iterable[tuple[Json, str]], types: Iterable[Json]) -> None:
    """Check that a file's declared inputs match its Program."""
    known = {v["name"]: v for v in types}
    for v, what in inputs:
        kind = known.get(v["name"])
        if kind is None:
            _refuse(f"{what} is not declared")
        while "of" in kind:
            kind = kind["of"]
        dims = kind.get("dims")
        if kind.get("dtype") not in (None, v["dtype"]) or (dims is not None and len(dims) != len(v["dims"])):
            _refuse(f"{what} is declared as something else")


def _carried_types(step: Json, body: Json, what: str) -> list[str]:
    """The types of a loop's carried and stacked values. Step and body must agree on them."""
    kept, outputs = len(step["carried"]), step["outputs"]
    stacked = len(outputs) - kept
    if len(body["inputs"]) != kept + 2 or len(body["outputs"]) != 1 + kept + stacked or stacked < 0:
        _refuse(f"{what} carries {kept} values and stacks {stacked}, its body does not")
    types = [v["dtype"] for v in outputs]
    given = [*step["carried"], *outputs[kept:]]
    inside = [*body["inputs"][2:], *outputs[kept:]]
    if any([v["dtype"] for v in values] != types for values in (given, inside, body["outputs"][1:])):
        _refuse(f"{what} changes the type of what it carries")
    if "string" in types[kept:]:
        _refuse(f"{what} stacks strings")
    return types


def _tensors(value: Any) -> list[Any]:
    return [] if value is None else value["items"] if "items" in value else [value]


__all__ = ["validate"]
