"""Slices by the lengths of a decoder's feeds, as exporters write them: however many layers have one, the shapes stay
those of the feeds, so that one Program serves all lengths."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from pyruntime import InferenceSession

LAYERS = 6
HEAD = """<ir_version: 8, opset_import: ["" : 17]>
g (float[p, 4] past, float[s, 4] x0, int64[t] mask, bool[64, 64] table, float[64, 4] places) => (float[rows, 4] x%d) {
zero = Constant <value_ints = [0]> ()  one = Constant <value_ints = [1]> ()  two = Constant <value_ints = [2]> ()
far = Constant <value_ints = [9223372036854775807]> ()  low = Constant <value_float = -1e30> ()
first = Constant <value_int = 0> ()  step = Constant <value_int = 1> ()  axes = Constant <value_ints = [0]> ()
"""
ATTENTION = """k{n} = Concat <axis = 0> (past, x{n})  turned{n} = Transpose (k{n})  raw{n} = MatMul (x{n}, turned{n})
size{n} = Shape (raw{n})  rows{n} = Slice (size{n}, zero, one)  keys{n} = Slice (size{n}, one, two)
%s
w{n} = Softmax (s{n})  y{n} = MatMul (w{n}, k{n})  x{m} = Add (x{n}, y{n})
"""
LAYER = {
    "the causal table of GPT-2": ATTENTION % """start{n} = Sub (keys{n}, rows{n})
        cut{n} = Slice (table, start{n}, keys{n}, zero)  part{n} = Slice (cut{n}, zero, keys{n}, one)
        s{n} = Where (part{n}, raw{n}, low)""",
    "the last rows of T5's bias": ATTENTION % """end{n} = Squeeze (keys{n}, axes)  last{n} = Neg (rows{n})
        all{n} = Range (first, end{n}, step)  down{n} = Unsqueeze (all{n}, one)  apart{n} = Sub (all{n}, down{n})
        float{n} = Cast <to = 1> (apart{n})  bias{n} = Slice (float{n}, last{n}, far, zero)
        s{n} = Add (raw{n}, bias{n})""",
    "the last places of a mask": """size{n} = Shape (x{n})  rows{n} = Slice (size{n}, zero, one)
        last{n} = Neg (rows{n})  sum{n} = CumSum (mask, first)  at{n} = Slice (sum{n}, last{n}, far, zero)
        y{n} = Gather (places, at{n})  x{m} = Add (x{n}, y{n})""",
    "a mask's places behind the past": """size{n} = Shape (past)  from{n} = Slice (size{n}, zero, one)
        sum{n} = CumSum (mask, first)  at{n} = Slice (sum{n}, from{n}, far, zero)
        y{n} = Gather (places, at{n})  x{m} = Add (x{n}, y{n})""",
}  # fmt: skip
LAYER["a cache written at the first of some places"] = """size{n} = Shape (x{n})  rows{n} = Slice (size{n}, zero, one)
        sum{n} = CumSum (mask, first)  from{n} = Slice (sum{n}, zero, one, zero)  to{n} = Add (from{n}, rows{n})
        head{n} = Slice (places, zero, from{n}, zero)  tail{n} = Slice (places, to{n}, far, zero)
        all{n} = Concat <axis = 0> (head{n}, x{n}, tail{n})  down{n} = Transpose (all{n})
        raw{n} = MatMul (x{n}, down{n})  w{n} = Softmax (raw{n})  y{n} = MatMul (w{n}, all{n})  x{m} = Add (x{n}, y{n})
        """
LENGTHS = [(0, 5), (5, 1), (6, 1), (7, 3), (59, 4), (62, 1)]


@pytest.mark.parametrize("layer", LAYER)
def test_one_program_serves_all_lengths(layer: str) -> None:
    body = "".join(LAYER[layer].format(n=n, m=n + 1) for n in range(LAYERS))
    data = onnx.parser.parse_model(HEAD % LAYERS + body + "}").SerializeToString()
    ours, theirs = InferenceSession(data), onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    program = ours._native.latest()  # compiled before any feed
    random = np.random.default_rng(0)
    for past, rows in LENGTHS:
        given = {
            "past": random.standard_normal((past, 4), np.float32), "x0": random.standard_normal((rows, 4), np.float32),
            "mask": np.ones(past + rows, np.int64), "table": np.tri(64, dtype=bool),
            "places": random.standard_normal((64, 4), np.float32),
        }  # fmt: skip
        given = {v.name: given[v.name] for v in theirs.get_inputs()}
        np.testing.assert_allclose(ours.run(None, given)[0], theirs.run(None, given)[0], rtol=1e-4, atol=1e-5)
    assert ours._native.latest() is program
