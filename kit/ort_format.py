"""Models in ONNX Runtime's own format."""

from __future__ import annotations

from pathlib import Path

LEVELS = ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL")


def saved(model: bytes, path: Path, level: str = "DISABLE_ALL") -> bytes:
    """Saves an ONNX model in the file `path`, optimised to a level. Returns the file's bytes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return path.read_bytes()
