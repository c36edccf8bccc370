"""pyruntime: ONNX inference by a compiler written in Python.

On the desktop, `InferenceSession` runs models like onnxruntime's; in the browser, `pyruntime.browser` compiles them for
the JavaScript executor. `op` and `elementwise` register operators of your own (CONTRIBUTING.md). Importing this package
costs nothing: the session and the operators are loaded on first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from pyruntime.errors import (
    InvalidInput,
    InvalidModel,
    LimitExceeded,
    NotDifferentiable,
    NotSupported,
    OutOfMemory,
    PyRuntimeError,
    SessionFailed,
    ShapeError,
    Terminated,
    UnsupportedOp,
)

__version__ = "0.1.0"
__all__ = [
    "Batcher",
    "ExecutionMode",
    "GpuTensor",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InvalidInput",
    "InvalidModel",
    "LimitExceeded",
    "LoraAdapter",
    "NotDifferentiable",
    "NotSupported",
    "OrtValue",
    "OutOfMemory",
    "PyRuntimeError",
    "RunOptions",
    "SessionFailed",
    "SessionOptions",
    "ShapeError",
    "Terminated",
    "TextGenerator",
    "TrainingSession",
    "UnsupportedOp",
    "elementwise",
    "export_to_opentelemetry",
    "get_available_providers",
    "get_device",
    "graph_pass",
    "inspect",
    "off",
    "on",
    "op",
    "quantize",
    "register_provider",
    "remove_pass",
    "rewrite_rule",
    "set_memory_limit",
    "stats",
]

# Names that onnxruntime also exports; `pyruntime.onnxruntime` has all of its names.
_API = """ExecutionMode GraphOptimizationLevel IOBinding InferenceSession LoraAdapter OrtValue RunOptions SessionOptions
get_available_providers get_device""".split()
_IN_PYODIDE = {
    **dict.fromkeys(("InferenceSession", "LoraAdapter", "RunOptions", "SessionOptions"), "session"),
    "TrainingSession": "training",
    "quantize": "quantization",
}


def __getattr__(name: str) -> Any:
    if name in _IN_PYODIDE and sys.platform == "emscripten":
        return getattr(import_module(f"pyruntime.pyodide.{_IN_PYODIDE[name]}"), name)
    if name in _API:
        from pyruntime.api.names import NAMES

        return NAMES[name]
    if name == "GpuTensor":
        from pyruntime.native.gpu.tensor import GpuTensor

        return GpuTensor
    if name == "TrainingSession":
        from pyruntime.native.training.session import TrainingSession

        return TrainingSession
    if name == "quantize":
        from pyruntime.native.tools.quantization import quantize

        return quantize
    if name == "TextGenerator":
        from pyruntime.api.text_generator import TextGenerator

        return TextGenerator
    if name == "Batcher":
        from pyruntime.api.batcher import Batcher

        return Batcher
    if name == "export_to_opentelemetry":
        from pyruntime.api.telemetry import export_to_opentelemetry

        return export_to_opentelemetry
    if name == "inspect":
        from pyruntime.native.tools.inspection import inspect

        return inspect
    if name in ("elementwise", "op"):
        import pyruntime.ops  # noqa: F401  fills the table, so that a user's own operators come after ours
        from pyruntime.frontend import registry

        registry.complete()
        return getattr(registry, name)
    if name == "register_provider":
        from pyruntime.placement import provider_list

        return getattr(provider_list, name)
    if name == "set_memory_limit":
        from pyruntime.native.memory import budgets

        return budgets.set_memory_limit
    if name == "stats":
        from pyruntime.native.sessions.process_stats import stats

        return stats
    if name in ("off", "on"):
        from pyruntime.session import events

        return getattr(events, name)
    if name in ("graph_pass", "remove_pass", "rewrite_rule"):
        from pyruntime.compiler import user_passes

        return getattr(user_passes, name)
    raise AttributeError(name)
