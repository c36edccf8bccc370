"""onnxruntime's `IOBinding`: inputs and outputs, bound by name, for any number of runs."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from pyruntime.api.devices import check_device
from pyruntime.api.ort_value import OrtValue, OrtValueVector, element_dtype
from pyruntime.arguments import checks_arguments
from pyruntime.errors import InvalidInput
from pyruntime.frontend.feed_checks import NodeArg
from pyruntime.native.memory.arrays import NUMPY, from_storage
from pyruntime.native.sessions.feeds import IN_ENGINE


class Bindable(Protocol):
    """The part of a session that a binding needs."""

    def get_inputs(self) -> list[NodeArg]: ...
    def get_overridable_initializers(self) -> list[NodeArg]: ...
    def get_outputs(self) -> list[NodeArg]: ...


@checks_arguments()
class IOBinding:
    """Inputs and outputs of one session. Binding copies nothing: a run reads the current elements of a bound array, and
    writes into it."""

    def __init__(self, session: Bindable) -> None:
        self.session = session
        self.inputs: dict[str, OrtValue] = {}
        self.outputs: dict[str, OrtValue | str] = {}  # a value to write into, or the device that keeps the output
        self.results = OrtValueVector()
        self._inputs = [a.name for a in (*session.get_inputs(), *session.get_overridable_initializers())]
        self._outputs = [a.name for a in session.get_outputs()]

    # ── inputs ───────────────────────────────────────────────────────────────────────────────────────────────────

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Errors: InvalidInput for an unknown name, or an object that is not an array"""
        self.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(arr_on_cpu))

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind the memory at an address, which the caller owns. element_type: a NumPy type or a TensorProto.DataType"""
        check_device(device_type, device_id)
        self.bind_ortvalue_input(name, at_address(element_type, shape, buffer_ptr))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        if name not in self._inputs:
            raise InvalidInput(f'input "{name}" does not exist', hint=f"inputs are {self._inputs}")
        self.inputs[name] = _value(name, ortvalue)

    def synchronize_inputs(self) -> None:
        """Does nothing: a run waits for its inputs."""

    def clear_binding_inputs(self) -> None:
        self.inputs.clear()

    # ── outputs ──────────────────────────────────────────────────────────────────────────────────────────────────

    def bind_output(
        self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:  # fmt: skip
        """Bind an output to the memory at an address, or, without one, to a new value for each run, on "cpu" or
        "webgpu"."""
        self._check_output(name)
        device = check_device(device_type, device_id, gpu=buffer_ptr is None)
        if buffer_ptr is None:
            self.outputs[name] = device
        elif element_type is None or shape is None:
            raise InvalidInput("memory at an address also needs its element_type and shape")
        else:
            self.outputs[name] = at_address(element_type, shape, buffer_ptr)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self._check_output(name)
        self.outputs[name] = _value(name, ortvalue)

    def synchronize_outputs(self) -> None:
        """Does nothing: outputs are complete when a run returns."""

    def clear_binding_outputs(self) -> None:
        self.outputs.clear()
        self.results = OrtValueVector()

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order of binding."""
        return list(self.results)

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        return self.results

    def copy_outputs_to_cpu(self) -> list[Any]:
        return [result.copied() if result.is_tensor() else result.value for result in self.results]

    def _check_output(self, name: str) -> None:
        if name not in self._outputs:
            raise InvalidInput(f'output "{name}" does not exist', hint=f"outputs are {self._outputs}")

    # ── for sessions ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def locations(self) -> dict[str, str]:
        """The preferred location of each output."""
        return {n: "gpu-buffer" if _is_on_gpu(o) else "cpu" for n, o in self.outputs.items()}

    @property
    def unbound(self) -> list[str]:
        """The outputs that have no bound memory, or to whose bound memory no program has a reference."""
        return [name for name, place in self.outputs.items() if not isinstance(place, OrtValue) or place.takes_over]

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """During the run, marks inputs that are also bound as outputs (KV caches in buffers of their largest size): the
        run overwrites them in place, without a copy. A run that fails may have overwritten some of them."""
        places = {id(place) for place in self.outputs.values()}
        fed = [x.value for x in self.inputs.values() if id(x) in places and isinstance(x.value, IN_ENGINE)]
        for x in fed:
            x.replaced = True
        try:
            yield
        finally:
            for x in fed:
                x.replaced = False

    def store(self, results: Sequence[OrtValue]) -> None:
        """Store a run's outputs, and copy those that are bound to memory into it. Errors: InvalidInput if the memory
        has another type or shape"""
        stored = []
        for (name, place), result in zip(self.outputs.items(), results, strict=True):
            if isinstance(place, OrtValue):
                if (place.data_type(), place.shape()) != (result.data_type(), result.shape()):
                    types = f"{place.data_type()} {place.shape()}, but is {result.data_type()} {result.shape()}"
                    raise InvalidInput(f'output "{name}" is bound to memory for {types}')
                if not place.take_over(result):
                    place.update_inplace(result)
                result = place
            stored.append(result)
        self.results = OrtValueVector(stored)


def _is_on_gpu(place: Any) -> bool:
    return place.device_name() == "webgpu" if isinstance(place, OrtValue) else place in ("webgpu", "gpu")


def at_address(element_type: Any, shape: Sequence[int], address: int) -> OrtValue:
    """A tensor in memory that the caller owns. Errors: InvalidInput for strings, or without an address"""
    dtype = element_dtype(element_type)
    storage = NUMPY.get(dtype.name)
    if storage is None or not address:
        raise InvalidInput(f"memory at address {address} cannot hold elements of {dtype}")
    size = int(np.prod(tuple(shape), dtype=np.int64)) * storage.itemsize
    memory = (ctypes.c_uint8 * size).from_address(address)
    return OrtValue(from_storage(np.frombuffer(memoryview(memory), storage).reshape(tuple(shape)), dtype), dtype)


def _value(name: str, value: Any) -> OrtValue:
    if not isinstance(value, OrtValue):
        raise InvalidInput(f'an OrtValue is expected for "{name}", not {type(value).__name__}')
    return value


SessionIOBinding = IOBinding
