"""Reads tensors: TensorProto and SparseTensorProto -> Weight. Elements are located, and decoded only if stored as
varints.

Spec: TensorProto and SparseTensorProto of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyruntime.errors import InvalidModel, OutOfMemory
from pyruntime.ir.dtype import BOOL, BY_CODE, C64, C128, F32, F64, I64, STRING, U32, U64, DType
from pyruntime.onnx.graph import Graph, Weight
from pyruntime.onnx.protobuf import LENGTH, Fields, Wire, signed, tags
from pyruntime.onnx.sources import External, MemorySource
from pyruntime.onnx.weight_values import elements, pack, unpack

MAX_RANK = 64

DIMS, DATA_TYPE, SEGMENT, FLOATS, INT32S, STRINGS, INT64S, NAME, RAW, DOUBLES, UINT64S, EXTERNAL, LOCATION = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14,
)  # fmt: skip
TENSOR_TAGS = tags(varint="1 2 5 7 11 14", length="1 3 4 5 6 7 8 9 10 11 12 13 16", fixed32="4", fixed64="10")
_SPARSE = tags(varint="3", length="1 2 3")
_ENTRY = tags(length="1 2")
# the field with the elements of a type; other types use int32_data
_FIELD = {F32: FLOATS, C64: FLOATS, F64: DOUBLES, C128: DOUBLES, I64: INT64S, U32: UINT64S, U64: UINT64S}
_WORD = {1: "B", 2: "H", 4: "I", 8: "Q"}


def dtype_of(code: int, what: str) -> DType:
    dtype = BY_CODE.get(code)
    if dtype is None:
        raise InvalidModel(f"{what} has the unknown element type {code}")
    return dtype


def entry(wire: Wire, start: int, end: int) -> tuple[str, str]:
    """A StringStringEntryProto."""
    found = wire.gather(start, end, _ENTRY)
    key, value = (wire.bytes(*found[n][-1][1:]).decode(errors="replace") if n in found else "" for n in (1, 2))
    return key, value


class TensorReader:
    """Reads the tensors of one model. require_data: refuse a tensor without data; else its Weight has no source."""

    __slots__ = ("_external", "_require_data", "_wire")

    def __init__(self, wire: Wire, external: External, *, require_data: bool) -> None:
        self._wire = wire
        self._external = external
        self._require_data = require_data

    def tensor(self, start: int, end: int) -> Weight:
        wire = self._wire
        found = wire.gather(start, end, TENSOR_TAGS)
        name = wire.text(*found[NAME][-1][1:]) if NAME in found else ""
        what = f'tensor "{name}" at byte {start}'
        dtype = dtype_of(found[DATA_TYPE][-1][1] if DATA_TYPE in found else 0, what)
        shape = self._dims(found, DIMS, what)
        if SEGMENT in found:
            raise InvalidModel(f"{what} is a segment of a larger tensor, which is not supported")
        count = math.prod(shape)
        if LOCATION in found and found[LOCATION][-1][1] == 1:
            return true_is_one(self._outside(found, name, dtype, shape, what))
        if dtype is STRING:
            return self._strings(found, name, shape, what)
        size = (count * dtype.bits + 7) // 8
        weight = self._located(found, name, dtype, shape)
        if weight.size != size:
            if weight.size == 0 and not self._require_data:
                return Weight(name, dtype, shape)
            raise InvalidModel(f"{what} of type {dtype} and shape {shape} needs {size} bytes, it holds {weight.size}")
        return true_is_one(weight)

    def sparse(self, start: int, end: int) -> Weight:
        """A dense Weight, whose bytes are computed when they are first read."""
        wire = self._wire
        found = wire.gather(start, end, _SPARSE)
        if 1 not in found or 2 not in found:
            raise InvalidModel(f"a sparse tensor has no values or no indices at byte {start}")
        values, indices = self.tensor(*found[1][-1][1:]), self.tensor(*found[2][-1][1:])
        what = f'sparse tensor "{values.name}" at byte {start}'
        shape = self._dims(found, 3, what)
        return densified(values, indices, shape, what)

    def _dims(self, found: Fields, number: int, what: str) -> tuple[int, ...]:
        dims = tuple(signed(dim) for dim in self._wire.ints(found.get(number, ())))
        if len(dims) > MAX_RANK or any(dim < 0 for dim in dims):
            raise InvalidModel(f"{what} has an impossible shape: {dims[:MAX_RANK]}")
        return dims

    def _located(self, found: Fields, name: str, dtype: DType, shape: tuple[int, ...]) -> Weight:
        if RAW in found:
            _, a, b = found[RAW][-1]
            return Weight(name, dtype, shape, self._wire.source, a, b - a)
        number = _FIELD.get(dtype, INT32S)
        data = found.get(number, [])
        if number in (FLOATS, DOUBLES):
            if len(data) == 1 and data[0][0] & 7 == LENGTH:
                _, a, b = data[0]
                return Weight(name, dtype, shape, self._wire.source, a, b - a)
            decoded = self._wire.join(data, 4 if number == FLOATS else 8)
        else:
            decoded = _words(self._wire.int_runs(data), dtype)
        return Weight(name, dtype, shape, MemorySource(decoded), 0, len(decoded))

    def _strings(self, found: Fields, name: str, shape: tuple[int, ...], what: str) -> Weight:
        strings = tuple(self._wire.bytes(a, b) for _, a, b in found.get(STRINGS, ()))
        if len(strings) != math.prod(shape):
            raise InvalidModel(f"{what} has {len(strings)} strings, its shape is {shape}")
        return Weight(name, STRING, shape, strings=strings)

    def _outside(self, found: Fields, name: str, dtype: DType, shape: tuple[int, ...], what: str) -> Weight:
        """Spec: https://github.com/onnx/onnx/blob/main/docs/ExternalData.md"""
        keys = dict(entry(self._wire, a, b) for _, a, b in found.get(EXTERNAL, ()))
        if dtype is STRING:
            raise InvalidModel(f"{what} is a string tensor with external data")
        size = (math.prod(shape) * dtype.bits + 7) // 8
        try:
            offset, length = int(keys.get("offset", "0")), int(keys.get("length", str(size)))
        except ValueError:
            raise InvalidModel(f"{what} has external data with an offset or length that is no integer") from None
        if "location" not in keys or offset < 0:
            raise InvalidModel(f"{what} has external data with no location or a negative offset")
        if length != size:
            raise InvalidModel(f"{what} of type {dtype} and shape {shape} needs {size} bytes, not {length}")
        source = self._external.get(keys["location"])
        if offset + size > source.size:
            end = f"ends at byte {source.size}, {what} needs it up to byte {offset + size}"
            raise InvalidModel(f'external data file "{source.name or keys["location"]}" {end}')
        return Weight(name, dtype, shape, source, offset, size)


def true_is_one(weight: Weight) -> Weight:
    """The weight with 1 for true: ONNX Runtime reads every non-zero byte as true, but kernels expect 0 and 1."""
    if weight.dtype is not BOOL or weight.source is None:
        return weight
    data = weight.source.read(weight.offset, weight.size)
    if not bytes(data).translate(None, b"\0\1"):
        return weight
    return replace(weight, source=MemorySource(bytes(map(bool, data))), offset=0)


def _words(runs: Iterable[Sequence[int]], dtype: DType) -> bytes:
    """Integers of int32_data, int64_data or uint64_data as bytes in the layout of raw_data."""
    if dtype.bits == 6:
        return pack(b"".join(bytes(value & 63 for value in values) for values in runs), dtype)
    if dtype is BOOL:  # not truncated to a byte first: 256 is true, as in ONNX Runtime
        return b"".join(bytes(value != 0 for value in values) for values in runs)
    mask, word = (1 << 8 * dtype.size) - 1, _WORD[dtype.size]
    return b"".join(struct.pack(f"<{len(values)}{word}", *[value & mask for value in values]) for values in runs)


def densified(values: Weight, indices: Weight, shape: tuple[int, ...], what: str) -> Weight:
    """A sparse tensor as a dense one of this shape."""
    places = _places(values, indices, shape, what)
    count = math.prod(shape)
    if values.dtype is STRING:
        if count > 1 << 24:
            raise InvalidModel(f"{what} has too many elements for a string tensor: {count}")
        strings = [b""] * count
        for place, text in zip(places, values.strings or (), strict=True):
            strings[place] = text
        return Weight(values.name, STRING, shape, strings=tuple(strings))
    source = _Dense(values, places, count)
    return Weight(values.name, values.dtype, shape, source, 0, source.size)


def remarks_on_sparse(graph: Graph) -> list[str]:
    """A sentence for each initializer that was sparse."""
    dense = [w for w in graph.weights.values() if isinstance(w.source, _Dense)]
    return [f'initializer "{w.name}" is sparse and becomes dense: it takes {w.size} bytes' for w in dense]


def _places(values: Weight, indices: Weight, shape: tuple[int, ...], what: str) -> list[int]:
    """The linear index of each value. Indices are linear, (nnz,), or by axis, (nnz, rank)."""
    number, rank = math.prod(values.shape), len(shape)
    linear = indices.shape == (number,)
    if indices.dtype is not I64 or len(values.shape) != 1 or not (linear or indices.shape == (number, rank)):
        raise InvalidModel(f"{what}: indices must be int64 of shape ({number},) or ({number}, {rank})")
    flat = [int(index.real) for index in elements(indices) if not isinstance(index, bytes)]
    if not linear:
        rows = [flat[i * rank : (i + 1) * rank] for i in range(number)]
        if any(not 0 <= index < dim for row in rows for index, dim in zip(row, shape, strict=True)):
            raise InvalidModel(f"{what}: an index is outside of its shape {shape}")
        strides = [math.prod(shape[axis + 1 :]) for axis in range(rank)]
        flat = [sum(map(int.__mul__, row, strides)) for row in rows]
    if flat and not (0 <= flat[0] and flat[-1] < math.prod(shape)):
        raise InvalidModel(f"{what}: an index is outside of its shape {shape}")
    if any(a >= b for a, b in zip(flat, flat[1:], strict=False)):
        raise InvalidModel(f"{what}: indices are not in ascending order")
    return flat


class _Dense:
    """The dense bytes of a sparse tensor."""

    __slots__ = ("_count", "_data", "_places", "_values", "name", "size")

    def __init__(self, values: Weight, places: list[int], count: int) -> None:
        self.name = MemorySource(b"").name
        self.size = (count * values.dtype.bits + 7) // 8
        self._values, self._places, self._count = values, places, count
        self._data: bytes | None = None

    def read(self, offset: int, size: int) -> bytes:
        if self._data is None:
            width, values = self._values.dtype.size, unpack(self._values)
            try:
                dense = bytearray(self._count * width)
            except (MemoryError, OverflowError):
                raise OutOfMemory(f'sparse tensor "{self._values.name}" takes {self.size} bytes') from None
            for i, place in enumerate(self._places):
                dense[place * width : (place + 1) * width] = values[i * width : (i + 1) * width]
            self._data = pack(bytes(dense), self._values.dtype)
        return self._data[offset : offset + size]
