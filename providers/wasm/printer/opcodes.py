"""The WebAssembly instruction set as tables from text-format names to bytes.

PLAIN   instructions without an immediate: the whole encoding (zero immediates such as a memory index are included)
MEMORY  instructions with a memory argument: opcode and the natural alignment; the offset follows
LANE    instructions with one lane index: opcode; the index byte follows
LANE_MEMORY  memory argument and then a lane index: opcode and the natural alignment
OPERANDS the number of values an instruction pops, without those of control, of threads and of whole memories

In the strings below "name:n" pops n values, other names pop the number that `_run` gets (two by default).
Covered: the MVP, sign extension, saturating float-to-int, bulk memory (copy, fill), SIMD128, relaxed SIMD, threads.
Spec: https://webassembly.github.io/spec/core/binary/instructions.html
"""

from __future__ import annotations

VALUE_TYPES = {"i32": 0x7F, "i64": 0x7E, "f32": 0x7D, "f64": 0x7C, "v128": 0x7B}


def leb_u(n: int) -> bytes:
    """Unsigned LEB128."""
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def leb_s(n: int) -> bytes:
    """Signed LEB128."""
    out = bytearray()
    while not -64 <= n < 64:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n & 127)
    return bytes(out)


OPERANDS: dict[str, int] = {"select": 3, "i8x16.shuffle": 2}


def _run(start: int, names: str, prefix: int = 0, operands: int = 2) -> dict[str, bytes]:
    """Consecutive opcodes from `start`; "-" skips one."""
    head = bytes([prefix]) if prefix else b""
    table = {}
    for code, word in enumerate(names.split(), start):
        name, _, count = word.partition(":")
        if name != "-":
            OPERANDS[name] = int(count or operands)
            table[name] = head + (leb_u(code) if prefix else bytes([code]))
    return table


def _each(kinds: str, names: str) -> str:
    return " ".join(f"{kind}.{name}" for kind in kinds.split() for name in names.split())


_ICMP = "eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u"
_FCMP = "eq ne lt gt le ge"
_IARITH = "clz:1 ctz:1 popcnt:1 add sub mul div_s div_u rem_s rem_u and or xor shl shr_s shr_u rotl rotr"
_FARITH = "abs:1 neg:1 ceil:1 floor:1 trunc:1 nearest:1 sqrt:1 add sub mul div min max copysign"
_TRUNC = "_f32_s _f32_u _f64_s _f64_u"
_CONVERSIONS = """i32.wrap_i64 i32.trunc_f32_s i32.trunc_f32_u i32.trunc_f64_s i32.trunc_f64_u i64.extend_i32_s
 i64.extend_i32_u i64.trunc_f32_s i64.trunc_f32_u i64.trunc_f64_s i64.trunc_f64_u f32.convert_i32_s f32.convert_i32_u
 f32.convert_i64_s f32.convert_i64_u f32.demote_f64 f64.convert_i32_s f64.convert_i32_u f64.convert_i64_s
 f64.convert_i64_u f64.promote_f32 i32.reinterpret_f32 i64.reinterpret_f64 f32.reinterpret_i32 f64.reinterpret_i64
 i32.extend8_s i32.extend16_s i64.extend8_s i64.extend16_s i64.extend32_s"""


def _saturating() -> str:
    return " ".join(f"{t}.trunc_sat{s}" for t in ("i32", "i64") for s in _TRUNC.split())


def _simd_plain() -> dict[str, bytes]:
    def simd(start: int, names: str) -> dict[str, bytes]:
        return _run(start, names, 0xFD)

    def wide(to: str, what: str, source: str, operands: int) -> str:
        return " ".join(f"{to}.{what}_{part}_{source}_{s}:{operands}" for s in "su" for part in ("low", "high"))

    table = simd(0x0E, "i8x16.swizzle " + _each("i8x16 i16x8 i32x4 i64x2 f32x4 f64x2", "splat:1"))
    table |= simd(0x23, _each("i8x16 i16x8 i32x4", _ICMP) + " " + _each("f32x4 f64x2", _FCMP))
    table |= simd(0x4D, _each("v128", "not:1 and andnot or xor bitselect:3 any_true:1"))
    table |= simd(0x5E, "f32x4.demote_f64x2_zero:1 f64x2.promote_low_f32x4:1")
    table |= simd(0x60, _each("i8x16", "abs:1 neg:1 popcnt:1 all_true:1 bitmask:1 narrow_i16x8_s narrow_i16x8_u"))
    table |= simd(0x67, _each("f32x4", "ceil:1 floor:1 trunc:1 nearest:1"))
    sums = "shl shr_s shr_u add add_sat_s add_sat_u sub sub_sat_s sub_sat_u"
    table |= simd(0x6B, _each("i8x16", sums) + " f64x2.ceil:1 f64x2.floor:1")
    table |= simd(0x76, _each("i8x16", "min_s min_u max_s max_u") + " f64x2.trunc:1 i8x16.avgr_u")
    table |= simd(0x7C, _each("i16x8", "extadd_pairwise_i8x16_s:1 extadd_pairwise_i8x16_u:1"))
    table |= simd(0x7E, _each("i32x4", "extadd_pairwise_i16x8_s:1 extadd_pairwise_i16x8_u:1"))
    table |= simd(0x80, _each("i16x8", "abs:1 neg:1 q15mulr_sat_s all_true:1 bitmask:1 narrow_i32x4_s narrow_i32x4_u"))
    table |= simd(0x87, wide("i16x8", "extend", "i8x16", 1) + " " + _each("i16x8", sums))
    table |= simd(0x94, "f64x2.nearest:1 " + _each("i16x8", "mul min_s min_u max_s max_u") + " - i16x8.avgr_u")
    table |= simd(0x9C, wide("i16x8", "extmul", "i8x16", 2))
    for start, kind, half in ((0xA0, "i32x4", "i16x8"), (0xC0, "i64x2", "i32x4")):
        table |= simd(start, f"{kind}.abs:1 {kind}.neg:1 - {kind}.all_true:1 {kind}.bitmask:1")
        table |= simd(start + 7, wide(kind, "extend", half, 1))
        table |= simd(start + 11, _each(kind, "shl shr_s shr_u add") + f" - - {kind}.sub - - - {kind}.mul")
        table |= simd(start + 28, wide(kind, "extmul", half, 2))
    table |= simd(0xB6, _each("i32x4", "min_s min_u max_s max_u dot_i16x8_s"))
    table |= simd(0xD6, _each("i64x2", "eq ne lt_s gt_s le_s ge_s"))
    for start, kind in ((0xE0, "f32x4"), (0xEC, "f64x2")):
        table |= simd(start, f"{kind}.abs:1 {kind}.neg:1 - " + _each(kind, "sqrt:1 add sub mul div min max pmin pmax"))
    conversions = """i32x4.trunc_sat_f32x4_s i32x4.trunc_sat_f32x4_u f32x4.convert_i32x4_s f32x4.convert_i32x4_u
        i32x4.trunc_sat_f64x2_s_zero i32x4.trunc_sat_f64x2_u_zero f64x2.convert_low_i32x4_s f64x2.convert_low_i32x4_u"""
    return table | _run(0xF8, conversions, 0xFD, operands=1)


RELAXED = _run(0x100, """i8x16.relaxed_swizzle i32x4.relaxed_trunc_f32x4_s:1 i32x4.relaxed_trunc_f32x4_u:1
 i32x4.relaxed_trunc_f64x2_s_zero:1 i32x4.relaxed_trunc_f64x2_u_zero:1 f32x4.relaxed_madd:3 f32x4.relaxed_nmadd:3
 f64x2.relaxed_madd:3 f64x2.relaxed_nmadd:3 i8x16.relaxed_laneselect:3 i16x8.relaxed_laneselect:3
 i32x4.relaxed_laneselect:3 i64x2.relaxed_laneselect:3 f32x4.relaxed_min f32x4.relaxed_max f64x2.relaxed_min
 f64x2.relaxed_max i16x8.relaxed_q15mulr_s i16x8.relaxed_dot_i8x16_i7x16_s
 i32x4.relaxed_dot_i8x16_i7x16_add_s:3""", 0xFD)  # fmt: skip

PLAIN: dict[str, bytes] = (
    {"unreachable": b"\x00", "nop": b"\x01", "else": b"\x05", "end": b"\x0b", "return": b"\x0f"}
    | {"drop": b"\x1a", "select": b"\x1b", "memory.size": b"\x3f\0", "memory.grow": b"\x40\0"}
    | {"memory.copy": b"\xfc\x0a\0\0", "memory.fill": b"\xfc\x0b\0", "atomic.fence": b"\xfe\x03\0"}
    | _run(0x45, f"i32.eqz:1 {_each('i32', _ICMP)} i64.eqz:1 {_each('i64', _ICMP)} {_each('f32 f64', _FCMP)}")
    | _run(0x67, f"{_each('i32 i64', _IARITH)} {_each('f32 f64', _FARITH)}")
    | _run(0xA7, _CONVERSIONS, operands=1)
    | _run(0, _saturating(), 0xFC, operands=1)
    | _simd_plain()
    | RELAXED
)

_LANES = """i8x16.extract_lane_s i8x16.extract_lane_u i8x16.replace_lane:2 i16x8.extract_lane_s
 i16x8.extract_lane_u i16x8.replace_lane:2 i32x4.extract_lane i32x4.replace_lane:2 i64x2.extract_lane
 i64x2.replace_lane:2 f32x4.extract_lane f32x4.replace_lane:2 f64x2.extract_lane f64x2.replace_lane:2"""
LANE: dict[str, bytes] = _run(0x15, _LANES, 0xFD, operands=1)


def _aligned(table: dict[str, bytes], aligns: str) -> dict[str, bytes]:
    return {name: code + bytes([int(a)]) for (name, code), a in zip(table.items(), aligns, strict=True)}


_ATOMIC_WIDTHS = (("i32", "", 2), ("i64", "", 3), ("i32", "8_u", 0), ("i32", "16_u", 1), ("i64", "8_u", 0),
                  ("i64", "16_u", 1), ("i64", "32_u", 2))  # fmt: skip


def _atomics() -> dict[str, bytes]:
    names = ["memory.atomic.notify", "memory.atomic.wait32", "memory.atomic.wait64"]
    table = {name: bytes([0xFE, i, a]) for i, (name, a) in enumerate(zip(names, (2, 2, 3), strict=True))}
    code = 0x10
    for what in ("load", "store", "add", "sub", "and", "or", "xor", "xchg", "cmpxchg"):
        for kind, width, align in _ATOMIC_WIDTHS:
            if what in ("load", "store"):
                name = f"{kind}.atomic.{what}{width.replace('_u', '') if what == 'store' else width}"
            else:
                name = f"{kind}.atomic.rmw{width.replace('_u', '')}.{what}{'_u' if width else ''}"
            table[name] = bytes([0xFE, code, align])
            code += 1
    return table


ATOMIC = _atomics()
_SCALAR_ACCESS = """i32.load i64.load f32.load f64.load i32.load8_s i32.load8_u i32.load16_s i32.load16_u i64.load8_s
 i64.load8_u i64.load16_s i64.load16_u i64.load32_s i64.load32_u i32.store:2 i64.store:2 f32.store:2 f64.store:2
 i32.store8:2 i32.store16:2 i64.store8:2 i64.store16:2 i64.store32:2"""
_VECTOR_ACCESS = """v128.load v128.load8x8_s v128.load8x8_u v128.load16x4_s v128.load16x4_u v128.load32x2_s
 v128.load32x2_u v128.load8_splat v128.load16_splat v128.load32_splat v128.load64_splat v128.store:2"""
MEMORY: dict[str, bytes] = (
    _aligned(_run(0x28, _SCALAR_ACCESS, operands=1), "23230011001122232301012")
    | _aligned(_run(0, _VECTOR_ACCESS, 0xFD, 1), "433333301234")
    | _aligned(_run(0x5C, "v128.load32_zero v128.load64_zero", 0xFD, 1), "23")
    | ATOMIC
)
_LANE_ACCESS = """v128.load8_lane v128.load16_lane v128.load32_lane v128.load64_lane v128.store8_lane
 v128.store16_lane v128.store32_lane v128.store64_lane"""
LANE_MEMORY: dict[str, bytes] = _aligned(_run(0x54, _LANE_ACCESS, 0xFD), "01230123")
