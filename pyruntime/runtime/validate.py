"""Validates a Program: against the schema, and by rules that a schema cannot express.

Buffers are allocated before use and freed once. Symbols have values before dims use them. A step runs only later
blocks, and each block belongs to one step, so that no cycle exists. Types and memories suit the steps. Kernels are code
and are not inspected (docs/architecture.md, "Programs from files")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, cast

from pyruntime.codegen.linear_memory import LOOP_BYTES
from pyruntime.errors import InvalidModel
from pyruntime.program import types
from pyruntime.program.dims import symbols
from pyruntime.runtime.schema import Schema

Json = Mapping[str, Any]
Tensor = types.TensorValue | types.Input
READABLE = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


def validate(header: Any, blob: int, schema: Schema, element_size: Callable[[str], int]) -> None:
    """Check a header, and those of its fallbacks. blob: its size in bytes; schema: of headers; element_size: bytes of
    an element in linear memory, 0 for strings. Errors: InvalidModel with the first violation."""
    _validate_one(header, blob, schema, element_size)
    found = header
    while "fallback" in found:
        _validate_one(found["fallback"], blob, schema, element_size)
        _check_fallback(found, header)
        found = found["fallback"]


def _validate_one(header: Any, blob: int, schema: Schema, element_size: Callable[[str], int]) -> None:
    limits = {"buffers": _length(header, "buffers"), "blocks": _length(header, "blocks"), "blob": blob}
    wrong = schema.refusal(header, limits)
    if wrong != "":
        raise _damaged(f"the header{wrong}")
    _Flow(header, element_size).program()
    if "needs" in header:
        _check_needs(header)


def _check_needs(header: types.Header) -> None:
    """Check that a Program states a need only if it has shaders, and none that its buffers exceed."""
    if "webgpu" not in header["modules"]:
        raise _damaged("it needs a GPU, and has no code for one")
    most = header["needs"]["binding_bytes"] if "needs" in header else 0
    for n, buffer in enumerate(header["buffers"]):
        size = buffer["size"]
        if buffer.get("memory", "") == "webgpu" and isinstance(size, int) and size > most:
            raise _damaged(f"buffer {n} has {size} bytes, and it needs buffers of {most} bytes")


def _check_fallback(header: types.Header, first: types.Header) -> None:
    """Check that the fallback of a Program stands for it. first: the file's first Program, which declares the types"""
    other: types.Header = cast("types.Header", header["fallback"]) if "fallback" in header else header
    if "needs" not in header or ("webgpu" in other["modules"] and "needs" not in other):
        raise _damaged("it has a fallback, and code for a GPU without what this code needs")
    if "types" in other or "model" in other or "files" in other:
        raise _damaged("a fallback describes the model again")
    if "states" in first or "states" in other or other.get("threads", 1) != first.get("threads", 1):
        raise _damaged("a fallback has states, or another number of threads")
    if [v["name"] for v in other["outputs"]] != [v["name"] for v in first["outputs"]]:
        raise _damaged("a fallback has other outputs")
    if [_name(v) for v in other["inputs"]] != [_name(v) for v in first["inputs"]]:
        raise _damaged("a fallback has other inputs")
    if "types" in first:
        _check_declared(other["inputs"], first["types"]["inputs"])


def _length(header: Any, key: str) -> int:
    """Of a list in the header, if the header has it."""
    return len(header[key]) if isinstance(header, dict) and key in header and isinstance(header[key], list) else 0


def _damaged(what: str) -> InvalidModel:
    return InvalidModel(f"the program is damaged: {what}", hint="export it again")


class _Flow:
    """Visits a Program in the order of execution, and tracks which symbols and buffers have values."""

    def __init__(self, header: types.Header, element_size: Callable[[str], int]) -> None:
        self.header = header
        self.buffers = header["buffers"]
        self.element_size = element_size
        self.known: set[str] = set()  # symbols and named dims
        self.named = [(name, symbols(dim)) for name, dim in header.get("dims", [])]
        self.live: set[int] = set()  # buffers
        self.entered: set[int] = set()  # blocks

    def program(self) -> None:
        if len({name for name, _ in self.named}) < len(self.named):
            raise _damaged("two dims have one name")
        for n, buffer in enumerate(self.buffers):
            self._buffer(buffer, n)
        for constant in self.header["constants"]:
            self._constant(constant)
        self._steps(0, set(self.live))
        self._inputs(self.header["inputs"])
        self._steps(1, {v["buffer"] for v in self.header["inputs"]})
        for output in self.header["outputs"]:
            for v in _tensors(output["value"]):
                self._tensor(v, f'output "{output["name"]}"')
        made = [output["name"] for output in self.header["outputs"]]
        if "types" in self.header and not all(v.get("name", "") in made for v in self.header["types"]["outputs"]):
            raise _damaged("it lacks outputs that it declares")
        self._states()

    def _states(self) -> None:
        """Check that states are constants, each of its own, and that outputs change no others."""
        constants = {c["buffer"] for c in self.header["constants"]}
        buffers: set[int] = set()
        for name, v in _states(self.header):
            what = f'state "{name}"'
            if v["buffer"] not in constants or v["buffer"] in buffers or _numbers(v["dims"]) is None:
                raise _damaged(f"{what} is not a constant of its own")
            buffers.add(v["buffer"])
            self._tensor(v, what, self.buffers[v["buffer"]].get("memory", ""))
        for output in self.header["outputs"]:
            if not all(b in buffers for b in output.get("updates", [])):
                raise _damaged(f'output "{output["name"]}" changes a buffer that is no state')

    def _buffer(self, buffer: types.Buffer, n: int) -> None:
        size = buffer["size"]
        if isinstance(size, int) and size < 0:
            raise _damaged(f"buffer {n} has {size} bytes")
        if "further" not in buffer:
            return
        memory, address = buffer["further"]
        sizes = self.header.get("memories", [])
        if memory > len(sizes) or not isinstance(size, int) or address + size > sizes[memory - 1]:
            raise _damaged(f"buffer {n} does not fit its memory")
        if "host" in buffer or "memory" in buffer:
            raise _damaged(f"buffer {n} is in two memories")

    def _constant(self, constant: types.Constant) -> None:
        number = constant["buffer"]
        what = f"the constant of buffer {number}"
        buffer = self.buffers[number]
        self._make([number], what)
        if ("strings" in constant) != ("host" in buffer):
            raise _damaged(f"{what} is of another type")
        if "strings" in constant or "zeros" in constant:
            return
        given = constant["blob"][1] if "blob" in constant else constant["size"]
        size = buffer["size"]
        item = self.element_size(constant["dtype"])
        count = -1  # unknown
        if isinstance(size, int) and item > 0:
            count = size // (min(item, 4) if "memory" in buffer else item)
        if given != (-(-count * constant["unpack"] // 8) if constant["unpack"] > 0 else count * item):
            raise _damaged(f"{what} has {given} bytes, which do not fill it")

    def _inputs(self, inputs: list[types.Input]) -> None:
        self._know([d for v in inputs for d in v["dims"] if isinstance(d, str)])
        for v in inputs:
            if "room" in v:
                room = v["room"]
                self._bound([room["least"], room.get("mixed", 0), room.get("undo", 0)], _name(v))
                self._know([room["places"]])
        for v in inputs:
            self._make([v["buffer"]], _name(v))
        for v in inputs:
            self._tensor(v, _name(v))
        if len({f"{v.get('item', -1)} {v['name']}" for v in inputs}) < len(inputs):
            raise _damaged("two inputs have one name")
        if "types" in self.header:
            _check_declared(inputs, self.header["types"]["inputs"])

    # ── values ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _make(self, numbers: Iterable[int], what: str) -> None:
        for n in numbers:
            if n in self.live:
                raise _damaged(f"{what} allocates buffer {n}, which has memory already")
            self.live.add(n)
            self._bound([self.buffers[n]["size"]], what)

    def _drop(self, numbers: Iterable[int], mine: set[int], what: str) -> None:
        for n in numbers:
            if n not in self.live or n not in mine or "further" in self.buffers[n]:
                raise _damaged(f"{what} frees buffer {n}, which it does not own")
            self.live.discard(n)

    def _know(self, names: Iterable[str]) -> None:
        """Symbols get values, and with them the named dims that depend on no others."""
        for name in names:
            if any(name == named for named, _ in self.named):
                raise _damaged(f'"{name}" is a symbol and a dim')
            self.known.add(name)
        for name, used in self.named:
            if used <= self.known:
                self.known.add(name)

    def _bound(self, dims: Iterable[types.Dim], what: str) -> None:
        for d in dims:
            for name in sorted(symbols(d)):
                if name not in self.known:
                    raise _damaged(f'{what} mentions "{name}" before it has a value')

    def _tensor(self, v: Tensor, what: str, memory: str = "", kinds: Sequence[str] = ()) -> None:
        """Check that a tensor has a value, is in this memory, has one of these types, and fits its buffer."""
        buffer = self.buffers[v["buffer"]]
        item = self.element_size(v["dtype"])
        if v["buffer"] not in self.live:
            raise _damaged(f"{what} uses buffer {v['buffer']}, which has no value at this point")
        if (item == 0) != ("host" in buffer) or (len(kinds) > 0 and v["dtype"] not in kinds):
            raise _damaged(f"{what} is of type {v['dtype']}")
        if buffer.get("memory", "") != memory or "further" in buffer:
            raise _damaged(f"{what} is in another memory")
        self._bound(v["dims"], what)
        if "room" in v:
            self._bound([v["room"]["places"]], what)
            if v["room"]["axis"] >= len(v["dims"]):
                raise _damaged(f"{what} has spare capacity along axis {v['room']['axis']}, which does not exist")
        dims = _numbers(v["dims"])
        size = buffer["size"]
        if dims is not None and isinstance(size, int):
            bytes_ = prod(dims) * (item if memory == "" else min(item, 4))
            if any(d < 0 for d in dims) or (item > 0 and bytes_ > size):
                raise _damaged(f"{what} does not fit its buffer")

    def _one(self, v: types.TensorValue | None, what: str, kind: str) -> None:
        """Check that a tensor has a value of one element."""
        if v is not None:
            self._tensor(v, what, "", [kind])
            if any(d != 1 for d in v["dims"]):
                raise _damaged(f"{what} needs a tensor of one element, this one has more")

    def _bind(self, binds: types.Binds, values: Sequence[types.TensorValue], what: str) -> None:
        for n, axis, name in binds:
            if n >= len(values) or axis >= len(values[n]["dims"]):
                raise _damaged(f"{what} binds axis {axis} of value {n}, which does not exist")
            self._know([name])

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _steps(self, number: int, mine: set[int]) -> None:
        """Check a block's steps. mine: buffers that the block may free besides those it makes."""
        before = set(self.live)
        for n, step in enumerate(self.header["blocks"][number]["steps"]):
            what = f"step {n} of block {number}"
            self._step(step, number, mine, what)
            mine.update(self.live - before)
            if "free" in step:
                self._drop(step["free"], mine, what)

    def _step(self, step: types.Step, number: int, mine: set[int], what: str) -> None:
        if step["op"] == "wasm":
            self._bound([step.get("fork", 0)], what)
            self._code(step, mine, what, "")
        elif step["op"] == "gpu":
            self._code(step, mine, what, "webgpu")
        elif step["op"] == "copy":
            self._copy(step, what)
        elif step["op"] == "read":
            self._read(step, what)
        elif step["op"] == "host":
            self._host(step, what)
        elif step["op"] == "if":
            self._if(step, number, what)
        else:
            self._loop(step, number, what)

    def _code(self, step: types.WasmStep | types.GpuStep, mine: set[int], what: str, memory: str) -> None:
        provider = "wasm" if memory == "" else memory
        if provider not in self.header["modules"]:
            raise _damaged(f"{what} has no code for {provider}")
        for n, call in enumerate(step["calls"]):
            self._call(call, mine, memory, f"call {n} of {what}")

    def _call(self, call: types.Call, mine: set[int], memory: str, what: str) -> None:
        self._make(call["alloc"], what)
        mine.update(call["alloc"])
        for b in call["buffers"]:
            if b not in self.live:
                raise _damaged(f"{what} uses buffer {b}, which has no value at this point")
            if "host" in self.buffers[b] or self.buffers[b].get("memory", "") != memory:
                raise _damaged(f"{what} uses buffer {b}, which is in another memory")
        work = call["work"]
        self._bound([*call["params"], work], what)
        if isinstance(work, int) and work < 0:
            raise _damaged(f"{what} has {work} units of work")
        if not all(b in call["buffers"] for b in [*call["alloc"], *call["free"]]):
            raise _damaged(f"{what} allocates or frees a buffer that it does not use")
        if not all(a in call["alloc"] and b in call["buffers"] for a, b in call["inplace"]):
            raise _damaged(f"{what} reuses the memory of a buffer that it does not use")
        self._drop(call["free"], mine, what)

    def _copy(self, step: types.CopyStep, what: str) -> None:
        memory = "" if step["to"] == "wasm" else step["to"]
        for source, target in step["pairs"]:
            self._tensor(source, what, self.buffers[source["buffer"]].get("memory", ""))
            self._make([target["buffer"]], what)
            self._tensor(target, what, memory)
            if source["dtype"] != target["dtype"] or source["dims"] != target["dims"]:
                raise _damaged(f"{what} copies a tensor to one of another type or shape")

    def _read(self, step: types.ReadStep, what: str) -> None:
        self._tensor(step["value"], what, "", READABLE)
        dims = _numbers(step["value"]["dims"])
        if dims is None or prod(dims) != len(step["symbols"]):
            raise _damaged(f"{what} reads a number of elements that differs from its number of symbols")
        self._know(step["symbols"])

    def _host(self, step: types.HostStep, what: str) -> None:
        for v in step["inputs"]:
            if v is not None:
                self._tensor(v, what)
        self._bind(step["binds"], step["outputs"], what)
        self._made(step["outputs"], what)
        if "host" in self.header:
            calls = self.header["host"]
            inputs = [None if v is None else v["dtype"] for v in step["inputs"]]
            outputs = [v["dtype"] for v in step["outputs"]]
            is_known = step["id"] < len(calls)
            if not is_known or calls[step["id"]]["inputs"] != inputs or calls[step["id"]]["outputs"] != outputs:
                raise _damaged(f"{what} does not match the declared types of its host function")

    def _made(self, values: Iterable[types.TensorValue], what: str) -> None:
        for v in values:
            self._make([v["buffer"]], what)
            self._tensor(v, what)

    def _if(self, step: types.IfStep, number: int, what: str) -> None:
        self._one(step["condition"], what, "bool")
        for branch in [step["then"], step["orelse"]]:
            made = self._inner(branch, number, set(), what)
            if len(made) != len(step["outputs"]):
                raise _damaged(f"{what} has {len(step['outputs'])} outputs, its branch {len(made)}")
            self._bind(step["binds"], made, what)
        self._make(step["outputs"], what)

    def _loop(self, step: types.LoopStep, number: int, what: str) -> None:
        self._one(step["trip"], what, "int64")
        self._one(step["condition"], what, "bool")
        for v in step["carried"]:
            self._tensor(v, what)
        body = self.header["blocks"][step["body"]]
        dtypes = ["int64", "bool", *_carried_types(step, body, what)]
        known = set(self.known)
        self._bind(step["enters"], body["inputs"], what)
        inputs = [v["buffer"] for v in body["inputs"]]
        self._make(inputs, what)
        scratch = [step["repeat"]["buffer"]] if "repeat" in step else []
        self._make(scratch, what)
        if "repeat" in step:
            self._repeat(step, body, what)
        for n, v in enumerate(body["inputs"]):
            self._tensor(v, what, "", [dtypes[n]])
        made = self._inner(step["body"], number, set(inputs), what)
        if made[0]["dtype"] != "bool" or any(d != 1 for d in made[0]["dims"]):
            raise _damaged(f"the loop condition of {what} is not a single bool")
        for b in [*inputs, *scratch]:
            self.live.discard(b)
        self.known = known
        self._bind(step["binds"], step["outputs"], what)
        self._made(step["outputs"], what)

    def _repeat(self, step: types.LoopStep, body: types.Block, what: str) -> None:
        """Check that WebAssembly can run steps of the body, and that its buffer has room for what it writes."""
        buffer = self.buffers[step["repeat"]["buffer"]]
        strings = [v for v in [*body["inputs"], *body["outputs"]] if "host" in self.buffers[v["buffer"]]]
        if [s["op"] for s in body["steps"]] != ["wasm"] or len(step["enters"]) > 0 or len(strings) > 0:
            raise _damaged(f"{what} repeats a body that needs the executor")
        if buffer["size"] != LOOP_BYTES or "memory" in buffer or "host" in buffer or "further" in buffer:
            raise _damaged(f"{what} has no room to repeat its body")

    def _inner(self, number: int, outer: int, mine: set[int], what: str) -> list[types.TensorValue]:
        """The outputs of a block that a step of block `outer` runs. Afterwards only these outputs have values."""
        if number <= outer or number in self.entered:
            raise _damaged(f"{what} runs block {number}, which another step runs or which comes too early")
        self.entered.add(number)
        block = self.header["blocks"][number]
        before = set(self.live)
        foreign = before - mine
        self._drop(block["unused"], mine, what)
        self._steps(number, mine)
        for v in block["outputs"]:
            self._tensor(v, f"an output of block {number}")
        if any(v["buffer"] in foreign for v in block["outputs"]):
            raise _damaged(f"block {number} returns a buffer that it does not own")
        self.live = before
        return block["outputs"]


def _name(v: types.Input) -> str:
    return f'input "{v["name"]}"'


def _check_declared(inputs: Iterable[types.Input], declared: Iterable[Json]) -> None:
    """Check that a file's declared inputs match its Program."""
    known: dict[str, Json] = {kind["name"]: kind for kind in declared}
    for v in inputs:
        found = known.get(v["name"])
        if found is None:
            raise _damaged(f"{_name(v)} is not declared")
        kind = found
        while "of" in kind:
            kind = kind["of"]
        dtype: str | None = kind.get("dtype")
        dims: list[Any] | None = kind.get("dims")
        if (dtype is not None and dtype != v["dtype"]) or (dims is not None and len(dims) != len(v["dims"])):
            raise _damaged(f"{_name(v)} is declared as something else")


def _carried_types(step: types.LoopStep, body: types.Block, what: str) -> list[str]:
    """The types of a loop's carried and stacked values. Step and body must agree on them."""
    carried = len(step["carried"])
    stacked = len(step["outputs"]) - carried
    if len(body["inputs"]) != carried + 2 or len(body["outputs"]) != 1 + carried + stacked or stacked < 0:
        raise _damaged(f"{what} carries {carried} values and stacks {stacked}, its body does not")
    dtypes = [v["dtype"] for v in step["outputs"]]
    last = dtypes[carried:]
    before = [*[v["dtype"] for v in step["carried"]], *last]
    inside = [*[v["dtype"] for v in body["inputs"][2:]], *last]
    if before != dtypes or inside != dtypes or [v["dtype"] for v in body["outputs"][1:]] != dtypes:
        raise _damaged(f"{what} carries values whose types change")
    if "string" in last:
        raise _damaged(f"{what} stacks strings")
    return dtypes


def _states(header: types.Header) -> list[tuple[str, types.TensorValue]]:
    found: list[tuple[str, types.TensorValue]] = []
    if "states" in header:
        for name, value in header["states"].items():
            found.append((name, value))
    return found


def _numbers(dims: types.Dims) -> list[int] | None:
    """The dims, if all are numbers."""
    found = [d for d in dims if isinstance(d, int)]
    return found if len(found) == len(dims) else None


def _tensors(value: types.Value) -> list[types.TensorValue]:
    if value is None:
        return []
    return value["items"] if "items" in value else [value]
