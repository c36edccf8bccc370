"""An encoder of the x86-64 instructions that tiles use (Intel 64 and IA-32 Architectures Software Developer's Manual,
volume 2).

    code = Assembler()
    code.op("mov", RAX, Memory(RDI, 8))                  # rax = the eight bytes at rdi + 8
    code.vector("vaddps", ZMM[2], ZMM[1], Memory(RAX))   # the destination is the first operand
    code.ret()
    code.to_bytes()

General registers are numbers, vector registers have a width. AVX's form is used where it can encode the operands, and
AVX-512's for registers of 512 bits, registers from 16 on, masks and broadcasts.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

GENERAL = range(16)
RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 = GENERAL


class Memory(NamedTuple):
    """The operand at base + factor * scale + offset. scale: 1, 2, 4 or 8. splat: its four bytes are an element of a
    vector, which all elements get (AVX-512)"""

    base: int
    offset: int = 0
    factor: int | None = None
    scale: int = 1
    splat: bool = False


class Vector(NamedTuple):
    """A vector register. mask: for AVX-512, the number of the mask register of the elements that are written; the
    others become 0 in a register and do not change in memory."""

    number: int
    bits: int
    mask: int = 0

    def masked(self, mask: int) -> Vector:
        return self._replace(mask=mask)


XMM, YMM, ZMM = (tuple(Vector(n, bits) for n in range(32)) for bits in (128, 256, 512))


class Label(NamedTuple):
    """A place in the code, by its number."""

    number: int


# A register, and a register or memory
_OPERATIONS = {
    "mov": b"\x8b", "store": b"\x89", "lea": b"\x8d", "add": b"\x03", "or": b"\x0b", "and": b"\x23", "sub": b"\x2b",
    "cmp": b"\x3b", "imul": b"\x0f\xaf", "xchg": b"\x87", "cmova": b"\x0f\x47", "cmovle": b"\x0f\x4e",
}  # fmt: skip
_WITH_CONSTANT = {"add": 0, "or": 1, "and": 4, "sub": 5, "cmp": 7}
_SHIFTS = {"shl": 4, "shr": 5}
# Opcodes and their extensions
_LANE_SHIFTS = {"vpsrlw": (0x71, 2), "vpsrld": (0x72, 2), "vpsrad": (0x72, 4), "vpslld": (0x72, 6)}
_CONDITIONS = {"b": 2, "ae": 3, "e": 4, "ne": 5, "be": 6, "a": 7, "s": 8, "l": 12, "ge": 13, "le": 14, "g": 15}


class _Form(NamedTuple):
    """prefix: 0 none, 1 66, 2 F3, 3 F2; table: of opcodes, 1 0F, 2 0F38, 3 0F3A; element: bytes of a memory operand, 0
    if those of the vector; stores: whether the register is the source"""

    prefix: int
    table: int
    opcode: int
    wide: int = 0
    element: int = 0
    stores: bool = False


_VECTORS = {
    "vmovups": _Form(0, 1, 0x10),
    "store": _Form(0, 1, 0x11, stores=True),
    "vaddps": _Form(0, 1, 0x58),
    "vsubps": _Form(0, 1, 0x5C),
    "vdivps": _Form(0, 1, 0x5E),
    "vsqrtps": _Form(0, 1, 0x51),
    "vcmpps": _Form(0, 1, 0xC2),  # AVX
    "vroundps": _Form(1, 3, 0x08),  # AVX
    "vblendvps": _Form(1, 3, 0x4A),  # AVX; the number is 16 times that of the mask's register
    "vminps": _Form(0, 1, 0x5D),
    "vmaxps": _Form(0, 1, 0x5F),
    "vxorps": _Form(0, 1, 0x57),
    "vpxord": _Form(1, 1, 0xEF),  # AVX-512
    "vpaddd": _Form(1, 1, 0xFE),
    "vpmaddwd": _Form(1, 1, 0xF5),
    "vpsubd": _Form(1, 1, 0xFA),
    "vpmulld": _Form(1, 2, 0x40),
    "vpminsd": _Form(1, 2, 0x39),
    "vpmaxsd": _Form(1, 2, 0x3D),
    "vpcmpeqd": _Form(1, 1, 0x76),
    "vpand": _Form(1, 1, 0xDB),
    "vpor": _Form(1, 1, 0xEB),
    "vpxor": _Form(1, 1, 0xEF),
    "vmulps": _Form(0, 1, 0x59),
    "vcvtdq2ps": _Form(0, 1, 0x5B),
    "vcvttps2dq": _Form(2, 1, 0x5B),
    "vpackusdw": _Form(1, 2, 0x2B),
    "vpackuswb": _Form(1, 1, 0x67),
    "vextracti128": _Form(1, 3, 0x39, stores=True),
    "store half": _Form(1, 1, 0xD6, stores=True),  # vmovq to memory
    "vpmovsxbd": _Form(1, 2, 0x21),
    "vpmovzxbd": _Form(1, 2, 0x31),
    "vpmovsxwd": _Form(1, 2, 0x23),
    "vpmovzxwd": _Form(1, 2, 0x33),
    "vpmovsxbw": _Form(1, 2, 0x20),
    "vpmovzxbw": _Form(1, 2, 0x30),
    "vpdpbusd": _Form(1, 2, 0x50),  # AVX-512 VNNI
    "vpdpwssd": _Form(1, 2, 0x52),  # AVX-512 VNNI
    "vbroadcastss": _Form(1, 2, 0x18, element=4),
    "vfmadd231ps": _Form(1, 2, 0xB8),
    "vmaskmovps": _Form(1, 2, 0x2C),  # AVX
    "mask store": _Form(1, 2, 0x2E, stores=True),  # AVX: vmaskmovps to memory
    "vpcmpgtd": _Form(1, 1, 0x66),  # with vectors of 512 bits, the destination is a mask register
    "vshufps": _Form(0, 1, 0xC6),
    "vpermpd": _Form(1, 3, 0x01, wide=1),
    "vpermt2ps": _Form(1, 2, 0x7F),  # AVX-512
    "vinsertf64x4": _Form(1, 3, 0x1A, wide=1, element=32),  # AVX-512
    "vinserti128": _Form(1, 3, 0x38),  # AVX
}


class Assembler:
    def __init__(self) -> None:
        self._code = bytearray()
        self._places: list[int | None] = []  # of labels
        self._uses: list[tuple[int, Label]] = []  # places of four bytes, relative to their end

    def to_bytes(self) -> bytes:
        for at, label in self._uses:
            place = self._places[label.number]
            assert place is not None, "a label without a place"
            struct.pack_into("<i", self._code, at, place - at - 4)
        return bytes(self._code)

    # labels

    def label(self) -> Label:
        self._places.append(None)
        return Label(len(self._places) - 1)

    def place(self, label: Label) -> None:
        """Place the label at the end of the code so far."""
        self._places[label.number] = len(self._code)

    def here(self) -> Label:
        label = self.label()
        self.place(label)
        return label

    def _use(self, label: Label) -> None:
        self._uses.append((len(self._code), label))
        self._code += bytes(4)

    def jump(self, to: Label, condition: str = "") -> None:
        """Jump, after a comparison if a condition holds: b, ae, a, be (unsigned), l, ge, g, le (signed), e, ne, s."""
        self._code += bytes([0x0F, 0x80 | _CONDITIONS[condition]]) if condition else b"\xe9"
        self._use(to)

    def call(self, to: Label) -> None:
        self._code += b"\xe8"
        self._use(to)

    def address(self, register: int, of: Label) -> None:
        """lea of a place in the code."""
        self._code += bytes([0x48 | register >> 3 << 2, 0x8D, (register & 7) << 3 | 5])
        self._use(of)

    def data(self, data: bytes) -> None:
        self._code += data

    # integers

    def op(self, name: str, register: int, other: int | Memory, wide: bool = True) -> None:
        """An instruction with a register, its destination unless it is a store or comparison, and a register or memory;
        wide: of 64 bits, otherwise of 32, and the upper half of the destination becomes 0."""
        self._rex(wide, register, other)
        self._code += _OPERATIONS[name]
        self._operand(register, other)

    def constant(self, name: str, operand: int | Memory, value: int, wide: bool = True) -> None:
        """An instruction with a register or memory, and a signed constant of 32 bits: add, or, and, sub, cmp, mov."""
        self._rex(wide, 0, operand)
        if name == "mov":
            self._code += b"\xc7"
            self._operand(0, operand)
            self._code += struct.pack("<i", value)
        else:
            short = -128 <= value < 128
            self._code += b"\x83" if short else b"\x81"
            self._operand(_WITH_CONSTANT[name], operand)
            self._code += struct.pack("<b" if short else "<i", value)

    def test(self, operand: Memory, value: int) -> None:
        """Compare bits of 32 at an address with 0."""
        self._rex(False, 0, operand)
        self._code += b"\xf7"
        self._operand(0, operand)
        self._code += struct.pack("<I", value)

    def shift(self, name: str, register: int, count: int, wide: bool = True) -> None:
        self._rex(wide, 0, register)
        self._code += b"\xc1"
        self._operand(_SHIFTS[name], register)
        self._code.append(count)

    def push(self, register: int) -> None:
        self._rex(False, 0, register)
        self._code.append(0x50 | register & 7)

    def pop(self, register: int) -> None:
        self._rex(False, 0, register)
        self._code.append(0x58 | register & 7)

    def ret(self) -> None:
        self._code += b"\xc3"

    def prefetch_to_write(self, at: Memory) -> None:
        """prefetchw: load a cache line that will be written; the address may be any."""
        self._rex(False, 1, at)
        self._code += b"\x0f\x0d"
        self._operand(1, at)

    def cpuid(self) -> None:
        self._code += b"\x0f\xa2"

    def xgetbv(self) -> None:
        self._code += b"\x0f\x01\xd0"

    def bzhi(self, register: int, other: int, count: int) -> None:
        """register = the low bits of `other`, so many as the register `count` says; 32 bits, and the others are 0."""
        self._vex(_Form(0, 2, 0xF5), register, count, other, 128)
        self._code.append(0xF5)
        self._operand(register, other)

    def _rex(self, wide: bool, register: int, other: int | Memory) -> None:
        index, base = _extension(other)
        prefix = 0x40 | wide << 3 | register >> 3 << 2 | index << 1 | base
        if prefix != 0x40:
            self._code.append(prefix)

    # vectors

    def vector(self, name: str, register: Vector, *others: Vector | Memory, number: int | None = None) -> None:
        """A vector instruction: the register, its destination unless it stores, then the others. number: a constant"""
        form = _VECTORS[name]
        second = others[0].number if len(others) == 2 and isinstance(others[0], Vector) else 0
        other = others[-1]
        operand = other if isinstance(other, Memory) else other.number
        splat = isinstance(other, Memory) and other.splat
        high = isinstance(other, Vector) and other.number > 15
        element = 1
        if register.bits == 512 or register.mask or splat or high or max(register.number, second) > 15:
            self._evex(form, register, second, operand, splat)
            element = 4 if splat else form.element or register.bits // 8
        else:
            self._vex(form, register.number, second, operand, register.bits)
        self._code.append(form.opcode)
        self._operand(register.number & 7, operand if isinstance(operand, Memory) else operand & 7, element)
        if number is not None:
            self._code.append(number)

    def shift_lanes(self, name: str, to: Vector, source: Vector, count: int) -> None:
        """Shift the elements of a vector, in registers below 16."""
        opcode, extension = _LANE_SHIFTS[name]
        form = _Form(1, 1, opcode)
        if source.bits == 512:
            self._evex(form, Vector(extension, 512), to.number, source.number, False)
        else:
            self._vex(form, extension, to.number, source.number, source.bits)
        self._code.append(opcode)
        self._operand(extension, source.number)
        self._code.append(count)

    def mask(self, mask: int, register: int) -> None:
        """kmovw: a mask register's 16 bits from a general register."""
        self._vex(_Form(0, 1, 0x92), mask, 0, register, 128)
        self._code.append(0x92)
        self._operand(mask, register)

    def vzeroupper(self) -> None:
        self._code += b"\xc5\xf8\x77"

    def _vex(self, form: _Form, register: int, second: int, other: int | Memory, bits: int) -> None:
        index, base = _extension(other)
        right, last = (register >> 3 ^ 1) << 7, (second ^ 15) << 3 | (bits == 256) << 2 | form.prefix
        if form.table == 1 and not index | base | form.wide:
            self._code += bytes([0xC5, right | last])
        else:
            self._code += bytes([0xC4, right | (index ^ 1) << 6 | (base ^ 1) << 5 | form.table, form.wide << 7 | last])

    def _evex(self, form: _Form, register: Vector, second: int, other: int | Memory, splat: bool) -> None:
        index, base = _extension(other)
        number = register.number
        first = (number >> 3 & 1 ^ 1) << 7 | (index ^ 1) << 6 | (base ^ 1) << 5 | (number >> 4 ^ 1) << 4 | form.table
        middle = form.wide << 7 | (second & 15 ^ 15) << 3 | 4 | form.prefix
        zeroed = register.mask != 0 and not form.stores
        last = zeroed << 7 | (register.bits >> 8) << 5 | splat << 4 | (second >> 4 ^ 1) << 3 | register.mask
        self._code += bytes([0x62, first, middle, last])

    # operands

    def _operand(self, register: int, other: int | Memory, element: int = 1) -> None:
        """ModRM, SIB and displacement. element: a displacement of a byte counts so many bytes"""
        register = (register & 7) << 3
        if not isinstance(other, Memory):
            self._code.append(0xC0 | register | other & 7)
            return
        base, offset, index, scale, _ = other
        by_index = index is not None or base & 7 == RSP  # rsp's number as a base announces an index
        steps, rest = divmod(offset, element)
        if offset == 0 and base & 7 != RBP:  # rbp's number without a displacement has another meaning
            mode, displacement = 0, b""
        elif rest == 0 and -128 <= steps < 128:
            mode, displacement = 0x40, struct.pack("<b", steps)
        else:
            mode, displacement = 0x80, struct.pack("<i", offset)
        self._code.append(mode | register | (RSP if by_index else base & 7))
        if by_index:
            middle = RSP if index is None else index & 7  # rsp's number as an index: none
            self._code.append((scale.bit_length() - 1) << 6 | middle << 3 | base & 7)
        self._code += displacement


def _extension(operand: int | Memory) -> tuple[int, int]:
    """The fourth bits of an index (or the fifth of a vector register) and of a base (or the fourth of a register)."""
    if isinstance(operand, Memory):
        return (operand.factor or 0) >> 3, operand.base >> 3
    return operand >> 4, operand >> 3 & 1
