"""Traces: the rows and times of kernels on both providers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from pyruntime import InferenceSession, SessionOptions
from pyruntime.runtime.trace import GPU, Trace, TracedCall

ADD, CAST = 'Add "a" (opset 20)', 'Cast "c" (opset 20)'


def test_kernels_on_the_gpu_have_a_row_of_their_own() -> None:
    """Kernels on the CPU are drawn so that the last one ends with the run. A kernel on the GPU begins at the time that
    the GPU's clock gives, and with the run if it gives none."""
    trace = Trace(1000.0, 7, 1)
    calls = [
        TracedCall(ADD, "Add", "add", "webgpu", 2.0, 1.5, 48), TracedCall(CAST, "Cast", "cast", "wasm", 1.0),
        TracedCall(ADD, "Add", "add", "webgpu", 0.25), TracedCall(CAST, "Cast", "cast", "wasm", 2.0004),
    ]  # fmt: skip
    trace.kernels(calls, 1010.0, 1020.0)
    kernels = [e for e in trace.events if e["ph"] == "X"]
    assert [(e["tid"], e["ts"], e["dur"]) for e in kernels] == [
        (GPU, 11500, 2000), (1, 16999.6, 1000), (GPU, 13500, 250), (1, 17999.6, 2000.4)
    ]  # fmt: skip
    first = kernels[0]["args"]
    assert first["provider"] == "WebGpuExecutionProvider" and (first["op_name"], first["bytes"]) == ("Add", 48)
    assert kernels[1]["args"]["provider"] == "CPUExecutionProvider"
    rows = [(e["tid"], e["args"]["name"]) for e in trace.events if e["ph"] == "M"]
    assert rows == [(1, "session"), (GPU, "GPU")]
    trace.kernels(calls, 1030.0, 1040.0)
    assert len(trace.events) == 2 * len(calls) + 2, "rows are named once"


def test_a_trace_without_a_gpu_has_one_row() -> None:
    trace = Trace(10.0, 7, 3)
    trace.kernels([TracedCall(ADD, "Add", "add", "wasm", 20.0)], 11.0, 12.0)
    trace.session("model_run", 11.0, 12.0, {})
    assert [(e["tid"], e["ts"], e["ph"]) for e in trace.events] == [(3, 0, "X"), (3, 1000, "X")]


def test_each_kernel_names_the_provider_that_ran_it(tmp_path: Path) -> None:
    pytest.importorskip("wgpu")
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17]>
        g (float[N, 64] x, double[N] d) => (float[N, 64] y, double[N] e) { y = Mul (x, x)  e = Sin (d) }"""
    )
    options = SessionOptions(enable_profiling=True, profile_file_prefix=str(tmp_path / "trace"))
    session = InferenceSession(model.SerializeToString(), options, providers=["webgpu"])
    session.run(None, {"x": np.ones((4, 64), np.float32), "d": np.ones(4)})
    events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text())
    nodes = [e for e in events if e["cat"] == "Node"]
    found = {e["args"]["op_name"]: (e["args"]["provider"], e["tid"] == GPU) for e in nodes}
    assert found == {"Mul": ("WebGpuExecutionProvider", True), "Sin": ("CPUExecutionProvider", False)}
