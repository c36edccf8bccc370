"""Which weights are trained without the option `trainable`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T

from kit.training_networks import model, node
from pyruntime import InvalidInput, TrainingSession

RNG = np.random.default_rng(0)
N4, N1 = ["N", 4], ["N", 1]


def f(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) * 0.3).astype(np.float32)


MASK = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
FINITE = np.where(MASK < 0, np.float32(-1e9), np.float32(0))
SCORES = [node("MatMul", "x w", "a"), node("Transpose", "a", "t"), node("MatMul", "a t", "s")]
MASKED = [*SCORES, node("Add", "s mask", "m"), node("Softmax", "m", "y")]
CODES = (np.zeros(4, np.int8), np.full(4, 0.01, np.float32))
PLACES = np.arange(64)[:, None] / 1e4 ** (np.arange(0, 4, 2) / 4)
SINES = np.stack([np.sin(PLACES), np.cos(PLACES)], -1).reshape(64, 4).astype(np.float32)
LINKS = (np.eye(4) + np.eye(4, k=1) + np.eye(4, k=-1)).astype(np.float32) / 3
NORM = [
    node("MatMul", "x w", "a"), node("Mul", "a a", "q"), node("ReduceMean", "q", "v"), node("Sqrt", "v", "d"),
    node("Div", "a d", "n"), node("Mul", "n g", "h"), node("Add", "h b", "y"),
]  # fmt: skip
QUANTISED = [
    node("QuantizeLinear", "w s z", "q", axis=1), node("DequantizeLinear", "q s z", "d", axis=1),
    node("MatMul", "x d", "y"),
]  # fmt: skip
# name -> nodes, dims of y, weights, those that are trained
TABLE: dict[str, tuple[list[Any], list[Any], dict[str, np.ndarray], list[str]]] = {
    "bias of one output": ([node("Gemm", "x w b", "y")], N1, {"w": f(4, 1), "b": f(1)}, ["w", "b"]),
    "weight of one element": (
        [node("ReduceMean", "x axes", "m"), node("Gemm", "m w b", "y")], N1,
        {"w": f(1, 1), "b": f(1), "axes": np.array([1])}, ["w", "b"],
    ),
    "added bias of one output": (
        [node("MatMul", "x w", "a"), node("Add", "b a", "y")], N1, {"w": f(4, 1), "b": f(1)}, ["w", "b"],
    ),
    "added bias of a transposed weight": (
        [node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "x t", "a"), node("Add", "a b", "y")], N1,
        {"w": f(1, 4), "b": f(1)}, ["w", "b"],
    ),
    "constant of one element": (
        [node("MatMul", "x w", "a"), node("Add", "a e", "y")], N4, {"w": f(4, 4), "e": f(1)}, ["w"],
    ),
    "factor": ([node("MatMul", "x w", "a"), node("Mul", "a e", "y")], N4, {"w": f(4, 4), "e": f(1)}, ["w"]),
    "slope": ([node("MatMul", "x w", "a"), node("PRelu", "a p", "y")], N4, {"w": f(4, 4), "p": f(1)}, ["w", "p"]),
    "mask": (MASKED, [4, 4], {"w": f(4, 4), "mask": MASK}, ["w"]),
    "finite mask": (MASKED, [4, 4], {"w": f(4, 4), "mask": FINITE}, ["w"]),
    "mask in 16 bits": (
        [*SCORES, node("Cast", "mask", "c", to=T.FLOAT), node("Add", "s c", "m"), node("Softmax", "m", "y")], [4, 4],
        {"w": f(4, 4), "mask": MASK.astype(np.float16)}, ["w"],
    ),
    "positions": ([node("MatMul", "x w", "a"), node("Add", "a p", "y")], N4, {"w": f(4, 4), "p": f(4)}, ["w", "p"]),
    "sines": (
        [node("MatMul", "x w", "a"), node("Add", "a p", "y")], [64, 4], {"w": f(4, 4), "p": SINES}, ["w"],
    ),
    "sines that are gathered": (
        [node("Gather", "p i", "e"), node("MatMul", "x w", "a"), node("Add", "a e", "y")], N4,
        {"w": f(4, 4), "p": SINES, "i": np.arange(4)}, ["w"],
    ),
    "embedding": (
        [node("Gather", "p i", "e"), node("MatMul", "x w", "a"), node("Add", "a e", "y")], N4,
        {"w": f(4, 4), "p": f(64, 4), "i": np.arange(4)}, ["w", "p"],
    ),
    "a vector that was broadcast, and a line": (
        [node("MatMul", "x w", "a"), node("Mul", "a rows", "h"), node("Mul", "h line", "y")], [8, 4],
        {"w": f(4, 4), "rows": np.tile(np.log(np.arange(1, 5, dtype=np.float32)), (8, 1)),
         "line": np.linspace(0, 1, 4, dtype=np.float32)}, ["w", "rows", "line"],
    ),
    "adjacency": (
        [node("MatMul", "x w", "a"), node("MatMul", "links a", "y")], [4, 4], {"w": f(4, 4), "links": LINKS}, ["w"],
    ),
    "written-out norm": (NORM, N4, {"w": f(4, 4), "g": np.ones(4, np.float32), "b": np.zeros(4, np.float32)},
                         ["w", "g", "b"]),
    "means of pixels": (
        [node("Sub", "x m", "c"), node("Div", "c s", "n"), node("MatMul", "n w", "y")], N4,
        {"w": f(4, 4), "m": f(4), "s": f(4) + 2}, ["w"],
    ),
    "exponent, divisor and limits": (
        [node("MatMul", "x w", "a"), node("Abs", "a", "h"), node("Pow", "h e", "p"), node("Div", "p d", "q"),
         node("Max", "q l", "y")], N4,
        {"w": f(4, 4), "e": f(4) + 2, "d": f(4) + 2, "l": f(4)}, ["w"],
    ),
    "branch": (
        [node("MatMul", "x w", "a"), node("Where", "c z a", "y")], [4, 4],
        {"w": f(4, 4), "c": np.eye(4, dtype=bool), "z": np.zeros((4, 4), np.float32)}, ["w"],
    ),
    "scales": (QUANTISED, N4, {"w": f(4, 4), "s": CODES[1], "z": CODES[0]}, ["w"]),
    "scales that are reshaped": (
        [node("Reshape", "s0 shape", "s"), *QUANTISED], N4,
        {"w": f(4, 4), "s0": CODES[1][None], "shape": np.array([4]), "z": CODES[0]}, ["w"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.filterwarnings("ignore:pyruntime. not certain which constants:RuntimeWarning")
def test_weights_by_default(name: str) -> None:
    nodes, dims, weights, trained = TABLE[name]
    count = dims[0] if isinstance(dims[0], int) else 4
    x = f(count, 4)
    data = model(nodes, {"x": (T.FLOAT, [count, 4] if dims[0] == count else N4)}, {"y": (T.FLOAT, dims)}, weights)
    with TrainingSession(data, loss={"mse": "y"}) as session:
        assert [p.name for p in session.parameters()] == trained
        target = np.zeros((count, 4 if dims != N1 else 1), np.float32)
        losses = [session.step({"x": x, "target": target}).loss for _ in range(3)]
        assert np.isfinite(losses).all()


def test_a_target_above_zero_is_learnt() -> None:
    data = model([node("Gemm", "x w b", "y")], {"x": (T.FLOAT, N4)}, {"y": (T.FLOAT, N1)}, {"w": f(4, 1), "b": f(1)})
    x = f(64, 4)
    with TrainingSession(data, loss={"mse": "y"}, optimizer={"adam": {"rate": 0.05}}) as session:
        losses = [session.step({"x": x, "target": np.full((64, 1), 3, np.float32)}).loss for _ in range(300)]
    assert losses[-1] < 1e-3


def test_reasons() -> None:
    data = model([node("Gemm", "x w b", "y")], {"x": (T.FLOAT, N4)}, {"y": (T.FLOAT, N1)}, {"w": f(4, 1), "b": f(1)})
    with (
        TrainingSession(data, loss={"mse": "y"}, trainable="w") as named,
        TrainingSession(data, loss={"mse": "y"}) as s,
    ):
        assert [p.reason for p in named.parameters()] == ["is named in the option trainable"]
        assert {p.reason for p in s.parameters()} == {'is a weight of Gemm "y" (opset 20)'}


def test_what_is_not_finite_is_never_trained() -> None:
    dims = {"x": (T.FLOAT, [4, 4])}, {"y": (T.FLOAT, [4, 4])}
    data = model(MASKED, *dims, {"w": f(4, 4), "mask": MASK})
    with TrainingSession(data, loss={"mse": "y"}, trainable="*") as session:
        assert [p.name for p in session.parameters()] == ["w"]
    with pytest.raises(InvalidInput, match='"mask" has numbers that are not finite'):
        TrainingSession(data, loss={"mse": "y"}, trainable=["w", "mask"])


def test_doubts_are_told() -> None:
    nodes = [node("MatMul", "x w", "a"), node("Where", "c z a", "y")]
    weights = {"w": f(4, 4), "c": np.eye(4, dtype=bool), "z": f(4, 4)}
    data = model(nodes, {"x": (T.FLOAT, [4, 4])}, {"y": (T.FLOAT, [4, 4])}, weights)
    with pytest.warns(RuntimeWarning, match='"z" is not trained: it is what Where "y" .* fills in'):
        TrainingSession(data, loss={"mse": "y"}).release()
    TrainingSession(data, loss={"mse": "y"}, frozen="z").release()
