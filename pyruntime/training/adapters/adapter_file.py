"""Adapters in files: safetensors with PEFT's names and configuration, and ONNX Runtime's `.onnx_adapter`.
Twin of web/page/training/adapter_file.js."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyruntime.errors import InvalidInput, UnsupportedOp
from pyruntime.host.regex import Pattern, compiled
from pyruntime.training.files import onnx_adapter, safetensors
from pyruntime.training.files.onnx_adapter import Versions
from pyruntime.training.files.safetensors import Stored

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "adapter_config"  # in the metadata of our safetensors files: PEFT's adapter_config.json
PEFT_FILES = ("adapter_model.safetensors", "adapter_config.json")
_PAIR = re.compile(r"(.*?)[._]?lora[_.](A|B|down|up)(?:\.(?!weight$)\w+)?(?:\.weight)?")
_FIRST = ("A", "down")
_MOST = 3e38  # of lora_alpha: it scales float32


@dataclass(frozen=True, slots=True)
class Pair:
    """Of one module the names of A and B, and the factor of their product"""

    module: str
    a: str
    b: str
    scale: float


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Adapter:
    """tensors: by name; config: PEFT's, empty if the file has none (factors of products are then 1)"""

    tensors: Mapping[str, Stored]
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Versions = Versions()

    def pairs(self) -> list[Pair]:
        """The modules. Errors: InvalidInput for what is no LoRA of two matrices"""
        found: dict[str, dict[str, str]] = {}
        for name in self.tensors:
            matched = _PAIR.fullmatch(name)
            if matched is None:
                raise InvalidInput(f'"{name}" is no matrix of a LoRA', hint=_why(name))
            found.setdefault(matched[1], {})["a" if matched[2] in _FIRST else "b"] = name
        return [self._pair(module, **names) for module, names in found.items()]

    def _pair(self, module: str, a: str = "", b: str = "") -> Pair:
        if not (a and b):
            raise InvalidInput(f'of "{module}" the adapter has only {a or b}', hint="it needs lora_A and lora_B")
        first, second = self.tensors[a].shape, self.tensors[b].shape
        if len(first) != 2 or len(second) != 2 or first[0] != second[1] and first[1] != second[0]:
            hint = "adapters of convolutions are not supported" if len(first) > 2 else ""
            raise InvalidInput(f'"{a}" {list(first)} and "{b}" {list(second)} are no two matrices', hint=hint)
        return Pair(module, a, b, self._scale(module, first[0] if first[0] == second[1] else first[1]))

    def _scale(self, module: str, rank: int) -> float:
        """As PEFT computes it: lora_alpha over the rank, or over its root."""
        config = self.config
        if not config:
            return 1.0
        alpha = config.get("lora_alpha", config.get("alpha", rank))
        for pattern, value in (config.get("alpha_pattern") or {}).items():
            if _ending(pattern).matches(module):
                alpha = value
                break  # PEFT takes the first pattern that matches
        return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else max(rank, 1))

    def to_safetensors(self) -> bytes:
        for name, t in self.tensors.items():
            if t.dtype not in safetensors.CODES:
                raise InvalidInput(f'"{name}" of {t.dtype} cannot be in a safetensors file of adapters')
        config = {CONFIG: json.dumps(dict(self.config))} if self.config else {}
        return safetensors.write(self.tensors, {"format": "pt", **config})

    def to_onnx_adapter(self) -> bytes:
        return onnx_adapter.write(self.tensors, self.versions)


def _why(name: str) -> str:
    if "magnitude" in name:
        return "DoRA is not supported"
    if "embedding" in name:
        return "adapters of embeddings are not supported"
    return "weights that an adapter replaces (modules_to_save) are not supported: merge them into the model"


def read_adapter(data: bytes, config: bytes | str | None = None) -> Adapter:
    """config: adapter_config.json, if it is a file of its own. Errors: InvalidInput"""
    if onnx_adapter.is_onnx_adapter(data):
        tensors, versions = onnx_adapter.read(data)
        return Adapter(tensors, {}, versions)
    stored, metadata = safetensors.read(data)
    return Adapter(stored, _config(config if config is not None else metadata.get(CONFIG, "{}")))


def _config(text: bytes | str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return checked_config(found)


def checked_config(found: Any) -> Mapping[str, Any]:
    """PEFT's configuration. Errors: InvalidInput for another kind of adapter"""
    if not isinstance(found, dict):
        raise InvalidInput("the adapter's configuration is no JSON object", hint="give PEFT's adapter_config.json")
    if found.get("peft_type", "LORA") != "LORA" or found.get("use_dora"):
        kind = "DoRA" if found.get("use_dora") else found.get("peft_type")
        raise InvalidInput(f"an adapter of kind {kind} is not supported", hint="LoRA is")
    alphas = found.get("alpha_pattern") or {}
    if not isinstance(alphas, dict) or not all(map(_is_pattern, alphas)):
        raise InvalidInput("alpha_pattern is no table of patterns", hint="give PEFT's adapter_config.json")
    for alpha in (*(found[k] for k in ("lora_alpha", "alpha") if k in found), *alphas.values()):
        if type(alpha) not in (int, float) or not abs(alpha) <= _MOST:
            raise InvalidInput(f"the adapter's lora_alpha is {alpha!r}, not a number")
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
