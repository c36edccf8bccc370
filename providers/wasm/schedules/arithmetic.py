"""How the sums of products in register tiles are made, four lanes at a time."""

from __future__ import annotations

from enum import Enum

from ..printer.assembler import Function


class Arithmetic(Enum):
    FLOAT = "float32: the product is rounded, then the sum"
    FUSED = "float32 with relaxed SIMD: rounded once, where the machine can"
    INT16 = "int32 sums; a step of k is a pair of int16 of each operand"

    @staticmethod
    def of_floats(relaxed: bool) -> Arithmetic:
        """The arithmetic of float32 on a host with relaxed SIMD or without."""
        return Arithmetic.FUSED if relaxed else Arithmetic.FLOAT

    def multiply_add(self, f: Function, total: int, x: int, y: int) -> None:
        """total += x * y, four lanes."""
        if self is Arithmetic.INT16:
            f.emit(x, y, "i32x4.dot_i16x8_s", total, "i32x4.add").set(total)
        elif self is Arithmetic.FUSED:
            f.emit(x, y, total, "f32x4.relaxed_madd").set(total)
        else:
            f.emit(x, y, "f32x4.mul", total, "f32x4.add").set(total)

    @property
    def add(self) -> str:
        """The instruction that adds two sums."""
        return "i32x4.add" if self is Arithmetic.INT16 else "f32x4.add"
