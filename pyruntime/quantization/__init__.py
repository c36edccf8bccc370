"""Weights of fewer bits: a smaller model that reads less memory, with a report of what that costs.

`quantize` is the public function. It needs numpy and onnx.
"""

from __future__ import annotations

from importlib.util import find_spec

from pyruntime.errors import NotSupported

if find_spec("onnx") is None:
    raise NotSupported("the package onnx is not installed", hint='pip install "pyruntime-onnx[quantize]"')
