"""Attention as exporters write it, over caches that grow: the caches are read where they lie, by all heads that share
them, and results are those of onnxruntime."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime
import pytest

from pyruntime import InferenceSession

HEAD = """<ir_version: 8, opset_import: ["" : 17]>
g (T[b, H, s, 8] q, T[b, G, s, 8] new_k, T[b, G, s, 8] new_v, T[b, G, p, 8] past_k, T[b, G, p, 8] past_v)
=> (T[b, H, s2, 8] y, T[b, G, all, 8] k, T[b, G, all, 8] v) {
k = Concat <axis = 2> (past_k, new_k)  v = Concat <axis = -2> (past_v, new_v)
two = Constant <value_ints = [2]> ()  size = Shape (k)  batch = Shape <start = 0, end = 1> (k)
length = Shape <start = 2, end = 3> (k)  rows = Shape <start = 2, end = 3> (q)
groups = Constant <value_ints = [G]> ()  share = Constant <value_ints = [SHARE]> ()
heads = Constant <value_ints = [H]> ()  width = Constant <value_ints = [8]> ()  rest = Constant <value_ints = [-1]> ()
half = Constant <value_float = 0.6> ()  factor = CastLike (half, q)
repeats = Constant <value_ints = [1, 1, SHARE, 1, 1]> ()
wide = Concat <axis = 0> (batch, groups, share, length, width)  flat = Concat <axis = 0> (batch, heads, length, width)
"""
EXPANDED = """
k5 = Unsqueeze (k, two)  kw = Expand (k5, wide)  ks = Reshape (kw, flat)
v5 = Unsqueeze (v, two)  vw = Expand (v5, wide)  vs = Reshape (vw, flat)
"""
TILED = """
k5 = Unsqueeze (k, two)  kw = Tile (k5, repeats)  ks = Reshape (kw, flat)
v5 = Unsqueeze (v, two)  vw = Tile (v5, repeats)  vs = Reshape (vw, flat)
"""
ALONE = "ks = Identity (k)  vs = Identity (v)"
SCALED = """
turned = Transpose <perm = [0, 1, 3, 2]> (ks)  scaled = Mul (turned, factor)  sq = Mul (q, factor)
scores = MatMul (sq, scaled)
"""
FIRST = """
scaled = Div (ks, factor)  turned = Transpose <perm = [0, 1, 3, 2]> (scaled)  scores = MatMul (q, turned)
"""
PLAIN = "turned = Transpose <perm = [0, 1, 3, 2]> (ks)  raw = MatMul (q, turned)  scores = Mul (raw, factor)"
VALUES = "weights = Softmax (scores)  y = MatMul (weights, vs)"
FLAT = """
all_heads = Mul (batch, heads)  q3 = Concat <axis = 0> (all_heads, rest, width)
qf = Reshape (q, q3)  kf = Reshape (ks, q3)  vf = Reshape (vs, q3)  turned = Transpose <perm = [0, 2, 1]> (kf)
raw = MatMul (qf, turned)  weights = Softmax (raw)  yf = MatMul (weights, vf)
q4 = Concat <axis = 0> (batch, heads, rows, width)  y = Reshape (yf, q4)
"""
CASES = {
    "expanded, scaled": (4, 2, EXPANDED + SCALED + VALUES), "tiled, scaled": (6, 2, TILED + SCALED + VALUES),
    "one for all": (4, 1, EXPANDED + SCALED + VALUES), "own, scaled": (2, 2, ALONE + SCALED + VALUES),
    "expanded, divided first": (4, 2, EXPANDED + FIRST + VALUES), "tiled": (4, 2, TILED + PLAIN + VALUES),
    "flat heads": (3, 3, ALONE + FLAT),
}  # fmt: skip
TYPES = {"float": np.float32, "float16": np.float16}
SIZES = [(1, 3, 1), (1, 4, 1), (2, 0, 3), (3, 5, 2), (1, 63, 1), (1, 64, 2)]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("case", CASES)
def test_caches_are_read_in_place(case: str, kind: str) -> None:
    heads, groups, body = CASES[case]
    text = (HEAD + body + "}").replace("SHARE", str(heads // groups))
    for name, value in (("T", kind), ("H", heads), ("G", groups)):
        text = re.sub(rf"\b{name}\b", str(value), text)
    data = onnx.parser.parse_model(text).SerializeToString()
    ours, theirs = InferenceSession(data), onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    copies = [line for line in ours.listing().split("\n") if re.search(r"\[[^]]*p \+ s[^]]*\] = map", line)]
    if (case, kind) != ("flat heads", "float16"):  # halves become floats, of reshaped ones in a copy
        assert not [line for line in copies if re.search(r"\b8\b", line.partition(" = ")[0])]
    random, near = np.random.default_rng(0), 1e-5 if kind == "float" else 5e-3
    for sizes in SIZES:
        names = dict(zip("bps", sizes, strict=True))
        given = {
            v.name: random.standard_normal([names.get(d, d) for d in v.shape]).astype(TYPES[kind])
            for v in theirs.get_inputs()
        }
        for got, want in zip(ours.run(None, given), theirs.run(None, given), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=near, atol=near)
