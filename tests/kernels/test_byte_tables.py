"""Elementwise chains of one 8-bit code become tables, with the result of the chain for every code."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from kit.zoo import oracle
from pyruntime import InferenceSession, SessionOptions

# the chain between the dequantised x and y, which is quantised again
CHAINS = {
    "silu": "a = Sigmoid (x) aq = QuantizeLinear (a, sa, za) b = DequantizeLinear (aq, sa, za) y = Mul (x, b)",
    "hardswish": "y = HardSwish (x)",
    "tanh": "y = Tanh (x)",
    "gelu": "a = Erf (x) b = Add (a, one) c = Mul (x, b) y = Mul (c, half)",
    "softplus": "y = Softplus (x)",
}
KINDS = {"uint8": (0, 117), "int8": (-128, -11)}  # lowest code, zero point
LEVELS = ("disabled", "basic", "extended", "all")


def graph(chain: str, kind: str, before: str, dims: str) -> onnx.ModelProto:
    """A model: the nodes of `before`, which compute `codes` from `input`, then the chain, which reads `codes`."""
    low, zero = KINDS[kind]
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
    g ({kind}[{dims}] input) => ({kind}[{dims}] output)
    <float sx = {{0.04}}, {kind} zx = {{{zero}}}, float sa = {{0.004}}, {kind} za = {{{low}}}, float sy = {{0.02}},
     {kind} zy = {{{low + 90}}}, float one = {{1}}, float half = {{0.5}}, float sw = {{0.0333}},
     int8[4, 4, 1, 1] w = {{-63, 7, 21, 63, 1, 2, 3, 4, 9, 9, -9, -9, 0, 5, -50, 33}}, int8 zw = {{0}},
     int32[4] bias = {{900, -70, 5, -999}}> {{
        {before}
        x = DequantizeLinear (codes, sx, zx)
        {CHAINS[chain]}
        output = QuantizeLinear (y, sy, zy)
    }}""")


def check(model: onnx.ModelProto, shape: tuple[int, ...], kind: str) -> None:
    """All levels give the same codes, which equal onnxruntime's unless a last bit decides; the Program has a table."""
    feeds = {"input": np.arange(np.prod(shape)).astype(kind).reshape(shape)}
    found = []
    for level in LEVELS:
        options = SessionOptions()
        options.graph_optimization_level = level
        found.append(InferenceSession(model.SerializeToString(), options).run(None, feeds)[0])
        np.testing.assert_array_equal(found[-1], found[0], level)
    (expected,) = oracle(model.SerializeToString(), feeds)
    assert len(np.unique(expected)) > 40, "the chain tells codes apart"
    assert np.abs(found[0].astype(int) - expected).max() <= 1
    assert (found[0] != expected).mean() < 0.02
    assert "[256]" in InferenceSession(model.SerializeToString()).listing()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chain", CHAINS)
def test_every_code(chain: str, kind: str) -> None:
    """67 · 5 codes: lanes of four, and a remainder."""
    check(graph(chain, kind, "codes = Identity (input)", "67, 5"), (67, 5), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_behind_a_convolution(kind: str) -> None:
    """The chain is the epilogue of a convolution, which reads a table for each finished block."""
    before = "codes = QLinearConv (input, sx, zx, w, sw, zw, sx, zx, bias)"
    check(graph("silu", kind, before, "1, 4, 7, 37"), (1, 4, 7, 37), kind)


@pytest.mark.parametrize("fed", [False, True])
def test_what_more_decides_is_no_table(fed: bool) -> None:
    """A result that also depends on a scale by column, or on a fed scale, is no function of the code alone."""
    held = "" if fed else "<float[4] s = {0.01, 0.02, 0.05, 0.1}>"
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
    g (uint8[67, 4] input{", float s" * fed}) => (float[67, 4] output) {held} {{
        x = DequantizeLinear <axis = 1> (input, s)
        a = Sigmoid (x)
        output = Mul (x, a)
    }}""")
    feeds = {"input": np.arange(268).astype(np.uint8).reshape(67, 4)} | ({"s": np.array(0.03, "f4")} if fed else {})
    session = InferenceSession(model.SerializeToString())
    assert "[256]" not in session.listing(feeds)
    np.testing.assert_allclose(session.run(None, feeds)[0], oracle(model.SerializeToString(), feeds)[0], 1e-5, 1e-6)
