"""A function whose operands lie in further memories, made from the one that finds them in the first
(docs/design/memory.md#weights-over-4-gib).

Where a load goes is an immediate, so each combination of memories is a function of its own. Schedules know nothing of
it: which values are addresses of which operand follows from the code, since addresses come from the argument block and
are only added to, split over lanes and compared. `Variants` goes through a function until nothing new is found, and
writes it once more with other immediates. What cannot be told is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .assembler import Function, Module
from .disassembler import INSTRUCTIONS, Reader
from .opcodes import LANE, LANE_MEMORY, MEMORY, PLAIN, leb_u

# What a value is: a number, or an address in the first memory; the address of the argument block; what cannot be told.
# k > 0: an address in memory k.
NUMBER, BLOCK, UNKNOWN = 0, -1, -2

_SUM = ("i32.add", "i32x4.add")
_DIFFERENCE = ("i32.sub", "i32x4.sub")
_KEPT = ("i32x4.splat", "i32x4.extract_lane", "select", "i32x4.replace_lane")
_UNSIGNED = tuple(f"i32.{op}" for op in ("eqz", "eq", "ne", "lt_u", "gt_u", "le_u", "ge_u"))
_SIGNED = tuple(f"i32.{op}_s" for op in ("lt", "gt", "le", "ge"))
_ONE = """eqz clz ctz popcnt abs neg ceil floor trunc nearest sqrt not any_true all_true bitmask splat wrap convert
    demote promote reinterpret extend extend8 extend16 extend32""".split()
_THREE = "bitselect relaxed_madd relaxed_nmadd relaxed_laneselect select".split()


def _operands(name: str) -> int:
    """How many an instruction without control takes."""
    what = name.partition(".")[2] or name
    if what == "relaxed_dot_i8x16_i7x16_add_s" or what in _THREE:
        return 3
    if what.endswith("_lane") and ("load" in what or "store" in what):
        return 2
    one = what in _ONE or what.partition("_")[0] in _ONE
    return 1 if one or what.startswith(("load", "extadd", "relaxed_trunc", "extract_lane")) else 2


ACCESSES = {name: "store" in name for name in (*MEMORY, *LANE_MEMORY) if ".atomic" not in name}  # whether it stores
_PUSHES = {"i32.const", "i64.const", "f32.const", "f64.const", "v128.const"}
_TAKES = {n: _operands(n) for n in (*PLAIN, *LANE, *ACCESSES, "i8x16.shuffle") if "." in n or n == "select"}
for _name in ("memory.size", "memory.grow", "memory.copy", "memory.fill", "atomic.fence"):  # kernels have none
    del _TAKES[_name]
_BYTES = {"lane": 1, "zero": 1, "f32": 4, "f64": 8, "v128": 16, "lanes": 16}


@dataclass(slots=True)
class Instruction:
    """number: of a local, function or label, or the offset of an access; head: bytes before the immediates."""

    name: str
    code: bytes
    head: int
    number: int

    def moved(self, memory: int) -> bytes:
        """The same access of another memory."""
        if not memory:
            return self.code
        head, alignment = self.code[: self.head], self.code[self.head]
        return head + bytes([alignment | 64]) + leb_u(memory) + self.code[self.head + 1 :]


def decode(f: Function) -> Iterator[Instruction]:
    reader = Reader(bytes(f.code))
    while (start := reader.at) < len(f.code):
        name, immediates = INSTRUCTIONS[reader.opcode()]
        head, number = reader.at - start, 0
        for kind in immediates:
            if kind == "memory":
                reader.take(1)
                number = reader.leb()
            elif kind == "block":
                (number,) = reader.take(1)
            elif kind in _BYTES:
                reader.take(_BYTES[kind])
            else:
                number = reader.leb()
        yield Instruction(name, reader.code[start : reader.at], head, number)


class Lost(Exception):
    """Why it cannot be told which memory an instruction means."""


@dataclass(slots=True)
class _Found:
    """By position of the instruction: memories that it reads or writes besides the first, what functions are called
    with; and what the function gives."""

    accesses: dict[int, int] = field(default_factory=dict)
    calls: dict[int, tuple[int, ...]] = field(default_factory=dict)
    result: int = NUMBER


@dataclass(slots=True)
class _Frame:
    """A block that is open. entry: the locals where an `if` began; exit: locals and result where it is left."""

    name: str
    at: int
    height: int
    result: bool
    entry: list[int] | None = None
    exit: tuple[list[int], list[int]] | None = None


def _join(a: list[int], b: list[int]) -> list[int]:
    return [x if x == y else UNKNOWN for x, y in zip(a, b, strict=True)]


class Variants:
    """Of the functions of one module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._found: dict[object, _Found] = {}
        self._made: dict[object, Function] = {}
        self._code: dict[int, list[Instruction]] = {}

    def kernel(self, f: Function, memories: Sequence[int]) -> Function:
        """The kernel `f` for operands in these memories, by words of the argument block. Errors: Lost."""
        words = tuple(memories)
        return self._variant(f, (BLOCK, NUMBER, NUMBER, NUMBER), words, f"{f.name}_m{'_'.join(map(str, words))}")

    def code(self, f: Function) -> list[Instruction]:
        if f.index not in self._code:
            self._code[f.index] = list(decode(f))
        return self._code[f.index]

    def found(self, f: Function, given: tuple[int, ...], words: tuple[int, ...]) -> _Found:
        key = (f.index, given, words)
        if key not in self._found:
            self._found[key] = _Walk(self, f, given, words).found()
        return self._found[key]

    def _variant(self, f: Function, given: tuple[int, ...], words: tuple[int, ...], name: str = "") -> Function:
        key = (f.index, given, words)
        if key not in self._made:
            found = self.found(f, given, words)
            code = bytearray()
            for n, instruction in enumerate(self.code(f)):
                if n in found.calls:
                    called = self._variant(self.module.functions[instruction.number], found.calls[n], words)
                    code += b"\x10" + leb_u(called.index)
                else:
                    code += instruction.moved(found.accesses.get(n, 0))
            made = self.module.function(name or f.name, f.types[: len(f.params)], f.results, export=bool(name))
            made.types, made.code = list(f.types), code
            self._made[key] = made
        return self._made[key]


class _Walk:
    """Through one function, in order, again while what is known at the heads of its loops changes."""

    def __init__(self, variants: Variants, f: Function, given: tuple[int, ...], words: tuple[int, ...]) -> None:
        self.variants = variants
        self.f = f
        self.words = words
        self.entry = [*given, *[NUMBER] * (len(f.types) - len(given))]
        self.heads: dict[int, list[int]] = {}  # locals at the heads of loops, by position
        self.changed = True
        self.frames: list[_Frame] = []
        self.stack: list[int] = []
        self.locals: list[int] | None = None  # None: nothing comes here

    def found(self) -> _Found:
        while self.changed:
            self.changed = False
            self.told = _Found()
            self.locals, self.stack = list(self.entry), []
            self.frames = [_Frame("function", -1, 0, bool(self.f.results))]
            for n, i in enumerate(self.variants.code(self.f)):
                self._instruction(n, i)
            self._end()
            self.told.result = self.stack[0] if self.stack else NUMBER
        return self.told

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
            self._reached(n, i, self.locals)

    def _reached(self, n: int, i: Instruction, locals_: list[int]) -> None:
        name, stack = i.name, self.stack
        if name in ("br", "br_if", "return", "unreachable"):
            self._branch(i)
        elif name == "local.get":
            stack.append(locals_[i.number])
        elif name in ("local.set", "local.tee"):
            locals_[i.number] = stack[-1] if name == "local.tee" else stack.pop()
        elif name in _PUSHES:
            stack.append(NUMBER)
        elif name == "call":
            self._call(n, self.variants.module.functions[i.number])
        elif name == "drop":
            stack.pop()
        elif name in ACCESSES:
            self._access(n, i, self._pop(_TAKES[name]))
        elif name in _TAKES:
            stack.append(self._value(name, self._pop(_TAKES[name])))
        elif name != "nop":
            raise Lost(f"{name} in {self.f.name}")

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
            frame.entry = _copy(self.locals)
        elif i.name == "loop" and self.locals is not None:
            self._head(n)
            self.locals = list(self.heads[n])
        self.frames.append(frame)

    def _head(self, n: int) -> None:
        """What is known here is so at the head of a loop, too."""
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
            raise Lost(f"a block of {self.f.name}")
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
        given = tuple(self._pop(len(f.params)))
        result = NUMBER
        if any(given):
            self.told.calls[n] = given
            result = self.variants.found(f, given, self.words).result
        self.stack += [result] * len(f.results)

    def _access(self, n: int, i: Instruction, taken: list[int]) -> None:
        address, *values = taken
        if address == UNKNOWN or any(values):
            raise Lost(f"{i.name} in {self.f.name}")
        if address > 0:
            self.told.accesses[n] = address
        if not ACCESSES[i.name]:
            self.stack.append(self._word(i) if address == BLOCK else NUMBER)

    def _word(self, i: Instruction) -> int:
        """What a load from the argument block gives."""
        word, rest = divmod(i.number, 4)
        if i.name != "i32.load" or rest:
            if any(self.words[word : word + 5]):  # it covers four, or parts of five
                raise Lost(f"{i.name} of an address in {self.f.name}")
            return NUMBER
        return self.words[word] if word < len(self.words) else NUMBER

    def _value(self, name: str, taken: list[int]) -> int:
        """What an instruction makes of such values."""
        if not any(taken) or name in _UNSIGNED:
            return NUMBER
        if name in _SIGNED:
            raise Lost(f"an address from 2 GiB on is negative: {name} in {self.f.name}")
        if name in _SUM and NUMBER in taken and BLOCK not in taken:
            return sum(taken)
        if name in _DIFFERENCE:
            return taken[0] if taken[1] == NUMBER else NUMBER if taken[0] == taken[1] != UNKNOWN else UNKNOWN
        kept = taken[:2] if name in _KEPT else [UNKNOWN]
        return kept[0] if all(x == kept[0] for x in kept) else UNKNOWN


def _copy(of: list[int] | None) -> list[int] | None:
    return None if of is None else list(of)


__all__ = ["ACCESSES", "Lost", "Variants"]
