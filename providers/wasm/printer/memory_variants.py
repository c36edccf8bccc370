"""Variants of a function for operands in other linear memories than the first
(docs/design/memory.md#weights-over-4-gib).

The memory of an access is an immediate, so that each combination of memories needs a function of its own. Schedules
write functions for the first memory only. `Variants` follows values through the finished code: addresses come from the
argument block and are
only added to, splat, extracted and compared, so that each access has the memory of one operand. It then copies the
function with other immediates. If it cannot determine a memory it raises `Untraceable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .assembler import Function, Module
from .disassembler import IMMEDIATES, INSTRUCTIONS, Reader
from .opcodes import LANE_MEMORY, MEMORY, OPERANDS, PLAIN, leb_u
from .values import CONSTANT

# Kinds of values: a number or an address in the first memory; the address of the argument block; unknown.
# k > 0: an address in memory k.
NUMBER, BLOCK, UNKNOWN = 0, -1, -2

_SUM = ("i32.add", "i32x4.add")
_DIFFERENCE = ("i32.sub", "i32x4.sub")
_MOVES = ("i32x4.splat", "i32x4.extract_lane", "select", "i32x4.replace_lane")
_UNSIGNED = tuple(f"i32.{op}" for op in ("eqz", "eq", "ne", "lt_u", "gt_u", "le_u", "ge_u"))
_SIGNED = tuple(f"i32.{op}_s" for op in ("lt", "gt", "le", "ge"))
ACCESSES = {name: "store" in name for name in (*MEMORY, *LANE_MEMORY) if name in OPERANDS}  # whether it stores
_CONSTANTS = {"i32.const", "i64.const", "f32.const", "f64.const", "v128.const"}


@dataclass(slots=True)
class Instruction:
    """number: of a local, function or label, or the offset of an access; head: bytes before the immediates"""

    name: str
    code: bytes
    head: int
    number: int

    def in_memory(self, memory: int) -> bytes:
        """Return the bytes of the same access in another memory."""
        if not memory:
            return self.code
        head, alignment = self.code[: self.head], self.code[self.head]
        return head + bytes([alignment | 64]) + leb_u(memory) + self.code[self.head + 1 :]


def decode(f: Function) -> Iterator[Instruction]:
    reader = Reader(bytes(f.code))
    while (start := reader.at) < len(f.code):
        name, immediates = INSTRUCTIONS[reader.opcode()]
        head = reader.at - start
        for kind in immediates:
            IMMEDIATES[kind](reader)
        yield Instruction(name, reader.code[start : reader.at], head, reader.number)


class Untraceable(Exception):
    """The memory of an access is not known."""


@dataclass(slots=True)
class _Trace:
    """By position of an instruction: memories of accesses except the first, and arguments of calls except numbers.
    result: what the function returns"""

    accesses: dict[int, int] = field(default_factory=dict)
    calls: dict[int, tuple[int, ...]] = field(default_factory=dict)
    result: int = NUMBER


@dataclass(slots=True)
class _Frame:
    """An open block. entry: the locals at the start of an `if`; exit: locals and result at its end."""

    name: str
    at: int
    height: int
    result: bool
    entry: list[int] | None = None
    exit: tuple[list[int], list[int]] | None = None


def _join(a: list[int], b: list[int]) -> list[int]:
    return [x if x == y else UNKNOWN for x, y in zip(a, b, strict=True)]


class Variants:
    """Makes variants of the functions of one module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._traces: dict[object, _Trace] = {}
        self._made: dict[object, Function] = {}
        self._code: dict[int, list[Instruction]] = {}

    def kernel(self, f: Function, memories: Sequence[int]) -> Function:
        """Return the variant of kernel `f` for these memories of the argument block's words. Errors: Untraceable."""
        words = tuple(memories)
        return self._variant(f, (BLOCK, NUMBER, NUMBER, NUMBER), words, f"{f.name}_m{'_'.join(map(str, words))}")

    def code(self, f: Function) -> list[Instruction]:
        if f.index not in self._code:
            self._code[f.index] = list(decode(f))
        return self._code[f.index]

    def trace(self, f: Function, arguments: tuple[int, ...], words: tuple[int, ...]) -> _Trace:
        key = (f.index, arguments, words)
        if key not in self._traces:
            self._traces[key] = _Walk(self, f, arguments, words).trace()
        return self._traces[key]

    def _variant(self, f: Function, arguments: tuple[int, ...], words: tuple[int, ...], name: str = "") -> Function:
        key = (f.index, arguments, words)
        if key not in self._made:
            trace = self.trace(f, arguments, words)
            code = bytearray()
            for n, instruction in enumerate(self.code(f)):
                if instruction.name == "call" and instruction.number < len(self.module.imports):
                    if n in trace.calls:
                        from .native_imports import memories_word  # pages do not have it

                        called = self.module.functions[instruction.number]
                        code += CONSTANT[memories_word(called.name, trace.calls[n])] + PLAIN["i32.or"]
                    code += instruction.code
                elif n in trace.calls:
                    called = self._variant(self.module.functions[instruction.number], trace.calls[n], words)
                    code += b"\x10" + leb_u(called.index)
                else:
                    code += instruction.in_memory(trace.accesses.get(n, 0))
            made = self.module.function(name or f.name, f.types[: len(f.params)], f.results, export=bool(name))
            made.types, made.code = list(f.types), code
            self._made[key] = made
        return self._made[key]


class _Walk:
    """An abstract interpretation of one function, repeated until the locals at the heads of its loops are stable."""

    def __init__(self, variants: Variants, f: Function, arguments: tuple[int, ...], words: tuple[int, ...]) -> None:
        self.variants = variants
        self.f = f
        self.words = words
        self.entry = [*arguments, *[NUMBER] * (len(f.types) - len(arguments))]
        self.heads: dict[int, list[int]] = {}  # locals at the heads of loops, by position
        self.changed = True
        self.frames: list[_Frame] = []
        self.stack: list[int] = []
        self.locals: list[int] | None = None  # None: unreachable

    def trace(self) -> _Trace:
        while self.changed:
            self.changed = False
            self.recorded = _Trace()
            self.locals, self.stack = list(self.entry), []
            self.frames = [_Frame("function", -1, 0, bool(self.f.results))]
            for n, i in enumerate(self.variants.code(self.f)):
                self._instruction(n, i)
            self._end()
            self.recorded.result = self.stack[0] if self.stack else NUMBER
        return self.recorded

    def _instruction(self, n: int, i: Instruction) -> None:
        if i.name in ("block", "loop", "if"):
            self._open(n, i)
        elif i.name == "else":
            frame = self.frames[-1]
            self._leave(frame)
            self.locals, frame.entry = frame.entry, None
            del self.stack[frame.height :]
        elif i.name == "end":
            self._end()
        elif self.locals is not None:
            self._execute(n, i, self.locals)

    def _execute(self, n: int, i: Instruction, locals_: list[int]) -> None:
        name, stack = i.name, self.stack
        if name in ("br", "br_if", "return", "unreachable"):
            self._branch(i)
        elif name == "local.get":
            stack.append(locals_[i.number])
        elif name in ("local.set", "local.tee"):
            locals_[i.number] = stack[-1] if name == "local.tee" else stack.pop()
        elif name in _CONSTANTS:
            stack.append(NUMBER)
        elif name == "call":
            self._call(n, self.variants.module.functions[i.number])
        elif name == "drop":
            stack.pop()
        elif name in ACCESSES:
            self._access(n, i, self._pop(OPERANDS[name]))
        elif name in OPERANDS:
            stack.append(self._value(name, self._pop(OPERANDS[name])))
        elif name != "nop":
            raise Untraceable(f"{name} in {self.f.name}")

    def _pop(self, count: int) -> list[int]:
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    # ── control ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, n: int, i: Instruction) -> None:
        if i.name == "if" and self.locals is not None:
            self.stack.pop()
        frame = _Frame(i.name, n, len(self.stack), bool(i.number != 0x40))
        if i.name == "if":
            frame.entry = None if self.locals is None else list(self.locals)
        elif i.name == "loop" and self.locals is not None:
            self._head(n)
            self.locals = list(self.heads[n])
        self.frames.append(frame)

    def _head(self, n: int) -> None:
        """Join the locals into those at the head of a loop."""
        assert self.locals is not None
        joined = _join(self.heads.get(n, self.locals), self.locals)
        self.changed |= joined != self.heads.get(n, joined)
        self.heads[n] = joined

    def _leave(self, frame: _Frame) -> None:
        if self.locals is None:
            return
        results = self.stack[-1:] if frame.result else []
        if frame.exit is None:
            frame.exit = list(self.locals), list(results)
        else:
            frame.exit = _join(frame.exit[0], self.locals), _join(frame.exit[1], results)

    def _branch(self, i: Instruction) -> None:
        if i.name == "br_if":
            self.stack.pop()
        if i.name != "unreachable":
            frame = self.frames[0 if i.name == "return" else -1 - i.number]
            if frame.name == "loop":
                self._head(frame.at)
            else:
                self._leave(frame)
        if i.name != "br_if":
            self.locals = None

    def _end(self) -> None:
        frame = self.frames.pop()
        if self.locals is not None and len(self.stack) != frame.height + frame.result:
            raise Untraceable(f"a block of {self.f.name}")
        if frame.name == "loop" and self.locals is not None:
            return
        self._leave(frame)
        if frame.entry is not None:  # an `if` without `else`
            self.locals, self.stack = frame.entry, self.stack[: frame.height]
            self._leave(frame)
        self.locals = frame.exit and frame.exit[0]
        self.stack[frame.height :] = frame.exit[1] if frame.exit else []

    # ── values ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _call(self, n: int, f: Function) -> None:
        arguments = tuple(self._pop(len(f.params)))
        result = NUMBER
        if any(arguments):
            self.recorded.calls[n] = arguments
        if f.index < len(self.variants.module.imports):
            if min(arguments) < NUMBER:
                raise Untraceable(f"an operand of {f.name} in {self.f.name}")
        elif any(arguments):
            result = self.variants.trace(f, arguments, self.words).result
        self.stack += [result] * len(f.results)

    def _access(self, n: int, i: Instruction, operands: list[int]) -> None:
        address, *values = operands
        if address == UNKNOWN or any(values):
            raise Untraceable(f"{i.name} in {self.f.name}")
        if address > 0:
            self.recorded.accesses[n] = address
        if not ACCESSES[i.name]:
            self.stack.append(self._word(i) if address == BLOCK else NUMBER)

    def _word(self, i: Instruction) -> int:
        """Return the kind of the value that a load from the argument block pushes."""
        word, rest = divmod(i.number, 4)
        if i.name != "i32.load" or rest:
            if any(self.words[word : word + 5]):  # the load covers four words, or parts of five
                raise Untraceable(f"{i.name} of an address in {self.f.name}")
            return NUMBER
        return self.words[word] if word < len(self.words) else NUMBER

    def _value(self, name: str, operands: list[int]) -> int:
        """Return the kind of the value that an instruction pushes."""
        if not any(operands) or name in _UNSIGNED:
            return NUMBER
        if name in _SIGNED:
            raise Untraceable(f"an address from 2 GiB on is negative: {name} in {self.f.name}")
        if name in _SUM and NUMBER in operands and BLOCK not in operands:
            return sum(operands)
        if name in _DIFFERENCE:
            a, b = operands
            return a if b == NUMBER else NUMBER if a == b != UNKNOWN else UNKNOWN
        moved = operands[:2] if name in _MOVES else [UNKNOWN]
        return moved[0] if all(x == moved[0] for x in moved) else UNKNOWN
