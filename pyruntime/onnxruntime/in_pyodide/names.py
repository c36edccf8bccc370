"""The names of onnxruntime that there are in Pyodide. Those that need the desktop are refused with a reason."""

from __future__ import annotations

from typing import Any

from pyruntime import ort_errors
from pyruntime.api import refused
from pyruntime.api.name_table import named
from pyruntime.frontend.feed_checks import NodeArg
from pyruntime.onnxruntime.in_pyodide.session import InferenceSession
from pyruntime.onnxruntime.in_pyodide.values import IOBinding, OrtValue
from pyruntime.session.run_options import RunOptions
from pyruntime.training.adapters.lora_adapter import LoraAdapter

NAMES = named(("devices", "enums", "logs", "model_metadata", "options", "process", "providers"))
NAMES |= refused.NAMES
NAMES |= {x.__name__: x for x in (IOBinding, InferenceSession, LoraAdapter, NodeArg, OrtValue, RunOptions)}
NAMES["SessionIOBinding"] = IOBinding
ERRORS: dict[str, Any] = {name: getattr(ort_errors, name) for name in ort_errors.__all__}
