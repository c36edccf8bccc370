"""Arithmetic, activations, logic and casts beyond the official cases: old meanings, edges, symbolic dims."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from kit import interpret
from pyruntime import InferenceSession
from pyruntime.errors import UnsupportedOp
from tests.ops.compare import by_onnx, by_session, check, parsed
from tests.ops.node import check_node, f32, floats, ints, node_model, run_node

EDGES = np.array([0.0, -0.0, 1.5, -1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 88.0, -104.0, 1e-40], np.float32)


@pytest.mark.parametrize(
    "op,opset",
    [
        *[(op, 13) for op in "Abs Neg Floor Ceil Sqrt Exp Log Tanh Erf Sigmoid Reciprocal Relu Sign".split()],
        *[(op, 14) for op in "Round Sin Cos Atan HardSwish LeakyRelu Elu Selu HardSigmoid Softsign".split()],
    ],
)  # fmt: skip
def test_unary_edges(op: str, opset: int) -> None:
    x = EDGES
    if op in ("Sin", "Cos"):
        x = x[:6]
    if op in ("HardSwish", "Softsign", "Elu", "Selu"):
        x = x[np.isfinite(x)]
    check_node(op, [x], opset)


@pytest.mark.parametrize("dtype", ["float", "double"])
@pytest.mark.parametrize("length", [20, 26, 33])
@pytest.mark.parametrize("ops", ["Asinh", "Log Exp", "Sin Cos", "Tanh Erf"])
def test_long_chains(ops: str, length: int, dtype: str) -> None:
    """Functions of functions, whose definitions written out would be nested too deep for one kernel."""
    names = ops.split()
    text = " ".join(f"v{n + 1} = {names[n % len(names)]} (v{n})" for n in range(length))
    m = parsed(f"g ({dtype}[5] v0) => ({dtype}[5] v{length}) {{ {text} }}")
    v0 = np.linspace(0.1, 0.9, 5).astype({"float": np.float32, "double": np.float64}[dtype])
    check(m, {"v0": v0}, by_onnx, 1e-4)


LAYERS = {
    "functions": "y = Asinh (x)",
    "a product with itself": "a = Tanh (x) b = Abs (a) y = Mul (a, b)",
    "a choice of two": "a = Mul (x, half) b = Greater (x, c) y = Where (b, x, a)",
    "rows": "m = ReduceMean <axes = [-1], keepdims = 1> (x) a = Abs (x) b = Mul (a, x) y = Sub (b, m)",
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(
    "head", ["MatMul (v, w)", "ReduceMax <axes = [-1], keepdims = 1> (v)", "Softmax <axis = 0> (v)"]
)
def test_long_chains_after_another_kernel(head: str, layer: str) -> None:
    """Code does not double with each operation that reads the one before it twice, and is not nested too deep."""
    count = 30
    text = [f"x0 = {head}"]
    for n in range(count):
        own = re.sub(r"\b([abm])\b", rf"\g<1>{n}", LAYERS[layer])
        text.append(re.sub(r"\by\b", f"x{n + 1}", re.sub(r"\bx\b", f"x{n}", own)))
    model = parsed(
        f"""g (float[1,6] v, float[6,6] w, float half, float c) => (float[1,M] x{count}) {{ {" ".join(text)} }}""", 17
    )
    rng = np.random.default_rng(0)
    feeds = {"v": f32(rng.normal(size=(1, 6)) / 4), "w": f32(np.eye(6)), "half": f32(0.5), "c": f32(0.1)}
    check(model, feeds, by_onnx, 1e-4)


SMALL = {"Mish": lambda x: x * np.tanh(np.log1p(np.exp(x))), "Softplus": lambda x: np.log1p(np.exp(x))}


@pytest.mark.parametrize("op", SMALL)
@pytest.mark.parametrize(("dtype", "digits"), [(np.float32, 6e-7), (np.float64, 2e-15)])
def test_digits_far_below_zero_are_kept(op: str, dtype: Any, digits: float) -> None:
    x = np.concatenate([np.linspace(-80, 80, 161), EDGES[:6]]).astype(dtype)
    for [got] in (run_node(op, [x], 18), by_session(*node_model(op, [x], 18))):
        np.testing.assert_allclose(got, SMALL[op](x.astype(np.float64)), rtol=digits)


@pytest.mark.parametrize("alpha", [0.25, 1.0, -2.0, 1e3, 3e38, np.inf, -np.inf])
@pytest.mark.parametrize(("dtype", "digits"), [(np.float16, 1e-3), (np.float32, 1e-6), (np.float64, 2e-15)])
def test_celu_keeps_its_digits_whatever_alpha_is(dtype: Any, digits: float, alpha: float) -> None:
    """e^(x / alpha) - 1 has no correct digits if alpha is large."""
    x = np.concatenate([np.linspace(-8, 8, 65), [0.0, 1e-4, -1e-4]]).astype(dtype)
    wide, alpha = x.astype(np.float64), float(np.float32(alpha))
    with np.errstate(invalid="ignore"):
        want = np.maximum(wide, 0) + np.minimum(alpha * np.expm1(wide / alpha), 0)
    for [got] in (run_node("Celu", [x], 28, alpha=alpha), by_session(*node_model("Celu", [x], 28, alpha=alpha))):
        assert got.dtype == dtype
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=digits)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (2, 3)])
def test_shapes(shape: tuple[int, ...]) -> None:
    check_node("Add", [floats(*shape), floats(*shape)], 14)
    check_node("Mul", [floats(*shape), np.float32(2)], 14)


@pytest.mark.parametrize("a,b", [((2, 3, 4), (3, 1)), ((1, 4), (3, 1)), ((2, 1, 4), (2, 3, 4)), ((5,), (2, 1, 5))])
def test_broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    check_node("Sub", [floats(*a), floats(*b)], 14)
    check_node("Less", [floats(*a), floats(*b)], 13)
    check_node("Where", [floats(*a) > 0, floats(*b), np.float32(0)], 16)


LEGACY = [
    ((2, 3, 4, 5), (), {}), ((2, 3, 4, 5), (5,), {}), ((2, 3, 4, 5), (4, 5), {}), ((2, 3, 4, 5), (3, 4), {"axis": 1}),
    ((2, 3, 4, 5), (2,), {"axis": 0}), ((2, 3, 4, 5), (3,), {"axis": 1}), ((2, 3, 4, 5), (3,), {"axis": -3}),
    ((2, 3, 4), (1, 1), {"axis": 0}),
]  # fmt: skip


@pytest.mark.parametrize("a,b,attrs", LEGACY)
@pytest.mark.parametrize(
    "op,opset", [("Add", 1), ("Sub", 6), ("Mul", 6), ("Div", 6), ("Pow", 1), ("Less", 1), ("Equal", 1)]
)
def test_broadcast_by_attribute(op: str, opset: int, a: tuple, b: tuple, attrs: dict[str, Any]) -> None:
    x, y = np.abs(floats(*a)) + 1, np.abs(floats(*b)) + 1
    if op == "Equal":
        x, y = (x > 1.5), (y > 1.5)
    place = attrs.get("axis", len(a) - len(b)) % len(a)
    wide = y.reshape(*b, *[1] * (len(a) - place - len(b)))
    fn = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power, "Less": np.less,
          "Equal": np.equal}[op]  # fmt: skip
    got = run_node(op, [x, y], opset, broadcast=1, **attrs)[0]
    np.testing.assert_allclose(got, fn(x, wide), rtol=1e-6)


def test_consumed_inputs_are_ignored() -> None:
    x = floats(2, 3)
    np.testing.assert_array_equal(run_node("Add", [x, x], 1, consumed_inputs=[0, 0])[0], x + x)
    np.testing.assert_array_equal(run_node("Relu", [x], 1, consumed_inputs=[0])[0], np.maximum(x, 0))


def test_legacy_without_broadcast_needs_equal_shapes() -> None:
    x = floats(2, 3)
    np.testing.assert_array_equal(run_node("Add", [x, x], 6)[0], x + x)
    with pytest.raises(Exception, match="differ|zip"):
        run_node("Add", [x, floats(1, 3)], 6)


@pytest.mark.parametrize(
    "attrs,want",
    [({}, [-3e38, -1, 0, 2, 3e38]), ({"min": -0.5}, [-0.5, -0.5, 0, 2, 3e38]), ({"max": 1.0}, [-3e38, -1, 0, 1, 1])],
)
def test_clip_by_attributes(attrs: dict[str, Any], want: list[float]) -> None:
    x = np.array([-3e38, -1, 0, 2, 3e38], np.float32)
    np.testing.assert_allclose(run_node("Clip", [x], 6, **attrs)[0], f32(want))
    np.testing.assert_allclose(run_node("Clip", [x], 1, **attrs)[0], f32(want))


@pytest.mark.parametrize("low,high", [(None, None), (-1, None), (None, 1), (-1, 1), (1, -1)])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int64])
def test_clip(low: int | None, high: int | None, dtype: Any) -> None:
    x = np.arange(-3, 4).astype(dtype)
    check_node("Clip", [x, None if low is None else dtype(low), None if high is None else dtype(high)], 13)


MIXED = [(np.float32, np.int64), (np.float32, np.float64), (np.int32, np.float32), (np.int64, np.int32),
         (np.float64, np.float32), (np.int32, np.int64), (np.int64, np.float64)]  # fmt: skip


@pytest.mark.parametrize("x,y", MIXED)
def test_pow_of_mixed_types(x: Any, y: Any) -> None:
    check_node("Pow", [np.array([1, 2, 3, 5, 7], x), np.array([0, 1, 2, 3, 2], y)], 15)


def test_pow_of_a_known_square() -> None:
    check_node("Pow", [EDGES[:6], np.float32(2)], 15, constants=(1,))
    check_node("Pow", [floats(2, 3), ints(3)], 15, constants=(1,))


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, np.float32])
def test_mod(fmod: int, dtype: Any) -> None:
    a = np.array([-7, -4, -3, 3, 4, 7, 0] if dtype is not np.uint8 else [7, 4, 3, 200, 4, 7, 0]).astype(dtype)
    for divisor in (3, -3) if dtype is not np.uint8 else (3,):
        b = np.full(a.shape, divisor, dtype)
        want = np.fmod(a, b) if fmod else np.mod(a, b)
        np.testing.assert_array_equal(run_node("Mod", [a, b], 13, fmod=fmod)[0], want)


def test_bit_shift_beyond_the_width() -> None:
    x, y = np.array([1, 255, 128, 3], np.uint8), np.array([8, 1, 9, 7], np.uint8)
    np.testing.assert_array_equal(run_node("BitShift", [x, y], 11, direction="LEFT")[0], [0, 254, 0, 128])
    np.testing.assert_array_equal(run_node("BitShift", [x, y], 11, direction="RIGHT")[0], [0, 127, 0, 0])


def test_is_inf_detects_a_sign() -> None:
    for negative in (0, 1):
        for positive in (0, 1):
            check_node("IsInf", [EDGES], 10, detect_negative=negative, detect_positive=positive)


@pytest.mark.parametrize("op,opset", [("PRelu", 6), ("PRelu", 9), ("Selu", 1), ("Sum", 6), ("Mean", 6), ("Max", 6)])
def test_old_meanings(op: str, opset: int) -> None:
    x, slope = floats(2, 3, 4), floats(3)
    if op == "PRelu":
        slope = slope if opset < 7 else slope.reshape(3, 1)
        want = np.where(x < 0, x * slope.reshape(3, 1), x)
        args = [x, slope]
    elif op == "Selu":
        want, args = np.where(x > 0, 1.0507 * x, 1.0507 * 1.6732 * (np.exp(x) - 1)), [x]
    else:
        args = [x, 2 * x, x - 1]
        want = {"Sum": np.sum, "Mean": np.mean, "Max": np.max}[op](args, axis=0)
    np.testing.assert_allclose(run_node(op, args, opset)[0], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["Gelu", "QuickGelu", "FastGelu", "BiasGelu"])
def test_microsoft_activations(op: str) -> None:
    args = [floats(2, 8)] + ([floats(8)] if op in ("BiasGelu", "FastGelu") else [])
    check_node(op, args, 17, domain="com.microsoft", tolerance=1e-4 if op == "FastGelu" else 1e-5)


# ── casts ─────────────────────────────────────────────────────────────────────────────────────────────────────────

CODES = {np.float32: 1, np.uint8: 2, np.int8: 3, np.int32: 6, np.int64: 7, np.bool_: 9, np.float16: 10, np.float64: 11}


@pytest.mark.parametrize("source", CODES)
@pytest.mark.parametrize("to", CODES)
def test_cast(source: Any, to: Any) -> None:
    x = (
        np.array([0, 1, 100, 3, 0], source)
        if source is not np.float32
        else np.array([0.5, -0.0, 2.9, 100, 65504], source)
    )
    if to in (np.uint8, np.int8) and source is np.float32:
        x = x[:4]
    check_node("Cast", [x], 13, to=CODES[to])


def test_cast_to_and_from_text() -> None:
    texts = np.array(["3.14", "1e-5", "+INF", "-inf", "NaN", "7"], object)
    got = run_node("Cast", [texts], 13, to=1)[0]
    np.testing.assert_allclose(got, f32([3.14, 1e-5, np.inf, -np.inf, np.nan, 7]))
    assert run_node("Cast", [np.array(["12", "-3"], object)], 13, to=7)[0].tolist() == [12, -3]
    assert run_node("Cast", [f32([0.1, 3, 1e20])], 13, to=8)[0].tolist() == ["0.1", "3", "1e+20"]
    assert run_node("Cast", [ints(1, -2)], 13, to=8)[0].tolist() == ["1", "-2"]
    eights = f32([0.1015625, -448, np.nan]).astype(ml_dtypes.float8_e4m3fn)
    assert run_node("Cast", [eights], 25, to=8)[0].tolist() == ["0.1015625", "-448", "NaN"]


def test_cast_by_name() -> None:
    assert run_node("Cast", [f32([1.5, 2])], 1, to="INT32")[0].tolist() == [1, 2]


@pytest.mark.parametrize("name", "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float4_e2m1fn".split())
def test_small_floats_round_trip(name: str) -> None:
    dtype = getattr(ml_dtypes, name)
    codes = np.arange(16 if "4_" in name else 256, dtype=np.uint8).view(dtype)
    code = {"float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20, "float4_e2m1fn": 23}[
        name
    ]
    wide = run_node("Cast", [codes], 23, to=1)[0]
    np.testing.assert_array_equal(wide, codes.astype(np.float32))
    back = run_node("Cast", [wide], 23, to=code, saturate=0)[0]
    np.testing.assert_array_equal(back.astype(np.float32), codes.astype(np.float32))


@pytest.mark.parametrize("code", [17, 18, 19, 20, 23])
def test_small_floats_as_dims(code: int) -> None:
    nodes = [helper.make_node("Cast", ["w"], ["dims"], to=7), helper.make_node("ConstantOfShape", ["dims"], ["y"])]
    y = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph(nodes, "g", [], [y], [helper.make_tensor("w", code, [2], [2.0, 3.0])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    data = model.SerializeToString()
    for found in (InferenceSession(data).run(None, {}), interpret.run(data, {})):
        np.testing.assert_array_equal(found[0], np.zeros((2, 3)))


def test_bit_cast() -> None:
    check_node("BitCast", [f32([1, -2])], 26, by_onnx, to=6)
    with pytest.raises(UnsupportedOp, match="bits of"):
        run_node("BitCast", [f32([1, -2])], 26, to=7)
