"""pyruntime: ONNX inference by a compiler written in Python.

On the desktop, `InferenceSession` runs models like onnxruntime's; in the browser, `pyruntime.browser` compiles them for
the JavaScript executor. `op` and `elementwise` register operators of your own (CONTRIBUTING.md). Importing this package
costs nothing: the session and the operators are loaded on first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:  # the names that __getattr__ finds
    from pyruntime.api.batcher import Batcher
    from pyruntime.api.enums import ExecutionMode, GraphOptimizationLevel
    from pyruntime.api.io_binding import IOBinding
    from pyruntime.api.options import SessionOptions
    from pyruntime.api.ort_value import OrtValue
    from pyruntime.api.providers import get_available_providers, get_device
    from pyruntime.api.session import InferenceSession
    from pyruntime.api.telemetry import export_to_opentelemetry
    from pyruntime.api.text_generator import TextGenerator
    from pyruntime.codegen.array_provider import ArrayProvider
    from pyruntime.compiler.user_passes import graph_pass, remove_pass, rewrite_rule
    from pyruntime.frontend.registry import elementwise, op
    from pyruntime.native.gpu.tensor import GpuTensor
    from pyruntime.native.memory.budgets import set_memory_limit
    from pyruntime.native.sessions.process_stats import stats
    from pyruntime.native.smaller.comparison import compare_models
    from pyruntime.native.smaller.pruning import prune
    from pyruntime.native.tools.inspection import inspect
    from pyruntime.native.tools.optimized_model import save_optimized
    from pyruntime.native.tools.quantization import quantize, quantize_static
    from pyruntime.native.training.session import TrainingSession
    from pyruntime.placement.provider_list import register_provider
    from pyruntime.session.events import off, on
    from pyruntime.session.run_options import RunOptions
    from pyruntime.training.adapters.lora_adapter import LoraAdapter

__version__ = "0.1.0"
__all__ = [
    "ArrayProvider",
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
    "compare_models",
    "elementwise",
    "export_to_opentelemetry",
    "get_available_providers",
    "get_device",
    "graph_pass",
    "inspect",
    "off",
    "on",
    "op",
    "prune",
    "quantize",
    "quantize_static",
    "register_provider",
    "remove_pass",
    "rewrite_rule",
    "save_optimized",
    "set_memory_limit",
    "stats",
]

# name -> module below this package, imported on first use; `pyruntime.onnxruntime` has all names of onnxruntime.
_MODULES = {
    "ArrayProvider": "codegen.array_provider",
    "Batcher": "api.batcher",
    "ExecutionMode": "api.enums",
    "GpuTensor": "native.gpu.tensor",
    "GraphOptimizationLevel": "api.enums",
    "IOBinding": "api.io_binding",
    "InferenceSession": "api.session",
    "LoraAdapter": "training.adapters.lora_adapter",
    "OrtValue": "api.ort_value",
    "RunOptions": "session.run_options",
    "SessionOptions": "api.options",
    "TextGenerator": "api.text_generator",
    "TrainingSession": "native.training.session",
    "compare_models": "native.smaller.comparison",
    "elementwise": "frontend.registry",
    "export_to_opentelemetry": "api.telemetry",
    "get_available_providers": "api.providers",
    "get_device": "api.providers",
    "graph_pass": "compiler.user_passes",
    "inspect": "native.tools.inspection",
    "off": "session.events",
    "on": "session.events",
    "op": "frontend.registry",
    "prune": "native.smaller.pruning",
    "quantize": "native.tools.quantization",
    "quantize_static": "native.tools.quantization",
    "register_provider": "placement.provider_list",
    "remove_pass": "compiler.user_passes",
    "rewrite_rule": "compiler.user_passes",
    "save_optimized": "native.tools.optimized_model",
    "set_memory_limit": "native.memory.budgets",
    "stats": "native.sessions.process_stats",
}
_IN_PYODIDE = {
    **dict.fromkeys(("InferenceSession", "LoraAdapter", "RunOptions", "SessionOptions"), "pyodide.session"),
    "TrainingSession": "pyodide.training",
    **dict.fromkeys(("quantize", "quantize_static"), "pyodide.quantization"),
}
if sys.platform == "emscripten":
    _MODULES |= _IN_PYODIDE


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES[name]}")
    if name in ("elementwise", "op"):
        import pyruntime.ops  # noqa: F401  fills the table, so that a user's own operators come after ours

        module.complete()
    return getattr(module, name)
