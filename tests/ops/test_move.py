"""Constants, shapes, views, padding and layout beyond the official cases: old meanings, shapes known at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from kit.interpret import run
from pyruntime import InferenceSession
from pyruntime.errors import ShapeError
from tests.ops.compare import by_onnx, by_onnxruntime, by_session, check, model, parsed, same
from tests.ops.node import check_node, f32, floats, ints, node_model, only, run_node

FAR = 2**63 - 1


@pytest.mark.parametrize(
    "attrs,want",
    [
        ({"value_float": 1.5}, np.float32(1.5)), ({"value_floats": [1.0, 2.0]}, f32([1, 2])),
        ({"value_int": -3}, np.int64(-3)), ({"value_ints": [1, 2]}, ints(1, 2)),
        ({"value_string": "a"}, np.array("a", object)), ({"value_strings": ["a", "é"]}, np.array(["a", "é"], object)),
    ],
)  # fmt: skip
def test_constant(attrs: dict[str, Any], want: Any) -> None:
    same(run_node("Constant", [], 13, **attrs)[0], want)


def test_sparse_constant() -> None:
    values = onnx.numpy_helper.from_array(f32([5, 7]), "v")
    places = onnx.numpy_helper.from_array(ints(1, 5))
    sparse = onnx.helper.make_sparse_tensor(values, places, [2, 3])
    same(run_node("Constant", [], 13, sparse_value=sparse)[0], f32([[0, 5, 0], [0, 0, 7]]))


RESHAPES = [
    ((2, 3, 4), [4, 2, 3], 0), ((2, 3, 4), [-1], 0), ((2, 3, 4), [0, -1], 0), ((2, 3, 4), [0, 0, 2, -1], 0),
    ((2, 3, 4), [1, -1, 1], 0), ((), [1, 1], 0), ((1,), [], 0), ((0, 3), [3, 0], 1), ((0, 3), [0, 7], 1),
    ((2, 0), [0, 5, 0], 1),
]  # fmt: skip


@pytest.mark.parametrize("shape,to,allowzero", RESHAPES)
@pytest.mark.parametrize("constant", [True, False])
def test_reshape(shape: tuple[int, ...], to: list[int], allowzero: int, constant: bool) -> None:
    x = floats(*shape)
    check_node("Reshape", [x, np.array(to, np.int64)], 14, constants=(1,) if constant else (), allowzero=allowzero,
               symbolic=(False, True) if constant or to else (False,))  # fmt: skip


@pytest.mark.parametrize("given", ["constant", "run time", "shape"])
def test_a_reshape_to_0_and_the_rest_is_refused(given: str) -> None:
    """With allowzero: "it's invalid for the specified shape to contain both a zero value and -1"."""
    target = {
        "constant": "m = Constant <value = int64[2] {0, -1}> ()",
        "run time": "m = Neg (n)",
        "shape": "s = Shape <end = 1> (x)\n o = Constant <value = int64[1] {-1}> ()\n m = Concat <axis = 0> (s, o)",
    }[given]
    m = parsed(f"g (float[b,c] x, int64[2] n) => (y) {{ {target}\n y = Reshape <allowzero = 1> (x, m) }}")
    feeds = {"x": floats(0, 4), "n": ints(0, 1)}
    with pytest.raises(ValueError, match="cannot reshape"):
        by_onnx(m, feeds)
    with pytest.raises(ShapeError, match="has both 0 and -1"):
        by_session(m, feeds)


@pytest.mark.parametrize("to", [[-1, 6], [0, -1], [0, 12], [6, 0], [2, 12], [-1, 0]])
def test_run_time_shape_with_marks(to: list[int]) -> None:
    """0 and -1 that are known only at run time."""
    x = floats(6, 4) if to == [6, 0] else floats(2, 12)
    m = parsed("g (float[b,c] x, int64[2] n, int64[2] one) => (y) { m = Mul (n, one)\n y = Reshape (x, m) }")
    feeds = {"x": x, "n": np.array(to), "one": ints(1, 1)}
    check(m, feeds)


SECOND = """s = Shape (x)  at = Constant <value_ints = [1]> ()  d = Gather (s, at)
    rest = Constant <value_ints = [-1]> ()"""


@pytest.mark.parametrize("shape,target", [
    ((3, 0), "d, rest"), ((0, 3), "d, rest"), ((3, 4), "d, rest"), ((0, 3), "rest, d"), ((3, 4), "rest, d"),
])  # fmt: skip
def test_a_dim_of_feeds_that_is_0(shape: tuple[int, int], target: str) -> None:
    """It stands for the input's dim, too."""
    m = parsed(f"g (float[b,c] x) => (y) {{ {SECOND}  t = Concat <axis = 0> ({target})  y = Reshape (x, t) }}")
    check(m, {"x": floats(*shape)}, by_onnxruntime)


@pytest.mark.parametrize("inputs,target,shapes", [
    # (b, 12, s, 8) -> (-1, s, 8), as attention is exported: all later dims would depend on whether s is 0
    ("float[b,12,s,8] x, float[n] o", "s = Shape <start = 2> (x)  to = Concat <axis = 0> (rest, s)",
     [((2, 12, 5, 8), (0,)), ((2, 12, 0, 8), (0,)), ((0, 12, 5, 8), (0,)), ((3, 12, 4, 8), (0,))]),
    ("float[3,n] x, float[m,4] o", "s = Shape <end = 1> (o)  to = Concat <axis = 0> (s, rest)",
     [((3, 0), (0, 4)), ((3, 5), (5, 4)), ((3, 5), (0, 4)), ((3, 0), (2, 4)), ((3, 7), (0, 4))]),
    ("float[3,n] x, float[m,k] o", "to = Shape (o)",
     [((3, 5), (0, 0)), ((3, 4), (4, 3)), ((3, 4), (0, 4)), ((3, 4), (3, 0))]),
    ("float[a,b] x, float[m,k] o", "to = Shape (o)",
     [((3, 5), (0, 0)), ((3, 4), (0, 4)), ((3, 4), (3, 0)), ((0, 4), (0, 2))]),
])  # fmt: skip
def test_a_dim_of_feeds_that_is_0_and_stands_for_a_known_one(inputs: str, target: str, shapes: Any) -> None:
    """A Program for these sizes alone runs them; the others keep the one for all sizes."""
    m = parsed(f"g ({inputs}) => (y) {{ rest = Constant <value_ints = [-1]> ()  {target}  y = Reshape (x, to) }}")
    session = InferenceSession(m.SerializeToString())
    for x, o in shapes:
        feeds = {"x": floats(*x), "o": floats(*o)}
        np.testing.assert_array_equal(session.run(None, feeds)[0], by_onnxruntime(m, feeds)[0])


def test_attention_heads_reshape_has_whole_dims() -> None:
    """(b, s, 768) -> (b, s, 12, 64) -> back, by way of Shape, without a division left over."""
    m = parsed("""g (float[b,s,24] x) => (y, z) {
        shape = Shape (x)
        i0 = Constant <value_int = 0> ()
        i1 = Constant <value_int = 1> ()
        b = Gather (shape, i0)
        s = Gather (shape, i1)
        axis = Constant <value_ints = [0]> ()
        b1 = Unsqueeze (b, axis)
        s1 = Unsqueeze (s, axis)
        h = Constant <value_ints = [-1]> ()
        d = Constant <value_ints = [8]> ()
        to = Concat <axis = 0> (b1, s1, h, d)
        y = Reshape (x, to)
        back = Concat <axis = 0> (b1, s1, h)
        z = Reshape (y, back)
    }""")
    check(m, {"x": floats(2, 5, 24)})
    check(m, {"x": floats(1, 1, 24)})


SLICES = [
    ([0], [2], [0], [1]), ([1], [FAR], [1], [2]), ([-2], [FAR], [-1], [1]), ([FAR], [-FAR - 1], [2], [-1]),
    ([3], [0], [2], [-2]), ([-1], [-4], [2], [-1]), ([0, 1], [1, 3], [0, 2], [1, 1]), ([2], [1], [1], [1]),
    ([-100], [100], [1], [1]), ([100], [-100], [1], [-1]), ([1], [-1], [1], [1]), ([-1], [FAR], [1], [1]),
]  # fmt: skip


@pytest.mark.parametrize("starts,ends,axes,steps", SLICES)
@pytest.mark.parametrize("constant", [True, False])
def test_slice(starts: list, ends: list, axes: list, steps: list, constant: bool) -> None:
    args = [floats(2, 3, 4), *(np.array(v, np.int64) for v in (starts, ends, axes, steps))]
    check_node("Slice", args, 13, constants=(1, 2, 3, 4) if constant else (3, 4))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("start", "step"), [(1, 2**31 - 1), (0, 2**63 - 1), (2, -(2**31)), (-1, -(2**63)), (0, 2**30), (-1, 1 - 2**31)]
)
def test_steps_beyond_any_dim(start: int, step: int, axis: int) -> None:
    end = 2**31 if step > 0 else -(2**63)
    args = [floats(3, 4), ints(start), ints(end), ints(axis), ints(step)]
    m, feeds = node_model("Slice", args, 13, constants=(1, 2, 3, 4))
    check(m, feeds, by_onnx)
    for n, dim in enumerate(m.graph.input[0].type.tensor_type.shape.dim):
        dim.dim_param = f"d{n}"
    same(by_session(m, feeds), by_onnx(m, feeds))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool", "Conv"])
@pytest.mark.parametrize("attrs", [{"strides": [2**31 - 1, 300]}, {"strides": [1000, 300], "pads": [1, 0, 0, 1]}])
def test_strides_beyond_the_input(op: str, attrs: dict) -> None:
    """One window remains, whatever the stride is."""
    args = [floats(1, 2, 3, 5), *[floats(3, 2, 2, 2)] * (op == "Conv")]
    m, feeds = node_model(op, args, 19, constants=(1,) if op == "Conv" else (), kernel_shape=[2, 2], **attrs)
    check(m, feeds)
    for n, dim in enumerate(m.graph.input[0].type.tensor_type.shape.dim[2:]):
        dim.dim_param = f"d{n}"
    same(by_session(m, feeds), by_onnxruntime(m, feeds))


def test_slice_1() -> None:
    check_node("Slice", [floats(3, 4)], 9, starts=[0, -2], ends=[2, 1000])
    check_node("Slice", [floats(3, 4)], 9, starts=[1], ends=[3], axes=[1])


def test_slice_needs_a_step() -> None:
    with pytest.raises(ShapeError, match="step"):
        run_node("Slice", [floats(3), ints(0), ints(2), ints(0), ints(0)], 13)


@pytest.mark.parametrize("opset", [2, 11, 13, 18])
def test_split(opset: int) -> None:
    x = floats(6, 4)
    if opset < 13:
        check_node("Split", [x], max(opset, 7), outputs=3, axis=0)
        check_node("Split", [x], max(opset, 7), outputs=2, axis=1, split=[1, 3])
        return
    check_node("Split", [x, ints(1, 3)], opset, outputs=2, axis=-1, constants=(1,))
    check_node("Split", [x, ints(1, 3)], opset, outputs=2, axis=-1, symbolic=(False,))
    check_node("Split", [x], opset, outputs=3, axis=0, **only(num_outputs=3 if opset == 18 else None))
    if opset == 18:
        check_node("Split", [floats(7, 2)], opset, outputs=3, num_outputs=3)
        with pytest.raises(ShapeError, match="parts"):
            run_node("Split", [x, ints(1, 2)], opset, outputs=2, axis=1, constants=(1,))


@pytest.mark.parametrize("opset", [1, 11, 13])
def test_squeeze_and_unsqueeze(opset: int) -> None:
    x = floats(1, 3, 1, 2)
    if opset < 13:
        check_node("Squeeze", [x], max(opset, 7), axes=[0, 2])
        check_node("Squeeze", [x], max(opset, 7), symbolic=(False,))
        check_node("Unsqueeze", [x], max(opset, 7), axes=[0, 5])
    else:
        check_node("Squeeze", [x, ints(-2, 0)], opset)
        check_node("Unsqueeze", [x, ints(-1, 0)], opset)


@pytest.mark.parametrize("size", range(10))
@pytest.mark.parametrize("count", [1, 2, 4])
def test_split_into_a_number_of_parts(size: int, count: int) -> None:
    """If too few elements are left, parts are smaller or empty (onnxruntime only accepts a smaller last part)."""
    check_node("Split", [floats(2, size)], 18, by_onnx, axis=1, outputs=count, num_outputs=count)


@pytest.mark.parametrize("sizes", [[-1, 7], [9, -3], [2, 2]])
@pytest.mark.parametrize("constants", [(), (1,)])
def test_split_sizes_are_checked(sizes: list[int], constants: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"parts|at least 0"):
        run_node("Split", [floats(6), np.array(sizes)], 18, outputs=2, constants=constants)
    if not constants:
        with pytest.raises(ShapeError, match=r"a part cannot have|parts"):
            run_node("Split", [floats(6)], 11, outputs=2, split=sizes)


@pytest.mark.parametrize("opset", [11, 17])
def test_squeeze_without_axes_of_named_dims(opset: int) -> None:
    """One session with dims that are 1 or not: each run gives onnxruntime's rank."""
    m = parsed("g (float[a, b, c] x) => (float[] y) { y = Squeeze (x) }", opset)
    m.graph.output[0].type.tensor_type.ClearField("shape")
    session, peer = InferenceSession(m.SerializeToString()), onnxruntime.InferenceSession(m.SerializeToString())
    for shape in ((2, 1, 3), (1, 2, 3), (2, 3, 4), (1, 1, 1), (1, 5, 1), (2, 1, 3), (0, 1, 1)):
        x = floats(*shape)
        same(session.run(None, {"x": x}), peer.run(None, {"x": x}))


def test_squeeze_without_axes_of_a_count_found_in_the_run() -> None:
    m = parsed("g (float[n] x) => (int64[] y) { z = NonZero (x)  y = Squeeze (z) }")
    m.graph.output[0].type.tensor_type.ClearField("shape")
    session = InferenceSession(m.SerializeToString())
    np.testing.assert_array_equal(session.run(None, {"x": f32([1, 0, 1])})[0], [0, 2])
    assert session.run(None, {"x": f32([0, 0, 0])})[0].shape == (0,)
    with pytest.raises(ShapeError, match="list the axes"):
        session.run(None, {"x": f32([0, 0, 1])})


@pytest.mark.parametrize("to", [[3, 4], [2, 3, 4], [1, 1], [3, 1], [5, 1, 3, 4]])
def test_expand(to: list[int]) -> None:
    check_node("Expand", [floats(3, 1), np.array(to, np.int64)], 13, constants=(1,))
    check_node("Expand", [floats(3, 1), np.array(to, np.int64)], 13)


@pytest.mark.parametrize("repeats", [[1, 1], [2, 1], [1, 3], [2, 3], [0, 2]])
def test_tile(repeats: list[int]) -> None:
    check_node("Tile", [floats(2, 3), np.array(repeats, np.int64)], 13, constants=(1,))
    check_node("Tile", [floats(2, 3), np.array(repeats, np.int64)], 13)


def test_tile_1() -> None:
    x = floats(2, 3)
    np.testing.assert_array_equal(
        run_node("Tile", [x, np.float32(2), np.float32(1)], 1, constants=(1, 2))[0], np.tile(x, (1, 2))
    )


PADS = [[0, 0, 0, 0], [1, 0, 2, 1], [0, 2, 0, 2], [-1, 0, 0, 1], [2, 2, 2, 3], [-1, 2, 2, -1]]


@pytest.mark.parametrize("pads", PADS)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("constant", [True, False])
def test_pad(pads: list[int], mode: str, constant: bool) -> None:
    x = floats(4, 5)
    check_node("Pad", [x, np.array(pads, np.int64)], 19, constants=(1,) if constant else (), mode=mode)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.bool_])
def test_pad_with_a_value_on_some_axes(dtype: Any) -> None:
    x = np.ones((2, 3), dtype)
    check_node("Pad", [x, ints(1, 2), np.array(0 if dtype is np.bool_ else 7, dtype), ints(-1)], 18, symbolic=(False,))


def test_reflect_more_than_once() -> None:
    x = floats(3)
    want = np.pad(x, (7, 6), "reflect")
    for symbolic in (False, True):
        got = run_node("Pad", [x, ints(7, 6)], 19, symbolic, constants=(1,), mode="reflect")[0]
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(run_node("Pad", [floats(1) * 0 + 2, ints(2, 1)], 19, mode="reflect")[0], [2, 2, 2, 2])


def test_pad_by_attributes() -> None:
    check_node("Pad", [floats(2, 3)], 10, pads=[0, 1, 2, 0], value=1.5)
    x = floats(2, 3)
    got = run_node("Pad", [x], 1, paddings=[0, 1, 2, 0], mode="edge")[0]
    np.testing.assert_array_equal(got, np.pad(x, ((0, 2), (1, 0)), "edge"))


@pytest.mark.parametrize("to", [[2, 3], [5, 3], [3, 8], [4, 9], [9, 2]])
def test_center_crop_pad(to: list[int]) -> None:
    check_node("CenterCropPad", [floats(4, 5), np.array(to, np.int64)], 18, by_onnx, constants=(1,))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_of_symbolic_sizes(mode: str) -> None:
    check_node("DepthToSpace", [floats(2, 8, 2, 3)], 13, blocksize=2, mode=mode)


def test_space_to_depth_of_symbolic_sizes() -> None:
    check_node("SpaceToDepth", [floats(2, 2, 4, 6)], 13, blocksize=2)


@pytest.mark.parametrize("k", [None, -1, 0, 2, 100, 2**31, 2**32 + 1, 2**63 - 1, -(2**40), -(2**63)])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu(k: int | None, upper: int) -> None:
    args = [floats(2, 3, 4)] + ([] if k is None else [np.int64(k)])
    check_node("Trilu", args, 14, upper=upper)


def test_trilu_of_strings_from_a_diagonal_that_is_fed() -> None:
    session = InferenceSession(parsed("g (string[?, ?] x, int64 k) => (y) { y = Trilu (x, k) }").SerializeToString())
    x = np.array([["a", "b"], ["c", "d"]], object)
    for k, want in ((-1, "abcd"), (0, "ab d"), (1, " b  "), (0, "ab d")):
        got = session.run(None, {"x": x, "k": np.array(k)})[0]
        assert [v or " " for v in got.ravel()] == list(want)


@pytest.mark.parametrize(
    "start,limit,delta", [(0, 5, 1), (5, 0, -2), (0, 5, 2), (0, 0, 1), (5, 0, 1), (0, 6, 3), (-5, 5, 4)]
)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32])
@pytest.mark.parametrize("constant", [True, False])
def test_range(start: int, limit: int, delta: int, dtype: Any, constant: bool) -> None:
    check_node("Range", [dtype(start), dtype(limit), dtype(delta)], 11, constants=(0, 1, 2) if constant else ())


@pytest.mark.parametrize("start,limit,delta", [(0, 0.3, 0.1), (0, 7, 0.7), (1, 1.7, 0.1), (0.3, 0, -0.1)])
@pytest.mark.parametrize("constant", [True, False])
def test_lengths_of_ranges_are_counted_in_doubles(start: float, limit: float, delta: float, constant: bool) -> None:
    """0.3 / 0.1 is 3 in float32, but the exact quotient of both float32 numbers is larger."""
    arrays = [np.float32(start), np.float32(limit), np.float32(delta)]
    check_node("Range", arrays, 11, constants=(0, 1, 2) if constant else ())


def test_range_of_a_symbolic_length() -> None:
    m = parsed("""g (float[b,s] x) => (y) {
        shape = Shape <start = 1, end = 2> (x)
        axes = Constant <value_ints = [0]> ()
        n = Squeeze (shape, axes)
        zero = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        y = Range (zero, n, one)
    }""")
    check(m, {"x": floats(2, 5)})
    check(m, {"x": floats(1, 0)})


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32])
def test_one_hot(axis: int, dtype: Any) -> None:
    check_node("OneHot", [np.array([[0, 2, -1], [7, -9, 1]], dtype), np.int64(3), f32([-1, 5])], 11, by_onnx, axis=axis)


@pytest.mark.parametrize("batch,time", [(1, 0), (0, 1)])
def test_reverse_sequence(batch: int, time: int) -> None:
    check_node("ReverseSequence", [floats(3, 3, 2), ints(1, 3, 2)], 10, batch_axis=batch, time_axis=time)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_flatten(axis: int) -> None:
    check_node("Flatten", [floats(2, 3, 4)], 13, axis=axis)


def test_shape_of_a_part() -> None:
    for start, end in ((0, 2), (1, 100), (-2, -1), (3, 1)):
        check_node("Shape", [floats(2, 3, 4)], 15, start=start, end=end)
    check_node("Size", [floats(2, 3, 4)], 13)


def test_constant_of_shape() -> None:
    value = onnx.numpy_helper.from_array(ints(7, dtype=np.int32))
    check_node("ConstantOfShape", [ints(2, 3)], 9, value=value)
    check_node("ConstantOfShape", [ints(2, 3)], 9, constants=(0,))
    check_node("ConstantOfShape", [np.zeros(0, np.int64)], 9, constants=(0,))


def test_concat_with_empty_parts() -> None:
    parts = [floats(2, 3), floats(2, 0), floats(2, 1)]
    check_node("Concat", parts, 13, axis=1)
    with pytest.raises(ShapeError, match="differ"):
        run_node("Concat", [floats(2, 3), floats(3, 3)], 13, axis=1)


def test_strings_move() -> None:
    x = np.array([["a", "b"], ["c", "d"]], object)
    nodes = [
        onnx.helper.make_node("Transpose", ["x"], ["t"]),
        onnx.helper.make_node("Concat", ["t", "x"], ["y"], axis=0),
    ]
    m = model(nodes, {"x": x}, ["y"])
    same(run(m.SerializeToString(), {"x": x})[0], np.concatenate([x.T, x]))


def test_a_slice_of_a_table_broadcasts_by_its_length() -> None:
    """table[:, :s] + x of length s has length s, not a nested expression of conditions."""
    table = onnx.numpy_helper.from_array(floats(1, 6, 2), "table")
    m = parsed("""g (float[b, s, 2] x) => (z) {
        n = Shape <start = 1, end = 2> (x)
        zero = Constant <value_ints = [0]> ()
        one = Constant <value_ints = [1]> ()
        part = Slice (table, zero, n, one)
        y = Add (x, part)
        z = Add (y, part)
    }""")
    m.graph.initializer.append(table)
    for s in (1, 2, 6, 0):
        check(m, {"x": floats(2, s, 2)})


@pytest.mark.parametrize("inside", [False, True], ids=["in the graph", "in a loop"])
def test_the_first_elements_of_an_axis_broadcast_if_there_is_one(inside: bool) -> None:
    """x[:4] of one element is one element."""
    text = "a = Slice (x, zero, four)  b = Add (h, a)"
    loop = f"""z = Scan <num_scan_inputs = 1, body = s (float[4] h, float[3] u) => (float[4] b) {{ {text} }}> (z0, y)"""
    m = parsed(f"""g (float[n] x, float[4] {"z0" if inside else "h"}, float[2, 3] y) => ({"z" if inside else "b"}) {{
        zero = Constant <value_ints = [0]> ()  four = Constant <value_ints = [4]> ()  {loop if inside else text} }}""")
    session = InferenceSession(m.SerializeToString())
    for n in (1, 4, 5):
        feeds = {"x": floats(n), "z0" if inside else "h": floats(4), "y": floats(2, 3)}
        same(session.run(None, feeds)[0], by_onnxruntime(m, feeds)[0])
    with pytest.raises(ShapeError, match="do not broadcast"):
        session.run(None, {**feeds, "x": floats(3)})


@pytest.mark.parametrize("width", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("kind", ["float16", "float32", "uint8", "int64"])
def test_moves_keep_every_bit(kind: str, width: int) -> None:
    """NaN with payloads among them; last axes shorter than a vector, and longer; zeros of both signs around."""
    bits = np.random.default_rng(5).integers(0, 256, (2, 3, 5, width, np.dtype(kind).itemsize), np.uint8)
    x = bits.reshape(2, 3, 5, -1).view(kind)
    same_bits(run_node("Transpose", [x], 13, perm=[0, 2, 1, 3])[0], x.transpose(0, 2, 1, 3))
    same_bits(run_node("Transpose", [x], 13, perm=[3, 1, 0, 2])[0], x.transpose(3, 1, 0, 2))
    same_bits(run_node("Concat", [x, x[:, ::-1]], 13, axis=3)[0], np.concatenate([x, x[:, ::-1]], 3))
    around = np.zeros((), kind) if kind in ("uint8", "int64") else -np.zeros((), kind)
    padded = run_node("Pad", [x, ints(0, 1, 0, 2, 0, 0, 3, 1), around], 19)[0]
    same_bits(padded, np.pad(x, [(0, 0), (1, 0), (0, 3), (2, 1)], constant_values=around))
    twice = run_node("Resize", [x, None, f32([1, 1, 3, 2])], 19, constants=(2,), mode="nearest",
                     coordinate_transformation_mode="asymmetric", nearest_mode="floor")[0]  # fmt: skip
    same_bits(twice, x.repeat(3, 2).repeat(2, 3))


def same_bits(got: np.ndarray, want: np.ndarray) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert got.tobytes() == np.ascontiguousarray(want).tobytes()


@pytest.mark.parametrize("k", [0, 3, -4, 4, 1 << 32, -(1 << 63)])
def test_diagonals_far_away(k: int) -> None:
    check_node("EyeLike", [np.zeros((4, 4), np.int32)], 22, by_onnx, k=k)
