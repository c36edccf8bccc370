"""Reads through reshapes of repeated tensors (pass reshaped_views), on the GPU, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from pyruntime.native.sessions.session import Session

pytest.importorskip("wgpu")

ATTENTION = """
    s = Shape <start = 2, end = 3> (k)
    flat = Concat <axis = 0> (minus, s, size)  apart = Concat <axis = 0> (minus, eight, size, s)
    k5 = Unsqueeze (k, two)  repeated = Expand (k5, times)  k4 = Reshape (repeated, joined)
    k3 = Reshape (k4, flat)  turned = Transpose <perm = [0, 2, 1]> (k3)  t4 = Reshape (turned, apart)
    scaled = Mul (t4, scale)  y = MatMul (q, scaled)"""
CASES = {
    "heads that share keys": (
        ATTENTION, "float[B, 8, M, 16] q, float[B, 2, S, 16] k", {"q": (3, 8, 5, 16), "k": (3, 2, 7, 16)},
        {"two": [2], "times": [1, 1, 4, 1, 1], "joined": [0, 8, -1, 16], "minus": [-1], "size": [16], "eight": [8]}),
    "each head twice, all axes in one": (
        "r = Expand (k, times)  f = Reshape (r, flat)  y = Mul (f, q)",
        "float[60] q, float[5, 1, 6] k", {"q": (60,), "k": (5, 1, 6)}, {"times": [1, 2, 1], "flat": [-1]}),
    "taken apart otherwise than it was joined": (
        "r = Expand (k, times)  f = Reshape (r, flat)  g = Reshape (f, other)  y = Mul (g, q)",
        "float[2, 5, 6] q, float[5, 1, 6] k", {"q": (2, 5, 6), "k": (5, 1, 6)},
        {"times": [1, 2, 1], "flat": [10, 6], "other": [2, 5, 6]}),
    "neither joined nor taken apart": (
        "r = Expand (k, times)  f = Reshape (r, flat)  y = Mul (f, q)",
        "float[6, 10] q, float[5, 1, 6] k", {"q": (6, 10), "k": (5, 1, 6)}, {"times": [1, 2, 1], "flat": [6, 10]}),
    "unknown axes joined behind the first": (
        "r = Expand (k, times)  f = Reshape (r, flat)  y = Mul (f, q)",
        "float[F] q, float[2, 1, N] k", {"q": (42,), "k": (2, 1, 7)}, {"times": [1, 3, 1], "flat": [-1]}),
    "none": (
        "r = Expand (k, times)  f = Reshape (r, flat)  y = Mul (f, q)",
        "float[F] q, float[2, 1, N] k", {"q": (0,), "k": (2, 1, 0)}, {"times": [1, 3, 1], "flat": [-1]}),
    "the repeated tensor is read, too": (
        "r = Expand (k, times)  f = Reshape (r, flat)  y = Mul (f, q)  z = Neg (r)",
        "float[10, N] q, float[5, 1, N] k", {"q": (10, 6), "k": (5, 1, 6)}, {"times": [1, 2, 1], "flat": [10, -1]}),
}  # fmt: skip


def made(body: str, inputs: str, constants: dict[str, list[int]]) -> bytes:
    outputs = "float[K, L, J] y" if "z" not in body else "float[K, L] y, float[A, B, C] z"
    outputs = outputs if "MatMul" not in body else "float[B, 8, M, S] y"
    given = ", ".join(f"int64[{len(v)}] {n} = {{{', '.join(map(str, v))}}}" for n, v in constants.items())
    text = f"""<ir_version: 9, opset_import: ["" : 17]> g ({inputs}) => ({outputs})
        <{given}, float scale = {{0.25}}> {{ {body} }}"""
    model = onnx.parser.parse_model(text)
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("name", CASES)
def test_same_as_onnxruntime(name: str) -> None:
    body, inputs, shapes, constants = CASES[name]
    data = made(body, inputs, constants)
    rng = np.random.default_rng(5)
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    want = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    session = Session(data, providers=["webgpu"])
    for found, expected in zip(session.run(None, feeds), want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_keys_are_not_repeated_in_memory() -> None:
    """No kernel but the product reads the keys: the queries are scaled in their place."""
    body, inputs, _, constants = CASES["heads that share keys"]
    session = Session(made(body, inputs, constants), providers=["webgpu"])
    session.run(None, {"q": np.zeros((1, 8, 1, 16), np.float32), "k": np.zeros((1, 2, 9, 16), np.float32)})
    (executor,) = session.executors.values()
    steps = executor.header["blocks"][1]["steps"]
    keys = next(i["buffer"] for i in executor.header["inputs"] if i["name"] == "k")
    on_gpu = {s["buffer"]: t["buffer"] for step in steps if step["op"] == "copy" for s, t in step["pairs"]}
    calls = [c for step in steps if step["op"] == "gpu" for c in step["calls"]]
    assert [on_gpu[keys] in c["buffers"] for c in calls] == [False, True]
