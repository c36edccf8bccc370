"""Faults of a GPU, and what a session with the providers webgpu and wasm makes of them: one table for native sessions
(tests/webgpu/test_recovery.py) and for pages (e2e/test_recovery.py), which cause the faults."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx

# What leaves the GPU
NODES, SESSION, NOTHING = "nodes", "session", "nothing"

_WEIGHT = np.random.default_rng(0).random((128, 128), np.float32) / 64
# Its kernels pay for their copies, so they are on the GPU although WebAssembly is in the list.
_TEXT = """<ir_version: 9, opset_import: ["" : 17]> g (float[N, 128] x) => (float[N, 128] y, float[N, 128] e)
    { [first] a = MatMul (x, w)  [exp] e = Exp (a)  [second] b = MatMul (e, w)  [tanh] y = Tanh (b) }"""


def model() -> bytes:
    made = onnx.parser.parse_model(_TEXT)
    made.graph.initializer.append(onnx.numpy_helper.from_array(_WEIGHT, "w"))
    return bytes(made.SerializeToString())


def feed(rows: int) -> np.ndarray:
    return (np.arange(rows * 128, dtype=np.float32) % 61 / 64).reshape(rows, 128)


def right(rows: int) -> dict[str, np.ndarray]:
    e = np.exp(feed(rows) @ _WEIGHT)
    return {"y": np.tanh(e @ _WEIGHT), "e": e}


class Fault(NamedTuple):
    """kind: what happens; when: while the session is created, in a run, or between two runs; times: how often, 0 for
    ever; moved: what leaves the GPU; error: the type of the error without fallback; reason: a part of it"""

    kind: str
    when: str
    times: int
    moved: str
    error: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.kind} at {self.when} {self.times or 'always'}"


TABLE = [
    Fault("refused shader", "creation", 0, NODES, "ExecutionError", "refused"),
    Fault("refused shaders", "creation", 0, NODES, "ExecutionError", "refused"),
    Fault("slow shader", "creation", 0, NODES, "ExecutionError", "not compiled"),
    Fault("full", "creation", 1, NOTHING, "OutOfMemory"),
    Fault("full", "creation", 2, SESSION, "OutOfMemory", "no memory left"),
    Fault("full", "creation", 0, SESSION, "OutOfMemory", "no memory left"),
    Fault("full", "run", 1, NOTHING, "OutOfMemory"),
    Fault("full", "run", 2, SESSION, "OutOfMemory", "no memory left"),
    Fault("full", "run", 0, SESSION, "OutOfMemory", "no memory left"),
    Fault("taken memory", "run", 0, SESSION, "OutOfMemory", "no memory left"),
    Fault("lost", "creation", 1, NOTHING, "DeviceLost"),
    Fault("lost", "run", 1, NOTHING, "DeviceLost"),
    Fault("lost", "between", 1, NOTHING, "DeviceLost"),
    Fault("lost", "creation", 0, SESSION, "DeviceLost", "lost"),
    Fault("lost", "run", 0, SESSION, "DeviceLost", "lost"),
    Fault("gone", "creation", 0, SESSION, "NoAdapter", "adapter"),
    Fault("gone", "run", 0, SESSION, "DeviceLost"),
    Fault("gone", "between", 0, SESSION, "DeviceLost"),
    Fault("hang", "run", 0, SESSION, "DeviceLost", "not answered"),
    # Requests that never answer
    Fault("silent adapter", "creation", 0, SESSION, "NoAdapter", "WebGPU device within"),
    Fault("silent device", "creation", 0, SESSION, "NoAdapter", "WebGPU device within"),
    Fault("silent adapter", "between", 0, SESSION, "DeviceLost"),
]
WAITING = ("slow shader", "hang", "silent adapter", "silent device")  # kinds that a short timeout ends
ABSENT = ("gone", "silent adapter", "silent device")  # kinds that leave a session without a GPU at its creation
