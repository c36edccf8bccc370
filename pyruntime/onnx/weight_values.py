"""Elements of weights in Python: decodes small tensors, and unpacks and packs sub-byte types.

Spec: TensorProto.raw_data of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
      https://onnx.ai/onnx/technical/float8.html, OCP Microscaling Formats v1.0
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from functools import cache
from math import inf, nan

from pyruntime.errors import InvalidModel, UnsupportedOp
from pyruntime.ir import dtype as dt
from pyruntime.ir.dtype import BF16, BOOL, C64, C128, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, STRING, DType
from pyruntime.onnx.graph import Weight

Element = int | float | bool | complex | bytes

_STRUCT = {
    dt.F32: "f", dt.F64: "d", dt.F16: "e", dt.I8: "b", dt.I16: "h", dt.I32: "i", dt.I64: "q",
    dt.U8: "B", dt.U16: "H", dt.U32: "I", dt.U64: "Q",
}  # fmt: skip
# exponent bits, mantissa bits, exponent bias; `small_floats` handles codes that are infinities or NaN
_SMALL = {
    F8E4M3FN: (4, 3, 7), F8E4M3FNUZ: (4, 3, 8), F8E5M2: (5, 2, 15), F8E5M2FNUZ: (5, 2, 16),
    dt.F6E2M3: (2, 3, 1), dt.F6E3M2: (3, 2, 3), dt.F4E2M1: (2, 1, 1),
}  # fmt: skip


def elements(weight: Weight) -> list[Element]:
    """The elements in row-major order: int, float, bool, complex, bytes for strings, and codes for small floats."""
    if weight.dtype is STRING:
        return list(weight.strings or ())
    data = unpack(weight)
    return list(data) if weight.dtype.is_float and weight.dtype.bits < 16 else decode(data, weight.dtype)


def numbers_of(weight: Weight) -> Sequence[float]:
    """The elements of a weight of floats."""
    codes = {"float32": "f", "float64": "d"}.get(weight.dtype.name)
    return array(codes, weight.read()) if codes else [float(x) for x in elements(weight)]  # type: ignore[arg-type]


def unpack(weight: Weight) -> bytes:
    """The bytes in the engine's layout: one byte for each sub-byte element (sign-extended if signed), others
    unchanged."""
    if weight.dtype is STRING:
        raise UnsupportedOp(f'string tensor "{weight.name}" cannot be stored in WebAssembly memory')
    if weight.source is None:
        raise InvalidModel(f'tensor "{weight.name}" holds no data')
    data = weight.read()
    if len(data) != weight.size:
        raise InvalidModel(f'tensor "{weight.name}" has {len(data)} of {weight.size} bytes; did its file change?')
    count = 1
    for dim in weight.shape:
        count *= dim
    return widen(data, weight.dtype, count)


def decode(data: bytes, dtype: DType) -> list[Element]:
    """Decode elements from bytes in the engine's layout."""
    if dtype is BOOL:
        return [byte != 0 for byte in data]
    if dtype in _SMALL or dtype is F8E8M0:
        table = small_floats(dtype)
        return [table[byte] for byte in data]
    if dtype is BF16:
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[0::2], data[1::2]
        return list(struct.unpack(f"<{len(data) // 2}f", wide))
    if dtype in (C64, C128):
        parts = struct.unpack(f"<{len(data) * 2 // dtype.size}{'f' if dtype is C64 else 'd'}", data)
        return [complex(re, im) for re, im in zip(parts[0::2], parts[1::2], strict=True)]
    code = _STRUCT.get(dtype, "b" if dtype.kind == "i" else "B")
    return list(struct.unpack(f"<{len(data) // dtype.size}{code}", data))


def widen(data: bytes, dtype: DType, count: int) -> bytes:
    """Packed sub-byte elements -> one byte each; other types are returned unchanged."""
    if dtype.bits >= 8 or not count:
        return data
    if dtype.bits == 6:
        return _widen6(data, count)
    fold = 8 // dtype.bits
    out = bytearray(len(data) * fold)
    for i in range(fold):
        out[i::fold] = data.translate(_extract(dtype.bits, i * dtype.bits, dtype.kind == "i"))
    return bytes(out[:count])


def pack(data: bytes, dtype: DType) -> bytes:
    """The inverse of `widen`: one byte each -> packed as in a model file."""
    if dtype.bits >= 8 or not data:
        return data
    fold = 4 if dtype.bits == 6 else 8 // dtype.bits
    mask = (1 << dtype.bits) - 1
    data = data.translate(bytes(byte & mask for byte in range(256)))
    group = dtype.bits * fold // 8  # bytes of `fold` elements
    words = 0
    for i in range(fold):  # all elements of a lane as one large integer, without a loop over elements
        lane = data[i::fold]
        spread = bytearray(group * len(lane))
        spread[0::group] = lane
        words |= int.from_bytes(spread, "little") << (i * dtype.bits)
    return words.to_bytes(-(-len(data) // fold) * group, "little")[: (len(data) * dtype.bits + 7) // 8]


def _widen6(data: bytes, count: int) -> bytes:
    """Unpack 6-bit elements, four in three bytes, low bits first."""
    data += bytes(-len(data) % 3)
    low, middle, high = data[0::3], data[1::3], data[2::3]
    out = bytearray(len(low) * 4)
    out[0::4] = low.translate(_extract(6, 0, False))
    out[1::4] = _either(low.translate(_extract(2, 6, False)), middle.translate(_shifted(15, 2)))
    out[2::4] = _either(middle.translate(_extract(4, 4, False)), high.translate(_shifted(3, 4)))
    out[3::4] = high.translate(_extract(6, 2, False))
    return bytes(out[:count])


def _either(a: bytes, b: bytes) -> bytes:
    return (int.from_bytes(a, "little") | int.from_bytes(b, "little")).to_bytes(len(a), "little")


@cache
def _extract(bits: int, shift: int, sign: bool) -> bytes:
    """A table of 256 bytes: for each byte its `bits` bits from `shift` on, sign-extended or not."""
    values = [byte >> shift & (1 << bits) - 1 for byte in range(256)]
    return bytes((v | -(v >> bits - 1 << bits)) & 255 if sign else v for v in values)


@cache
def _shifted(mask: int, shift: int) -> bytes:
    return bytes((byte & mask) << shift for byte in range(256))


@cache
def small_floats(dtype: DType) -> tuple[float, ...]:
    """The value of each of the 256 bit patterns of a float of at most 8 bits."""
    if dtype is F8E8M0:
        return (*(2.0 ** (code - 127) for code in range(255)), nan)
    exponent_bits, mantissa_bits, bias = _SMALL[dtype]
    table: list[float] = []
    for code in range(256):
        exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
        mantissa = code & (1 << mantissa_bits) - 1
        fraction = mantissa / (1 << mantissa_bits) + (exponent > 0)
        value = fraction * 2.0 ** (max(exponent, 1) - bias)
        table.append(-value if code >> (exponent_bits + mantissa_bits) & 1 else value)
    if dtype is F8E4M3FN:
        table[0x7F] = table[0xFF] = nan
    elif dtype is F8E5M2:
        table[0x7C:0x80] = inf, nan, nan, nan
        table[0xFC:] = -inf, nan, nan, nan
    elif dtype in (F8E4M3FNUZ, F8E5M2FNUZ):
        table[0x80] = nan
    return tuple(table)
