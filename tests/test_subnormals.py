"""Subnormal numbers count as zero where they meet products, and calculations do not make them in bulk; a session may
keep them. Times depend on the processor, so these tests count subnormal numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from kit.gpu import GPU
from pyruntime import InferenceSession, SessionOptions, TrainingSession
from pyruntime.program.format import Program

TINY = np.finfo(np.float32).tiny
LEAST = np.finfo(np.float32).smallest_subnormal
SCALE = np.float32(2.0**100)  # makes the product of a subnormal weight visible: up to 1.5e-8


def session(text: str, keep: bool = False, **weights: np.ndarray) -> InferenceSession:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(w, name) for name, w in weights.items())
    options = SessionOptions()
    options.keep_subnormals = keep
    return InferenceSession(model.SerializeToString(), options)


def subnormals(x: np.ndarray) -> int:
    return int(((x != 0) & (abs(x) < np.finfo(x.dtype).tiny)).sum())


def weights(shape: tuple[int, ...], share: float) -> np.ndarray:
    """Normal numbers, and a share of subnormal ones."""
    rng = np.random.default_rng(3)
    w = rng.normal(size=shape).astype(np.float32)
    return np.where(rng.random(shape) < share, (w * np.float32(0.2)) * TINY, w).astype(np.float32)


NETS = {
    "matmul": ("g (float[5, 32] x) => (float[5, 24] y) { y = MatMul (x, w) }", (5, 32), (32, 24)),
    "one row": ("g (float[1, 32] x) => (float[1, 24] y) { y = MatMul (x, w) }", (1, 32), (32, 24)),
    "left": ("g (float[32, 24] x) => (float[7, 24] y) { y = MatMul (w, x) }", (32, 24), (7, 32)),
    "gemm": ("g (float[5, 32] x) => (float[5, 24] y) { y = Gemm <transB = 1> (x, w) }", (5, 32), (24, 32)),
    "conv": ("g (float[1, 4, 9, 9] x) => (float[1, 8, 4, 4] y) { y = Conv <strides = [2, 2]> (x, w) }",
             (1, 4, 9, 9), (8, 4, 3, 3)),
    "winograd": ("g (float[1, 8, 16, 16] x) => (float[1, 8, 16, 16] y) { y = Conv <pads = [1, 1, 1, 1]> (x, w) }",
                 (1, 8, 16, 16), (8, 8, 3, 3)),
    "pointwise": ("g (float[1, 16, 6, 6] x) => (float[1, 8, 6, 6] y) { y = Conv (x, w) }",
                  (1, 16, 6, 6), (8, 16, 1, 1)),
    "depthwise": ("g (float[1, 8, 9, 9] x) => (float[1, 8, 7, 7] y) { y = Conv <group = 8> (x, w) }",
                  (1, 8, 9, 9), (8, 1, 3, 3)),
    "grouped": ("g (float[1, 8, 9, 9] x) => (float[1, 6, 7, 7] y) { y = Conv <group = 2> (x, w) }",
                (1, 8, 9, 9), (6, 4, 3, 3)),
    "line": ("g (float[1, 8, 30] x) => (float[1, 6, 28] y) { y = Conv (x, w) }", (1, 8, 30), (6, 8, 3)),
    "transposed": ("g (float[1, 4, 5, 5] x) => (float[1, 6, 7, 7] y) { y = ConvTranspose (x, w) }",
                   (1, 4, 5, 5), (4, 6, 3, 3)),
    "interleaved": ("g (float[1, 4, 5, 5] x) => (float[1, 6, 11, 11] y) "
                    "{ y = ConvTranspose <strides = [2, 2]> (x, w) }",
                    (1, 4, 5, 5), (4, 6, 3, 3)),
    "view": ("g (float[5, 32] x) => (float[5, 24] y) { t = Transpose <perm = [1, 0]> (w)  y = MatMul (x, t) }",
             (5, 32), (24, 32)),
    "few columns": ("g (float[5, 32] x) => (float[5, 3] y) { y = MatMul (x, w) }", (5, 32), (32, 3)),
    "batches": ("g (float[2, 5, 32] x) => (float[2, 5, 24] y) { y = MatMul (x, w) }", (2, 5, 32), (2, 32, 24)),
    "computed": ("g (float[5, 32] x) => (float[5, 24] y) <float half = {0.5}> { v = Mul (w, half)  y = MatMul (x, v) }",
                 (5, 32), (32, 24)),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_weights_count_as_zero(name: str) -> None:
    """With nothing but subnormal weights, products are exactly 0; the option keeps them."""
    text, x_shape, w_shape = NETS[name]
    x = np.full(x_shape, SCALE, np.float32)
    w = weights(w_shape, 1.0)
    (zero,) = session(text, w=w).run(None, {"x": x})
    (kept,) = session(text, keep=True, w=w).run(None, {"x": x})
    assert not zero.any() and np.count_nonzero(kept) > 0.9 * kept.size


@pytest.mark.parametrize("share", [0, 0.1, 0.6])
@pytest.mark.parametrize("name", NETS)
def test_nets_with_subnormal_weights(name: str, share: float) -> None:
    """Bit by bit what zeros in their place give."""
    text, x_shape, w_shape = NETS[name]
    x = np.random.default_rng(4).normal(size=x_shape).astype(np.float32)
    w = weights(w_shape, share)
    assert (subnormals(w) > 0) == (share > 0)
    (y,) = session(text, w=w).run(None, {"x": x})
    (want,) = session(text, w=np.where(abs(w) < TINY, 0, w).astype(np.float32)).run(None, {"x": x})
    np.testing.assert_array_equal(y, want)


def test_gated_values_count_as_zero() -> None:
    """A product of two values on its way to a MatMul; as an output it stays as it is."""
    text = "g (float[4, 8] a, float[4, 8] b) => (float[4, 8] y) { m = Mul (a, b)  y = MatMul (m, w) }"
    shown = text.replace("(float[4, 8] y)", "(float[4, 8] y, float[4, 8] m)")
    feeds = {"a": np.full((4, 8), 1e-20, np.float32), "b": np.full((4, 8), 1e-20, np.float32)}
    w = np.full((8, 8), SCALE, np.float32)
    assert not session(text, w=w).run(None, feeds)[0].any()
    assert session(text, keep=True, w=w).run(None, feeds)[0].all()
    assert subnormals(session(shown, w=w).run(["m"], feeds)[0]) == 32


@pytest.mark.parametrize("kind,gates", [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_weights_of_recurrences(kind: str, gates: int) -> None:
    """Input weights that are subnormal make no difference, even for large feeds."""
    text = f"g (float[3, 2, 8] x) => (float[3, 1, 2, 6] y) {{ y = {kind} <hidden_size = 6> (x, w, r) }}"
    r = weights((1, 6 * gates, 6), 0.0)
    w = weights((1, 6 * gates, 8), 1.0) * np.float32(0.9)
    x = np.full((3, 2, 8), np.float32(2.0**127))
    y, kept, none = [
        session(text, keep, w=one, r=r).run(None, {"x": x})[0] for keep, one in ((False, w), (True, w), (True, 0 * w))
    ]
    np.testing.assert_array_equal(y, none)
    assert kept[0].any() and not none[0].any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_beside_the_smallest_normal_one(dtype: str) -> None:
    """A convolution of one element and one channel shows each weight. NaN and infinities stay."""
    least, names = np.finfo(dtype).tiny, {"float32": "float", "float64": "double"}
    beside = [np.nextafter(least, 0, dtype=dtype), least, np.nextafter(least, 1, dtype=dtype)]
    w = np.array([*beside, *np.negative(beside), 1, np.inf, -np.inf, np.nan], dtype).reshape(-1, 1, 1, 1)
    want = np.where(abs(w) < least, 0, w).reshape(-1)
    text = "g (T[1, 1, 1, 1] x) => (T[1, 10, 1, 1] y) { y = Conv (x, w) }".replace("T", names[dtype])
    (y,) = session(text, w=w).run(None, {"x": np.ones((1, 1, 1, 1), dtype)})
    np.testing.assert_array_equal(y.reshape(-1), want)
    (kept,) = session(text, keep=True, w=w).run(None, {"x": np.ones((1, 1, 1, 1), dtype)})
    np.testing.assert_array_equal(kept.reshape(-1), w.reshape(-1))


SHARED = """g (float[5, 32] x, float[5, 32] z, int64[2] rows) => (float[5, 24] y, float[2, 24] found) {
    a = MatMul (x, w)  b = MatMul (z, w)  y = Add (a, b)  found = Gather (w, rows)
}"""


def test_shared_weights_stay_shared() -> None:
    """Nothing in the Program differs but the mark on the weight, which is loaded once and packed once."""
    plain, kept = [header(session(SHARED, keep, w=weights((32, 24), 0.5))) for keep in (False, True)]
    assert [c.pop("flush", None) for c in plain["constants"]] == [True]
    assert plain == kept
    init = [call for step in plain["blocks"][0]["steps"] for call in step["calls"]]
    assert len(init) == 1


def header(s: InferenceSession) -> dict[str, Any]:
    return Program.from_bytes(s.export(weights=True)).header


def test_outputs_and_other_readers_are_exact() -> None:
    """A weight that leaves the model, one that is added, and one of which no product is made."""
    text = """g (float[5, 24] x) => (float[5, 24] y, float[24] out, float[2, 24] found) <int64[2] rows = {0, 1}> {
        out = Identity (bias)  y = Add (x, bias)  found = Gather (w, rows)
    }"""
    bias, w = weights((24,), 1.0), weights((4, 24), 1.0)
    y, out, found = session(text, bias=bias, w=w).run(None, {"x": np.zeros((5, 24), np.float32)})
    np.testing.assert_array_equal(out, bias)
    np.testing.assert_array_equal(y, np.tile(bias, (5, 1)))
    np.testing.assert_array_equal(found, w[:2])


QUANTISED = {
    "MatMulNBits": """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[5, 64] x) => (float[5, 24] y) {
        y = com.microsoft.MatMulNBits <K = 64, N = 24, bits = 4, block_size = 32> (x, codes, scales)
    }""",
    "DequantizeLinear": """<ir_version: 10, opset_import: ["" : 21]> g (float[5, 64] x) => (float[5, 24] y) {
        w = DequantizeLinear <axis = 1> (codes, scales)  y = MatMul (x, w)
    }""",
}


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_models_do_not_change(name: str) -> None:
    """Their Programs are equal byte by byte with and without the option."""
    rng = np.random.default_rng(2)
    model = onnx.parser.parse_model(QUANTISED[name])
    shape, count = ((24, 2, 16), (48,)) if name == "MatMulNBits" else ((64, 24), (24,))
    codes = rng.integers(0, 256, shape).astype(np.uint8)
    scales = (rng.random(count) * 1e-38).astype(np.float32)
    model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in (("codes", codes), ("scales", scales)))
    made = []
    for keep in (False, True):
        options = SessionOptions()
        options.keep_subnormals = keep
        made.append(InferenceSession(model.SerializeToString(), options).export(weights=True))
    assert made[0] == made[1]


def test_weights_on_a_gpu() -> None:
    """The mark on the weight holds in any memory, and in a file that carries its weights."""
    text, x_shape, w_shape = NETS["matmul"]
    w = np.full(w_shape, TINY / 2, np.float32)
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}')
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    feeds = {"x": np.full(x_shape, SCALE, np.float32)}
    on_gpu = InferenceSession(model.SerializeToString(), providers=[GPU])
    file = on_gpu.export(weights=True)
    for one in (on_gpu, InferenceSession(file, providers=[GPU])):
        assert not one.run(None, feeds)[0].any()
    assert [c["flush"] for c in Program.from_bytes(file).header["constants"] if "flush" in c] == [True]


# operator -> its values in float64
TAILS: dict[str, Any] = {
    "Exp": np.exp,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Swish": lambda x: x / (1 + np.exp(-x)),
    "Gelu": None,
    'Gelu <approximate = "tanh">': None,
    "Softplus": lambda x: np.log1p(np.exp(x)),
}


@pytest.mark.parametrize("op", TAILS)
def test_tails_end_in_zero(op: str) -> None:
    """The values differ by at most 90 times the smallest normal number; NaN, infinities and zeros stay."""
    edges = [0, -0.0, TINY, -TINY, np.inf, -np.inf, np.nan, 1, -1, 88, -200]
    x = np.concatenate([np.linspace(-110, -80, 4001), np.array(edges)]).astype(np.float32)
    name, _, attributes = op.partition(" ")
    text = f"g (float[n] x) => (float[n] y) {{ y = {name} {attributes} (x) }}"
    opset = {"Swish": 24}.get(name, 22)
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')
    options = SessionOptions()
    options.keep_subnormals = True
    (y,) = InferenceSession(model.SerializeToString()).run(None, {"x": x})
    (kept,) = InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    far = abs(x) > 4 * TINY  # half of the smallest normal number is subnormal
    assert subnormals(y[far]) == 0
    np.testing.assert_array_equal(np.isnan(y), np.isnan(kept))
    finite = np.isfinite(kept)
    assert (abs(y[finite].astype(np.float64) - kept[finite]) <= 90 * float(TINY)).all()
    if TAILS[op] is not None:
        with np.errstate(all="ignore"):
            want = TAILS[op](x[finite].astype(np.float64))
        overflow = {"Sigmoid": TINY, "Swish": 90 * TINY}  # e^-x is infinite from 88.7 on
        np.testing.assert_allclose(kept[finite], want, rtol=4e-6, atol=overflow.get(name, 2 * LEAST))
    if name in ("Exp", "Sigmoid"):
        assert subnormals(kept) > 100


@pytest.mark.parametrize("keep", [False, True])
def test_decaying_loop(keep: bool) -> None:
    """h = a·h for 400 steps."""
    text = """g (float[8] h) => (float[8] y) {
        n = Constant <value = int64 {400}> ()
        t = Constant <value = bool {1}> ()
        y = Loop (n, t, h) <body = b (int64 i, bool c, float[8] s) => (bool go, float[8] next) {
            go = Identity (c)
            a = Constant <value = float {0.78}> ()
            next = Mul (s, a)
        }>
    }"""
    (y,) = session(text, keep).run(None, {"h": np.linspace(1, 9, 8, dtype=np.float32)})
    assert subnormals(y) == (8 if keep else 0)
    assert abs(y).max() < TINY


@pytest.mark.parametrize("kind,gates", [("LSTM", 4), ("GRU", 3)])
def test_decaying_recurrence(kind: str, gates: int) -> None:
    """Weights of 0 halve the state in each step."""
    states = "h, c" if kind == "LSTM" else "h"
    outputs = ", ".join(f"float[1, 1, 4] {n}" for n in ("yh", "yc")[: gates - 2])
    names = ", ".join(("", "yh", "yc")[: gates - 1])
    inputs = ", ".join(f"float[1, 1, 4] {n.strip()}" for n in states.split(","))
    text = f"g (float[140, 1, 3] x, {inputs}) => ({outputs}) {{ "
    text += f"{names} = {kind} <hidden_size = 4> (x, w, r, , , {states}) }}"
    zeros = {"w": np.zeros((1, 4 * gates, 3), np.float32), "r": np.zeros((1, 4 * gates, 4), np.float32)}
    feeds = {n.strip(): np.full((1, 1, 4), 1.7, np.float32) for n in states.split(",")}
    feeds["x"] = np.zeros((140, 1, 3), np.float32)
    for keep in (False, True):
        state = session(text, keep, **zeros).run(None, feeds)[-1]
        assert subnormals(state) == (4 if keep else 0) and abs(state).max() < TINY


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "lion"])
def test_moments_end_in_zero(optimizer: str) -> None:
    """A gradient of 0 after the first step: moments decay to 0 and not to subnormal numbers."""
    text = "g (float[2, 4] x) => (float[2, 3] y) { y = MatMul (x, w) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}')
    model.graph.initializer.append(numpy_helper.from_array(weights((4, 3), 0.0), "w"))
    settings = {"adam": {"beta1": 0.5, "beta2": 0.6}, "adamw": {"beta1": 0.5, "beta2": 0.6}, "sgd": {"momentum": 0.5},
                "lion": {"beta2": 0.5}}[optimizer]  # fmt: skip
    with TrainingSession(
        model.SerializeToString(), loss={"mse": "y"}, optimizer={optimizer: {"rate": 1e-3, **settings}}
    ) as training:
        target = np.zeros((2, 3), np.float32)
        training.step({"x": np.ones((2, 4), np.float32), "target": target})
        for _ in range(300):
            training.step({"x": np.zeros((2, 4), np.float32), "target": target})
        state = training.state()
    numbers = state[8 + int.from_bytes(state[:8], "little") :]  # safetensors: a header, then the elements
    found = np.frombuffer(numbers[: len(numbers) // 4 * 4], np.float32)
    assert found.size >= 24 and subnormals(found[abs(found) > 1000 * LEAST]) == 0
