"""A fixed part of what `make fuzz` runs, and the fuzzer's own judgement: it must see what is wrong."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from fuzz import engine
from fuzz.case import FAILURES, Case
from fuzz.compare import Tolerance, difference, largest_changes
from fuzz.draw import Draw
from fuzz.judge import judge
from fuzz.output_types import output_types
from fuzz.peer_bugs import accepts_more, is_trusted, is_unread
from fuzz.peers import Peers, onnxruntime_session
from fuzz.perturb import perturbed, with_inner_outputs
from fuzz.plain_numbers import with_plain_numbers
from fuzz.pool import Worker
from fuzz.undefined import NO_AXIS, SIZES, reason, tolerance

SEED = 7
LOOSE = Tolerance(4)
# Of a target: together a minute of one core.
CASES = {"operators": 60, "rare": 50, "forbidden": 100, "graphs": 60, "sequences": 50, "values": 10, "models": 60,
         "feeds": 60, "hostile": 40, "programs": 60}  # fmt: skip


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.stop()


@pytest.mark.parametrize("target", CASES)
def test_cases(worker: Worker, target: str) -> None:
    verdicts = {index: worker.fuzz(target, SEED, index) for index in range(CASES[target])}
    failed = [f"{n}: {v.outcome}: {v.detail}" for n, v in verdicts.items() if v.outcome in FAILURES]
    assert not failed, "\n".join(failed)
    assert sum(v.outcome == "no case" for v in verdicts.values()) < CASES[target] // 3


def test_cases_are_the_same_each_time(worker: Worker) -> None:
    once, again = (worker.make("operators", SEED, 1) for _ in range(2))
    assert once is not None and again is not None
    assert once.model == again.model and once.note == again.note


F, D = np.float32, np.int32


@pytest.mark.parametrize(
    ("got", "want", "seen"),
    [
        (F([1, 2]), F([1, 2.0000002]), False),
        (F([1, 2]), F([1, 2.001]), True),
        (F([1e-30, 1]), F([0, 1]), False),  # far below the largest
        (F([np.nan]), F([np.nan]), False),
        (F([np.nan]), F([1]), True),
        (F([np.inf]), F([3e38]), True),
        (F([3.4e38, 1]), F([np.inf, 1]), False),
        (F([3e38]), F([np.inf]), True),
        (F([-np.inf]), F([np.inf]), True),
        (F([np.inf, 1.1]), F([np.inf, 1]), True),
        (F([3.4e38, 1.1]), F([np.inf, 1]), True),
        (F([1]), F([[1]]), True),
        (F([1]), np.float64([1]), True),
        (D([1, 2]), D([1, 3]), True),
        (np.array(["a"], object), np.array(["b"], object), True),
        (np.array(["inf", "1e-9", "-0"], object), np.array(["INF", "1e-09", "-0.0"], object), False),
        (np.array(["1.5"], object), np.array(["1.25"], object), True),
        ([F([1])], [F([1]), F([2])], True),
        (None, F([1]), True),
    ],
)
def test_differences(got: object, want: object, seen: bool) -> None:
    assert bool(difference(got, want, LOOSE)) is seen


def test_what_moves_by_itself_is_no_difference() -> None:
    base, moved = [F([1.0, 5.0])], [[F([1.0, 5.1])], [F([1.0, 4.9])]]
    noise = largest_changes(moved, base)
    assert difference([F([1.0, 5.2])], base, LOOSE) and not difference([F([1.0, 5.2])], base, LOOSE, noise)
    assert difference([F([1.2, 5.0])], base, LOOSE, noise)
    near_zero = [F([1e5, 1e5])]
    by_zero = largest_changes([[F([-2e5, 1.00001e5])]], near_zero)
    assert not difference([F([np.inf, 1e5])], near_zero, LOOSE, by_zero)
    assert difference([F([1e5, np.inf])], near_zero, LOOSE, by_zero)
    root = [F([np.nan, 1.0])]  # of what rounding left
    assert not difference([F([0.01, 1.0])], root, LOOSE, largest_changes([[F([0.02, 1.0])]], root))
    assert difference([F([0.01, 1.0])], root, LOOSE, largest_changes([root], root))


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
    ("(float[1] x) => (uint8[1] y) { z = Mul(x, x) y = Cast<to=2>(z) }", {"x": F([16])}, "does not hold"),
    ("(float[1] x) => (float[1] y) { z = Neg(x) y = MatMul(x, z) }", {"x": F([1e15])}, ""),
    ("(float[1] x) => (float[1] y) { z = Exp(x) y = MatMul(x, z) }", {"x": F([87])}, "overflow"),
    ("(float16[1] x) => (float16[1] y) { z = Mul(x, x) y = Sqrt(z) }", {"x": np.float16([100])}, ""),
    ("(float16[1] x) => (float16[1] y) { z = Mul(x, x) y = Sqrt(z) }", {"x": np.float16([300])}, "halves"),
    (LOOP, {"x": np.array(1), "c": np.array(True)}, ""),
    (LOOP, {"x": np.array(0), "c": np.array(True)}, SIZES),
    (GROUPS, {"x": F([[[1], [2]]]), "s": F([1])}, ""),
    (GROUPS, {"x": F([[[1.9], [2]]]), "s": F([1])}, "left of squares"),
    (GATE, {"x": F([-15, 0]), "w": F([np.inf, 1])}, ""),
    (GATE, {"x": F([-90, 0]), "w": F([1, 1])}, ""),
    (GATE, {"x": F([-90, 0]), "w": F([np.inf, 1])}, "infinity"),
    (SUM, {"x": F([[], []]), "i": np.array([1])}, ""),
    (SUM, {"x": F([[], []]), "i": np.array([-1])}, NO_AXIS),
    (POWER, {"x": np.array([-2, 0]), "e": F([3, 2])}, ""),
    (STEPS, {"a": np.array(0, F), "b": np.array(64, F), "c": np.array(1, F)}, ""),
    (STEPS, {"a": np.array(0, F), "b": np.array(65, F), "c": np.array(1, F)}, "added up"),
    (GROUPED.format(1), PROMPT | {"n": np.array([1, 1], np.int32)}, ""),
    (GROUPED.format(1), PROMPT | {"n": np.array([1, 0], np.int32)}, "queries that are padding"),
    (GROUPED.format(0), PROMPT | {"n": np.array([1, 0], np.int32)}, ""),
    (LESS.format("7.0"), {"x": np.array([-9, 32760], np.int16)}, ""),
    (LESS.format("8.0"), {"x": np.array([-9, 32760], np.int16)}, "does not hold"),
    (LESS.format("nan"), {"x": np.array([-9, 9], np.int16)}, "does not hold"),
    ("(int32 x) => (int8[n] y) { y = HannWindow<output_datatype=3>(x) }", {"x": np.array(4, np.int32)}, "nearly whole"),
    ("(int32 x) => (double[n] y) { y = HannWindow<output_datatype=11>(x) }", {"x": np.array(4, np.int32)}, ""),
    ("(float[2] x) => (float[n] y) { y = Unique(x) }", {"x": F([1, 2])}, ""),
    ("(float[2] x) => (float[n] y) { z = Sigmoid(x) y = Unique(z) }", {"x": F([1, 2])}, "are the same"),
    ("(float[2] x) => (float y) { z = Mul(x, x) y = ReduceMean(z) }", {"x": F([1e18, 1])}, ""),
    ("(float[2] x) => (float y) { z = Mul(x, x) y = ReduceMean(z) }", {"x": F([1e38, 1])}, "added at once"),
    (ROOT, {"x": np.array([[46340]], np.int32)}, ""),
    (ROOT, {"x": np.array([[46341]], np.int32)}, "squares of integers"),
    (GEMM.format("1e29"), {"x": F([[1]])}, ""),
    (GEMM.format("3e38"), {"x": F([[1]])}, "times infinity"),
    (LINEAR.format("0.1"), {"x": F([[1]])}, ""),
    (LINEAR.format("0.0"), {"x": F([[1]])}, "last digits"),
    (LINEAR.format("nan"), {"x": F([[1]])}, "NaN as a weight"),
    (GEMM.format("inf"), {"x": F([[1]])}, "times infinity"),
    (RANGE, {"x": F([-9])}, ""),
    (RANGE, {"x": F([-92])}, "no range"),
    (POWER, {"x": np.array([-2, 0]), "e": F([3.5, 2])}, "as an integer"),
    (POWER, {"x": np.array([2, 0]), "e": F([3, -2])}, "as an integer"),
    (POWER, {"x": np.array([-(1 << 63), 0]), "e": F([3, 2])}, "does not hold"),
])  # fmt: skip
def test_what_is_open_depends_on_what_arrives(text: str, feeds: dict[str, Any], open_: str) -> None:
    model = parsed(text)
    why = reason(model, inside(model, feeds), feeds)
    assert open_ in why and bool(open_) is bool(why)


def test_inner_values_are_shaken() -> None:
    """x⁴ - x² at 1, where no digit of the feed is lost: what is left are the last digits of the products."""
    model = parsed("(float[1] x) => (float[1] y) { z = Mul(x, x) w = Mul(z, z) y = Sub(w, z) }")
    feeds = {"x": F([1])}
    data = [perturbed(model, inside(model, feeds), np.random.default_rng(n), 1) for n in range(4)]
    moved = [float(onnxruntime_session(d)(feeds)[0][0]) for d in data]
    assert any(moved) and max(map(abs, moved)) < 1e-6


def test_coordinates_near_zero_are_shaken_by_units_of_one() -> None:
    """Between pixels whose sum is 0: what is left of them are the last digits of 1 + the coordinate."""
    model = parsed("(float[1, 1, 1, 2] x, float[1, 1, 1, 2] g) => (float[1, 1, 1, 1] y) { y = GridSample(x, g) }")
    feeds = {"x": F([-1e7, 1e7]).reshape(1, 1, 1, 2), "g": F([1e-4, 0]).reshape(1, 1, 1, 2)}
    data = [perturbed(model, inside(model, feeds), np.random.default_rng(n), 1) for n in range(4)]
    gave = [float(onnxruntime_session(d)(feeds)[0].item()) for d in data]
    assert 0.1 < max(gave) - min(gave) < 10


@pytest.mark.parametrize(("after", "unread"), [("Slice(r, i, j)", True), ("Relu(r)", False), ("Slice(x, i, j)", False)])
def test_indices_of_rows_that_none_reads(after: str, unread: bool) -> None:
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
def test_faults_of_peers_depend_on_what_arrives(peer: str, text: str, feeds: dict[str, Any], right: bool) -> None:
    model = parsed(text)
    arrived = [feeds | {"z": np.abs(feeds["x"])}] if text == HOT else [feeds]
    assert is_trusted(peer, model, lambda: arrived) is right
    assert accepts_more(model, lambda: arrived) is ("Attention" in text and not right or text in (HOT, SOFT))


class Liar(Peers):
    """Answers as onnxruntime does, but for one part in a thousand."""

    def ask(self, peer: str, model: bytes, runs: Any) -> list[Any]:
        return [[y * F(1.001) for y in onnxruntime_session(model)(feeds)] for feeds in runs]


class Late(Peers):
    """Answers a little beside onnxruntime."""

    def ask(self, peer: str, model: bytes, runs: Any) -> list[Any]:
        return [[y + F(0.1) for y in onnxruntime_session(model)(feeds)] for feeds in runs]


class Scribe(Peers):
    """Answers as onnxruntime does, but for texts."""

    def ask(self, peer: str, model: bytes, runs: Any) -> list[Any]:
        answers = [onnxruntime_session(model)(feeds) for feeds in runs]
        return [[np.full_like(y, "7") if y.dtype == object else y for y in answer] for answer in answers]


SMOOTH = Case(
    "graphs",
    parsed("(float[3] x) => (float[3] y) { z = Exp(x) w = Add(z, x) y = Sqrt(w) }").SerializeToString(),
    ({"x": F([0.5, 1, 2])},),
)


@pytest.mark.parametrize(
    ("node", "code"),
    [
        ("ai.onnx.ml.Scaler(x)", 1), ("ai.onnx.ml.Normalizer(x)", 1), ("Shape(x)", 7), ("Abs(x)", 11),
        ("Dropout(x, x)", 11), ("ai.onnx.ml.Imputer(x)", 11),
    ],
)  # fmt: skip
def test_types_come_from_inference_or_the_schema(node: str, code: int) -> None:
    text = f'<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 1]> g (double[2] x) => (y) {{ y = {node} }}'
    assert output_types(onnx.parser.parse_model(text)) == [code]


def test_strings_of_what_is_open_are_open() -> None:
    """Codes of NaN, as text: each runtime has others."""
    text = "(float[2] x) => (y) { q, s, z = DynamicQuantizeLinear(x) y = Cast<to = 8>(q) }"
    case = Case("graphs", parsed(text).SerializeToString(), ({"x": F([np.nan, 1])},))
    assert judge(case, Draw("a"), Scribe(), lambda *_: None).outcome == "open"


def test_what_no_noise_explains_is_wrong() -> None:
    case = SMOOTH
    assert judge(case, Draw("a"), Peers(), lambda *_: None).outcome == "right"
    assert judge(case, Draw("a"), Liar(), lambda *_: None).outcome == "wrong"


@pytest.mark.parametrize(("text", "x", "off", "seen"), [
    ("(float[3] x) => (float[3] y) { y = Gelu(x) }", F([0, -3, -3]), 1e-7, False),  # 1 + erf
    ("(float[3] x) => (float[3] y) { y = Gelu(x) }", F([0, -3, -3]), 1e-5, True),
    ("(int32 x) => (float[1] y) { y = BlackmanWindow(x) }", np.array(1, np.int32), 3e-8, False),  # 0.42 - 0.5 + 0.08
    ("(int32 x) => (float[1] y) { y = BlackmanWindow(x) }", np.array(1, np.int32), 3e-5, True),
])  # fmt: skip
def test_what_numbers_near_one_leave_has_their_digits(text: str, x: Any, off: float, seen: bool) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 20]> g {text}')
    want = onnxruntime_session(model.SerializeToString())({"x": x})
    assert bool(difference([want[0] + F(off)], want, tolerance(model, [x]))) is seen


def test_large_terms_that_cancel_are_moved_apart() -> None:
    """Beside 2^24 and -2^24 a sum has no digit behind the point; without them it has."""
    for seed in range(8):
        large = F(np.random.default_rng(seed).permutation([2.0**24, -(2.0**24), 0.7, 0.3]).reshape(1, 1, 4))
        text = "(float[1, 1, 4] x) => (float[1, 1, 1] y) { y = GlobalAveragePool(x) }"
        case = Case("operators", parsed(text).SerializeToString(), ({"x": large},))
        for x, outcome in ((large, "open"), (np.clip(large, -1, 1), "wrong")):
            assert judge(replace(case, runs=({"x": x},)), Draw("a"), Late(), lambda *_: None, ()).outcome == outcome


class Wary(Peers):
    """Only onnxruntime answers, and with other numbers from a limit on."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def ask(self, peer: str, model: bytes, runs: Any) -> list[Any]:
        if peer != "onnxruntime":
            return ["Refused: it does not know it"] * len(runs)
        far = [any(np.abs(x).max() > self.limit for x in feeds.values()) for feeds in runs]
        answers = super().ask(peer, model, runs)
        return [[2 * y for y in answer] if f else answer for f, answer in zip(far, answers, strict=True)]


@pytest.mark.parametrize(("limit", "outcome"), [(1e20, "open"), (0.1, "wrong")])
def test_one_peer_alone_must_disagree_on_plain_numbers(limit: float, outcome: str) -> None:
    model = parsed("(float[3] x) => (float[3] y) { y = Abs(x) }").SerializeToString()
    case = Case("operators", model, ({"x": F([0.5, 1e30, 2])},))
    assert judge(case, Draw("a"), Wary(limit), lambda *_: None).outcome == outcome


class Pair(Peers):
    """Both answer something else, one twice and one so many times as much, from a limit on."""

    def __init__(self, limit: float, factor: float) -> None:
        super().__init__()
        self.limit, self.factor = limit, factor

    def ask(self, peer: str, model: bytes, runs: Any) -> list[Any]:
        factor = 2 if peer == "onnxruntime" else self.factor
        far = [any(np.abs(x).max() > self.limit for x in feeds.values()) for feeds in runs]
        answers = super().ask(peer, model, runs)
        return [[F(factor) * y for y in a] if f else a for f, a in zip(far, answers, strict=True)]


@pytest.mark.parametrize(
    ("limit", "factor", "outcome"), [(1e20, 2, "wrong"), (1e20, 3, "open"), (0.1, 2, "wrong"), (0.1, 3, "wrong")]
)
def test_two_peers_that_do_not_agree_must_disagree_on_plain_numbers(limit: float, factor: float, outcome: str) -> None:
    model = parsed("(float[3] x) => (float[3] y) { y = Abs(x) }").SerializeToString()
    case = Case("operators", model, ({"x": F([0.5, 1e30, 2])},))
    assert judge(case, Draw("a"), Pair(limit, factor), lambda *_: None).outcome == outcome


def test_pairs_of_plain_bytes_stay_in_16_bits() -> None:
    """Two products of a uint8 and an int8 are what onnxruntime adds up in 16 bits without VNNI."""
    codes = {"x": np.array([[255, 255]], np.uint8), "w": np.array([[127], [127]], np.int8)}
    text = "(uint8[1, 2] x, int8[2, 1] w) => (int32[1, 1] y) { y = MatMulInteger(x, w) }"
    plain = with_plain_numbers(Case("operators", parsed(text).SerializeToString(), (codes,)))
    assert plain is not None
    exact = plain.runs[0]["x"].astype(int) @ plain.runs[0]["w"].astype(int)
    assert exact.item() == onnxruntime_session(plain.model)(plain.runs[0])[0].item() > 30000


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64", "int32", "int64", "uint16"])
def test_plain_numbers_are_left_alone(kind: str) -> None:
    dtype = ml_dtypes.bfloat16 if kind == "bfloat16" else np.dtype(kind)
    x = np.array([0, 1, 2e4, 6e4], dtype)
    case = Case("operators", parsed("(float[4] x) => (y) { y = Abs(x) }").SerializeToString(), ({"x": x},))
    plain = with_plain_numbers(case)
    assert plain is not None and plain.runs[0]["x"].dtype == x.dtype and with_plain_numbers(plain) is None


@pytest.mark.parametrize(("liar", "first", "seen"), [
    ("WebGPU", 1.0, True), ("WebGPU", np.inf, False), ("level basic", np.inf, True), ("slow evaluator", 1.0, True),
])  # fmt: skip
def test_a_twin_that_differs_is_wrong(liar: str, first: float, seen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By as little: what moves is the twin's answer, not the session's. WebGPU may take all numbers for finite."""
    case = replace(SMOOTH, runs=({"x": F([first, 1, 2])},))
    answers, evaluated = engine.answers, engine.evaluated

    def lie(model: bytes, runs: Any, twin: Any, options: Any) -> list[Any]:
        got = answers(model, runs, twin, options)
        return [[y * F(1.001) for y in run] for run in got] if twin.name == liar else got

    monkeypatch.setattr(engine, "answers", lie)
    if liar == "slow evaluator":
        monkeypatch.setattr(engine, "evaluated", lambda *a: [y * F(1.001) for y in evaluated(*a)])
    twins = [twin for twin in engine.TWINS if twin.name == liar]
    found = [judge(case, Draw(str(n)), Peers(), lambda *_: None, twins).kind for n in range(8 - 7 * len(twins))]
    assert any(kind.startswith(liar) for kind in found) is seen


def test_the_twin_on_the_gpu_is_there() -> None:
    session = engine.Ours(SMOOTH.model, engine.WEBGPU, {}).session
    assert set(session.explain()["placement"]) == {"webgpu"}


def test_no_finalizer_takes_the_alarm() -> None:
    """What is raised in one is lost."""
    slept: list[None] = []

    class Slow:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            if not slept:
                slept.append(None)
                time.sleep(0.2)

    end = time.monotonic() + 2
    with pytest.raises(engine.TooSlow), engine.alarm(0.1):
        while time.monotonic() < end:
            Slow()
    gc.collect()
    assert gc.isenabled()


STARTS = """
import sys, time
from fuzz.pool import Worker
worker = Worker()
worker.make("operators", 0, 0)
print(worker.process.pid, flush=True)
time.sleep(60)
"""


def test_workers_end_with_who_started_them() -> None:
    """Also one that reads nothing: it stands still, as in a kernel that comes to no end."""
    with subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        os.kill(pid, signal.SIGSTOP)
        parent.kill()
    for _ in range(100):
        if not alive(pid):
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("a worker outlives who started it")


def alive(pid: int) -> bool:
    """A process that has ended counts as none, though nobody has asked how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except FileNotFoundError:
        return False
