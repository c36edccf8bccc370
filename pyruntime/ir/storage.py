"""Encodes elements as bytes in the layout in which the engine stores constants."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from typing import Any

from pyruntime.ir.dtype import BF16, DType
from pyruntime.ir.reference import round_float
from pyruntime.ir.shape import Dim

_CODES = {"float32": "f", "float64": "d", "float16": "e", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H",
    "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q", "bool": "?"}  # fmt: skip


def code_of(dtype: DType) -> str:
    """The code of the elements of a type in `struct`, `array` and NumPy: small floats are integers of their bits."""
    return _CODES.get(dtype.name) or ("H" if dtype.size == 2 else "b" if dtype.kind == "i" else "B")


def encode(values: Sequence[Any], dtype: DType) -> bytes:
    """Elements in the engine's storage layout, little-endian."""
    if any(issubclass(kind, Dim) for kind in set(map(type, values))):
        raise TypeError("a constant has symbolic elements")
    if dtype.name == "bfloat16":
        return b"".join(struct.pack("<f", round_float(v, BF16))[2:] for v in values)
    code = code_of(dtype)
    if code in "e?" or sys.byteorder != "little":
        return struct.pack(f"<{len(values)}{code}", *values)
    return array(code, values).tobytes()  # a third of the time of struct.pack
