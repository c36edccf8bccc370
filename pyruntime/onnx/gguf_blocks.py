"""The blocks of GGUF's tensors as codes, scales and zero points: the parts that MatMulNBits reads.

An element is (code - zero point) · scale. Blocks of 256 elements ("K") hold smaller groups, whose scales and minima are
codes, too. Source of the layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h, whose comments
describe them, and ggml-quants.c beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyruntime.ir.dtype import BF16, F16, F32, F64, I8, I16, I32, I64, U32, DType
from pyruntime.ir.expr import Expr, bitcast, cast, select

Byte = Callable[[Expr | int], Expr]  # a byte of a block as int32, by its place


@dataclass(frozen=True, slots=True)
class Block:
    """size: elements of a block; bytes: of a block; bits: of a code; group: elements that share a scale

    code: the code of element k of a block; scale: the scale of group g; minimum: what is subtracted from each element
    of group g, None where the zero point is 2^(bits-1)"""

    size: int
    bytes: int
    bits: int
    group: int
    code: Callable[[Byte, Expr], Expr]
    scale: Callable[[Byte, Expr], Expr]
    minimum: Callable[[Byte, Expr], Expr] | None = None


def half(byte: Byte, at: int) -> Expr:
    """The float32 value of a finite float16 number, whose low byte is at `at`."""
    bits = byte(at) | (byte(at + 1) << 8)
    # The exponent and mantissa of a half in the place of a float's are too small by 2^112; the product is exact for
    # subnormal halves, too, because their bits are normal floats after the shift of the exponent's offset.
    size, mantissa = bits & 0x7FFF, bits & 0x3FF
    normal = bitcast(cast((size << 13) + (112 << 23), U32), F32)
    value = select(size < 0x400, cast(mantissa, F32) * 2.0**-24, normal)
    return select(bits > 0x7FFF, -value, value)


def _nibble(byte: Byte, at: Expr | int, k: Expr) -> Expr:
    """4 bits of element k of 32: those of the first half of the elements are in the low bits of 16 bytes."""
    return (byte((k & 15) + at) >> (((k >> 4) & 1) * 4)) & 15


def _fifth(byte: Byte, at: int, k: Expr) -> Expr:
    """Bit k of the four bytes at `at`, as the fifth bit of a code."""
    return ((byte((k >> 3) + at) >> (k & 7)) & 1) << 4


# ── blocks of 32 ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _first(byte: Byte, _: Expr) -> Expr:
    return half(byte, 0)


def _second(byte: Byte, _: Expr) -> Expr:
    return -half(byte, 2)


# ── blocks of 256 ────────────────────────────────────────────────────────────────────────────────────────────────────


def _six_bits(byte: Byte, at: int, g: Expr, low: int) -> Expr:
    """The scale (low 0) or minimum (low 4) of group g of eight. Twelve bytes hold sixteen numbers of six bits: the
    first four scales and minima in the low bits of eight bytes, whose high bits belong to the last four."""
    j = g & 3
    first = byte(j + (at + low)) & 63
    nibble = (byte(j + (at + 8)) >> low) & 15
    later = nibble | ((byte(j + (at + low)) >> 6) << 4)
    return select(g < 4, first, later)


def _k_scale(byte: Byte, g: Expr) -> Expr:
    return half(byte, 0) * cast(_six_bits(byte, 4, g, 0), F32)


def _k_minimum(byte: Byte, g: Expr) -> Expr:
    return half(byte, 2) * cast(_six_bits(byte, 4, g, 4), F32)


def _pair_nibble(byte: Byte, at: int, k: Expr) -> Expr:
    """4 bits of element k of 256: each 32 bytes hold 64 elements, the first 32 in the low bits."""
    return (byte((k >> 6) * 32 + (k & 31) + at) >> (((k >> 5) & 1) * 4)) & 15


def _q5_k(byte: Byte, k: Expr) -> Expr:
    high = (byte((k & 31) + 16) >> (k >> 5)) & 1
    return _pair_nibble(byte, 48, k) | (high << 4)


def _q6_k(byte: Byte, k: Expr) -> Expr:
    side, quarter, place = k >> 7, (k >> 5) & 3, k & 31
    low = (byte(side * 64 + (quarter & 1) * 32 + place) >> ((quarter >> 1) * 4)) & 15
    return low | (((byte(side * 32 + place + 128) >> (quarter * 2)) & 3) << 4)


def _signed(x: Expr) -> Expr:
    return (x << 24) >> 24


def _q6_scale(byte: Byte, g: Expr) -> Expr:
    return half(byte, 208) * cast(_signed(byte(g + 192)), F32)


def _two_bits(byte: Byte, at: int, k: Expr) -> Expr:
    """2 bits of element k of 256: 32 bytes hold 128 elements, 32 in each pair of bits."""
    return (byte((k >> 7) * 32 + (k & 31) + at) >> (((k >> 5) & 3) * 2)) & 3


def _q3_k(byte: Byte, k: Expr) -> Expr:
    return _two_bits(byte, 32, k) | (((byte(k & 31) >> (k >> 5)) & 1) << 2)


def _q3_scale(byte: Byte, g: Expr) -> Expr:
    low = (byte((g & 7) + 96) >> ((g >> 3) * 4)) & 15
    high = (byte((g & 3) + 104) >> ((g >> 2) * 2)) & 3
    return half(byte, 108) * cast((low | (high << 4)) - 32, F32)


BLOCKS: dict[int, Block] = {
    2: Block(32, 18, 4, 32, lambda b, k: _nibble(b, 2, k), _first),
    3: Block(32, 20, 4, 32, lambda b, k: _nibble(b, 4, k), _first, _second),
    6: Block(32, 22, 5, 32, lambda b, k: _nibble(b, 6, k) | _fifth(b, 2, k), _first),
    7: Block(32, 24, 5, 32, lambda b, k: _nibble(b, 8, k) | _fifth(b, 4, k), _first, _second),
    8: Block(32, 34, 8, 32, lambda b, k: _signed(b(k + 2)) + 128, _first),
    10: Block(
        256, 84, 2, 16, lambda b, k: _two_bits(b, 16, k),
        lambda b, g: half(b, 80) * cast(b(g) & 15, F32), lambda b, g: half(b, 82) * cast(b(g) >> 4, F32),
    ),
    11: Block(256, 110, 3, 16, _q3_k, _q3_scale),
    12: Block(256, 144, 4, 32, lambda b, k: _pair_nibble(b, 16, k), _k_scale, _k_minimum),
    13: Block(256, 176, 5, 32, _q5_k, _k_scale, _k_minimum),
    14: Block(256, 210, 6, 16, _q6_k, _q6_scale),
}  # fmt: skip
PLAIN: dict[int, DType] = {0: F32, 1: F16, 24: I8, 25: I16, 26: I32, 27: I64, 28: F64, 30: BF16}
_BLOCK_NAMES = {
    2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K",
}  # fmt: skip
# Types that are known by name and size, so that errors can name them: elements and bytes of a block.
_UNREAD = {
    9: ("Q8_1", 32, 40), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 29: ("IQ1_M", 256, 56), 34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip
NAMES = _BLOCK_NAMES | {kind: dtype.name for kind, dtype in PLAIN.items()} | {k: v[0] for k, v in _UNREAD.items()}


def bytes_of(kind: int) -> tuple[int, int]:
    """Elements and bytes of a block of a type."""
    if kind in PLAIN:
        return 1, PLAIN[kind].bits // 8
    return (BLOCKS[kind].size, BLOCKS[kind].bytes) if kind in BLOCKS else _UNREAD[kind][1:]
