"""onnxruntime's classes, as in its Python module."""

from __future__ import annotations

from pyruntime.onnxruntime.names import NAMES

_CLASSES = "AdapterFormat IOBinding InferenceSession ModelCompiler OrtDevice OrtDeviceVendorId OrtValue SparseTensor"

globals().update({name: NAMES[name] for name in [*_CLASSES.split(), "copy_tensors"]})
Session = NAMES["InferenceSession"]  # in onnxruntime, the base class of InferenceSession
