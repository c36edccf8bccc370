"""Loads of float32, or of half floats that are converted to float32."""

from __future__ import annotations

import struct

from ..printer.assembler import Function

# masks of sign and digits, the exponent of infinities and NaN, and the bits that this exponent has only in a float
HALF_WORDS = (0x8FFFFFFF, 0x0F800000, 0x70000000)
REBIAS = 2.0**112


class FloatLoads:
    """Emits loads in one function. Constructed before its loops, because V8 materialises a constant at each use."""

    def __init__(self, f: Function, half: bool) -> None:
        self.f, self.half, self.size = f, half, 2 if half else 4
        self._constants = f.locals("v128", len(HALF_WORDS) + 2 if half else 0)
        if half:
            for to, word in zip(self._constants, HALF_WORDS, strict=False):
                f.v128(struct.pack("<I", word) * 4).set(to)
            f.f32x4(REBIAS).set(self._constants[-2])

    def four(self, at: int, n: int = 0) -> Function:
        """Push four elements, from the n-th on."""
        if self.half:
            return self._floats(self.f.emit(at).mem("v128.load16x4_s", 2 * n))
        return self.f.emit(at).mem("v128.load", 4 * n)

    def one(self, at: int) -> Function:
        """Push the first element and three zeros."""
        f = self.f
        if not self.half:
            return f.emit(at).mem("v128.load32_zero")
        f.emit(at).i32x4(0).mem_lane("v128.load16_lane", 0)
        return self._floats(f.emit("i32x4.extend_low_i16x8_s"))

    def _floats(self, f: Function) -> Function:
        """Convert four int32 with the bits of half floats; infinities and NaN stay."""
        digits, special, more, rebias, x = self._constants
        f.i32(13).emit("i32x4.shl", digits, "v128.and").tee(x)
        f.emit(x, special, "v128.and", special, "i32x4.eq", more, "v128.and", "v128.or")
        return f.emit(rebias, "f32x4.mul")
