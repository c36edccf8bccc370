"""Pruned models: without channels that are zeros they compute the same, in onnxruntime, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from kit.training_networks import T, convolutional, digits, model, node, random
from pyruntime import InferenceSession, InvalidInput, TrainingSession, prune

RNG = np.random.default_rng(0)
HALF = np.arange(8) % 2 == 0  # channels that are zeros


def residual() -> bytes:
    """Convolutions with BatchNormalization, a sum of two of them, a gate, constants for each channel, layers."""
    nodes = [
        node("Conv", "x w1 b1", "a", pads=[1] * 4), node("BatchNormalization", "a s1 t1 m1 v1", "n"),
        node("Relu", "n", "r"), node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p w2", "c", pads=[1] * 4), node("Mul", "c k", "d"), node("Add", "p d", "e"),
        node("GlobalAveragePool", "e", "g"), node("Conv", "g w3", "h"), node("Sigmoid", "h", "i"),
        node("Mul", "e i", "j"), node("Flatten", "j", "f"), node("Gemm", "f w4 b4", "l"), node("Relu", "l", "o"),
        node("Gemm", "o w5 b5", "y", transB=1),
    ]  # fmt: skip
    shapes: Any = {
        "w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (8, 8, 1, 1), "w4": (72, 8), "w5": (5, 8), "k": (8, 1, 1),
    }  # fmt: skip
    w = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    w |= {name: RNG.random(8).astype(np.float32) + 0.5 for name in ("b1", "s1", "t1", "m1", "v1", "b4")}
    for name in ("w1", "w2", "b1", "t1", "m1", "b4"):
        w[name][HALF] = 0
    w["w4"][:, HALF] = 0
    w["w3"][HALF] *= 1e-3  # of the gate of channels that are zeros
    w["b5"] = RNG.normal(size=5).astype(np.float32)
    return model(nodes, {"x": (T.FLOAT, ["N", 3, 6, 6])}, {"y": (T.FLOAT, ["N", 5])}, w)


def test_channels_of_zeros_go() -> None:
    data, x = residual(), RNG.normal(size=(4, 3, 6, 6)).astype(np.float32)
    small = prune(data)
    onnx.checker.check_model(onnx.load_from_string(small), full_check=True)
    expected, found = (onnxruntime.InferenceSession(m).run(None, {"x": x})[0] for m in (data, small))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    shapes = {t.name: list(t.dims) for t in onnx.load_from_string(small).graph.initializer}
    assert shapes["w2"] == [4, 4, 3, 3] and shapes["k"] == [4, 1, 1] and shapes["w4"] == [36, 4]
    assert shapes["w5"] == [5, 4] and shapes["b5"] == [5] and shapes["v1"] == [4]


@pytest.mark.parametrize(("share", "left"), [(0.01, 12), (0.2, 10), (0.5, 6), (0.99, 1)])
def test_shares(share: float, left: int) -> None:
    if left == 12:  # rounds to none in the first layer, but not in the second
        shapes = {t.name: t.dims[0] for t in onnx.load_from_string(prune(convolutional(), 0.03)).graph.initializer}
        assert shapes["w1"] == 12 and shapes["w2"] == 23
        return
    kept = onnx.load_from_string(prune(convolutional(), share))
    arrays = {t.name: numpy_helper.to_array(t) for t in kept.graph.initializer}
    whole = {t.name: numpy_helper.to_array(t) for t in onnx.load_from_string(convolutional()).graph.initializer}
    norms = np.square(whole["w1"]).sum((1, 2, 3))
    assert (
        len(arrays["w1"]) == left
        and arrays["w1"].tobytes() == whole["w1"][np.sort(np.argsort(-norms)[:left])].tobytes()
    )


def test_a_pruned_net_is_fine_tuned() -> None:
    images, labels, held, known = digits()

    def right(data: bytes) -> float:
        return float((onnxruntime.InferenceSession(data).run(None, {"image": held})[0].argmax(1) == known).mean())

    def trained(data: bytes, epochs: int) -> bytes:
        with TrainingSession(data, loss={"cross_entropy": "logits"}, optimizer={"adam": {"rate": 3e-3}}) as session:
            session.fit({"image": images, "target": labels}, epochs=epochs)
            return session.export()

    whole = trained(convolutional(), 4)
    small = prune(whole, 0.5, keep=["logits"])
    tuned = trained(small, 3)
    assert len(tuned) < 0.5 * len(whole) and right(tuned) > right(small) and right(tuned) > 0.93


def text(body: str, ir: int = 8) -> bytes:
    found = parser.parse_model(f"""<ir_version: {ir}, opset_import: ["" : 17]>
        g (float[1, 3, 8, 8] x) => (float[1, 2, 8, 8] y) {{ a = Conv(x, w) {body} }}""")
    weights = random(0, w=(4, 3, 1, 1), v=(2, 4, 1, 1), d=(4, 1, 1, 1), u=(2, 7, 1, 1), s=(4,), k=(1, 1, 4, 1, 1))
    found.graph.initializer.extend(numpy_helper.from_array(w, name) for name, w in weights.items())
    return found.SerializeToString()


_RANKS = """b = GlobalAveragePool(a) c = Flatten(b) p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(a)
    d = Add(p, c) y = Conv<pads = [2, 2, 2, 2]>(d, v)"""  # channels of c are columns of p


@pytest.mark.parametrize("blocks", [(1, 4), (4, 4), (3, 5), (100, 1)])
def test_blocks(blocks: tuple[int, int]) -> None:
    """The blocks that stay are those with the largest norms, also at the ends of a matrix, in any layout."""
    nodes = [node("Conv", "x c", "a"), node("Flatten", "a", "f"), node("Gemm", "f g", "h", transB=1),
             node("MatMul", "h m", "y")]  # fmt: skip
    weights = random(3, c=(6, 3, 3, 3), g=(10, 96), m=(10, 7))
    data = model(nodes, {"x": (T.FLOAT, ["N", 3, 6, 6])}, {"y": (T.FLOAT, None)}, weights)
    made = onnx.load_from_string(prune(data, 0.5, blocks=blocks))
    found = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
    for name, w in weights.items():
        both = [(x.T if name == "m" else x.reshape(len(x), -1)) for x in (w, found[name])]
        starts = [range(0, size, n) for size, n in zip(both[0].shape, blocks, strict=True)]
        places = [(slice(i, i + blocks[0]), slice(j, j + blocks[1])) for i in starts[0] for j in starts[1]]
        norms = [float(np.square(both[0][at]).sum()) for at in places]
        limit = sorted(norms)[round(len(norms) * 0.5)] if round(len(norms) * 0.5) < len(norms) else np.inf
        for at, norm in zip(places, norms, strict=True):
            assert (both[1][at] == (both[0][at] if norm >= limit else 0)).all()


@pytest.mark.parametrize("optimizer", ["sgd", {"sgd": {"momentum": 0.9}}, "adamw"])
def test_zeros_stay_in_fine_tuning(optimizer: Any) -> None:
    images, labels, held, known = digits()
    small = prune(convolutional(), 0.5, blocks=(1, 4))
    weights = {t.name: numpy_helper.to_array(t) for t in onnx.load_from_string(small).graph.initializer}
    trained = {}
    for zeros in ("keep", "train"):
        options: Any = {"loss": {"cross_entropy": "logits"}, "optimizer": optimizer, "zeros": zeros}
        with TrainingSession(small, **options) as session:
            session.fit({"image": images[:256], "target": labels[:256]}, epochs=1)
            data = session.export()
        trained[zeros] = {t.name: numpy_helper.to_array(t) for t in onnx.load_from_string(data).graph.initializer}
        theirs = onnxruntime.InferenceSession(data).run(None, {"image": held})[0]
        np.testing.assert_allclose(InferenceSession(data).run(None, {"image": held})[0], theirs, atol=1e-4)
    for name, w in weights.items():
        if w.ndim > 1:
            assert ((trained["keep"][name] == 0) == (w == 0)).all()
            assert not ((trained["train"][name] == 0) == (w == 0)).all()
        else:  # biases that begin as zeros learn
            assert (trained["keep"][name] != w).any()


def changed(kind: str) -> bytes:
    found = onnx.load_from_string(text("y = Conv(a, v)"))
    if kind == "output":
        found.graph.output.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [4, 3, 1, 1]))
    else:
        found.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full((4, 3, 1, 1), np.nan, np.float32), "w"))
    return found.SerializeToString()


REFUSED = [
    (text("y = Conv(a, v)"), {"blocks": (4,)}, "blocks is"),
    (text("y = Conv(a, v)"), {"blocks": (0, 4)}, "blocks is"),
    (changed("NaN"), {"blocks": (1, 4)}, "not finite"),
    (changed("output"), {}, 'Conv "a"'),
    (changed("NaN"), {}, "not finite"),
    (text("b = Softmax<axis = 1>(a) y = Conv(b, v)"), {}, "no channels can"),
    (text("b = Conv<group = 4>(a, d) y = Conv(b, v)"), {}, 'Conv "b"'),
    (text("b = GlobalAveragePool(a) c = Flatten(b) e = Add(a, c) y = Conv(e, v)"), {}, 'Add "e"'),
    (text("b = CumSum(a, n) y = Conv(b, v)"), {}, 'CumSum "b"'),
    (text("b = Concat<axis = 1>(a, x) y = Conv(b, u)"), {}, 'Concat "b"'),
    (text("b = Conv(x, w) c = Add(a, b) y = Conv(c, v)"), {}, 'Conv "a"'),
    (text("b = BatchNormalization(a, s, s, s, s) y = Conv(b, v)"), {}, 'BatchNormalization "b"'),
    (text(_RANKS), {}, 'Add "d"'),
    (text("b = Add(a, k) y = Squeeze(b)"), {}, 'Add "b"'),
    (text("b = Relu(a) y = Conv(b, v)", 3), {}, "IR version 3"),
    (text("y = Conv(a, v)"), {"channels": 1.0}, "between 0 and 1"),
    (text("y = Conv(a, v)"), {"keep": ["*"]}, "no channels"),
]


@pytest.mark.parametrize(("data", "options", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_refused(data: bytes, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        prune(data, **options)
