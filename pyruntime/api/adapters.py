"""onnxruntime's `AdapterFormat`: reads and writes `.onnx_adapter` files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pyruntime.api.ort_value import OrtValue
from pyruntime.arguments import checks_arguments
from pyruntime.errors import InvalidInput, file_bytes
from pyruntime.ir.dtype import BY_NAME
from pyruntime.native.memory.arrays import NUMPY, dtype_of, from_storage, to_storage
from pyruntime.runtime.onnx_adapter import FORMAT
from pyruntime.training.files import onnx_adapter
from pyruntime.training.files.onnx_adapter import Versions
from pyruntime.training.files.safetensors import Stored


@checks_arguments()
class AdapterFormat:
    """The parameters of an adapter by name, with its version and that of its model."""

    def __init__(self, adapter: AdapterFormat | None = None) -> None:
        self._parameters: dict[str, OrtValue] = {} if adapter is None else adapter.get_parameters()
        self._versions: Versions = Versions() if adapter is None else adapter._versions

    @staticmethod
    def read_adapter(file_path: str | os.PathLike[str]) -> AdapterFormat:
        """Errors: ModelNotFound; InvalidInput for a damaged file"""
        data = file_bytes(file_path)
        if not onnx_adapter.is_onnx_adapter(data):
            raise InvalidInput(f'"{file_path}" is no .onnx_adapter file', hint="`pyruntime adapters` converts others")
        found = AdapterFormat()
        tensors, found._versions = onnx_adapter.read(data)
        found._parameters = {name: _value(t) for name, t in tensors.items()}
        return found

    def export_adapter(self, file_path: str | os.PathLike[str]) -> None:
        tensors = {name: _stored(name, x) for name, x in self._parameters.items()}
        Path(file_path).write_bytes(onnx_adapter.write(tensors, self._versions))

    def get_format_version(self) -> int:
        return FORMAT

    def get_adapter_version(self) -> int:
        return self._versions.adapter

    def set_adapter_version(self, adapter_version: int) -> None:
        self._versions = self._versions._replace(adapter=adapter_version)

    def get_model_version(self) -> int:
        return self._versions.model

    def set_model_version(self, model_version: int) -> None:
        self._versions = self._versions._replace(model=model_version)

    def get_parameters(self) -> dict[str, OrtValue]:
        return dict(self._parameters)

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        self._parameters = dict(params)


def _value(t: Stored) -> OrtValue:
    dtype = BY_NAME[t.dtype]
    return OrtValue(from_storage(np.frombuffer(t.data, NUMPY[t.dtype]).reshape(t.shape), dtype), dtype)


def _stored(name: str, x: OrtValue) -> Stored:
    array = x.numpy()
    dtype = dtype_of(array)
    if dtype.size * 8 != dtype.bits:
        raise InvalidInput(f'parameter "{name}" of {dtype} cannot be in an adapter')
    return Stored(dtype.name, array.shape, np.ascontiguousarray(to_storage(array)).tobytes())
