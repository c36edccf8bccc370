"""Routines of backward passes, as models meet them, against NumPy in double."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from kit.training_networks import model, node, random
from pyruntime import InferenceSession, SessionOptions, TrainingSession
from tests.ops.compare import parsed

RNG = np.random.default_rng(3)
TRAINING = "ai.onnx.preview.training"


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def gradient(
    body: str, wanted: str, feeds: dict[str, np.ndarray], routine: str | tuple[str, ...], symbolic: bool = False,
    **options: Any,
) -> np.ndarray:  # fmt: skip
    """The gradient of Σ g · c with respect to a feed; body: nodes that make c. The Program must use the routine, or one
    of several."""
    heads = []
    for name, value in feeds.items():
        free = symbolic and name != "w"
        dims = [f"{name}{n}" if free else str(d) for n, d in enumerate(value.shape)]
        heads.append(f"float[{', '.join(['N', *dims[1:]] if free else dims)}] {name}")
    text = f"""t ({", ".join(heads)}) => (float[] d) {{ {body}  p = Mul(c, g)  y = ReduceSum<keepdims = 0>(p)
        d = {TRAINING}.Gradient<xs = ["{wanted}"], y = "y">({wanted}) }}"""
    parsed_model = parsed(text, 22, **{TRAINING: 1}).SerializeToString()
    session = InferenceSession(parsed_model, SessionOptions(**options), providers=["wasm"])
    assert any(call.kernel.startswith(routine) for call in session.profile(feeds))
    return session.run(None, feeds)[0]


# x, filters, strides, dilations, pads, groups: lines around four positions, one and several steps and blocks, windows
# beyond the image, one to three dims
FILTERS: list[tuple[tuple[int, ...], tuple[int, ...], list[int], list[int], list[int], int]] = [
    ((2, 3, 6, 7), (5, 3, 3, 3), [1, 1], [1, 1], [1, 1, 1, 1], 1),
    ((1, 1, 5, 4), (1, 1, 1, 1), [1, 1], [1, 1], [0, 0, 0, 0], 1),
    ((2, 11, 5, 81), (9, 11, 1, 1), [1, 1], [1, 1], [0, 0, 0, 0], 1),
    ((2, 4, 5, 7), (4, 2, 1, 1), [1, 1], [1, 1], [0, 0, 0, 0], 2),
    ((2, 3, 5, 7), (4, 3, 1, 1), [2, 2], [1, 1], [0, 0, 0, 0], 1),
    ((3, 2, 9, 13), (7, 2, 3, 2), [2, 3], [1, 1], [0, 1, 2, 0], 1),
    ((2, 2, 11, 10), (4, 2, 3, 3), [1, 2], [2, 3], [3, 2, 1, 4], 1),
    ((2, 6, 8, 9), (9, 2, 3, 3), [1, 1], [1, 1], [1, 1, 1, 1], 3),
    ((2, 5, 9, 9), (10, 1, 3, 3), [2, 2], [1, 1], [1, 1, 1, 1], 5),
    ((2, 40, 5, 6), (13, 40, 3, 3), [1, 1], [1, 1], [1, 1, 1, 1], 1),
    ((1, 2, 3, 3), (3, 2, 3, 3), [1, 1], [1, 1], [4, 4, 4, 4], 1),
    ((1, 2, 30, 31), (200, 2, 3, 3), [1, 1], [1, 1], [1, 1, 1, 1], 1),
    ((1, 2, 4, 801), (3, 2, 2, 5), [1, 1], [1, 1], [0, 2, 0, 2], 1),
    ((2, 3, 900), (4, 3, 10), [5], [1], [3, 2], 1),
    ((1, 2, 40), (3, 2, 3), [1], [16], [0, 0], 1),
    ((1, 2, 5, 6, 7), (3, 2, 2, 3, 3), [1, 2, 1], [2, 1, 1], [1, 0, 1, 0, 1, 1], 1),
    ((0, 2, 6, 6), (3, 2, 3, 3), [1, 1], [1, 1], [1, 1, 1, 1], 1),
]
# x, filters, pads, of Winograd's form: images of one and several steps, tiles beyond the image, part of a panel, blocks
WINOGRAD: list[tuple[tuple[int, ...], tuple[int, ...], list[int]]] = [
    ((2, 3, 12, 12), (3, 3, 3, 3), [1, 1, 1, 1]),
    ((3, 7, 15, 29), (9, 7, 3, 3), [0, 0, 0, 0]),
    ((1, 5, 16, 65), (12, 5, 3, 3), [2, 0, 1, 3]),
    ((9, 4, 13, 14), (5, 4, 3, 3), [1, 2, 1, 0]),
    ((2, 260, 12, 13), (4, 260, 3, 3), [1, 1, 1, 1]),
    ((2, 4, 14, 12), (259, 4, 3, 3), [1, 1, 1, 1]),
    ((0, 3, 14, 14), (3, 3, 3, 3), [1, 1, 1, 1]),
]


def filters(
    x: np.ndarray, g: np.ndarray, shape: tuple[int, ...], strides: Any, dilations: Any, pads: Any, group: int
) -> np.ndarray:
    rank = len(strides)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *[(pads[n], pads[n + rank]) for n in range(rank)]])
    n, m, *out = g.shape
    found = np.zeros(shape)
    by_group = g.astype(np.float64).reshape(n, group, m // group, math.prod(out))
    for tap in itertools.product(*map(range, shape[2:])):
        at = [slice(k * d, k * d + (o - 1) * s + 1, s) for k, d, o, s in zip(tap, dilations, out, strides, strict=True)]
        part = padded[(slice(None), slice(None), *at)].reshape(n, group, shape[1], math.prod(out))
        found[(slice(None), slice(None), *tap)] = np.einsum("nqmo,nqco->qmc", by_group, part).reshape(shape[:2])
    return found


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("x", "w", "strides", "dilations", "pads", "group"), FILTERS, ids=str)
def test_filters(
    x: Any, w: Any, strides: list[int], dilations: list[int], pads: list[int], group: int, symbolic: bool, threads: int
) -> None:  # fmt: skip
    rank = len(strides)
    out = [
        (x[2 + n] + pads[n] + pads[n + rank] - dilations[n] * (w[2 + n] - 1) - 1) // strides[n] + 1 for n in range(rank)
    ]
    feeds = {"x": floats(*x), "w": floats(*w), "g": floats(x[0], w[0], *out)}
    body = f"c = Conv<strides = {strides}, dilations = {dilations}, pads = {pads}, group = {group}>(x, w)"
    routines = ("conv_filters", "winograd_filters") if symbolic else "conv_filters"  # small extents that no one knows
    got = gradient(body, "w", feeds, routines, symbolic, intra_op_num_threads=threads)
    want = filters(feeds["x"], feeds["g"], w, strides, dilations, pads, group)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def winograd(x: np.ndarray, g: np.ndarray, w: tuple[int, ...], pads: list[int], **options: Any) -> np.ndarray:
    feeds = {"x": x, "w": floats(*w), "g": g}
    return gradient(f"c = Conv<pads = {pads}>(x, w)", "w", feeds, "winograd_filters", **options)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("x", "w", "pads"), WINOGRAD, ids=str)
def test_filters_in_winograds_form(x: Any, w: Any, pads: list[int], symbolic: bool, threads: int) -> None:
    image, g = floats(*x), floats(x[0], w[0], *[x[2 + n] + pads[n] + pads[n + 2] - 2 for n in range(2)])
    got = winograd(image, g, w, pads, symbolic=symbolic, intra_op_num_threads=threads)
    want = filters(image, g, w, [1, 1], [1, 1], pads, 1)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_rounding_of_filters_in_winograds_form(shift: float, native: bool) -> None:
    """Sums of 25,088 terms; with a mean, as activations behind Relu have, or without."""
    image, g, w = shift + floats(8, 8, 56, 56), floats(8, 8, 56, 56), (8, 8, 3, 3)
    got = winograd(image, g, w, [1] * 4, native_code=native)
    want = filters(image, g, w, [1, 1], [1, 1], [1] * 4, 1)
    assert np.abs(got - want).max() <= 3e-6 * np.abs(want).max()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e37])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [2, 0, 1, 3]], ids=str)
def test_filters_beside_infinities_in_winograds_form(pads: list[int], value: float) -> None:
    """Gradients of weights that do not meet the value stay finite, and infinities do not become NaN."""
    image, w = floats(2, 5, 16, 19), (6, 5, 3, 3)
    image[1, 2, 0, 0] = image[0, 3, -1, 4] = value
    g = 0.5 + np.abs(floats(2, 6, 14 + pads[0] + pads[2], 17 + pads[1] + pads[3]))
    got, want = winograd(image, g, w, pads), filters(image, g, w, [1, 1], [1, 1], pads, 1)
    assert np.isfinite(want[:, [0, 1, 4]]).all()
    largest_tap = np.abs(np.where(np.isfinite(want), want, 0)).max((2, 3), keepdims=True)
    np.testing.assert_allclose(got / largest_tap, want / largest_tap, rtol=1e-4, atol=1e-5)


def largest(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    found = np.zeros_like(x)
    for n, c, i, j in np.ndindex(*g.shape):
        window = x[n, c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        y, z = divmod(int(np.argmax(window)), window.shape[1])
        found[n, c, 2 * i + y, 2 * j + z] = g[n, c, i, j]
    return found


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("height", [2, 3, 8])
def test_largest_of_windows(height: int, ceil: int, relu: bool) -> None:
    """Rows around four windows, elements that no window covers, windows beyond the image, equal elements."""
    for width in (2, 3, 4, 5, 6, 7, 8, 9, 16, 19):
        x = np.round(2 * floats(2, 3, height, width))  # many are equal
        feeds = {"x": x, "g": floats(2, 3, *[-(-d // 2) if ceil else d // 2 for d in (height, width)])}
        pool = f"MaxPool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = {ceil}>"
        body = f"r = Relu(x)  c = {pool}(r)" if relu else f"c = {pool}(x)"
        exact = not ceil or height % 2 == width % 2 == 0
        got = gradient(body, "x", feeds, "max_pool" if exact else "")
        want = largest(np.maximum(x, 0), feeds["g"]) * (x > 0) if relu else largest(x, feeds["g"])
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("accumulate", [False, True])
def test_filters_that_change_are_transformed_in_each_step(accumulate: bool) -> None:
    """Winograd's form reads the weights that the last step wrote."""
    weights = random(2, w1=(4, 3, 3, 3), w2=(5, 4, 3, 3))
    pads = [1, 1, 1, 1]
    nodes = [node("Conv", "image w1", "h", pads=pads), node("Conv", "h w2", "y", pads=pads)]
    shape = (TensorProto.FLOAT, ["N", 3, 16, 16])
    net = model(nodes, {"image": shape}, {"y": (TensorProto.FLOAT, ["N", 5, 16, 16])}, weights)
    feeds = {"image": floats(4, 3, 16, 16), "target": floats(4, 5, 16, 16)}
    losses = []
    for disabled in ([], ["operand_packing"]):
        options = SessionOptions(disabled_passes=disabled)
        with TrainingSession(
            net, loss={"mse": "y"}, optimizer={"sgd": {"rate": 0.1}}, accumulate=accumulate, sess_options=options
        ) as session:  # fmt: skip
            losses.append([session.step(feeds).loss for _ in range(4)])
            kernels = {
                call.kernel for call in session._session.profile(session._feeds(session._steps.step(0.0), feeds))
            }
        convolutions = {name for name in kernels if name.startswith("winograd") and "filters" not in name}
        assert bool(convolutions) == (not disabled)
    assert losses[0][0] > 1.1 * losses[0][-1]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
