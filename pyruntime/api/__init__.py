"""onnxruntime's Python API on native sessions: `pyruntime` and `pyruntime.onnxruntime` export its names."""

import pyruntime.native  # noqa: F401  first, because its error names missing packages
