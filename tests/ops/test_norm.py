"""Normalisations: ONNX Runtime's own, old meanings, named and empty dims."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper, parser

from pyruntime import InferenceSession, SessionOptions
from tests.ops.dynamic import Case, by_onnx, by_onnxruntime, check

SIZES = ({"B": 2, "S": 3}, {"B": 1, "S": 1}, {"B": 0, "S": 2})
FULL = SIZES[:2]


def ids(shape: Any, sizes: Any, rng: Any) -> Any:
    return rng.integers(0, 4, shape)


def bits(shape: Any, sizes: Any, rng: Any) -> Any:
    return rng.integers(0, 2, shape)


def positive(shape: Any, sizes: Any, rng: Any) -> Any:
    return rng.uniform(0.5, 2, shape)


@pytest.mark.parametrize("width", [7, 8, 9, 64])
def test_a_row_whose_first_pass_stores_and_second_reads_the_input(width: int) -> None:
    """The result must not take the memory of x: the pass that stores c reads x after that."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[3,{width}] x, float[{width}] w) => (float[3,{width}] y) {{
        m = ReduceMean <axes = [-1], keepdims = 1> (x)
        a = Tanh (x)
        b = Mul (a, w)
        c = Sub (b, m)
        d = Abs (x)
        e = Add (d, c)
        f = Tanh (e)
        n = ReduceMean <axes = [-1], keepdims = 1> (f)
        h = Mul (c, w)
        y = Sub (h, n)
    }}"""
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(3, width)).astype(np.float32), "w": rng.normal(size=width).astype(np.float32)}
    model = parser.parse_model(text).SerializeToString()
    (expected,) = onnxruntime.InferenceSession(model).run(None, feeds)
    (got,) = InferenceSession(model).run(None, feeds)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


STATE = {"scale": "3", "b": "3", "mean": "3", "var": (positive, np.float32, "3")}
SKIP = {"x": "B S 4", "skip": "B S 4", "gamma": "4"}
FOUR = ("y", "mean", "inverse", "sum")
EMBED = {
    "ids": (ids, np.int32, "B S"), "segments": (ids, np.int32, "B S"), "words": "4 6", "places": "5 6",
    "kinds": "4 6", "gamma": "6", "beta": "6",
}  # fmt: skip

MICROSOFT = [
    Case("SkipLayerNormalization", {"epsilon": 1e-5}, {**SKIP, "beta": "4", "bias": "4"}, FULL,
         outputs=("y", "", "", "sum")),
    Case("SkipLayerNormalization", {}, {**SKIP, "skip": "1 S 4"}, FULL, name="Skip broadcast"),
    *[Case(op, {}, {**SKIP, "skip": dims}, ({"B": 2, "S": 3, "A": 1}, {"B": 2, "S": 3, "A": 2}), name=f"{op} {dims}")
      for op in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization") for dims in ("A S 4", "S 4")],
    Case("SkipSimplifiedLayerNormalization", {"epsilon": 1e-5}, {**SKIP, "bias": "4"}, FULL,
         outputs=("y", "", "", "sum")),
    Case("SkipSimplifiedLayerNormalization", {}, SKIP, FULL),
    Case("EmbedLayerNormalization", {}, EMBED, FULL, outputs=("y", "count")),
    Case("EmbedLayerNormalization", {"epsilon": 1e-5}, {**EMBED, "mask": (bits, np.int32, "B S")}, FULL,
         outputs=("y", "count", "sum"), name="Embed mask"),
    Case("EmbedLayerNormalization", {}, {**EMBED, "_m": "", "at": (ids, np.int32, "B S")}, FULL,
         outputs=("y", "count"), name="Embed positions"),
    Case("EmbedLayerNormalization", {}, {**EMBED, "_m": "", "at": (ids, np.int32, "A S")},
         ({"B": 2, "S": 3, "A": 1}, {"B": 2, "S": 3, "A": 2}), outputs=("y", "count"), name="Embed shared positions"),
    Case("EmbedLayerNormalization", {}, {"ids": EMBED["ids"], "_s": "", **dict(list(EMBED.items())[2:])}, FULL,
         outputs=("y", "count"), name="Embed segment 0"),
    Case("SimplifiedLayerNormalization", {"axis": -1}, {"x": "B S 4", "scale": "4"}, SIZES, domain=""),
    Case("SimplifiedLayerNormalization", {}, {"x": (np.float16, "B S 4"), "scale": (np.float16, "4")}, FULL, domain="",
         tolerance=2e-3, name="Simplified half"),
]  # fmt: skip

OFFICIAL = [
    Case("LayerNormalization", {}, {"x": "B S 4", "scale": "4", "b": "4"}, SIZES, outputs=("y", "mean", "inverse")),
    Case("LayerNormalization", {}, {"x": (np.float64, "B S 4"), "scale": (np.float64, "4")}, SIZES, tolerance=1e-14,
         outputs=("y", "mean", "inverse"), name="LayerNormalization of doubles"),
    Case("LayerNormalization", {"axis": 1}, {"x": (np.float16, "B 3 4"), "scale": (np.float16, "3 4")}, FULL,
         tolerance=2e-3),
    Case("InstanceNormalization", {}, {"x": "B 3 S 2", "scale": "3", "b": "3"}, SIZES),
    Case("BatchNormalization", {}, {"x": "B 3 S", **STATE}, SIZES, opset=15),
    Case("BatchNormalization", {}, {"x": "B 3", **STATE}, SIZES, opset=9, name="BatchNormalization-9"),
    Case("BatchNormalization", {}, {"x": "B 3 S 2", **STATE}, FULL, opset=7, name="BatchNormalization-7"),
    Case("BatchNormalization", {"spatial": 0},
         {"x": "B 3 4", **dict.fromkeys(STATE, "3 4"), "var": (positive, np.float32, "3 4")},
         ({"B": 2},), opset=7, name="not spatial"),
    Case("LRN", {"size": 3, "alpha": 0.2}, {"x": "B 4 S 2"}, SIZES),
    Case("MeanVarianceNormalization", {}, {"x": "B 4 S 2"}, FULL),
    Case("GroupNormalization", {"num_groups": 2}, {"x": "B 4 S", "scale": "4", "bias": "4"}, FULL, opset=21),
]  # fmt: skip


@pytest.mark.parametrize("case", [*MICROSOFT, *OFFICIAL], ids=str)
def test_against_onnxruntime(case: Case) -> None:
    from dataclasses import replace

    check(case if case in MICROSOFT else replace(case, domain=""), by_onnxruntime)


OLD = [
    Case("GroupNormalization", {"num_groups": 2}, {"x": "B 4 S", "scale": "2", "bias": "2"}, FULL, opset=18,
         name="GroupNormalization-18"),
    Case("BatchNormalization", {"training_mode": 1, "momentum": 0.7}, {"x": "B 3 S", **STATE}, FULL, opset=15,
         outputs=("y", "m", "v"), name="BatchNormalization training"),
    Case("BatchNormalization", {"is_test": 1}, {"x": "B 3 S", **STATE}, FULL, opset=6, name="BatchNormalization-6"),
]  # fmt: skip


@pytest.mark.parametrize("case", OLD, ids=str)
def test_old_meanings(case: Case) -> None:
    def by_definition(m: Any, feeds: dict[str, np.ndarray]) -> list[Any]:
        if "18" not in case.name:
            return by_onnx(m, feeds)
        x = feeds["x"].reshape(feeds["x"].shape[0], 2, -1)
        y = (x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + 1e-5)
        return [(y * feeds["scale"][:, None] + feeds["bias"][:, None]).reshape(feeds["x"].shape)]

    from dataclasses import replace

    check(replace(case, domain=""), by_definition)


def grouped(x: np.ndarray, feeds: dict[str, np.ndarray], silu: bool) -> np.ndarray:
    """Channels last, two groups."""
    y = x.reshape(x.shape[0], -1, 2, x.shape[-1] // 2)
    y = (y - y.mean((1, 3), keepdims=True)) / np.sqrt(y.var((1, 3), keepdims=True) + 1e-5)
    y = y.reshape(x.shape) * feeds["gamma"] + feeds["beta"]
    return y / (1 + np.exp(-y)) if silu else y


GROUPED = {"x": "B S 2 4", "gamma": "4", "beta": "4"}


@pytest.mark.parametrize("silu", [0, 1])
def test_group_norm_of_onnxruntime(silu: int) -> None:
    """ONNX Runtime's CPU lacks it: compared with its definition."""
    attrs = {"groups": 2, "activation": silu, "epsilon": 1e-5}
    check(Case("GroupNorm", attrs, GROUPED, FULL), lambda m, feeds: [grouped(feeds["x"], feeds, bool(silu))])

    def skipped(m: Any, feeds: dict[str, np.ndarray]) -> list[Any]:
        total = feeds["x"] + feeds["skip"][:, None, None] + feeds["bias"]
        return [grouped(total, feeds, bool(silu)), total]

    inputs = {**GROUPED, "skip": "B 4", "bias": "4"}
    check(Case("SkipGroupNorm", attrs, inputs, FULL, outputs=("y", "sum")), skipped)


def test_bias_fusions_of_onnxruntime() -> None:
    inputs = {"x": "B S 4", "b": "4", "skip": "B S 4"}
    check(Case("BiasAdd", {}, inputs, SIZES), lambda m, feeds: [feeds["x"] + feeds["b"] + feeds["skip"]])

    def split(m: Any, feeds: dict[str, np.ndarray]) -> list[Any]:
        left, right = np.split(feeds["x"] + feeds["b"], 2, -1)
        gelu = [v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in right.ravel()]
        return [left * np.array(gelu, np.float32).reshape(right.shape)]

    check(Case("BiasSplitGelu", {}, {"x": "B S 4", "b": "4"}, SIZES), split)


@pytest.mark.parametrize("level", ["disabled", "all"])
def test_bias_split_gelu_rounds_halves_once(level: str) -> None:
    model = helper.make_model(
        parser.parse_graph("""g (float16[1, N, 200] x, float16[200] b) => (float16[1, N, 100] y)
        { y = com.microsoft.BiasSplitGelu(x, b) }"""),
        opset_imports=[helper.make_opsetid("com.microsoft", 1)],
    )
    rng = np.random.default_rng(5)
    x, b = (rng.uniform(-2, 2, shape).astype(np.float16) for shape in ((1, 9, 200), (200,)))
    options = SessionOptions(graph_optimization_level=level)
    (y,) = InferenceSession(model.SerializeToString(), options).run(None, {"x": x, "b": b})
    left, right = np.split(x.astype(np.float64) + b, 2, -1)
    want = left * np.vectorize(lambda v: v * (1 + math.erf(v / math.sqrt(2))) / 2)(right)
    np.testing.assert_allclose(y, want, rtol=2**-11, atol=1e-6)


def test_training_outputs_of_opset_9() -> None:
    """Running mean and variance, then the batch's own."""
    case = Case("BatchNormalization", {"momentum": 0.6}, {"x": "B 3 S", **STATE}, FULL, opset=9, domain="",
                outputs=("y", "m", "v", "own_m", "own_v"))  # fmt: skip

    def peer(m: Any, feeds: dict[str, np.ndarray]) -> list[Any]:
        x = feeds["x"]
        mean, var = x.mean((0, 2)), x.var((0, 2))
        y = (x - mean[:, None]) / np.sqrt(var[:, None] + 1e-5) * feeds["scale"][:, None] + feeds["b"][:, None]
        running = [feeds[k] * np.float32(0.6) + own * np.float32(0.4) for k, own in (("mean", mean), ("var", var))]
        return [y, *running, mean, var]

    check(case, peer)
