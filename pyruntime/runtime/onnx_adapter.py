"""Finds the tensors in `.onnx_adapter` files, ONNX Runtime's format of adapters: a FlatBuffer.

Spec: https://onnxruntime.ai/docs/genai/reference/adapter.html, onnxruntime/lora/adapter_format/adapter_schema.fbs,
https://flatbuffers.dev/internals/
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from pyruntime.errors import InvalidInput
from pyruntime.runtime.safetensors import TensorPlace
from pyruntime.runtime.trained_weights import shape_text

MARK = "TORT"  # bytes 4 to 8
FORMAT = 1
FIELDS = 4  # of the root and of a parameter
# by TensorProto.DataType: the name of the type, and bytes of an element
TYPES: dict[int, tuple[str, int]] = {
    1: ("float32", 4), 2: ("uint8", 1), 3: ("int8", 1), 4: ("uint16", 2), 5: ("int16", 2), 6: ("int32", 4),
    7: ("int64", 8), 9: ("bool", 1), 10: ("float16", 2), 11: ("float64", 8), 12: ("uint32", 4), 13: ("uint64", 8),
    16: ("bfloat16", 2),
}  # fmt: skip


class AdapterBuffer:
    """A file of `size` bytes. number: the signed little-endian integer at a place, of 2, 4 or 8 bytes; text: UTF-8
    between two places. Errors: InvalidInput for places outside of the file"""

    def __init__(self, size: int, number: Callable[[int, int], int], text: Callable[[int, int], str]) -> None:
        self.size = size
        self.text = text
        self._number = number
        self._left = 2 * size  # bytes of names and dims that may still be read: few are referenced twice

    def number(self, at: int, width: int) -> int:
        self.check(at, width)
        return self._number(at, width)

    def check(self, at: int, size: int) -> None:
        if at < 0 or size < 0 or at + size > self.size:
            raise InvalidInput(f"the adapter is damaged: byte {at} points outside of the file")

    def spend(self, size: int) -> None:
        """Count bytes that are read, because a damaged file may reference the same large part many times."""
        self._left -= size
        if self._left < 0:
            raise InvalidInput("the adapter is damaged: it references parts of the file too often")

    def field(self, table: int, n: int) -> int:
        """The position of a table's field n in the file; 0 if the table lacks it."""
        vtable = table - self.number(table, 4)
        size = self.number(vtable, 2)
        if size < 4:
            raise InvalidInput(f"the adapter is damaged: the table at byte {table} has no fields")
        offset = self.number(vtable + 4 + 2 * n, 2) if 4 + 2 * n < size else 0
        return table + offset if offset > 0 else 0

    def value(self, table: int, n: int) -> int:
        """An int32; 0 if it is absent."""
        at = self.field(table, n)
        return self.number(at, 4) if at > 0 else 0

    def vector(self, table: int, n: int, width: int) -> list[int]:
        """The place of the first element, and the number of elements, of `width` bytes."""
        at = self.field(table, n)
        if at == 0:
            return [0, 0]
        start = at + self.number(at, 4)
        count = self.number(start, 4)
        self.check(start + 4, width * count)
        return [start + 4, count]

    def check_fields(self, table: int) -> None:
        """Errors: InvalidInput for a field that the format does not have"""
        count = (self.number(table - self.number(table, 4), 2) - 4) // 2
        for n in range(FIELDS, count):
            if self.field(table, n) > 0:
                raise InvalidInput(f"the adapter has a field {n}, which format {FORMAT} does not have")

    def tensors(self) -> list[TensorPlace]:
        if self.version(0) != FORMAT:
            raise InvalidInput(f"the adapter has format {self.version(0)}, {FORMAT} is known")
        self.check_fields(self.number(0, 4))
        first, count = self.vector(self.number(0, 4), 3, 4)
        places = [first + 4 * n for n in range(count)]
        return [self._tensor(at + self.number(at, 4)) for at in places]

    def version(self, n: int) -> int:
        """Of the format (0), the adapter (1), its model (2)."""
        return self.value(self.number(0, 4), n)

    def _tensor(self, table: int) -> TensorPlace:
        self.check_fields(table)
        start, length = self.vector(table, 0, 1)
        dims, rank = self.vector(table, 1, 8)
        first, size = self.vector(table, 3, 1)
        self.spend(length + 8 * rank)
        name, code = self.text(start, start + length), self.value(table, 2)
        shape = [self.number(dims + 8 * n, 8) for n in range(rank)]
        dtype, width = TYPES.get(code, ("", 0))
        if dtype == "" or any(dim < 0 for dim in shape) or size != prod(shape) * width:
            text = f'parameter "{name}" of type {code} and dims {shape_text(shape)} has {size} bytes'
            raise InvalidInput(f"the adapter is damaged: {text}")
        return TensorPlace(name, dtype, shape, first, first + size)
