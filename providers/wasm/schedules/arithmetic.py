"""The multiply-add of register tiles, four lanes at a time."""

from __future__ import annotations

from enum import Enum

from ..printer.assembler import Function
from ..printer.values import V128, f32x4, i32x4


class Arithmetic(Enum):
    FLOAT = "float32: the product is rounded, then the sum"
    FUSED = "float32 with relaxed SIMD: rounded once if the processor can"
    INT16 = "int32 sums; a step of k is a pair of int16 of each operand"
    INT8 = "int32 sums; a step of k is four bytes; panels are the second operand of the relaxed dot product"
    INT8_ROWS = "like INT8, but rows are the second operand"

    @staticmethod
    def of_floats(relaxed: bool) -> Arithmetic:
        """Return the arithmetic of float32, for a host with or without relaxed SIMD."""
        return Arithmetic.FUSED if relaxed else Arithmetic.FLOAT

    @property
    def codes(self) -> int:
        """Number of k in a word; 1 for floats."""
        return {Arithmetic.INT16: 2, Arithmetic.INT8: 4, Arithmetic.INT8_ROWS: 4}.get(self, 1)

    def multiply_add(self, f: Function, total: V128, x: V128, y: V128) -> None:
        """total += x * y, four lanes."""
        if self.codes == 4 and f.module.cranelift:
            from ..printer.native_imports import multiply_bytes  # pages do not have it

            multiply_bytes(f, total, *((x, y) if self is Arithmetic.INT8 else (y, x)))
        elif self is Arithmetic.INT16:
            f.set(total, i32x4.add(i32x4.dot_i16x8_s(x, y), total))
        elif self is Arithmetic.INT8:
            f.set(total, i32x4.relaxed_dot_i8x16_i7x16_add_s(x, y, total))
        elif self is Arithmetic.INT8_ROWS:
            f.set(total, i32x4.relaxed_dot_i8x16_i7x16_add_s(y, x, total))
        elif self is Arithmetic.FUSED:
            f.set(total, f32x4.relaxed_madd(x, y, total))
        else:
            f.set(total, f32x4.add(f32x4.mul(x, y), total))

    def add(self, x: V128, y: V128) -> V128:
        """The sum of two sums."""
        return f32x4.add(x, y) if self.codes == 1 else i32x4.add(x, y)
