"""onnxruntime's Python API on native sessions: `pyruntime` and `pyruntime.onnxruntime` export its names."""

import sys

if sys.platform != "emscripten":  # where pyruntime.onnxruntime takes some modules of this package
    import pyruntime.native  # noqa: F401  first, because its error names missing packages
