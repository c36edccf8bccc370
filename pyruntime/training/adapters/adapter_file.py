"""Adapters in files: safetensors with PEFT's names and configuration, and ONNX Runtime's `.onnx_adapter`."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyruntime.errors import InvalidInput, UnsupportedOp
from pyruntime.host.regex import Pattern, compiled
from pyruntime.runtime.adapter_config import CONFIG, check_config, unknown_fields
from pyruntime.runtime.adapter_places import Pair, pairs_of
from pyruntime.runtime.safetensors import CODES, check_type
from pyruntime.training.files import onnx_adapter, safetensors
from pyruntime.training.files.onnx_adapter import Versions
from pyruntime.training.files.safetensors import Stored

if TYPE_CHECKING:
    from pathlib import Path

PEFT_FILES = ("adapter_model.safetensors", "adapter_config.json")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Adapter:
    """tensors: by name; config: PEFT's, empty if the file has none (factors of products are then 1)"""

    tensors: Mapping[str, Stored]
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Versions = Versions()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tensors, by name."""
        return {name: t.shape for name, t in self.tensors.items()}

    def pairs(self) -> list[Pair]:
        """The modules. Errors: InvalidInput for what is no LoRA of two matrices"""
        return pairs_of({**self.shapes}, self.config, lambda pattern, module: _ending(pattern).matches(module))

    def to_safetensors(self) -> bytes:
        for name, t in self.tensors.items():
            if t.dtype not in CODES:
                raise InvalidInput(f'"{name}" of {t.dtype} cannot be in a safetensors file of adapters')
        config = {CONFIG: json.dumps(dict(self.config))} if self.config else {}
        return safetensors.write(self.tensors, {"format": "pt", **config})

    def to_onnx_adapter(self) -> bytes:
        return onnx_adapter.write(self.tensors, self.versions)


def read_adapter(data: bytes, config: bytes | str | None = None) -> Adapter:
    """config: adapter_config.json, if it is a file of its own. Errors: InvalidInput"""
    if onnx_adapter.is_onnx_adapter(data):
        tensors, versions = onnx_adapter.read(data)
        return Adapter(tensors, {}, versions)
    stored, metadata = safetensors.read(data)
    for name, t in stored.items():
        check_type(name, t.dtype)
    return Adapter(stored, _config(config if config is not None else metadata.get(CONFIG, "{}"), metadata))


def _config(text: bytes | str, metadata: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    config = checked_config(found)
    if text := unknown_fields(config, metadata):
        warnings.warn(f"pyruntime: {text}", RuntimeWarning, stacklevel=2)
    return config


def checked_config(found: Any) -> Mapping[str, Any]:
    """PEFT's configuration. Errors: InvalidInput for another kind of adapter"""
    check_config(found)
    if not all(map(_is_pattern, found.get("alpha_pattern") or ())):
        raise InvalidInput("alpha_pattern has a pattern that is no regular expression", hint="RE2 has the syntax")
    return found


def _ending(pattern: str) -> Pattern:
    """What a module's name, or its last part, matches. A file's pattern may not take long, so the time is linear."""
    return compiled(rf"(.*\.)?({pattern})")


def _is_pattern(text: str) -> bool:
    try:
        _ending(text)
    except UnsupportedOp:
        return False
    return True


def adapter_files(path: Path, adapter: Adapter, times: Callable[[Stored, float], Stored]) -> dict[Path, bytes]:
    """The files to write: one by its ending, or those of a folder as PEFT has it, which is made. times: a tensor with
    its numbers multiplied, in float32"""
    if path.suffix == ".safetensors":
        return {path: adapter.to_safetensors()}
    if path.suffix == ".onnx_adapter":
        return {path: _folded(adapter, times).to_onnx_adapter()}
    path.mkdir(parents=True, exist_ok=True)
    config = json.dumps(dict(adapter.config), indent=2).encode()
    weights, settings = PEFT_FILES
    return {path / weights: adapter.to_safetensors(), path / settings: config}


def _folded(adapter: Adapter, times: Callable[[Stored, float], Stored]) -> Adapter:
    """Without a configuration: the factors are in B, because ONNX Runtime's format has none."""
    if not adapter.config:
        return adapter
    tensors = dict(adapter.tensors)
    for pair in adapter.pairs():
        if pair.scale != 1.0:
            tensors[pair.b] = times(tensors[pair.b], pair.scale)
    return Adapter(tensors, {}, adapter.versions)
