"""Files that exporters write for training, whose nodes are in training mode: evaluation and exported models are those
of the same file in inference, which onnxruntime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import pyruntime

DRAW = np.random.default_rng(0)
X = {"x": DRAW.normal(1, 2, (6, 4)).astype(np.float32)}
WEIGHTS = {
    "w": DRAW.normal(size=(4, 4)), "g": np.ones(4), "b": np.zeros(4), "m": np.full(4, 2), "v": np.full(4, 9),
}  # fmt: skip
TRUE = "t = Constant<value = bool {1}>()"
BRANCH = """c = Constant<value = bool {{1}}>()  k = MatMul(x, w)
  y = If (c) <then_branch = t () => (float[N, 4] a) {{ {then} }},
              else_branch = e () => (float[N, 4] o) {{ o = Neg(k) }}>"""
FUNCTION = """<domain: "own", opset_import: ["": 16]> F (x, g, b, m, v) => (y) {
  y, n, o = BatchNormalization<training_mode = 1>(x, g, b, m, v)
}"""
# name: opset, nodes in training mode, the same in inference, further outputs
CASES: dict[str, tuple[int, str, str, str]] = {
    "Dropout": (
        20, f"r = Constant<value = float {{0.5}}>()  {TRUE}  d = Dropout(x, r, t)  y = MatMul(d, w)",
        "y = MatMul(x, w)", "",
    ),
    "Dropout without a ratio": (12, f"{TRUE}  d = Dropout(x, , t)  y = MatMul(d, w)", "y = MatMul(x, w)", ""),
    "the mask of Dropout": (
        20, f"{TRUE}  d, k = Dropout(x, , t)  f = Cast<to = 1>(k)  z = MatMul(d, w)  y = Mul(z, f)",
        "y = MatMul(x, w)", "",
    ),
    "BatchNormalization": (
        15, "y, nm, nv = BatchNormalization<training_mode = 1, epsilon = 0.1>(x, g, b, m, v)",
        "y = BatchNormalization<epsilon = 0.1>(x, g, b, m, v)", "",
    ),
    "running statistics that are outputs": (
        15, "y, nm, nv = BatchNormalization<training_mode = 1>(x, g, b, m, v)",
        "y = BatchNormalization(x, g, b, m, v)  nm = Identity(m)  nv = Identity(v)", ", float[4] nm, float[4] nv",
    ),
    "running statistics that nodes read, opset 9": (
        9, "z, nm, nv, sm, sv = BatchNormalization(x, g, b, m, v)  y = Add(z, nm)",
        "z = BatchNormalization(x, g, b, m, v)  y = Add(z, m)", "",
    ),
}  # fmt: skip
IN_BRANCHES = {
    "Dropout": (f"{TRUE}  a = Dropout(k, , t)", "a = Identity(k)"),
    "BatchNormalization": (
        "a, nm, nv = BatchNormalization<training_mode = 1>(k, g, b, m, v)", "a = BatchNormalization(k, g, b, m, v)",
    ),
}  # fmt: skip


def model(opset: int, nodes: str, more: str = "", functions: str = "") -> bytes:
    text = f"g (float[N, 4] x) => (float[N, 4] y{more}) {{ {nodes} }} {functions}"
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}, "own": 1]> {text}')
    inner = [n for outer in made.graph.node for a in outer.attribute for n in a.g.node]
    used = {name for n in (*made.graph.node, *inner) for name in n.input}
    made.graph.initializer.extend(
        numpy_helper.from_array(value.astype(np.float32), name) for name, value in WEIGHTS.items() if name in used
    )
    return made.SerializeToString()


def in_onnxruntime(data: bytes) -> list[Any]:
    onnx.checker.check_model(data)
    return list(onnxruntime.InferenceSession(data).run(None, X))


def check(training: bytes, inference: bytes, mode: str) -> None:
    expected = in_onnxruntime(inference)
    names = [v.name for v in onnx.load_from_string(training).graph.output]
    with pyruntime.TrainingSession(training, loss={"mse": "y"}, mode=mode) as session:
        found = session.evaluate(X, names)
        for name, value in zip(names, expected, strict=True):
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)
        for a, b in zip(in_onnxruntime(session.export()), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        first = session.step({**X, "target": np.zeros((6, 4), np.float32)}).loss
        assert (first == pytest.approx(np.mean(expected[0] ** 2), rel=1e-5)) == (mode == "inference")


@pytest.mark.parametrize("mode", ["train", "inference"])
@pytest.mark.parametrize("case", CASES)
def test_nodes_in_training_mode(case: str, mode: str) -> None:
    opset, training, inference, more = CASES[case]
    check(model(opset, training, more), model(opset, inference, more), mode)


@pytest.mark.parametrize("case", IN_BRANCHES)
def test_nodes_in_branches(case: str) -> None:
    training, inference = (model(16, BRANCH.format(then=then)) for then in IN_BRANCHES[case])
    check(training, inference, "inference")
    with pytest.raises(pyruntime.InvalidModel, match=f"{case}.*in a branch or loop it cannot be in training mode"):
        pyruntime.TrainingSession(training, loss={"mse": "y"})


@pytest.mark.parametrize("mode", ["train", "inference"])
def test_nodes_in_functions(mode: str) -> None:
    net = model(16, "y = own.F(x, g, b, m, v)", functions=FUNCTION)
    with pytest.raises(pyruntime.InvalidModel, match="BatchNormalization.*in a function it cannot be in training mode"):
        pyruntime.TrainingSession(net, loss={"mse": "y"}, mode=mode)


@pytest.mark.parametrize(("producer", "correction"), [("pytorch", 1), ("", 0)])
@pytest.mark.parametrize("rows", [1, 2, 6])
def test_running_statistics(producer: str, correction: int, rows: int) -> None:
    """As in PyTorch the variance that runs is the sample's, in ONNX the batch's own."""
    made = onnx.load_from_string(model(15, CASES["BatchNormalization"][2]))
    made.producer_name = producer
    x = X["x"][:rows]
    with pyruntime.TrainingSession(made.SerializeToString(), loss={"mse": "y"}) as session:
        session.step({"x": x, "target": np.zeros((rows, 4), np.float32)})
        found = session.weights()
    own = x.var(0, ddof=correction if rows > 1 else 0)
    np.testing.assert_allclose(found["m"], 0.9 * 2 + 0.1 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found["v"], 0.9 * 9 + 0.1 * own, rtol=1e-5)
