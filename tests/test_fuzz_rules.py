"""The fuzzer's rules: results that the standard leaves open, bugs of peers, and tolerances."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from fuzz.compare import Tolerance, difference
from fuzz.operator_groups import SUMS
from fuzz.peer_bugs import FAULTS, MORE, PARTLY, READ_PARTS, accepts_more, is_trusted, is_unread
from fuzz.peers import SOFTMAX, onnxruntime_session
from fuzz.perturb import COORDINATES, NEAR_ONE, perturbed, with_inner_outputs
from fuzz.sums import ALONG_AN_AXIS, BY_ROWS, FILTERS
from fuzz.tolerance import APPROXIMATE, QUANTISED
from fuzz.undefined import NO_AXIS, RULES, SIZES, Cause, open_outputs
from pyruntime.frontend import registry

F = np.float32


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 19, "ai.onnx.ml" : 1]> g {text}')


def inside(model: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    data, names = with_inner_outputs(model)
    return dict(zip(names, onnxruntime_session(data)(feeds), strict=True)) | feeds


BODY = "body = b (int64 i, bool c) => (bool d, int64 z) { d = Identity(c) z = Identity(i) }"
LOOP = f"(int64 x, bool c) => (int64[n] y) {{ y = Loop <{BODY}> (x, c) }}"
SUM = "(float[a, b] x, int64[1] i) => (float[c] y) { y = ReduceSum <keepdims = 0> (x, i) }"
RANGE = "(float[n] x) => (uint8[n] y, float s, uint8 z) { w = Sigmoid(x) y, s, z = DynamicQuantizeLinear(w) }"
ROOT = "(int32[a, b] x) => (int32[a, b] y) { y = ReduceL2(x) }"
GEMM = "(float[a, b] x) => (float[a, b] y) {{ y = Gemm<alpha={}>(x, x) }}"
LINEAR = """(float[a, b] x) => (int64[a] y, float[a, c] z) {{ y, z = ai.onnx.ml.LinearClassifier
    <coefficients = [1.0, 1.0], intercepts = [0.0, {}], classlabels_ints = [0, 1]> (x) }}"""
LESS = "(int16[2] x) => (int16[2] y) {{ y = Shrink <bias = {}, lambd = 1.5> (x) }}"
GROUPED = """(float[2, 2, 8] x, int32[2] n, int32 t) => (float[2, 2, 8] y, float[2, 1, 2, 8] k, float[2, 1, 2, 8] v)
    {{ y, k, v = com.microsoft.GroupQueryAttention <num_heads = 1, kv_num_heads = 1, causal = {}>
       (x, x, x, , , n, t) }}"""
PROMPT = {"x": np.ones((2, 2, 8), F), "t": np.array(2, np.int32)}
STEPS = "(float a, float b, float c) => (float[n] y) { y = Range(a, b, c) }"
POWER = "(int64[2] x, float[2] e) => (int64[2] y) { y = Pow(x, e) }"
GATE = "(float[2] x, float[2] w) => (float[2] y) { z = Sigmoid(x) y = Mul(z, w) }"
GROUPS = "(float[1, 2, 1] x, float[1] s) => (float[1, 2, 1] y) { y = GroupNormalization <num_groups = 1> (x, s, s) }"


@pytest.mark.parametrize(("text", "feeds", "open_"), [
    ("(float[1] x) => (uint8[1] y) { z = Mul(x, x) y = Cast<to=2>(z) }", {"x": F([15.9])}, ""),
    ("(float[1] x) => (uint8[1] y) { z = Mul(x, x) y = Cast<to=2>(z) }", {"x": F([16])}, "out of the integer"),
    ("(float[1] x) => (float[1] y) { z = Neg(x) y = MatMul(x, z) }", {"x": F([1e15])}, ""),
    ("(float[1] x) => (float[1] y) { z = Exp(x) y = MatMul(x, z) }", {"x": F([87])}, "overflow"),
    ("(float16[1] x) => (float16[1] y) { z = Mul(x, x) y = Sqrt(z) }", {"x": np.float16([100])}, ""),
    ("(float16[1] x) => (float16[1] y) { z = Mul(x, x) y = Sqrt(z) }", {"x": np.float16([300])}, "halves"),
    (LOOP, {"x": np.array(1), "c": np.array(True)}, ""),
    (LOOP, {"x": np.array(0), "c": np.array(True)}, SIZES),
    (GROUPS, {"x": F([[[1], [2]]]), "s": F([1])}, ""),
    (GROUPS, {"x": F([[[1.9], [2]]]), "s": F([1])}, "large squares"),
    (GATE, {"x": F([-15, 0]), "w": F([np.inf, 1])}, ""),
    (GATE, {"x": F([-90, 0]), "w": F([1, 1])}, ""),
    (GATE, {"x": F([-90, 0]), "w": F([np.inf, 1])}, "infinity"),
    (SUM, {"x": F([[], []]), "i": np.array([1])}, ""),
    (SUM, {"x": F([[], []]), "i": np.array([-1])}, NO_AXIS),
    (POWER, {"x": np.array([-2, 0]), "e": F([3, 2])}, ""),
    (STEPS, {"a": np.array(0, F), "b": np.array(64, F), "c": np.array(1, F)}, ""),
    (STEPS, {"a": np.array(0, F), "b": np.array(65, F), "c": np.array(1, F)}, "added up"),
    (GROUPED.format(1), PROMPT | {"n": np.array([1, 1], np.int32)}, ""),
    (GROUPED.format(1), PROMPT | {"n": np.array([1, 0], np.int32)}, "padded queries"),
    (GROUPED.format(0), PROMPT | {"n": np.array([1, 0], np.int32)}, ""),
    (LESS.format("7.0"), {"x": np.array([-9, 32760], np.int16)}, ""),
    (LESS.format("8.0"), {"x": np.array([-9, 32760], np.int16)}, "out of the integer"),
    (LESS.format("nan"), {"x": np.array([-9, 9], np.int16)}, "out of the integer"),
    ("(int32 x) => (int8[n] y) { y = HannWindow<output_datatype=3>(x) }", {"x": np.array(4, np.int32)}, "nearly whole"),
    ("(int32 x) => (double[n] y) { y = HannWindow<output_datatype=11>(x) }", {"x": np.array(4, np.int32)}, ""),
    ("(float[2] x) => (float[n] y) { y = Unique(x) }", {"x": F([1, 2])}, ""),
    ("(float[2] x) => (float[n] y) { z = Sigmoid(x) y = Unique(z) }", {"x": F([1, 2])}, "are equal"),
    ("(float[2] x) => (float y) { z = Mul(x, x) y = ReduceMean(z) }", {"x": F([1e18, 1])}, ""),
    ("(float[2] x) => (float y) { z = Mul(x, x) y = ReduceMean(z) }", {"x": F([1e38, 1])}, "need not store"),
    (ROOT, {"x": np.array([[46340]], np.int32)}, ""),
    (ROOT, {"x": np.array([[46341]], np.int32)}, "squares of integers"),
    (GEMM.format("1e29"), {"x": F([[1]])}, ""),
    (GEMM.format("3e38"), {"x": F([[1]])}, "by infinity"),
    (LINEAR.format("0.1"), {"x": F([[1]])}, ""),
    (LINEAR.format("0.0"), {"x": F([[1]])}, "last digits"),
    (LINEAR.format("nan"), {"x": F([[1]])}, "NaN as a weight"),
    (GEMM.format("inf"), {"x": F([[1]])}, "by infinity"),
    (RANGE, {"x": F([-9])}, ""),
    (RANGE, {"x": F([-92])}, "empty range"),
    (POWER, {"x": np.array([-2, 0]), "e": F([3.5, 2])}, "as an integer"),
    (POWER, {"x": np.array([2, 0]), "e": F([3, -2])}, "as an integer"),
    (POWER, {"x": np.array([-(1 << 63), 0]), "e": F([3, 2])}, "out of the integer"),
])  # fmt: skip
def test_open_outputs_depend_on_the_values(text: str, feeds: dict[str, Any], open_: str) -> None:
    model = parsed(text)
    reasons = {rule.reason for rules in open_outputs(model, inside(model, feeds), feeds) for rule in rules}
    assert any(open_ in why for why in reasons) if open_ else not reasons


H = np.float16
PRODUCT = "(float16[a, b] x, float16[b, c] w) => (float16[a, c] y) { y = MatMul(x, w) }"


@pytest.mark.parametrize(("size", "scale", "is_open"), [(16, 1, False), (64, 10, False), (64, 100, True)])
def test_sums_of_halves_are_open_only_if_they_can_overflow(size: int, scale: float, is_open: bool) -> None:
    """By the sums of magnitudes: 64 · 10 · 10 is far below 65504, 64 · 100 · 100 is not."""
    x, w = (np.random.default_rng(n).normal(size=(size, size)) * scale for n in (0, 1))
    model, feeds = parsed(PRODUCT), {"x": x.astype(H), "w": w.astype(H)}
    assert bool(open_outputs(model, feeds, feeds)[0]) is is_open


def test_only_outputs_that_depend_on_a_node_are_open() -> None:
    model = parsed("""(float[1] x, float[1] n) => (uint8[1] y, float[1] z, float[1] w)
        { y = Cast<to=2>(n) z = Neg(x) v = Cast<to=1>(y) w = Add(v, z) }""")
    feeds = {"x": F([1]), "n": F([-5])}
    assert [bool(rules) for rules in open_outputs(model, feeds, feeds)] == [True, False, True]


def test_rules_name_operators_exactly() -> None:
    known = {f"{domain}.{name}" if domain else name for domain, name in registry.table()}
    known |= {s.name if not s.domain else f"{s.domain}.{s.name}" for s in onnx.defs.get_all_schemas_with_history()}
    named = {name for rule in RULES for name in rule.operators} | SUMS | APPROXIMATE | QUANTISED | READ_PARTS
    named |= {row[0] for rows in PARTLY.values() for row in rows} | {*FAULTS["reference"], *MORE}
    named |= NEAR_ONE | {*COORDINATES} | {*FILTERS} | ALONG_AN_AXIS | BY_ROWS | SOFTMAX
    assert not named - known
    product = parsed("(float[1] x, float[1] w) => (float[1] y) { z = Neg(x) y = MatMul(z, w) }")
    feeds = {"x": F([0]), "w": F([np.inf])}
    causes = {rule.cause for rule in open_outputs(product, feeds | {"z": F([0])}, feeds)[0]}
    assert causes == {Cause.INFINITE}  # by no rule about Mul


@pytest.mark.parametrize(("kind", "off", "seen"), [
    (H, 0.001, False), (H, 0.02, True), (ml_dtypes.bfloat16, 0.01, False), (ml_dtypes.bfloat16, 0.1, True),
])  # fmt: skip
def test_long_sums_of_halves_are_as_exact_as_their_format(kind: Any, off: float, seen: bool) -> None:
    """Sums are computed in float32, so that their length adds next to nothing to the rounding of the result."""
    want = np.ones(9, F).astype(kind)
    assert bool(difference((want.astype(F) + off).astype(kind), want, Tolerance(1000))) is seen


def test_inner_values_are_perturbed() -> None:
    """x⁴ - x² at 1: the result is the rounding error of the products, which moving the feed alone would not show."""
    model = parsed("(float[1] x) => (float[1] y) { z = Mul(x, x) w = Mul(z, z) y = Sub(w, z) }")
    feeds = {"x": F([1])}
    data = [perturbed(model, inside(model, feeds), np.random.default_rng(n), 1) for n in range(4)]
    moved = [float(onnxruntime_session(d)(feeds)[0][0]) for d in data]
    assert any(moved) and max(map(abs, moved)) < 1e-6


def test_coordinates_near_zero_are_perturbed_by_units_of_one() -> None:
    """Between pixels whose sum is 0 the result is the rounding error of 1 + the coordinate."""
    model = parsed("(float[1, 1, 1, 2] x, float[1, 1, 1, 2] g) => (float[1, 1, 1, 1] y) { y = GridSample(x, g) }")
    feeds = {"x": F([-1e7, 1e7]).reshape(1, 1, 1, 2), "g": F([1e-4, 0]).reshape(1, 1, 1, 2)}
    data = [perturbed(model, inside(model, feeds), np.random.default_rng(n), 1) for n in range(4)]
    gave = [float(onnxruntime_session(d)(feeds)[0].item()) for d in data]
    assert 0.1 < max(gave) - min(gave) < 10


@pytest.mark.parametrize(("after", "unread"), [("Slice(r, i, j)", True), ("Relu(r)", False), ("Slice(x, i, j)", False)])
def test_indices_of_unused_rows(after: str, unread: bool) -> None:
    model = parsed(f"(float[4] x, int64[1] i, int64[1] j) => (float[n] y) {{g = Gather(x, i) r = Neg(g) y = {after}}}")
    assert is_unread(model, "g") is unread


SOFT = """(int8[1, 4] x, float s, float step, int8 z) => (int8[1, 4] y)
    { y = com.microsoft.QLinearSoftmax <opset = 13> (x, s, z, step, z) }"""
CODES = {"x": np.arange(10, 50, 10, dtype=np.int8)[None], "s": F(0.1), "z": np.int8(0)}
HOT = "(float[n] x, int64 d, float[2] v) => (float[n, d] y) { z = Abs(x) y = OneHot(z, d, v) }"
MASKED = """(float[1, 1, 2, 4] x, bool[1, 1, r, 2] m) => (float[1, 1, 2, 4] y)
    { y = Attention <is_causal = 1> (x, x, x, m) }"""
MEAN = "(int64[n] x) => (int64[1] y) { y = ReduceMean (x) }"
POOL = """(float[1, 1, n] x) => (float[1, 1, n] y)
    { y = AveragePool <auto_pad = "SAME_LOWER", kernel_shape = [2], dilations = [3]> (x) }"""
NORM = '(int64[n, 2] x) => (float[n, 2] y) { y = ai.onnx.ml.Normalizer <norm = "L2"> (x) }'
TWICE = "(int64[1, n] x, float[2] s) => (int64[1, m] y) { y = Resize (x, , s) }"
LOGS = "(float[1, n] x) => (float[1, n] y) { y = LogSoftmax (x) }"
MACHINE = "({}[n, 2] x) => (y, z) {{ y, z = ai.onnx.ml.SVMClassifier (x) }}"
TREE = (
    "(float[n, 2] x) => (y, z) {{ y, z = ai.onnx.ml.TreeEnsembleClassifier<classlabels_int64s = [3, 4],"
    " class_ids = [{}, {}]> (x) }}"
)
WHOLE = "(int64[a, b] x, int64[b, c] w) => (int64[a, c] y) { y = Gemm (x, w) }"


@pytest.mark.parametrize(("peer", "text", "feeds", "right"), [
    ("onnxruntime", HOT, {"x": F([-1, 2])}, True),
    ("onnxruntime", HOT, {"x": F([-1, 1.5])}, False),
    ("reference", MASKED, {"x": np.zeros((1, 1, 2, 4), F), "m": np.ones((1, 1, 2, 2), bool)}, True),
    ("reference", MASKED, {"x": np.zeros((1, 1, 2, 4), F), "m": np.ones((1, 1, 1, 2), bool)}, False),
    ("reference", MASKED.replace("causal = 1", "causal = 0"), {"m": np.ones((1, 1, 1, 2), bool)}, True),
    ("onnxruntime", MEAN, {"x": np.array([-(1 << 52), (1 << 52) - 1])}, True),
    ("onnxruntime", MEAN, {"x": np.array([-(1 << 52), (1 << 52)])}, False),
    ("onnxruntime", MEAN.replace("Mean", "Max"), {"x": F([1, np.inf])}, True),
    ("onnxruntime", MEAN.replace("Mean", "Max"), {"x": F([1, np.nan])}, False),
    ("onnxruntime", MEAN.replace("ReduceMean", "Hardmax"), {"x": F([1, 2])}, True),
    ("onnxruntime", MEAN.replace("ReduceMean", "Hardmax"), {"x": F([1, np.nan])}, False),
    ("reference", "(float[n, 1, 2, 2] x) => (float[n] y) { y = GlobalMaxPool(x) }", {"x": np.ones((1, 1, 2, 2))}, True),
    ("reference", "(float[n, 1, 2] x) => (float[n] y) { y = GlobalMaxPool(x) }", {"x": np.ones((1, 1, 2))}, False),
    ("onnxruntime", SOFT, CODES | {"step": F(1 / 256)}, True),
    ("onnxruntime", SOFT, CODES | {"step": F(1 / 512)}, False),
    ("onnxruntime", POOL, {"x": np.ones((1, 1, 9), F)}, False),
    ("reference", POOL, {"x": np.ones((1, 1, 9), F)}, False),
    ("reference", POOL.replace("SAME_LOWER", "VALID"), {"x": np.ones((1, 1, 9), F)}, True),
    ("onnxruntime", NORM, {"x": np.array([[1 << 31, 1]])}, True),
    ("onnxruntime", NORM, {"x": np.array([[1 << 31, 1 << 31]])}, False),
    ("reference", LOGS, {"x": F([[-8, 8]])}, True),
    ("reference", LOGS, {"x": F([[-100, 100]])}, False),
    ("reference", MACHINE.format("float"), {"x": F([[1, 2]])}, True),
    ("reference", MACHINE.format("int64"), {"x": np.array([[1, 2]])}, False),
    ("reference", TREE.format(0, 1), {"x": F([[1, 2]])}, True),
    ("reference", TREE.format(1, 1), {"x": F([[1, 2]])}, False),
    ("reference", WHOLE, {"x": np.array([[1 << 25]]), "w": np.array([[1 << 28]])}, True),
    ("reference", TWICE, {"x": np.array([[1 << 22, 0]]), "s": F([1, 2])}, True),
    ("reference", TWICE, {"x": np.array([[-(1 << 22) - 1, 0]]), "s": F([1, 2])}, False),
    ("reference", WHOLE, {"x": np.array([[-1 << 25]]), "w": np.array([[(1 << 28) + 1]])}, False),
])  # fmt: skip
def test_bugs_of_peers_depend_on_the_values(peer: str, text: str, feeds: dict[str, Any], right: bool) -> None:
    model = parsed(text)
    arrived = [feeds | {"z": np.abs(feeds["x"])}] if text == HOT else [feeds]
    assert is_trusted(peer, model, lambda: arrived) is right
    assert accepts_more(model, lambda: arrived) is ("Attention" in text and not right or text in (HOT, SOFT))
