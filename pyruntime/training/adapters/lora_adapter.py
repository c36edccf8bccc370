"""Adapters in memory, from files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyruntime.arguments import checks_arguments
from pyruntime.errors import InvalidInput, file_bytes
from pyruntime.training.adapters.adapter_file import PEFT_FILES, Adapter, read_adapter


@checks_arguments()
class LoraAdapter:
    """An adapter in memory: `add_active_adapter` of RunOptions takes it.

    source: a file (.onnx_adapter, .safetensors), its bytes, or a folder of PEFT; config: adapter_config.json, if the
    tensors are given as bytes. Errors: ModelNotFound, InvalidInput"""

    def __init__(self, source: Any = None, config: bytes | str | None = None) -> None:
        self.adapter: Adapter | None = None
        self.name = ""
        if source is not None:
            self._read(source, config)

    def Load(self, path: str | os.PathLike[str]) -> None:
        self._read(path, None)

    def _read(self, source: Any, config: bytes | str | None) -> None:
        if isinstance(source, (str, os.PathLike)):
            self.name = Path(source).name
            self.adapter = _from_path(Path(source), config)
        elif isinstance(source, (bytes, bytearray, memoryview)):
            self.name = "adapter"
            self.adapter = read_adapter(bytes(source), config)
        else:
            hint = "give the path of a file or of a folder of PEFT, or the bytes of a file"
            raise InvalidInput(f"an adapter cannot be of type {type(source).__name__}", hint=hint)

    def loaded(self) -> Adapter:
        if self.adapter is None:
            raise InvalidInput("this adapter is empty", hint="call Load(path) first")
        return self.adapter


def _from_path(path: Path, config: bytes | str | None) -> Adapter:
    file, beside = (path / name for name in PEFT_FILES) if path.is_dir() else (path, path.with_name(PEFT_FILES[1]))
    data = file_bytes(file)
    found = read_adapter(data, config)
    has_own = bool(found.config) or path.suffix == ".onnx_adapter" or config is not None
    return found if has_own or not beside.exists() else read_adapter(data, beside.read_bytes())
