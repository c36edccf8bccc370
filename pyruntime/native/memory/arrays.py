"""Converts arrays between NumPy and the engine's storage layout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from pyruntime.errors import InvalidInput
from pyruntime.ir import dtype as dt
from pyruntime.ir.dtype import DType
from pyruntime.ir.storage import encode
from pyruntime.onnx.weight_values import decode

NUMPY = {d.name: np.dtype(f"{d.kind}{d.size}") for d in dt.ALL if d.kind in "iu"}
NUMPY |= {"float32": np.dtype("f4"), "float64": np.dtype("f8"), "float16": np.dtype("f2"), "bool": np.dtype("?")}
NUMPY |= {d.name: np.dtype(f"u{d.size}") for d in dt.ALL if d.kind == "f" and d.name not in NUMPY}  # bit patterns
_AS_THEY_ARE = {d for name, d in NUMPY.items() if name == d.name} - {np.dtype("?")}  # in the storage layout
_EXTENDED = {  # types that NumPy has only with ml_dtypes
    "bfloat16": dt.BF16, "float8_e4m3fn": dt.F8E4M3FN, "float8_e4m3fnuz": dt.F8E4M3FNUZ, "float8_e5m2": dt.F8E5M2,
    "float8_e5m2fnuz": dt.F8E5M2FNUZ, "float8_e8m0fnu": dt.F8E8M0, "int4": dt.I4, "uint4": dt.U4, "int2": dt.I2,
    "uint2": dt.U2, "float4_e2m1fn": dt.F4E2M1, "float6_e2m3fn": dt.F6E2M3, "float6_e3m2fn": dt.F6E3M2,
}  # fmt: skip

_EXTENDED_NAMES = {d: name for name, d in _EXTENDED.items()}

PART = 1 << 18  # elements that are changed at once, so that the cache holds them


def dtype_of(x: np.ndarray) -> DType:
    """The element type of an array."""
    return _known(x.dtype)


@lru_cache(maxsize=64)
def _known(dtype: Any) -> DType:
    if dtype.kind in "OUST":
        return dt.STRING
    name = dtype.name  # slow
    found = _EXTENDED.get(name) or dt.BY_NAME.get(name)
    if found is None:
        raise InvalidInput(f"arrays of {name} are not supported")
    return found


def to_storage(x: np.ndarray) -> np.ndarray:
    """An array in the storage layout: bit patterns for small floats, one byte for sub-byte integers. Bools are
    0 or 1, because kernels count, compare and add them; a view of a mask may have 255s."""
    if type(x) is np.ndarray and x.dtype in _AS_THEY_ARE:
        return x
    x, d = np.asarray(x), dtype_of(x)  # a masked array's max takes no `initial`
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    if d is dt.STRING:
        values = x.ravel().tolist()
        if x.dtype == object and set(map(type, values)) <= {str}:
            return x.copy()
        try:
            flat = [v.decode() if isinstance(v, bytes) else str(v) for v in values]
        except UnicodeDecodeError as e:
            raise InvalidInput(f"bytes that are no UTF-8 among strings: {e}") from None
        return np.array(flat, dtype=object).reshape(x.shape)
    if d.name in ("int4", "uint4", "int2", "uint2"):
        return x.astype(NUMPY[d.name])
    if d is dt.BOOL and x.view(np.uint8).max(initial=0) > 1:
        return x.view(np.uint8) != 0
    return x.view(NUMPY[d.name])


def from_storage(x: np.ndarray, d: DType) -> np.ndarray:
    """The array for users: with small types of ml_dtypes if that is installed."""
    extended = _EXTENDED_NAMES.get(d)
    if extended is None:
        return x
    try:
        import ml_dtypes
    except ImportError:
        return x
    target = np.dtype(getattr(ml_dtypes, extended))
    return x.astype(target) if d.is_int else x.view(target)


def to_python(x: np.ndarray, t: Any) -> tuple[tuple[int, ...], list[Any]]:
    """(shape, flat list) for host functions."""
    if x.dtype == object:
        return x.shape, x.ravel().tolist()
    if t.dtype is dt.BF16:
        return x.shape, decode(x.tobytes(), dt.BF16)
    return x.shape, x.ravel().tolist()


def from_python(array: tuple[Sequence[int], list[Any]], d: DType) -> np.ndarray:
    shape, values = array
    if d is dt.STRING:
        return np.array(values, dtype=object).reshape(shape)
    return np.frombuffer(encode(values, d), NUMPY[d.name]).reshape(shape)


def flush_subnormals(raw: np.ndarray, dtype: str) -> None:
    """Replace subnormal elements, of float32 or float64, by zeros of their signs, in place. raw: the bytes."""
    bits, exponent = (64, 0x7FF << 52) if dtype == "float64" else (32, 0xFF << 23)
    words = raw.view(f"u{bits // 8}")
    for start in range(0, len(words), PART):
        part = words[start : start + PART]
        small = (part & exponent) == 0
        if small.any():  # as fast as a copy
            part[small] &= 1 << (bits - 1)


def unpack(raw: np.ndarray, bits: int, signed: bool, count: int) -> np.ndarray:
    """Sub-byte elements, low bits first, to a byte each."""
    if 8 % bits:
        lanes = np.unpackbits(raw, count=count * bits, bitorder="little").reshape(count, bits)
        return np.packbits(lanes, axis=1, bitorder="little").reshape(-1)
    parts = [(raw >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    out = np.stack(parts, axis=1).reshape(-1)[:count]
    return (out ^ (1 << (bits - 1))) - (1 << (bits - 1)) if signed else out
