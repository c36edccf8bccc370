"""Recurrences on two threads: rows of the batch are shared, and each goes through all steps on the thread it is on."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from pyruntime import InferenceSession, SessionOptions
from pyruntime.program.dims import compile_dim

STEPS, INPUTS, UNITS = 9, 16, 20
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def model(op: str, both: bool, lens: bool) -> bytes:
    rng, d, g = np.random.default_rng(0), 1 + both, GATES[op]
    shapes = {"w": (d, g * UNITS, INPUTS), "r": (d, g * UNITS, UNITS), "b": (d, 2 * g * UNITS)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(s) / 4).astype(np.float32), name) for name, s in shapes.items()
    ]
    inputs = [helper.make_tensor_value_info("x", 1, [STEPS, "batch", INPUTS])]
    inputs += [helper.make_tensor_value_info("lens", onnx.TensorProto.INT32, ["batch"])] * lens
    direction = "bidirectional" if both else "forward"
    names = ["x", "w", "r", "b", *["lens"] * lens]
    node = helper.make_node(op, names, ["y", "last"], hidden_size=UNITS, direction=direction)
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in ("y", "last")]
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made.SerializeToString())


def shared(session: Any, kernel: str) -> tuple[int, int]:
    """Work units of a kernel in the last run, and whether its call was worth sharing."""
    executor = session._native.latest()
    (call,) = [
        c for s in executor.header["blocks"][1]["steps"] for c in s.get("calls", ()) if c["kernel"].startswith(kernel)
    ]
    work, pays = (compile_dim(d)(executor.env) for d in (call["work"], call["params"][-1]))
    return work, pays


@pytest.mark.parametrize("lens", [False, True])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("op", GATES)
def test_batches(op: str, both: bool, lens: bool) -> None:
    data = model(op, both, lens)
    session = InferenceSession(data, SessionOptions(intra_op_num_threads=2))
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    peer = onnxruntime.InferenceSession(data, plain, providers=["CPUExecutionProvider"])
    for batch in (1, 2, 3, 31, 32, 33):
        rng = np.random.default_rng(batch)
        feeds: dict[str, Any] = {"x": rng.standard_normal((STEPS, batch, INPUTS)).astype(np.float32)}
        if lens:
            feeds["lens"] = rng.integers(1, STEPS + 1, batch).astype(np.int32)
        for got, want in zip(session.run(None, feeds), peer.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, atol=2e-5)
        work, pays = shared(session, "loops")
        assert work == (1 + both) * (batch if lens else -(-batch // 2))
        assert batch < 31 or pays
