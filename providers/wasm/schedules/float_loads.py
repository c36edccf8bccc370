"""Loads of float32, or of half floats that are converted to float32."""

from __future__ import annotations

import struct

from ..printer.assembler import Function

# masks of sign and digits, the exponent of infinities and NaN, and the bits that this exponent has only in a float
HALF_WORDS = (0x8FFFFFFF, 0x0F800000, 0x70000000)
UPPER_WORDS = (0x8FFF8FFF, 0x0F800F80, 0x70007000)  # these of the upper 16 bits, twice
REBIAS = 2.0**112


class FloatLoads:
    """Emits loads in one function. Make it before the function's loops: it puts constants into locals, because V8 loads
    a constant again at each use.

    paired: most of a conversion works on eight upper and eight lower parts of 16 bits; best for `eight`"""

    def __init__(self, f: Function, half: bool, paired: bool = False) -> None:
        self.f, self.half, self.size, self.paired = f, half, 2 if half else 4, paired
        self._constants = f.locals("v128", len(HALF_WORDS) + 2 if half else 0)
        if half:
            for to, word in zip(self._constants, UPPER_WORDS if paired else HALF_WORDS, strict=False):
                f.v128(struct.pack("<I", word) * 4).set(to)
            f.f32x4(REBIAS).set(self._constants[-2])

    def eight(self, at: int, n: int, to: list[int]) -> None:
        """Set two locals to eight elements, from the n-th on; half floats only if `paired`."""
        if self.half:
            self._parts(self.f.emit(at).mem("v128.load", 2 * n), to[1])
        for m, local in enumerate(to):
            (self._joined(to[1], m) if self.half else self.four(at, n + 4 * m)).set(local)

    def four(self, at: int, n: int = 0) -> Function:
        """Push four elements, from the n-th on."""
        f = self.f.emit(at)
        if self.half and self.paired:
            return self._first_four(f.mem("v128.load64_zero", 2 * n))
        if self.half:
            return self._floats(f.mem("v128.load16x4_s", 2 * n))
        return f.mem("v128.load", 4 * n)

    def one(self, at: int) -> Function:
        """Push the first element and three zeros."""
        f = self.f
        if not self.half:
            return f.emit(at).mem("v128.load32_zero")
        f.emit(at).i32x4(0).mem_lane("v128.load16_lane", 0)
        return self._first_four(f) if self.paired else self._floats(f.emit("i32x4.extend_low_i16x8_s"))

    def _floats(self, f: Function) -> Function:
        """Convert four int32 with the bits of half floats; infinities and NaN stay."""
        digits, special, more, rebias, x = self._constants
        f.i32(13).emit("i32x4.shl", digits, "v128.and").tee(x)
        f.emit(x, special, "v128.and", special, "i32x4.eq", more, "v128.and", "v128.or")
        return f.emit(rebias, "f32x4.mul")

    def _first_four(self, f: Function) -> Function:
        """Convert the first four of eight half floats."""
        with f.scratch("v128", 1) as (lower,):
            self._parts(f, lower)
            return self._joined(lower, 0)

    def _parts(self, f: Function, lower: int) -> None:
        """Take eight half floats and set the parts of eight floats; the upper ones are a constant's local."""
        digits, special, more, _, upper = self._constants
        f.tee(lower).i32(3).emit("i16x8.shr_s", digits, "v128.and").tee(upper)
        f.emit(upper, special, "v128.and", special, "i16x8.eq", more, "v128.and", "v128.or").set(upper)
        f.emit(lower).i32(13).emit("i16x8.shl").set(lower)

    def _joined(self, lower: int, half: int) -> Function:
        """Push the first or the last four floats."""
        lanes = (k + part for k in range(8 * half, 8 * half + 8, 2) for part in (0, 1, 16, 17))
        return self.f.emit(lower, self._constants[-1]).shuffle(lanes).emit(self._constants[-2], "f32x4.mul")
