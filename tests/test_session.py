"""Sessions: errors, states, overhead besides kernels, memory."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from kit import zoo
from pyruntime import (
    InferenceSession,
    InvalidInput,
    InvalidModel,
    OutOfMemory,
    SessionOptions,
    ShapeError,
    UnsupportedOp,
)
from pyruntime.program.format import Program
from tests.ops import compare

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], opset: int = 20) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return bytes(made.SerializeToString())


def info(name: str, shape: list[Any], dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def chain(count: int) -> bytes:
    """x -> Softmax -> Softmax … : kernels that do not fuse into one."""
    names = ["x", *[f"h{n}" for n in range(count - 1)], "y"]
    nodes = [helper.make_node("Softmax", [a], [b]) for a, b in zip(names, names[1:], strict=False)]
    return model(nodes, [info("x", ["N", 4])], [info("y", ["N", 4])])


ADD = model(
    [helper.make_node("Add", ["a", "b"], ["y"])], [info("a", ["N", 3]), info("b", ["N", 3])], [info("y", ["N", 3])]
)
GOOD = {"a": np.ones((2, 3), np.float32), "b": np.ones((2, 3), np.float32)}

BAD_FEEDS = {
    "missing": ({"a": GOOD["a"]}, '"b" is missing'),
    "unknown": ({**GOOD, "c": GOOD["a"]}, '"c" does not exist'),
    "dtype": ({**GOOD, "b": GOOD["b"].astype(np.float64)}, "element type float64, expected float32"),
    "rank": ({**GOOD, "b": GOOD["b"][0]}, "rank 1, expected 2"),
    "dim": ({**GOOD, "b": np.ones((2, 4), np.float32)}, "4 elements along axis 1, expected 3"),
    "no tensor": ({**GOOD, "b": None}, "must be a tensor"),
    "object": ({**GOOD, "b": {"x": 1}}, "must be a tensor"),
}


@pytest.mark.parametrize("kind", BAD_FEEDS)
def test_bad_feeds_are_refused_and_the_session_stays_usable(kind: str) -> None:
    session = InferenceSession(ADD)
    session.run(None, GOOD)  # feeds of these shapes are checked once
    feeds, message = BAD_FEEDS[kind]
    with pytest.raises(InvalidInput, match=message):
        session.run(None, feeds)
    assert session.state == "ready"
    np.testing.assert_array_equal(session.run(None, GOOD)[0], np.full((2, 3), 2))


def test_dims_of_one_name_may_differ(caplog: pytest.LogCaptureFixture) -> None:
    """As in onnxruntime, a name is a hint. The first differing run logs a message and recompiles the model."""
    nodes = [helper.make_node("Concat", ["a", "b"], ["y"], axis=0)]
    made = model(nodes, [info("a", ["N", 3]), info("b", ["N", 3])], [info("y", ["M", 3])])
    session, peer = InferenceSession(made), compare.by_onnxruntime
    for rows, told in ((2, False), (4, True), (2, False), (5, False)):
        feeds = {**GOOD, "b": np.ones((rows, 3), np.float32)}
        caplog.clear()
        (y,) = session.run(None, feeds)
        assert ('"N" have different sizes' in caplog.text) is told
        np.testing.assert_array_equal(y, peer(onnx.load_model_from_string(made), feeds)[0])
    session = InferenceSession(ADD)
    with pytest.raises(ShapeError, match="do not broadcast"):
        session.run(None, {**GOOD, "b": np.ones((3, 3), np.float32)})
    opened = InferenceSession(InferenceSession(ADD).export())
    with pytest.raises(InvalidInput, match='"N" have different sizes'):
        opened.run(None, {**GOOD, "b": np.ones((3, 3), np.float32)})


@pytest.mark.parametrize("value", [np.array(3), np.array([3]), np.array([[3]]), 3, [3]])
def test_one_number_may_come_in_any_rank(value: Any) -> None:
    session = InferenceSession(model([helper.make_node("Neg", ["x"], ["y"])], [info("x", [], INT64)], [info("y", [])]))
    assert session.run(None, {"x": value})[0] == -3
    with pytest.raises(InvalidInput, match="rank 1, expected 0"):
        session.run(None, {"x": np.array([3, 4])})


def test_an_unknown_output_is_refused() -> None:
    with pytest.raises(InvalidInput, match='"z" does not exist'):
        InferenceSession(ADD).run(["z"], GOOD)


def test_a_truncated_model_is_refused() -> None:
    with pytest.raises(InvalidModel):
        InferenceSession(ADD[: len(ADD) // 2])


def test_an_unknown_operator_is_named() -> None:
    bad = model([helper.make_node("Frobnicate", ["x"], ["y"], name="f")], [info("x", [1])], [info("y", [1])])
    with pytest.raises(UnsupportedOp, match='Frobnicate "f" \\(opset 20\\).*pyruntime.op'):
        InferenceSession(bad)


def test_providers_that_are_not_here() -> None:
    for asked in (["CUDAExecutionProvider", "CPUExecutionProvider"], ["CUDAExecutionProvider"]):
        with pytest.warns(UserWarning, match='"CUDAExecutionProvider" is unknown and skipped'):
            session = InferenceSession(ADD, providers=asked)
        assert session.get_providers() == ["CPUExecutionProvider"]


def test_shapes_that_contradict_each_other_name_the_node() -> None:
    bad = model([helper.make_node("MatMul", ["a", "b"], ["y"], name="mm")],
                [info("a", [2, 3]), info("b", [4, 5])], [info("y", None)])  # fmt: skip
    with pytest.raises(ShapeError, match=r'MatMul "mm".*3 and 4 \(a \[2, 3\], b \[4, 5\]\)'):
        InferenceSession(bad)


def test_shapes_that_contradict_each_other_only_at_run_time() -> None:
    mm = model([helper.make_node("MatMul", ["a", "b"], ["y"], name="mm")],
               [info("a", [2, "K"]), info("b", ["L", 5])], [info("y", [2, 5])])  # fmt: skip
    session = InferenceSession(mm)
    with pytest.raises(ShapeError, match=r"K and L \(K = 3, L = 4\)") as caught:
        session.run(None, {"a": np.ones((2, 3), np.float32), "b": np.ones((4, 5), np.float32)})
    assert caught.value.node == 'MatMul "mm" (opset 20)' and "mm" not in caught.value.message
    out = session.run(None, {"a": np.ones((2, 3), np.float32), "b": np.ones((3, 5), np.float32)})
    np.testing.assert_array_equal(out[0], np.full((2, 5), 3))


def test_reshapes_to_a_shape_of_another_size_tell_the_values() -> None:
    found = model([helper.make_node("Reshape", ["x", "s"], ["y"], name="r")],
                  [info("x", ["N", "K"]), info("s", [2], TensorProto.INT64)], [info("y", ["A", "B"])])  # fmt: skip
    session = InferenceSession(found)
    x, s = np.ones((2, 3), np.float32), np.array([4, 2])
    with pytest.raises(
        ShapeError, match=r'Reshape "r" .*\[N, K\] to a shape of another size \(K = 3, N = 2, .* = 4, .* = 2\)'
    ):
        session.run(None, {"x": x, "s": s})
    assert session.run(None, {"x": np.ones((2, 4), np.float32), "s": s})[0].shape == (4, 2)


def test_a_memory_limit_is_an_error_before_anything_runs() -> None:
    options = SessionOptions(memory_limit=1 << 20)
    session = InferenceSession(ADD, options)
    big = np.ones((1 << 17, 3), np.float32)
    with pytest.raises(OutOfMemory):
        session.run(None, {"a": big, "b": big})
    np.testing.assert_array_equal(session.run(None, GOOD)[0], np.full((2, 3), 2))


@pytest.mark.parametrize("limit", [1000, 1 << 20])
def test_a_memory_limit_is_told_as_it_was_given(limit: int) -> None:
    """Also if the limit is smaller than the session's tables."""
    rows = limit // 3
    session = InferenceSession(ADD, SessionOptions(memory_limit=limit))
    with pytest.raises(OutOfMemory, match=rf"(\d+) bytes of memory are needed, memory_limit is {limit} ") as caught:
        session.run(None, {name: np.ones((rows, 3), np.float32) for name in GOOD})
    assert int(caught.value.message.split()[0]) >= limit + 1


def test_description_is_onnxruntimes() -> None:
    import onnxruntime as ort

    ours, theirs = InferenceSession(ADD), ort.InferenceSession(ADD)
    for mine, other in ((ours.get_inputs(), theirs.get_inputs()), (ours.get_outputs(), theirs.get_outputs())):
        assert [(a.name, a.type, a.shape) for a in mine] == [(a.name, a.type, a.shape) for a in other]


def test_runs_from_many_threads_queue() -> None:
    session = InferenceSession(chain(20))
    feeds = [np.random.default_rng(n).standard_normal((n + 1, 4), np.float32) for n in range(8)]
    expected = [session.run(None, {"x": x})[0] for x in feeds]
    results: list[Any] = [None] * 8

    def work(n: int) -> None:
        for _ in range(20):
            results[n] = session.run(None, {"x": feeds[n]})[0]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for result, want in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, want)


def python_calls(session: InferenceSession, feeds: dict[str, Any]) -> int:
    """Python function calls of one warm run."""
    session.run(None, feeds)
    count = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        session.run(None, feeds)
    finally:
        sys.setprofile(None)
    return count


def test_no_python_per_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pyruntime.native.execution.executor.SHORT", math.inf
    )  # on a busy machine any run may take long
    x = {"x": np.ones((2, 4), np.float32)}
    assert python_calls(InferenceSession(chain(2)), x) == python_calls(InferenceSession(chain(200)), x)


def test_a_small_model_costs_little() -> None:
    """Checks, views and plans are made once for each shape. There are 101 calls, and were 151."""
    assert python_calls(InferenceSession(ADD), GOOD) <= 106


def test_views_are_of_the_memory_that_is_in_use() -> None:
    session = InferenceSession(ADD)
    session.run(None, GOOD)
    executor = session._native.latest()
    values, state, value = executor.values, executor.plan.root, executor.header["inputs"][0]
    state = next(iter(state.next.values())).state
    view = values.view(value, state)
    assert values.view(value, state) is view
    executor.host.memory = executor.host.memory.copy()  # as if it had moved when it grew
    assert np.shares_memory(values.view(value, state), executor.host.memory)
    assert not np.shares_memory(view, executor.host.memory)


def test_new_shapes_need_no_new_code() -> None:
    session = InferenceSession(zoo.materialize("llama_mini"))
    given = zoo.inputs("llama_mini")
    session.run(None, given)
    executors = list(session._native.executors.values())
    longer = {k: np.concatenate([v, v], axis=2) if k.startswith("past") else v for k, v in given.items()}
    extra = next(v for k, v in given.items() if k.startswith("past")).shape[2]
    mask = given["attention_mask"]
    longer["attention_mask"] = np.concatenate([np.ones((len(mask), extra), mask.dtype), mask], axis=1)
    session.run(None, longer)
    assert list(session._native.executors.values()) == executors


def test_memory_does_not_grow_from_run_to_run() -> None:
    session = InferenceSession(chain(30))
    (executor,) = session._native.executors.values()
    sizes = []
    for n in (1, 100, 7, 100, 1, 100, 7):
        session.run(None, {"x": np.ones((n, 4), np.float32)})
        sizes.append(executor.memory_report().arena)
    assert sizes[-1] == sizes[1]
    assert executor.memory_report().peak < 8 * 100 * 16 + 4096  # a chain of thirty keeps only a few tensors alive


def test_a_loop_frees_what_its_body_is_handed_and_does_not_use() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[N] x, int64 n) => (float[N] y, float[M] z) {
      y, z = Loop (n, , x, x) <body = b (int64 i, bool on, float[N] used, float[M] lost)
        => (bool still, float[N] a, float[M] b) { still = Identity (on) a = Neg (used) b = Neg (used) }>
    }"""
    session = InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    x, peaks = np.arange(1000, dtype=np.float32), {}
    for n in (0, 1, 2, 3, 300):
        y, z = session.run(None, {"x": x, "n": np.array(n)})
        np.testing.assert_array_equal(y, -x if n % 2 else x)
        np.testing.assert_array_equal(z, y)
        peaks[n] = session.memory().peak
    assert peaks[300] == peaks[3]


def test_a_program_survives_a_round_trip() -> None:
    session = InferenceSession(chain(3))
    (executor,) = session._native.executors.values()
    again = Program.from_bytes(executor.program.to_bytes())
    assert again.header == as_json(executor.header) and again.blob == executor.program.blob


def as_json(value: Any) -> Any:
    import json

    return json.loads(json.dumps(value))


def test_shapes_known_only_while_running_are_checked() -> None:
    found = model(
        [helper.make_node("NonZero", ["x"], ["at"], name="nz"), helper.make_node("Cast", ["at"], ["f"], to=FLOAT),
         helper.make_node("Add", ["f", "z"], ["y"], name="sum")],
        [info("x", ["N"]), info("z", [5])], [info("y", ["R", "C"])],
    )  # fmt: skip
    session = InferenceSession(found)
    z = np.ones(5, np.float32)
    with pytest.raises(ShapeError, match="sum"):
        session.run(None, {"x": np.array([1, 0, 1, 1, 0], np.float32), "z": z})
    np.testing.assert_array_equal(session.run(None, {"x": z, "z": z})[0], [[1, 2, 3, 4, 5]])


def test_arrays_of_the_other_byte_order() -> None:
    big = {name: x.astype(">f4") for name, x in GOOD.items()}
    session = InferenceSession(ADD)
    for feeds in (GOOD, big, GOOD):
        np.testing.assert_array_equal(session.run(None, feeds)[0], np.full((2, 3), 2))


@pytest.mark.parametrize("array", [np.asarray, np.ma.masked_array])
@pytest.mark.parametrize("op", ["Compress", "Cast"])
def test_bools_are_true_whatever_byte_says_so(op: str, array: Callable[[np.ndarray], np.ndarray]) -> None:
    """A mask of 255s that is viewed as bools: Compress counts them."""
    mask = array(np.array([255, 0, 1, 2], np.uint8).view(bool))
    count = op == "Compress"
    node = helper.make_node(op, ["x", "x"], ["y"]) if count else helper.make_node(op, ["x"], ["y"], to=INT64)
    made = model([node], [info("x", [4], TensorProto.BOOL)], [info("y", ["K"], TensorProto.BOOL if count else INT64)])
    [y] = InferenceSession(made).run(None, {"x": mask})
    np.testing.assert_array_equal(y, [1, 1, 1] if count else [1, 0, 1, 1])


@pytest.mark.parametrize("shape", [["n", 3], [], [None, 2], None])
@pytest.mark.parametrize("kind", ["tensor", "optional", "sequence", "optional sequence"])
def test_shapes_of_inputs_are_onnxruntimes(kind: str, shape: list[int | str | None] | None) -> None:
    """The shape of an optional tensor is the tensor's. A free dimension of it can be overridden, too."""
    made = helper.make_tensor_type_proto(FLOAT, shape)
    if "sequence" in kind:
        made = helper.make_sequence_type_proto(made)
    if "optional" in kind:
        made = helper.make_optional_type_proto(made)
    x, y = (helper.make_value_info(name, made) for name in "xy")
    data = model([helper.make_node("Identity", ["x"], ["y"])], [x], [y])
    ours, theirs = InferenceSession(data), onnxruntime.InferenceSession(data)
    for mine, right in zip(
        (*ours.get_inputs(), *ours.get_outputs()), (*theirs.get_inputs(), *theirs.get_outputs()), strict=True
    ):
        assert (mine.type, mine.shape) == (right.type, right.shape)
    if shape and "n" in shape and "sequence" not in kind:
        options = SessionOptions()
        options.add_free_dimension_override_by_name("n", 2)
        assert InferenceSession(data, options).get_inputs()[0].shape == [2, 3]


def test_free_dimensions_are_overridden_by_name() -> None:
    made = model([helper.make_node("Neg", ["x"], ["y"])], [info("x", ["batch", 3])], [info("y", ["batch", 3])])
    options = SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    options.add_free_dimension_override_by_name("elsewhere", 7)  # onnxruntime passes over such names
    text = r'no input has the free dimension "elsewhere" \(named dimensions: batch\)'
    with pytest.warns(UserWarning, match=text) as caught:
        session = InferenceSession(made, options)
    assert len(caught) == 1
    assert [session.get_inputs()[0].shape, session.get_outputs()[0].shape] == [[2, 3], [2, 3]]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)
    with pytest.raises(InvalidInput, match="axis 0"):
        session.run(None, {"x": np.ones((4, 3), np.float32)})
    with pytest.raises(InvalidInput, match="batch"):
        InferenceSession(made, SessionOptions(free_dimension_overrides={"batch": -1}))


def test_a_default_of_an_input_is_overridden_by_what_is_fed() -> None:
    """From IR 4 on an initializer that is also an input is a default; before, it is a constant."""
    import onnxruntime

    shapes = {"x": ["n", 3], "w": ["k", 3]}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in shapes.items()]
    weight = numpy_helper.from_array(np.full((3, 3), 2, np.float32), "w")
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph([helper.make_node("Gemm", ["x", "w"], ["y"])], "g", inputs, [out], [weight])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    session, peer = InferenceSession(model), onnxruntime.InferenceSession(model)
    for names in ("get_inputs", "get_overridable_initializers"):
        assert [a.name for a in getattr(session, names)()] == [a.name for a in getattr(peer, names)()]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for scale in (None, 1, 5, None):
        feeds = {"x": x} if scale is None else {"x": x, "w": np.eye(3, dtype=np.float32) * scale}
        np.testing.assert_allclose(session.run(None, feeds)[0], peer.run(None, feeds)[0])
    with pytest.raises(InvalidInput, match='"w"'):
        session.run(None, {"x": x, "w": np.eye(3)})
    old = InferenceSession(helper.make_model(graph, opset_imports=opset, ir_version=3).SerializeToString())
    assert old.get_overridable_initializers() == []
