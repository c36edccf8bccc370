"""Element types of tensors: their ONNX codes, and how the engine stores each.

Types of less than one byte (int4, uint4, int2, uint2, float4e2m1) take one byte an element, sign-extended if signed.
They are packed only in model files, at the API, and in large weights of 2 and 4 bits (frontend/packed_weights.py).
float8 and float4 are stored as bit patterns.

Spec: TensorProto.DataType of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One of `ALL`, compared by identity.

    name: ONNX spelling in lower case
    code: TensorProto.DataType
    size: bytes of an element as the engine stores it (0: not in linear memory)
    bits: bits of an element in a model file
    kind: f float, i signed, u unsigned, b bool, s string, c complex
    """

    name: str
    code: int
    size: int
    bits: int
    kind: str

    def __repr__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "iu"


F32 = DType("float32", 1, 4, 32, "f")
U8 = DType("uint8", 2, 1, 8, "u")
I8 = DType("int8", 3, 1, 8, "i")
U16 = DType("uint16", 4, 2, 16, "u")
I16 = DType("int16", 5, 2, 16, "i")
I32 = DType("int32", 6, 4, 32, "i")
I64 = DType("int64", 7, 8, 64, "i")
STRING = DType("string", 8, 0, 0, "s")
BOOL = DType("bool", 9, 1, 8, "b")
F16 = DType("float16", 10, 2, 16, "f")
F64 = DType("float64", 11, 8, 64, "f")
U32 = DType("uint32", 12, 4, 32, "u")
U64 = DType("uint64", 13, 8, 64, "u")
C64 = DType("complex64", 14, 8, 64, "c")
C128 = DType("complex128", 15, 16, 128, "c")
BF16 = DType("bfloat16", 16, 2, 16, "f")
F8E4M3FN = DType("float8e4m3fn", 17, 1, 8, "f")
F8E4M3FNUZ = DType("float8e4m3fnuz", 18, 1, 8, "f")
F8E5M2 = DType("float8e5m2", 19, 1, 8, "f")
F8E5M2FNUZ = DType("float8e5m2fnuz", 20, 1, 8, "f")
U4 = DType("uint4", 21, 1, 4, "u")
I4 = DType("int4", 22, 1, 4, "i")
F4E2M1 = DType("float4e2m1", 23, 1, 4, "f")
F8E8M0 = DType("float8e8m0", 24, 1, 8, "f")
U2 = DType("uint2", 25, 1, 2, "u")
I2 = DType("int2", 26, 1, 2, "i")
F6E2M3 = DType("float6e2m3", 27, 1, 6, "f")
F6E3M2 = DType("float6e3m2", 28, 1, 6, "f")

ALL = (F32, U8, I8, U16, I16, I32, I64, STRING, BOOL, F16, F64, U32, U64, C64, C128, BF16, F8E4M3FN, F8E4M3FNUZ,
       F8E5M2, F8E5M2FNUZ, U4, I4, F4E2M1, F8E8M0, U2, I2, F6E2M3, F6E3M2)  # fmt: skip
FLOAT8 = frozenset({F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0})
BY_CODE = {d.code: d for d in ALL}
BY_NAME = {d.name: d for d in ALL}


def bounds(d: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer or bool type."""
    if d.kind == "b":
        return 0, 1
    if d.kind == "u":
        return 0, (1 << d.bits) - 1
    return -(1 << (d.bits - 1)), (1 << (d.bits - 1)) - 1
