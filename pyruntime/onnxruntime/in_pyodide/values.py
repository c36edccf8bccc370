"""onnxruntime's `OrtValue` and `IOBinding` in Pyodide: tensors are NumPy's arrays, or objects with a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

from pyruntime.api.devices import check_device
from pyruntime.errors import InvalidInput
from pyruntime.frontend.feed_checks import NodeArg, type_name
from pyruntime.ir import dtype as dt
from pyruntime.onnx.graph import TensorType
from pyruntime.pyodide.tensors import Tensor, to_output, to_tensor


class OrtValue:
    """A tensor, a sequence (a list), a map (a dict), or an empty optional (None)."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj: Any, /, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """numpy_obj: an array of NumPy's, anything else with a buffer, or nested lists"""
        check_device(device_type, device_id)
        return cls(to_output(to_tensor("value", numpy_obj, None)))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """A tensor of zeros. element_type: a TensorProto.DataType, or a type of NumPy's (or its name)"""
        check_device(device_type, device_id)
        name = getattr(element_type, "__name__", str(element_type))
        found = dt.BY_CODE.get(element_type) if isinstance(element_type, int) else dt.BY_NAME.get(name)
        if found is None:
            raise InvalidInput(f"{element_type!r} is not an element type that tensors can have")
        count = prod(shape)
        return cls(
            to_output(Tensor(found, tuple(shape), [""] * count if found is dt.STRING else bytes(count * found.size)))
        )

    def numpy(self) -> Any:
        """An array if NumPy is installed, else an object with `shape`, `tolist()` and a buffer."""
        return self.value

    def shape(self) -> list[int]:
        return [*self._tensor.shape]

    def data_type(self) -> str:
        if isinstance(self.value, list):
            return f"seq({OrtValue(self.value[0]).data_type() if self.value else 'undefined'})"
        return type_name(TensorType(self._tensor.dtype, None))

    def element_type(self) -> int:
        return self._tensor.dtype.code

    def tensor_size_in_bytes(self) -> int:
        return prod(self.shape()) * self._tensor.dtype.size

    def device_name(self) -> str:
        return "cpu"

    def has_value(self) -> bool:
        return self.value is not None

    def is_tensor(self) -> bool:
        return not isinstance(self.value, (list, dict, type(None)))

    def is_tensor_sequence(self) -> bool:
        return isinstance(self.value, list)

    def is_sparse_tensor(self) -> bool:
        return False

    def update_inplace(self, data: Any) -> None:
        """Replace the elements. Errors: InvalidInput for another type or number of elements"""
        new, own = to_tensor("value", data.value if isinstance(data, OrtValue) else data, None), self._tensor
        if (new.dtype, prod(new.shape)) != (own.dtype, prod(own.shape)):
            raise InvalidInput(f"a tensor of {own.dtype} with {prod(own.shape)} elements is expected")
        self.value = to_output(Tensor(own.dtype, own.shape, new.data))

    @property
    def _tensor(self) -> Tensor:
        if not self.is_tensor():
            raise InvalidInput("this value is not a tensor")
        found: Tensor = to_tensor("value", self.value, None)
        return found


class Bindable(Protocol):
    """The part of a session that a binding needs."""

    def get_inputs(self) -> list[NodeArg]: ...
    def get_overridable_initializers(self) -> list[NodeArg]: ...
    def get_outputs(self) -> list[NodeArg]: ...


class IOBinding:
    """Inputs and outputs of one session, bound by name for any number of runs."""

    def __init__(self, session: Bindable) -> None:
        self.session = session
        self.inputs: dict[str, OrtValue] = {}
        self.outputs: dict[str, OrtValue | None] = {}  # a value to replace, or None for a new one
        self._results: list[OrtValue] = []
        self._inputs = [a.name for a in (*session.get_inputs(), *session.get_overridable_initializers())]
        self._outputs = [a.name for a in session.get_outputs()]

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        self.bind_ortvalue_input(name, OrtValue(arr_on_cpu))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self._check("input", name, self._inputs)
        self.inputs[name] = ortvalue

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0) -> None:
        check_device(device_type, device_id)
        self._check("output", name, self._outputs)
        self.outputs[name] = None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self._check("output", name, self._outputs)
        self.outputs[name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Does nothing: a run waits for its inputs."""

    synchronize_outputs = synchronize_inputs

    def clear_binding_inputs(self) -> None:
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        self.outputs.clear()
        self._results = []

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order of binding."""
        return [*self._results]

    get_outputs_as_ortvaluevector = get_outputs

    def copy_outputs_to_cpu(self) -> list[Any]:
        return [result.value for result in self._results]

    def store(self, results: Sequence[OrtValue]) -> None:
        """Errors: InvalidInput if a bound value has another type or shape"""
        self._results = []
        for place, result in zip(self.outputs.values(), results, strict=True):
            if place is not None:
                if place.shape() != result.shape():
                    raise InvalidInput(f"an output is {result.shape()}, the value bound to it {place.shape()}")
                place.update_inplace(result)
            self._results.append(place or result)

    @staticmethod
    def _check(kind: str, name: str, known: Sequence[str]) -> None:
        if name not in known:
            raise InvalidInput(f'{kind} "{name}" does not exist', hint=f"{kind}s are {known}")
