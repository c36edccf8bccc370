"""All names of onnxruntime's modules, on this platform."""

from __future__ import annotations

import sys
from typing import Any

NAMES: dict[str, Any]
ERRORS: dict[str, Any]
if sys.platform == "emscripten":
    from pyruntime.onnxruntime.in_pyodide.names import ERRORS, NAMES
else:
    from pyruntime.api.names import ERRORS, NAMES

__all__ = ["ERRORS", "NAMES"]
