"""Feeds and outputs: nested lists, buffers (memoryview, array.array) and, if NumPy is installed, its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from pyruntime.errors import InvalidInput
from pyruntime.frontend.feed_checks import check_tensor
from pyruntime.ir import dtype as dt
from pyruntime.ir.dtype import DType
from pyruntime.ir.storage import encode
from pyruntime.onnx.graph import OptionalType, SequenceType, TensorType, Type
from pyruntime.onnx.weight_values import decode

_BY_FORMAT = {"f": dt.F32, "d": dt.F64, "e": dt.F16, "?": dt.BOOL}
_INTEGERS = {f"{d.kind}{d.size}": d for d in (dt.I8, dt.I16, dt.I32, dt.I64, dt.U8, dt.U16, dt.U32, dt.U64)}
_NATURAL: dict[type, DType] = {bool: dt.BOOL, int: dt.I64, float: dt.F32, str: dt.STRING}  # by Python type


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """An output if NumPy is not installed. It can be a feed, and memoryview(tensor) is a view of its elements.

    data: elements in the engine's storage layout (`pyruntime.ir.dtype`), row by row; for strings, a flat list"""

    dtype: DType
    shape: tuple[int, ...]
    data: bytes | list[str]

    def flat(self) -> list[Any]:
        """The elements, row by row."""
        return decode(self.data, self.dtype) if isinstance(self.data, bytes) else self.data

    def tolist(self) -> Any:
        """The elements as nested lists; for rank 0 the element itself."""
        rows: list[Any] = self.flat()
        for n, size in reversed([*enumerate(self.shape)][1:]):
            rows = [rows[i * size : (i + 1) * size] for i in range(prod(self.shape[:n]))]
        return rows if self.shape else rows[0]

    def __buffer__(self, flags: int) -> memoryview:
        if not isinstance(self.data, bytes):
            raise BufferError("a tensor of strings has no buffer")
        view = memoryview(self.data).cast(_format(self.dtype))
        return view.cast("B").cast(view.format, self.shape) if prod(self.shape) else view  # type: ignore[call-overload]


def _format(d: DType) -> Any:
    """The format character of memoryview for an element type; small floats are bit patterns."""
    plain = next((f for f, known in _BY_FORMAT.items() if known is d), None)
    letter = "bhiq"[d.size.bit_length() - 1] if d.size <= 8 else "B"
    return plain or (letter if d.kind == "i" else letter.upper())


def to_tensor(name: str, x: Any, t: Type | None) -> Any:
    """A feed as a Tensor, a list of Tensors for a sequence, None for an empty optional. Errors: InvalidInput"""
    if isinstance(t, OptionalType):
        return None if x is None else to_tensor(name, x, t.elem)
    if isinstance(t, SequenceType):
        if not isinstance(x, (list, tuple)):
            raise InvalidInput(f'input "{name}" is a sequence: a list is expected, got {type(x).__name__}')
        return [to_tensor(f"{name}[{n}]", item, t.elem) for n, item in enumerate(x)]
    tensor = _tensor(name, x, t.dtype if isinstance(t, TensorType) else None)
    if isinstance(t, TensorType):
        if (
            isinstance(x, (list, tuple)) and 0 in tensor.shape and t.shape is not None
        ):  # lists end at an axis of no rows
            rest = [dim if isinstance(dim, int) else 0 for dim in t.shape[len(tensor.shape) :]]
            tensor = Tensor(tensor.dtype, (*tensor.shape, *rest), tensor.data)
        if t.shape == () and prod(tensor.shape) == 1:
            tensor = Tensor(tensor.dtype, (), tensor.data)  # like onnxruntime, accept a single number in any rank
        check_tensor(name, tensor.dtype, tensor.shape, t)
    return tensor


def _tensor(name: str, x: Any, expected: DType | None) -> Tensor:
    if isinstance(x, Tensor):
        return x
    if isinstance(x, (list, tuple, int, float, str)):
        return _of_values(name, x, expected)
    try:
        view = memoryview(x)
        found = _of_buffer(view, expected)
    except (TypeError, ValueError, BufferError):  # no buffer, or elements that memoryview does not know
        found = None
    if found is not None:
        return found
    if expected in (dt.STRING, None) and hasattr(x, "tolist"):  # NumPy's strings
        return _of_values(name, x.tolist(), expected)
    what = getattr(x, "dtype", type(x).__name__)
    raise InvalidInput(f'input "{name}" is not a tensor: {what}', hint="give a list, a memoryview or an array")


def _of_buffer(view: memoryview, expected: DType | None) -> Tensor | None:
    form = view.format.lstrip("@=<")
    found = _BY_FORMAT.get(form)
    if found is None and form in tuple("bhilqBHILQ"):
        found = _INTEGERS[f"{'i' if form.islower() else 'u'}{view.itemsize}"]
    if found is None:
        return None
    if expected is not None and _format(expected) == _format(found):
        found = expected  # small floats and integers are fed as the type in which they are stored
    return Tensor(found, tuple(view.shape or ()), view.tobytes())


def _of_values(name: str, x: Any, expected: DType | None) -> Tensor:
    """A Tensor of nested lists. Numbers get the input's type if it can represent them."""
    shape, flat = [], [x]
    while flat and isinstance(flat[0], (list, tuple)):
        shape.append(len(flat[0]))
        if any(not isinstance(row, (list, tuple)) or len(row) != shape[-1] for row in flat):
            raise InvalidInput(f'input "{name}" has rows of different lengths')
        flat = [item for row in flat for item in row]
    natural = next(
        (d for kind, d in reversed(_NATURAL.items()) if any(type(v) is kind for v in flat)), expected or dt.F32
    )
    if {type(v) for v in flat} - {*_NATURAL} or (natural is dt.STRING and not all(isinstance(v, str) for v in flat)):
        raise InvalidInput(f'input "{name}" has elements of types that do not fit into one tensor: {_kinds(flat)}')
    d = expected or natural
    if (d is dt.STRING) != (natural is dt.STRING) or natural.is_float and not d.is_float:
        raise InvalidInput(f'input "{name}" has element type {natural}, expected {d}')
    if d is dt.STRING:
        return Tensor(d, tuple(shape), flat)
    try:
        return Tensor(d, tuple(shape), encode([bool(v) if d is dt.BOOL else v for v in flat], d))
    except Exception as error:  # of struct
        raise InvalidInput(f'input "{name}" has a value that {d} does not hold: {error}') from None


def _kinds(values: Sequence[Any]) -> str:
    return ", ".join(sorted({type(v).__name__ for v in values}))


def to_output(tensor: Tensor) -> Any:
    """A NumPy array if NumPy is installed, else the tensor."""
    try:
        import numpy as np
    except ImportError:
        return tensor
    if not isinstance(tensor.data, bytes):
        return np.array(tensor.data, object).reshape(tensor.shape)
    return np.frombuffer(bytearray(tensor.data), _format(tensor.dtype)).reshape(tensor.shape)
