"""Files as torch.onnx writes them by default: equal initializers joined, transposes folded, parameters left out.
`python -m bench learning` compares with PyTorch itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T

from kit.training_networks import model, node
from pyruntime import TrainingSession
from pyruntime.onnx import load
from pyruntime.training.graph.parameter_evidence import Evidence

RNG = np.random.default_rng(0)
SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"


def f(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) * 0.3).astype(np.float32)


def zeros(count: int = 4) -> np.ndarray:
    return np.zeros(count, np.float32)


def written(
    nodes: list[Any], weights: dict[str, np.ndarray], listed: str = "", folded: dict[str, str] | None = None
) -> bytes:
    """A file of PyTorch: "ids" (N, 3) or "x" (N, 4) -> "y". listed: names of parameters and of running statistics, as
    torch.export's exporter lists them; nodes named a.b are of this module; folded: what weights were computed from"""
    is_text = any(n.op_type == "Gather" for n in nodes)
    inputs = {"ids": (T.INT64, ["N", 3])} if is_text else {"x": (T.FLOAT, ["N", 4])}
    made = onnx.load_from_string(model(nodes, inputs, {"y": (T.FLOAT, ["N", 3, 6] if is_text else ["N", 4])}, weights))
    made.producer_name = "pytorch"
    if listed:
        kinds = {n: "BUFFER" if "running_" in n else "PARAMETER" for n in listed.split()}
        lines = "".join(f"p_{n.replace('.', '_')}: {kind} target='{n}'\n" for n, kind in kinds.items())
        made.graph.metadata_props.add(key=SIGNATURE, value=f"\n# inputs\n{lines}")
        for n in made.graph.node:
            n.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"['', '{n.name}', 'op']")
    for name, source in (folded or {}).items():
        info = made.graph.value_info.add()
        info.CopyFrom(onnx.helper.make_tensor_value_info(name, T.FLOAT, weights[name].shape))
        info.metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value=f"['{source}']")
    return made.SerializeToString()


W1, W2, TABLE = f(4, 4), f(4, 4), f(7, 4)
SCALE, SHIFT, BIAS = f(4), f(4), f(4)
PADDED = np.concatenate([np.zeros((1, 4), np.float32), TABLE[1:]])
TEXT = [node("Gather", "table ids", "e", name="words"), node("MatMul", "e p", "a", name="layer")]
# name: the file, the same network as its module has it, names of what is trained
FILES: dict[str, tuple[bytes, bytes, list[str]]] = {
    "biases that an Identity stands for": (
        written(
            [node("Identity", "one.bias", "two.bias"), node("Gemm", "x w1 one.bias", "h", name="/one/Gemm"),
             node("Tanh", "h", "t"), node("Gemm", "t w2 two.bias", "y", name="/two/Gemm")],
            {"w1": W1, "w2": W2, "one.bias": zeros()},
        ),
        written(
            [node("Gemm", "x w1 one.bias", "h"), node("Tanh", "h", "t"), node("Gemm", "t w2 two.bias", "y")],
            {"w1": W1, "w2": W2, "one.bias": zeros(), "two.bias": zeros()},
        ),
        ["one.bias", "two.bias", "w1", "w2"],
    ),
    "matrices of copied layers": (
        written(
            [node("Identity", "onnx::MatMul_1", "onnx::MatMul_2"),
             node("MatMul", "x onnx::MatMul_1", "h", name="/layers.0/MatMul"), node("Tanh", "h", "t"),
             node("MatMul", "t onnx::MatMul_2", "y", name="/layers.1/MatMul")], {"onnx::MatMul_1": W1},
        ),
        written([node("MatMul", "x a", "h"), node("Tanh", "h", "t"), node("MatMul", "t b", "y")], {"a": W1, "b": W1}),
        ["onnx::MatMul_1", "onnx::MatMul_2"],
    ),
    "the matrix of a layer that is called twice": (
        written(
            [node("Identity", "onnx::MatMul_1", "onnx::MatMul_2"),
             node("MatMul", "x onnx::MatMul_1", "h", name="/layer/MatMul"), node("Tanh", "h", "t"),
             node("MatMul", "t onnx::MatMul_2", "y", name="/layer_1/MatMul")], {"onnx::MatMul_1": W1},
        ),
        written([node("MatMul", "x a", "h"), node("Tanh", "h", "t"), node("MatMul", "t a", "y")], {"a": W1}),
        ["onnx::MatMul_1"],
    ),
    "biases that torch.export's exporter joins": (
        written(
            [node("Gemm", "x one.weight one.bias", "h", name="one"), node("Tanh", "h", "t"),
             node("Gemm", "t two.weight one.bias", "y", name="two")],
            {"one.weight": W1, "two.weight": W2, "one.bias": zeros()}, "one.weight one.bias two.weight two.bias",
        ),
        written(
            [node("Gemm", "x w1 one.bias", "h"), node("Tanh", "h", "t"), node("Gemm", "t w2 two.bias", "y")],
            {"w1": W1, "w2": W2, "one.bias": zeros(), "two.bias": zeros()},
        ),
        ["one.bias", "one.weight", "two.bias", "two.weight"],
    ),
    "running statistics that torch.export's exporter joins with weights": (
        written(
            [node("BatchNormalization", "x n.weight n.bias n.bias n.weight", "h", name="n"),
             node("BatchNormalization", "h m.weight m.bias n.bias n.weight", "g", name="m"),
             node("Gemm", "g one.weight one.bias", "y", name="one")],
            {"n.weight": np.ones(4, np.float32), "n.bias": zeros(), "m.weight": SCALE, "m.bias": SHIFT,
             "one.weight": W1, "one.bias": BIAS},
            "n.weight n.bias m.weight m.bias one.weight one.bias n.running_mean n.running_var m.running_mean "
            "m.running_var",
        ),
        written(
            [node("BatchNormalization", "x n.weight n.bias mean var", "h"),
             node("BatchNormalization", "h m.weight m.bias mean2 var2", "g"), node("Gemm", "g w1 one.bias", "y")],
            {"n.weight": np.ones(4, np.float32), "n.bias": zeros(), "mean": zeros(), "var": np.ones(4, np.float32),
             "m.weight": SCALE, "m.bias": SHIFT, "mean2": zeros(), "var2": np.ones(4, np.float32), "w1": W1,
             "one.bias": BIAS},
        ),
        ["m.bias", "m.weight", "n.bias", "n.weight", "one.bias", "one.weight"],
    ),
    "an output layer tied to the embedding": (
        written(
            [node("Gather", "words.weight ids", "e", name="/words/Gather"),
             node("MatMul", "e onnx::MatMul_9", "a", name="/head/MatMul"),
             node("Slice", "a from to axis", "y")],
            {"words.weight": TABLE, "onnx::MatMul_9": np.ascontiguousarray(TABLE.T), "from": np.array([0]),
             "to": np.array([6]), "axis": np.array([2])},
        ),
        written(
            [node("Gather", "words.weight ids", "e"), node("Transpose", "words.weight", "r", perm=[1, 0]),
             node("MatMul", "e r", "a"), node("Slice", "a from to axis", "y")],
            {"words.weight": TABLE, "from": np.array([0]), "to": np.array([6]), "axis": np.array([2])},
        ),
        ["words.weight"],
    ),
    "a layer that is called with two and with three axes": (
        written(
            [node("Gemm", "x l.weight", "h", name="/l/Gemm", transB=1), node("Unsqueeze", "x at", "u"),
             node("MatMul", "u onnx::MatMul_9", "m", name="/l_1/MatMul"), node("Squeeze", "m at", "s"),
             node("Add", "h s", "y")],
            {"l.weight": W1, "onnx::MatMul_9": np.ascontiguousarray(W1.T), "at": np.array([1])},
        ),
        written(
            [node("Gemm", "x l.weight", "h", transB=1), node("Transpose", "l.weight", "r", perm=[1, 0]),
             node("Unsqueeze", "x at", "u"), node("MatMul", "u r", "m"), node("Squeeze", "m at", "s"),
             node("Add", "h s", "y")],
            {"l.weight": W1, "at": np.array([1])},
        ),
        ["l.weight"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_files_are_trained_as_their_modules(case: str) -> None:
    file, module, names = FILES[case]
    rng = np.random.default_rng(1)
    feeds = {"ids": rng.integers(0, 7, (5, 3))} if b"ids" in file else {"x": f(5, 4)}
    target = f(5, 3, 6) if "ids" in feeds else f(5, 4)
    with TrainingSession(file, loss={"mse": "y"}) as found, TrainingSession(module, loss={"mse": "y"}) as expected:
        assert sorted(p.name for p in found.parameters()) == names
        for _ in range(4):
            assert found.step({**feeds, "target": target}) == expected.step({**feeds, "target": target})
        exported, y = found.export(), found.evaluate(feeds, ["y"])["y"]
        onnx.checker.check_model(exported)
        np.testing.assert_allclose(onnxruntime.InferenceSession(exported).run(["y"], feeds)[0], y, rtol=1e-5, atol=1e-6)
        again = {w.name for w in onnx.load_from_string(exported).graph.initializer}
        assert again >= {*names} and "onnx::MatMul_9" not in again


def test_what_is_frozen_is_written_as_it_was() -> None:
    file = FILES["biases that an Identity stands for"][0]
    with TrainingSession(file, loss={"mse": "y"}, frozen="two.bias") as session:
        session.step({"x": f(5, 4), "target": f(5, 4)})
        exported = onnx.load_from_string(session.export()).graph.initializer
    values = {w.name: onnx.numpy_helper.to_array(w) for w in exported}
    assert values["one.bias"].any() and not values["two.bias"].any()


LINEAR = [node("Gemm", "x a.weight", "y", name="a", transB=1)]
CONV = [node("Unsqueeze", "x at", "u"), node("Conv", "u onnx::Conv_3", "c"), node("Squeeze", "c at", "y")]
TABLES = [TEXT[0], node("MatMul", "e p", "y", name="layer")]
# what the warning says, or "" for a file that trains as its module
ADVICE: list[tuple[str, bytes]] = [
    ('"a.bias".*optimize=False', written(LINEAR, {"a.weight": W1}, "a.weight a.bias")),
    ("", written(LINEAR, {"a.weight": W1}, "a.weight")),
    (
        "", written([node("MatMul", "x val_0", "y", name="a")], {"val_0": W1}, "a.weight", {"val_0": "a.weight"}),
    ),
    (
        '"t".*optimize=False',
        written([node("Mul", "x clamp", "h"), node("MatMul", "h a.weight", "y", name="a")],
                {"a.weight": W1, "clamp": np.array(14.2, np.float32)}, "a.weight t", {"clamp": "t"}),
    ),
    (
        '"onnx::Conv_3".*TrainingMode.TRAINING',
        written(CONV, {"onnx::Conv_3": f(4, 4, 1), "at": np.array([2])}),
    ),
    (
        'also computed other weights: "a.bias".*optimize=False',
        written([node("Gemm", "x a.weight a.bias", "h", name="a", transB=1), node("Add", "h linear", "y", name="a")],
                {"a.weight": W1, "a.bias": BIAS, "linear": BIAS[None]}, "a.weight a.bias", {"linear": "a.bias"}),
    ),
    ('row 0 of "table" is zero.*zeros="keep"', written(TABLES, {"table": PADDED, "p": f(4, 6)})),
    ('row 6 of "table" is zero', written(TABLES, {"table": PADDED[::-1], "p": f(4, 6)})),
    ("", written(TABLES, {"table": np.zeros_like(TABLE), "p": f(4, 6)})),
]  # fmt: skip


@pytest.mark.parametrize(("text", "file"), ADVICE)
def test_files_that_do_not_train_as_their_modules_are_told(text: str, file: bytes) -> None:
    if text:
        with pytest.warns(RuntimeWarning, match=text):
            TrainingSession(file, loss={"mse": "y"}).release()
    else:
        TrainingSession(file, loss={"mse": "y"}).release()


def test_no_gradient_flows_through_what_is_detached() -> None:
    """A straight-through tanh: its gradient is that of its input."""
    nodes = [
        node("MatMul", "x w", "h"), node("Tanh", "h", "t"), node("Sub", "t h", "s"), node("Identity", "s", "detach_1"),
        node("Add", "h detach_1", "y"),
    ]  # fmt: skip
    x, target = f(5, 4), f(5, 4)
    file = written(nodes, {"w": W1}, "w")
    with TrainingSession(file, loss={"mse": "y"}, optimizer={"sgd": {"rate": 1.0}}) as session:
        session.step({"x": x, "target": target})
        found = session.weights()["w"]
    np.testing.assert_allclose(found, W1 - x.T @ (np.tanh(x @ W1) - target) / 10, rtol=1e-5, atol=1e-6)


ZIGZAG = np.log(0.3) + (np.arange(1, 65) % 3 - 1) * 0.5  # RWKV-4's time_first
DECAY = (-6 + 5 * (np.arange(256) / 255) ** 2).reshape(4, 64)  # RWKV-5's time_decay
SINES = np.sin(np.arange(64)[:, None] / 10.0 ** np.arange(4))
# The operator, numbers, whether inputs come first; then, for a file of PyTorch where the constant is named, and for one
# of another program: whether it is trained, and whether that is doubtful
CONSTANTS: dict[str, tuple[str, Any, bool, tuple[bool, bool], tuple[bool, bool]]] = {
    "temperature": ("Div", [0.07], False, (True, True), (False, False)),
    "divisors": ("Div", [2.0, 3, 4, 7], False, (True, True), (False, True)),
    "power of pooling": ("Pow", [3.0], False, (True, True), (False, False)),
    "maximum": ("Max", [0.1, 0.3, 0.2, 0.7], False, (True, True), (False, True)),
    "limit of masks": ("Max", [-1e9], False, (False, True), (False, False)),
    "zigzag": ("Add", ZIGZAG, False, (True, True), (False, True)),
    "decay": ("Mul", DECAY, False, (True, True), (False, True)),
    "a line for each head": ("Mul", -np.outer(np.arange(1, 9), np.arange(1, 17)), False, (True, True), (False, True)),
    "slopes of ALiBi": ("Mul", (2.0 ** (-np.arange(16) / 2)).reshape(16, 1, 1), False, (True, True), (True, True)),
    "decays of RetNet": ("Mul", (1 - 2.0 ** (-5 - np.arange(8))).reshape(8, 1, 1), False, (True, True), (True, True)),
    "sines": ("Add", SINES, False, (False, True), (False, False)),
    "mask of 0 and 1": ("Mul", np.tril(np.ones((8, 8))), False, (False, True), (False, False)),
    "gate": ("Mul", [0.3, -0.1, 0.7, 0.2], True, (True, True), (False, True)),
    "gate of ones": ("Mul", np.ones(4), True, (True, True), (False, True)),
    "means of pixels": ("Sub", [0.4, 0.5, 0.6], True, (False, True), (False, False)),
    "deviations of pixels": ("Div", [0.2, 0.3, 0.25], True, (False, True), (False, False)),
    "scale of pixels": ("Mul", [1 / 255], True, (True, True), (False, False)),
}  # fmt: skip


@pytest.mark.parametrize("case", CONSTANTS)
def test_constants_that_may_be_learned(case: str) -> None:
    op, numbers, is_first, named, other = CONSTANTS[case]
    weights = {"w": W1, "block.p": np.array(numbers, np.float32)}
    layers = (
        [node(op, "x block.p", "h", name="one"), node("MatMul", "h w", "y", name="two")]
        if is_first
        else [node("MatMul", "x w", "h", name="two"), node(op, "h block.p", "y", name="one")]
    )
    plain = model(layers, {"x": (T.FLOAT, ["N", 4])}, {"y": (T.FLOAT, ["N", 4])}, weights)
    files = {written(layers, weights): named, plain: other, written(layers, weights, "w block.p"): (True, False)}
    for file, expected in files.items():
        finding = Evidence(load(file)).finding("block.p")
        assert (finding.is_trained, finding.is_doubtful) == expected, finding
    finding = Evidence(load(written(layers, weights, "w"))).finding("block.p")
    assert not finding.is_trained and not finding.is_doubtful
