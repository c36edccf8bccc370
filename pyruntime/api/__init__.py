"""onnxruntime's Python API on native sessions: `pyruntime` and `pyruntime.onnxruntime` give these names."""
