"""The model reader: ONNX bytes -> Graph."""

from pyruntime.onnx.load import load

__all__ = ["load"]
