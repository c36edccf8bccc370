"""Reads the tensors of a file that torch.save wrote before version 1.6, without PyTorch. A pickle may name any
function; this reader knows only tensors, their storages and ordered dictionaries."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"FloatStorage": np.float32, "LongStorage": np.int64}


class Storages(pickle.Unpickler):
    """Tensors are read as (storage, offset, shape, strides); `found` maps a storage's key to its type."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.found: dict[str, type] = {}

    def find_class(self, module: str, name: str) -> Any:
        if name == "_rebuild_tensor_v2":
            return lambda storage, offset, shape, strides, *_: (storage, offset, shape, strides)
        known = {"OrderedDict": OrderedDict, **TYPES}
        if name not in known:
            raise pickle.UnpicklingError(f"{module}.{name} is not known")
        return known[name]

    def persistent_load(self, pid: Any) -> str:
        _, kind, key, *_ = pid
        self.found[key] = kind
        return key


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    with path.open("rb") as file:
        for _ in range(3):  # a magic number, a version and the sizes of C's types
            pickle.load(file)
        reader = Storages(file)
        tensors = reader.load()
        data = {}
        for key in pickle.load(file):
            count = int.from_bytes(file.read(8), "little")
            data[key] = np.frombuffer(file.read(count * np.dtype(reader.found[key]).itemsize), reader.found[key])
    return {
        name: np.lib.stride_tricks.as_strided(x := data[storage][offset:], shape, [x.itemsize * n for n in strides])
        for name, (storage, offset, shape, strides) in tensors.items()
    }
