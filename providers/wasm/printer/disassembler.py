"""WebAssembly instructions of `Function.code` in the text format, one instruction a line.

Spec: https://webassembly.github.io/spec/core/text/instructions.html
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator

from .assembler import Function
from .opcodes import LANE, LANE_MEMORY, MEMORY, PLAIN, VALUE_TYPES

_VALUE_TYPES = {code: name for name, code in VALUE_TYPES.items()}
_PREFIXES = (0xFC, 0xFD, 0xFE)


def disassemble(f: Function) -> str:
    """Return the function in the text format. Calls name functions by number, with the name in a comment."""
    lines = [f"(func ${f.name} (;{f.index};){_typed('param', f.types[: len(f.params)])}{_typed('result', f.results)}"]
    if len(f.types) > len(f.params):
        lines.append(" " + _typed("local", f.types[len(f.params) :]))
    depth = 1
    for words in _instructions_of(f):
        if words[0] == "call":
            words.append(f"(;{f.module.functions[int(words[1])].name};)")
        depth -= words[0] in ("end", "else")
        lines.append("  " * depth + " ".join(filter(None, words)))
        depth += words[0] in ("block", "loop", "if", "else")
    return "\n".join(lines) + ")"


def called(f: Function) -> list[int]:
    """Return the numbers of the functions that `code` calls, without duplicates."""
    return list(dict.fromkeys(int(words[1]) for words in _instructions_of(f) if words[0] == "call"))


def _instructions_of(f: Function) -> Iterator[list[str]]:
    """Yield each instruction's name and immediates."""
    reader = Reader(bytes(f.code))
    while reader.at < len(f.code):
        name, immediates = INSTRUCTIONS[reader.opcode()]
        yield [name, *[IMMEDIATES[kind](reader) for kind in immediates]]


def _typed(what: str, types: list[str]) -> str:
    return f" ({what} {' '.join(types)})" if types else ""


class Reader:
    """Reads code from its beginning. number: the last integer that was read"""

    def __init__(self, code: bytes) -> None:
        self.code = code
        self.at = 0
        self.number = 0

    def take(self, count: int) -> bytes:
        self.at += count
        return self.code[self.at - count : self.at]

    def leb(self, signed: bool = False) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                self.number = value - (1 << shift) if signed and byte & 64 else value
                return self.number

    def opcode(self) -> bytes:
        start = self.at
        if self.take(1)[0] in _PREFIXES:
            self.leb()
        return self.code[start : self.at]


# ── kinds of immediates in `INSTRUCTIONS`, and their text ─────────────────────────────────────────────────────────────


def _memory(r: Reader) -> str:
    (alignment,) = r.take(1)  # the natural one; plus 64 if the number of a memory follows
    memory = f"{r.leb()}" if alignment & 64 else ""
    offset = r.leb()
    return " ".join(filter(None, [memory, f"offset={offset}" if offset else ""]))


def _zero(r: Reader) -> str:
    r.take(1)
    return ""


def _block_type(r: Reader) -> str:
    (r.number,) = r.take(1)
    kind = _VALUE_TYPES.get(r.number)
    return f"(result {kind})" if kind else ""


def _float(r: Reader, form: str, fraction: int, digits: str) -> str:
    data = r.take(struct.calcsize(form))
    (value,) = struct.unpack(form, data)
    if not math.isnan(value):
        return format(value, digits)
    bits = int.from_bytes(data, "little")
    return f"{'-' if data[-1] & 128 else ''}nan:{bits & (1 << fraction) - 1:#x}"


IMMEDIATES: dict[str, Callable[[Reader], str]] = {
    "unsigned": lambda r: str(r.leb()),
    "signed": lambda r: str(r.leb(signed=True)),
    "f32": lambda r: _float(r, "<f", 23, ".9g"),
    "f64": lambda r: _float(r, "<d", 52, ".17g"),
    "v128": lambda r: "i32x4 " + " ".join(f"{lane:#x}" for lane in struct.unpack("<4I", r.take(16))),
    "lanes": lambda r: " ".join(map(str, r.take(16))),
    "lane": lambda r: str(r.take(1)[0]),
    "memory": _memory,
    "block": _block_type,
    "type": lambda r: f"(type {r.leb()})",
    "zero": _zero,
}


def _instructions() -> dict[bytes, tuple[str, tuple[str, ...]]]:
    """Opcode -> name and kinds of immediates."""
    table: dict[bytes, tuple[str, tuple[str, ...]]] = {}
    for name, code in PLAIN.items():
        head = Reader(code).opcode()
        table[head] = name, ("zero",) * (len(code) - len(head))
    table |= {code[:-1]: (name, ("memory",)) for name, code in MEMORY.items()}  # without the alignment
    table |= {code[:-1]: (name, ("memory", "lane")) for name, code in LANE_MEMORY.items()}
    table |= {code: (name, ("lane",)) for name, code in LANE.items()}
    more = """02 block block, 03 loop block, 04 if block, 0c br unsigned, 0d br_if unsigned, 10 call unsigned,
        11 call_indirect type zero, 20 local.get unsigned, 21 local.set unsigned, 22 local.tee unsigned,
        41 i32.const signed, 42 i64.const signed, 43 f32.const f32, 44 f64.const f64, fd0c v128.const v128,
        fd0d i8x16.shuffle lanes"""
    for row in more.split(","):
        opcode, name, *immediates = row.split()
        table[bytes.fromhex(opcode)] = name, tuple(immediates)
    return table


INSTRUCTIONS = _instructions()
