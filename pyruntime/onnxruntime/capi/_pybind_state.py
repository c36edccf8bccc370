"""onnxruntime's names and exceptions, as in its extension module."""

from __future__ import annotations

from pyruntime.onnxruntime.names import ERRORS, NAMES

globals().update(NAMES | ERRORS)

__all__ = [*NAMES, *ERRORS]  # noqa: PLE0604  all are strings
