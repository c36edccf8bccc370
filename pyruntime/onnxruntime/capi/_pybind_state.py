"""onnxruntime's names and exceptions, where its extension module has them."""

from __future__ import annotations

from pyruntime.api.names import ERRORS, NAMES

globals().update(NAMES | ERRORS)

__all__ = [*NAMES, *ERRORS]  # noqa: PLE0604  names of what is there
