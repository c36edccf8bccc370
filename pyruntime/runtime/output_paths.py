"""The part of a Program that makes some of its outputs: a run that asks for few outputs runs it alone
(docs/design/sessions.md#outputs-that-a-run-asks-for)."""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.program.dims import symbols
from pyruntime.program.types import Call, Dim, GpuStep, Header, Input, Step, TensorValue, Value, WasmStep

MAIN = 1  # number of the block that runs
MOST = 16  # paths of one Program


@dataclass(eq=False, slots=True)
class OutputPath:
    """inputs: those that its steps read; steps: of the main block; suffix: of its steps' keys in plans"""

    inputs: list[Input]
    steps: list[Step]
    suffix: str


class OutputPaths:
    """Of one Program, by the outputs. whole: the path of all outputs."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.whole = OutputPath(header["inputs"], header["blocks"][MAIN]["steps"], "")
        self._count = len(header["outputs"])
        self._known: dict[str, OutputPath] = {}

    def find(self, names: list[str]) -> OutputPath:
        """The path of these outputs, or of all for no names. names: each once"""
        if len(names) == 0 or len(names) == self._count:
            return self.whole
        suffix = "|" + "|".join(sorted(names))
        found = self._known.get(suffix)
        if found is None:
            if len(self._known) >= MOST:
                self._known.clear()
            found = _Search(self.header).path(set(names), suffix)
            self._known[suffix] = found
        return found


class _Names:
    """Of a Program's named dims."""

    def __init__(self, header: Header) -> None:
        self.known: dict[str, set[str]] = {}  # the symbols on which each depends
        for name, dim in header.get("dims", []):
            self.known[name] = self.symbols(dim)

    def symbols(self, dim: Dim) -> set[str]:
        """The symbols on which a dim depends."""
        found: set[str] = set()
        for name in sorted(symbols(dim)):
            if name in self.known:
                found.update(self.known[name])
            else:
                found.add(name)
        return found


class _Search:
    """Visits the steps of the main block from the last to the first. buffers, needed: buffers and symbols that later
    steps of the path read; set_by_steps: symbols that steps of the path set."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.buffers: set[int] = set()
        self.needed: set[str] = set()
        self.set_by_steps: set[str] = set()
        self.names = _Names(header)

    def path(self, names: set[str], suffix: str) -> OutputPath:
        for output in self.header["outputs"]:
            if output["name"] in names:
                for value in _tensors(output["value"]):
                    self._read(value)
                self.buffers.update(output.get("updates", []))
        steps = self.header["blocks"][MAIN]["steps"]
        marks = [self._mark(step) for step in reversed(steps)]
        inputs = self._inputs()
        known = self.set_by_steps | {symbol for spec in inputs for symbol in _set_by(spec)}
        return OutputPath(inputs, _Writer(self.buffers, known, self.names).steps(steps, list(reversed(marks))), suffix)

    # ── what belongs to the path ──

    def _mark(self, step: Step) -> list[bool]:
        """Whether each call of a step belongs to the path, or the step, if it has none."""
        if step["op"] == "wasm" or step["op"] == "gpu":
            return list(reversed([self._mark_call(call) for call in reversed(step["calls"])]))
        made, names = self._made(step), _symbols_set(step)
        belongs = any(b in self.buffers for b in made) or any(symbol in self.needed for symbol in names)
        if belongs:
            self.set_by_steps.update(names)
            self._use(step)
        return [belongs]

    def _mark_call(self, call: Call) -> bool:
        belongs = any(b in self.buffers for b in _written(call))
        if belongs:
            self._use_call(call)
        return belongs

    def _use_call(self, call: Call) -> None:
        self.buffers.update(call["buffers"])
        self._need([*call["params"], call["work"]])
        self._need([self.header["buffers"][b]["size"] for b in call["alloc"]])

    def _made(self, step: Step) -> list[int]:
        """Buffers that a step without calls writes."""
        if step["op"] == "copy":
            return [target["buffer"] for _, target in step["pairs"]]
        if step["op"] == "host":
            return [value["buffer"] for value in step["outputs"]]
        if step["op"] == "if":
            return [*step["outputs"], *self._written_inside(step["then"]), *self._written_inside(step["orelse"])]
        if step["op"] == "loop":
            return [*[value["buffer"] for value in step["outputs"]], *self._written_inside(step["body"])]
        return []

    def _written_inside(self, block: int) -> list[int]:
        """Buffers from outside that the calls of a branch or loop body may write."""
        found: list[int] = []
        for step in self.header["blocks"][block]["steps"]:
            if step["op"] == "wasm" or step["op"] == "gpu":
                for call in step["calls"]:
                    found.extend(call.get("updates", []))
            elif step["op"] == "if" or step["op"] == "loop":
                found.extend(self._made(step))
        return found

    # ── what it reads ──

    def _use(self, step: Step) -> None:
        if step["op"] == "wasm" or step["op"] == "gpu":
            for call in step["calls"]:
                self._use_call(call)
        elif step["op"] == "copy":
            for source, target in step["pairs"]:
                if target["buffer"] in self.buffers:
                    self._read(source)
        elif step["op"] == "read":
            self._read(step["value"])
        elif step["op"] == "host":
            self._use_host(step["inputs"], step["outputs"])
        elif step["op"] == "if":
            self._read(step["condition"])
            self._use_block(step["then"])
            self._use_block(step["orelse"])
        else:
            for value in [step["trip"], step["condition"], *step["carried"], *step["outputs"]]:
                self._read(value)
            self._use_block(step["body"])

    def _use_host(self, inputs: list[TensorValue | None], outputs: list[TensorValue]) -> None:
        for value in [*inputs, *outputs]:
            self._read(value)
        for spec in self.header["inputs"]:  # the function in Python may ask for any symbol
            self.needed.update(_set_by(spec))

    def _use_block(self, number: int) -> None:
        block = self.header["blocks"][number]
        for value in [*block["inputs"], *block["outputs"]]:
            self._read(value)
        for step in reversed(block["steps"]):  # a copy belongs to the path if a later step reads it
            self._use(step)

    def _read(self, value: TensorValue | None) -> None:
        if value is not None:
            self.buffers.add(value["buffer"])
            self._need([*value["dims"], self.header["buffers"][value["buffer"]]["size"]])
            if "room" in value:
                self._need([value["room"]["places"]])

    def _need(self, dims: list[Dim]) -> None:
        for dim in dims:
            self.needed.update(self.names.symbols(dim))

    def _inputs(self) -> list[Input]:
        """The inputs that the path reads, and those whose dims it needs."""
        count = -1
        found: list[Input] = []
        while len(found) > count:
            count = len(found)
            read = [spec for spec in self.header["inputs"] if spec["buffer"] in self.buffers]
            known = self.set_by_steps | {symbol for spec in read for symbol in _set_by(spec)}
            for spec in self.header["inputs"]:
                missing = self.needed - known
                if spec["buffer"] not in self.buffers and any(symbol in missing for symbol in _set_by(spec)):
                    self.buffers.add(spec["buffer"])
                    known.update(_set_by(spec))
            found = [spec for spec in self.header["inputs"] if spec["buffer"] in self.buffers]
            for spec in found:
                self._need(spec["dims"])
                if "room" in spec:
                    room = spec["room"]
                    self._need([room["least"], room.get("mixed", 0), room.get("undo", 0)])
        return found


class _Writer:
    """Writes the steps of a path. What a step that is left out would free, the next step frees. buffers: those of the
    path; known: symbols that have values in it"""

    def __init__(self, buffers: set[int], known: set[str], names: _Names) -> None:
        self.buffers = buffers
        self.known = known
        self.names = names
        self.late: list[int] = []  # buffers to free

    def steps(self, steps: list[Step], marks: list[list[bool]]) -> list[Step]:
        found: list[Step] = []
        for step, belongs in zip(steps, marks, strict=True):
            if True in belongs:
                found.append(self._step(step, belongs))
            elif step["op"] == "wasm" or step["op"] == "gpu":
                for call in step["calls"]:
                    self.late.extend(call["free"])
            else:
                self.late.extend(step["free"])
        return found

    def _step(self, step: Step, belongs: list[bool]) -> Step:
        if step["op"] == "wasm":
            return self._wasm(step, belongs)
        if step["op"] == "gpu":
            return self._gpu(step, belongs)
        free = self._take(step["free"])
        if step["op"] == "copy":
            pairs = [pair for pair in step["pairs"] if pair[1]["buffer"] in self.buffers]
            return {**step, "pairs": pairs, "free": free}
        if step["op"] == "read":
            return {**step, "free": free}
        if step["op"] == "host":
            return {**step, "free": free}
        if step["op"] == "if":
            return {**step, "free": free}
        return {**step, "free": free}

    def _take(self, free: list[int]) -> list[int]:
        """All that a call or step of the path frees."""
        found = [*self.late, *free]
        self.late = []
        return found

    def _wasm(self, step: WasmStep, belongs: list[bool]) -> WasmStep:
        """The code of a step runs all its calls, so those that are left out get no work."""
        stand_in = _stand_in(step["calls"], belongs)
        calls: list[Call] = []
        for call, is_kept in zip(step["calls"], belongs, strict=True):
            free = self._take(call["free"])
            calls.append({**call, "free": free} if is_kept else self._idle(call, free, stand_in))
        found: WasmStep = {**step, "calls": calls}
        if "fork" in step and not self.names.symbols(step["fork"]) <= self.known:
            found["fork"] = 1
        return found

    def _idle(self, call: Call, free: list[int], stand_in: int) -> Call:
        """stand_in: a buffer that has an address"""
        buffers = [stand_in for _ in call["buffers"]]
        params = [dim if self.names.symbols(dim) <= self.known else 1 for dim in call["params"]]
        return {**call, "buffers": buffers, "params": params, "work": 0, "inplace": [], "alloc": [], "free": free}

    def _gpu(self, step: GpuStep, belongs: list[bool]) -> GpuStep:
        calls: list[Call] = []
        for call, is_kept in zip(step["calls"], belongs, strict=True):
            if is_kept:
                calls.append({**call, "free": self._take(call["free"])})
            else:
                self.late.extend(call["free"])
        return {**step, "calls": calls}


def _stand_in(calls: list[Call], belongs: list[bool]) -> int:
    """A buffer of the first call that belongs to the path."""
    return [call["buffers"][0] for call, is_kept in zip(calls, belongs, strict=True) if is_kept][0]


def _written(call: Call) -> list[int]:
    return [*call["alloc"], *call.get("updates", [])]


def _symbols_set(step: Step) -> list[str]:
    """The symbols that a step without calls sets."""
    if step["op"] == "read":
        return step["symbols"]
    if step["op"] == "host" or step["op"] == "if" or step["op"] == "loop":
        return [symbol for _, _, symbol in step["binds"]]
    return []


def _set_by(spec: Input) -> list[str]:
    """The symbols that an input sets."""
    found = [dim for dim in spec["dims"] if isinstance(dim, str)]
    if "room" in spec:
        found.append(spec["room"]["places"])
    return found


def _tensors(value: Value) -> list[TensorValue]:
    if value is None:
        return []
    return value["items"] if "items" in value else [value]
