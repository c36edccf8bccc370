"""onnxruntime's Python API on native sessions: `pyruntime` and `pyruntime.onnxruntime` give these names."""

import pyruntime.native  # noqa: F401  before anything that needs its packages: says what is missing
