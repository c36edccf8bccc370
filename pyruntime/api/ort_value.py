"""onnxruntime's `OrtValue`: one input or output of any type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pyruntime.api.devices import OrtMemoryInfo, check_device
from pyruntime.api.sparse_tensor import SparseTensor
from pyruntime.arguments import checks_arguments
from pyruntime.errors import InvalidInput, NotSupported
from pyruntime.frontend.feed_checks import type_name
from pyruntime.ir import dtype as dt
from pyruntime.ir.dtype import DType
from pyruntime.native.execution.resident_outputs import ResidentTensor
from pyruntime.native.gpu.tensor import GpuTensor
from pyruntime.native.memory.arrays import NUMPY, dtype_of, from_storage
from pyruntime.onnx.graph import TensorType


@checks_arguments("__init__")
class OrtValue:
    """A tensor in the process's memory or on the GPU, a sequence (a list), a map (a dict), or an empty optional (None).

    A tensor made from a contiguous array shares its memory.
    """

    __slots__ = ("__weakref__", "_dtype", "_sparse", "_unseen", "_value")

    def __init__(self, value: Any, dtype: DType | None = None, unseen: bool = False) -> None:
        self._value = value
        self._sparse: SparseTensor | None = None  # what the value is the dense form of
        self._unseen = unseen  # no program has a reference to its memory
        self._dtype = dtype or (dtype_of(value) if isinstance(value, np.ndarray) else None)

    # ── creation ─────────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Any, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Errors: InvalidInput for element types that tensors cannot have, NotSupported for devices other than the
        CPU"""
        check_device(device_type, device_id)
        return cls(_contiguous(numpy_obj))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Any, /, onnx_element_type: int) -> OrtValue:
        """The array's bytes as elements of another type of the same size (a TensorProto.DataType)."""
        array, dtype = _contiguous(data), _of_onnx(onnx_element_type)
        if dtype.name not in NUMPY or array.dtype.itemsize != NUMPY[dtype.name].itemsize:
            raise InvalidInput(f"elements of {array.dtype} cannot be read as {dtype}: their sizes differ")
        return cls(from_storage(array.view(NUMPY[dtype.name]), dtype), dtype)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any = np.float32, device_type: str = "cpu", device_id: int = 0,
        vendor_id: int = -1, memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:  # fmt: skip
        """A tensor of zeros. element_type: a NumPy type, or a TensorProto.DataType."""
        check_device(device_type, device_id)
        if memory_info is not None and memory_info.name != "Cpu":
            raise NotSupported(f'memory "{memory_info.name}" cannot be allocated by programs')
        dtype = element_dtype(element_type)
        if any(n < 0 for n in shape):
            raise InvalidInput(f"shape cannot be {list(shape)}", hint="sizes from 0 on")
        if dtype is dt.STRING:
            return cls(np.full(tuple(shape), "", object), dtype)
        return cls(from_storage(np.zeros(tuple(shape), NUMPY[dtype.name]), dtype), dtype, unseen=True)

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: SparseTensor) -> OrtValue:
        """Sessions get it as a dense tensor."""
        if not isinstance(sparse_tensor, SparseTensor):
            raise InvalidInput(f"a SparseTensor is expected, not {type(sparse_tensor).__name__}")
        made = cls(sparse_tensor.toarray())
        made._sparse = sparse_tensor
        return made

    @classmethod
    def from_dlpack(cls, data: Any, is_bool_tensor: bool = False, /) -> OrtValue:
        """A tensor that shares the CPU memory of a DLPack capsule, or of an object with `__dlpack__`. is_bool_tensor (a
        parameter of onnxruntime's inner value): read bytes as bools"""
        if not hasattr(data, "__dlpack__"):
            if type(data).__name__ != "PyCapsule":
                raise InvalidInput(f"a DLPack object is expected, not {type(data).__name__}")
            data = _Capsule(data)
        array = np.from_dlpack(data)
        return cls(array.view(np.bool_) if is_bool_tensor and array.dtype == np.uint8 else array)

    # ── description ──────────────────────────────────────────────────────────────────────────────────────────────

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._array("data_ptr").ctypes.data)

    def device_name(self) -> str:
        return "webgpu" if isinstance(self._value, GpuTensor) else "cpu"

    def shape(self) -> list[int]:
        return list(self._tensor("shape").shape)

    def data_type(self) -> str:
        """The type, for instance "tensor(float)"."""
        if self._sparse is not None:
            return self._sparse.data_type()
        if isinstance(self._value, list):
            inner = OrtValue(self._value[0]).data_type() if self._value else "undefined"
            return f"seq({inner})"
        return type_name(TensorType(self._element("data_type"), None))

    def element_type(self) -> int:
        """A TensorProto.DataType."""
        return self._element("element_type").code

    def tensor_size_in_bytes(self) -> int:
        return int(self._tensor("tensor_size_in_bytes").size) * self._element("").size

    def has_value(self) -> bool:
        return self._value is not None

    def is_tensor(self) -> bool:
        return self._sparse is None and isinstance(self._value, (np.ndarray, GpuTensor, ResidentTensor))

    def is_sparse_tensor(self) -> bool:
        return self._sparse is not None

    def is_tensor_sequence(self) -> bool:
        return isinstance(self._value, list) and not any(isinstance(item, dict) for item in self._value)

    # ── values ───────────────────────────────────────────────────────────────────────────────────────────────────

    def numpy(self) -> np.ndarray[Any, Any]:
        """The tensor as an array: a view of the process's memory, or a copy read from the GPU."""
        tensor = self._tensor("numpy")
        return tensor.get_data() if isinstance(tensor, GpuTensor) else self._array("numpy")

    def first(self, count: int, axis: int) -> OrtValue:
        """The first entries along an axis. Rows of a KV cache that a session has in its memory stay there."""
        value = self._tensor("first")
        if isinstance(value, ResidentTensor) and axis == value.axis:
            return OrtValue(value.first_rows(count), self._dtype)
        return OrtValue(np.ascontiguousarray(self.numpy()[(slice(None),) * axis + (slice(count),)]), self._dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.numpy(), dtype, copy=copy)

    def __dlpack__(self, **how: Any) -> Any:
        return self._array("__dlpack__").__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array("__dlpack_device__").__dlpack_device__()

    def to_dlpack(self) -> Any:
        """A DLPack capsule. In onnxruntime a method of its inner value, which programs access as `_ortvalue`."""
        return self.__dlpack__()

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def update_inplace(self, data: Any) -> None:
        """Overwrite the elements. Errors: InvalidInput for another type or size"""
        new, own = data.numpy() if isinstance(data, OrtValue) else data, self._array("update_inplace")
        if not isinstance(new, np.ndarray) or new.dtype != own.dtype or new.size != own.size:
            raise InvalidInput(f"an array of {own.dtype} with {own.size} elements is expected to update this value")
        np.copyto(own, new.reshape(own.shape))

    def as_sparse_tensor(self) -> SparseTensor:
        """Errors: InvalidInput for a value that was made of something else"""
        if self._sparse is None:
            raise InvalidInput("this value is not a sparse tensor")
        return self._sparse

    def __reduce__(self) -> tuple[Any, ...]:
        """For `pickle` and `copy`: a value in the process's memory."""
        if self._sparse is not None:
            return OrtValue.ort_value_from_sparse_tensor, (self._sparse,)
        return OrtValue, (self.numpy() if self.is_tensor() else self._value, self._dtype)

    # ── for sessions ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def value(self) -> Any:
        """The value in the form that `run` takes and returns."""
        return self._value

    def copied(self) -> np.ndarray[Any, Any]:
        """The tensor as an array with memory of its own."""
        return self._value.copy() if isinstance(self._value, ResidentTensor) else self.numpy().copy()

    @property
    def takes_over(self) -> bool:
        """Whether a run's output can replace the tensor without a copy: no program has a reference to its memory."""
        return self._unseen or isinstance(self._value, (ResidentTensor, GpuTensor))

    def take_over(self, other: OrtValue) -> bool:
        """Replace the tensor by an output of the same type and shape, without a copy; returns whether that is
        possible."""
        if not self.takes_over or not isinstance(other.value, (ResidentTensor, GpuTensor)):
            return False
        self._value = other.value
        return True

    def _tensor(self, what: str) -> Any:
        if not self.is_tensor():
            raise InvalidInput(f"this value is not a tensor, so it has no {what}")
        return self._value

    def _array(self, what: str) -> np.ndarray[Any, Any]:
        self._unseen = False
        if isinstance(self._value, ResidentTensor):
            self._value = self._value.array()
        if not isinstance(self._value, np.ndarray):
            raise InvalidInput(f"this value is not a tensor in the process's memory, so it has no {what}")
        return self._value

    def _element(self, what: str) -> DType:
        tensor = self._tensor(what)
        if isinstance(tensor, (GpuTensor, ResidentTensor)):
            return dt.BY_NAME[tensor.dtype]
        return self._dtype or dtype_of(tensor)


class _Capsule:
    """Gives NumPy a bare DLPack capsule. The capsule does not name its device, but NumPy refuses tensors that are not
    on the CPU."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class OrtValueVector(list[OrtValue]):
    """A list of values with the names of onnxruntime's vector."""

    def push_back(self, value: OrtValue) -> None:
        self.append(value)

    def reserve(self, count: int) -> None:
        """Does nothing: lists grow by themselves."""

    shrink_to_fit = list.copy


def copy_tensors(src: Iterable[OrtValue], dst: Iterable[OrtValue], stream: Any = None) -> None:
    """Copy the elements of each source to the destination with the same index."""
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)


def element_dtype(element_type: Any) -> DType:
    """The element type of a NumPy type or a TensorProto.DataType. Errors: InvalidInput if it is neither."""
    if isinstance(element_type, int) and not isinstance(element_type, bool):
        return _of_onnx(element_type)
    try:
        return dtype_of(np.empty(0, np.dtype(element_type)))
    except TypeError:
        raise InvalidInput(f"{element_type!r} is not an element type") from None


def _of_onnx(code: int) -> DType:
    if code not in dt.BY_CODE:
        raise InvalidInput(f"{code} is not a TensorProto.DataType that tensors can have")
    return dt.BY_CODE[code]


def _contiguous(array: Any) -> np.ndarray[Any, Any]:
    if not isinstance(array, np.ndarray):
        raise InvalidInput(f"a NumPy array is expected, not {type(array).__name__}")
    dtype_of(array)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)
