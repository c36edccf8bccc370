"""Elementwise loops in machine code: eight elements at a time, by the instructions in the function's name
(printer/native_words.py). AVX2 also where the processor has AVX-512."""

from __future__ import annotations

import struct

from ..printer.native_words import MOST_SCALARS, REGISTERS, SHIFTS, WITH_NUMBER, Word, parse
from .function import Function
from .kinds import Kind
from .x86 import R8, R9, R10, R11, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RSI, RSP, XMM, YMM, Memory, Vector

COUNT = 1 << 20  # most elements of a call
LANES, BYTES = 8, 32  # of a vector
AT, CONSTANTS, LAST = (RSI, R8, R9, R10, RBX, RBP, R12, R13, R14, R15, RDI), R11, RCX
_SPARE = YMM[REGISTERS]
_LOADS = {"i1": "vpmovsxbd", "u1": "vpmovzxbd", "i2": "vpmovsxwd", "u2": "vpmovzxwd"}


class LanesFunction(Function):
    """Constants and scalars are vectors in memory, other values registers."""

    def __init__(self, name: str, kind: Kind, windows: bool) -> None:
        self.name = name
        super().__init__(kind, windows)
        words = parse(name)
        assert words is not None
        self.words = words
        self.constants = list(dict.fromkeys(w.number for w in words if w.kind == "const"))
        self.pool = self.code.label()
        self.last_use = {x: n for n, w in enumerate(words) for x in w.operands}
        self.free = list(YMM[:REGISTERS])
        self.places: dict[int, Vector | Memory] = {}

    def check(self) -> None:
        code = self.code
        self.between("count", LANES, COUNT)
        for w in self.words:
            if w.dtype is not None:
                code.op("mov", RAX, self.slot["count"], wide=False)
                if w.dtype.size > 1:
                    code.shift("shl", RAX, w.dtype.size.bit_length() - 1)
                code.constant("mov", RCX, 0, wide=False)
                self.address(f"at{w.number}")

    def body(self) -> None:
        code, scalars = self.code, [w.number for w in self.words if w.kind == "scalar"]
        code.constant("sub", RSP, BYTES * MOST_SCALARS)
        for n in scalars:
            code.vector("vbroadcastss", _SPARE, self.slot[f"scalar{n}"])
            code.vector("store", _SPARE, Memory(RSP, BYTES * n))
        for n, register in enumerate(AT[: sum(w.dtype is not None for w in self.words)]):
            code.op("mov", register, self.slot[f"at{n}"])
        code.address(CONSTANTS, self.pool)
        code.op("mov", LAST, self.slot["count"], wide=False)
        code.constant("sub", LAST, LANES)
        code.constant("mov", RAX, 0, wide=False)
        again = code.here()
        for n, w in enumerate(self.words):
            self._write(n, w)
        code.constant("add", RAX, LANES)
        code.op("cmp", RAX, LAST)
        code.jump(again, "le")
        code.constant("add", RSP, BYTES * MOST_SCALARS)

    def data(self) -> None:
        self.code.place(self.pool)
        for bits in self.constants:
            self.code.data(struct.pack("<I", bits) * LANES)

    # ── instructions ─────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, n: int, w: Word) -> None:
        """Write an instruction. Its result may have the register of an operand that no later one needs."""
        code = self.code
        if w.kind in ("const", "scalar"):
            at = self.constants.index(w.number) if w.kind == "const" else w.number
            self.places[n] = Memory(CONSTANTS if w.kind == "const" else RSP, BYTES * at)
            return
        operands = [self.places[x] for x in w.operands]
        last = [self.places[x] for x in set(w.operands) if self.last_use[x] == n]
        self.free += [place for place in last if isinstance(place, Vector)]
        if w.kind == "store":
            self._store(w, self._in_register(operands[0]))
            return
        self.places[n] = to = self.free.pop()
        if w.dtype is not None:
            name = "vmovups" if w.dtype.size == 4 else _LOADS[f"{w.dtype.kind}{w.dtype.size}"]
            code.vector(name, to, self._element(w))
        elif w.kind in SHIFTS:
            code.shift_lanes(w.kind, to, self._in_register(operands[0]), w.number)
        else:
            first = [self._in_register(operands[0])] if len(operands) > 1 else []
            number = w.number if w.kind in WITH_NUMBER else None
            if w.kind == "vblendvps":
                mask = operands.pop()
                assert isinstance(mask, Vector)
                number = mask.number << 4
            code.vector(w.kind, to, *first, operands[-1], number=number)
        if n not in self.last_use:
            self.free.append(to)

    def _in_register(self, place: Vector | Memory) -> Vector:
        if isinstance(place, Vector):
            return place
        self.code.vector("vmovups", _SPARE, place)
        return _SPARE

    def _element(self, w: Word) -> Memory:
        assert w.dtype is not None
        return Memory(AT[w.number], 0, RAX, w.dtype.size)

    def _store(self, w: Word, value: Vector) -> None:
        """Store the low bytes of elements; the upper ones are 0 if the type is narrow, whatever its sign."""
        code, to = self.code, self._element(w)
        assert w.dtype is not None
        if w.dtype.size == 4:
            code.vector("store", value, to)
            return
        half = XMM[0 if value.number else 1]
        code.vector("vextracti128", value, half, number=1)
        code.vector("vpackusdw", half, XMM[value.number], half)
        if w.dtype.size == 1:
            code.vector("vpackuswb", half, half, half)
        code.vector("store half" if w.dtype.size == 1 else "store", half, to)
