"""QuantizeLinear of codes that were dequantised and moved: the same codes as step by step, against onnx's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from pyruntime import InferenceSession
from pyruntime.compiler import compile as compiler
from pyruntime.ir.dtype import F32
from pyruntime.ir.kernel import Map
from pyruntime.native.sessions import compiler as session_compiler

node = helper.make_node
RNG = np.random.default_rng(8)
WEIGHTS = {
    "order": np.array([0, 2, 1, 3]), "by": np.array([0, 0, 1, 2, 0, 1, 0, 0]),
    "twice": np.array([1, 1, 2, 2], np.float32),
    "starts": np.array([3]), "ends": np.array([-9]), "axes": np.array([3]), "steps": np.array([-2]),
    "from": np.array([1]), "to": np.array([6]),
    "shape": np.array([2, 6, -1]), "some": np.array([5, 0, 0, -1]),
}  # fmt: skip
MOVES = {
    "nothing": [node("Identity", ["xf"], ["yf"])],
    "transpose": [node("Transpose", ["xf"], ["yf"], perm=[0, 2, 3, 1])],
    "reshape": [node("Reshape", ["xf", "shape"], ["yf"])],
    "slice": [node("Slice", ["xf", "starts", "ends", "axes", "steps"], ["yf"])],
    "pad": [node("Pad", ["xf", "by"], ["yf"])],
    "gather": [node("Gather", ["xf", "some"], ["yf"], axis=1)],
    "resize": [node("Resize", ["xf", "", "twice"], ["yf"], mode="nearest")],
    "depth to space": [node("DepthToSpace", ["xf"], ["yf"], blocksize=2)],
    "concat": [node("Transpose", ["xf"], ["tf"], perm=[1, 0, 2, 3]),
               node("Transpose", ["tf"], ["uf"], perm=[1, 0, 2, 3]),
               node("Concat", ["xf", "uf", "xf"], ["yf"], axis=3)],
    "clip": [node("Relu", ["xf"], ["yf"])],
}  # fmt: skip


def run(moves: list[Any], dtype: Any, given: tuple[float, int], taken: tuple[float, int]) -> tuple[Any, Any, list[Any]]:
    """Return the results of a session and of the reference, and the maps that run."""
    weights = WEIGHTS | {"s": np.float32(given[0]), "z": np.array(given[1], dtype)}
    weights |= {"s2": np.float32(taken[0]), "z2": np.array(taken[1], dtype)}
    x = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (2, 8, 3, 5), dtype, endpoint=True)
    x[0, :2, 0, :2] = np.array([[np.iinfo(dtype).min, np.iinfo(dtype).max]] * 2)
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        *moves,
        node("QuantizeLinear", ["yf", "s2", "z2"], ["y"]),
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    made: list[Any] = []
    real = compiler.compile_graph

    def compiled(*args: Any, **options: Any) -> Any:
        made.append(real(*args, **options))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_compiler, "compile_graph", compiled)
        (got,) = InferenceSession(model.SerializeToString()).run(None, {"x": x})
    (want,) = ReferenceEvaluator(onnx.shape_inference.infer_shapes(model)).run(None, {"x": x})
    return got, want, [k for k in made[-1].main.kernels if isinstance(k, Map)]


def reads_floats(maps: list[Any]) -> bool:
    return any(t.dtype is F32 for k in maps for t in k.inputs)


@pytest.mark.parametrize(("dtype", "zero"), [(np.uint8, 0), (np.uint8, 131), (np.int8, -7), (np.int8, -128)])
@pytest.mark.parametrize("name", MOVES)
def test_the_same_scale(name: str, dtype: Any, zero: int) -> None:
    """The codes are moved: no kernel reads a scale."""
    got, want, maps = run(MOVES[name], dtype, (0.0123, zero), (0.0123, zero))
    np.testing.assert_array_equal(got, want)
    assert got.dtype == dtype
    assert reads_floats(maps) == (name == "clip")


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ((0.02, 3), (0.01, 3)),
        ((0.02, 3), (0.02, 4)),
        ((1.0, 9), (2.0, 9)),
        ((1e31, 0), (1e31, 0)),
        ((1e-44, 1), (1e-44, 1)),
    ],
)
def test_what_must_be_computed(given: tuple[float, int], taken: tuple[float, int]) -> None:
    """Different scales or zero points, ties, and scales that are too large or too small."""
    for name in ("transpose", "concat"):
        got, want, maps = run(MOVES[name], np.uint8, given, taken)
        np.testing.assert_array_equal(got, want)
        assert reads_floats(maps)


def test_what_is_read_twice_is_moved_once() -> None:
    """Without memoisation there would be 2³⁰ maps."""
    roll = [[node("Transpose", [f"f{n}"], [f"t{n}"], perm=[0, 1, 2, 3]),
             node("Concat", [f"f{n}", f"t{n}"], [f"c{n}"], axis=3),
             node("Slice", [f"c{n}", "from", "to", "axes"], [f"f{n + 1}"])] for n in range(30)]  # fmt: skip
    ends = [node("Identity", ["xf"], ["f0"])], [node("Identity", ["f30"], ["yf"])]
    got, want, _ = run([*ends[0], *(one for step in roll for one in step), *ends[1]], np.uint8, (0.5, 3), (0.5, 3))
    np.testing.assert_array_equal(got, want)
