"""pyruntime: ONNX inference by a compiler written in Python.

On the desktop, `InferenceSession` runs models like onnxruntime's; in the browser, `pyruntime.browser` compiles them for
the JavaScript executor. Importing this package costs nothing: the session is loaded on first use.
"""

from __future__ import annotations

from typing import Any

from pyruntime.errors import (
    InvalidInput,
    InvalidModel,
    OutOfMemory,
    PyRuntimeError,
    ShapeError,
    UnsupportedOp,
)

__version__ = "0.1.0"
__all__ = [
    "InferenceSession",
    "InvalidInput",
    "InvalidModel",
    "OutOfMemory",
    "PyRuntimeError",
    "SessionOptions",
    "ShapeError",
    "UnsupportedOp",
]


def __getattr__(name: str) -> Any:
    if name in ("InferenceSession", "SessionOptions"):
        from pyruntime import session

        return getattr(session, name)
    raise AttributeError(name)
