"""What the engine refuses or warns of before it runs: models, options. onnxruntime is asked what it does."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import pyruntime.ops  # noqa: F401
from pyruntime import InferenceSession, InvalidInput, InvalidModel, SessionOptions
from pyruntime.frontend import registry
from pyruntime.onnx import load
from pyruntime.onnx.parse_graph import NEWEST_OPSETS

FLOAT = TensorProto.FLOAT


def info(name: str, shape: list[Any], dtype: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(op: str, x: list[Any], y: list[Any], opsets: dict[str, int] | None = None, **attributes: Any) -> bytes:
    """x -> op "n" -> y"""
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], "n", **attributes)], "g", [info("x", x)], [info("y", y)]
    )
    ids = [helper.make_opsetid(*pair) for pair in (opsets or {"": 20}).items()]
    return bytes(helper.make_model(graph, opset_imports=ids, ir_version=10).SerializeToString())


def refused_by_onnxruntime(data: bytes) -> bool:
    try:
        ort.InferenceSession(data)
    except (ort.capi.onnxruntime_pybind11_state.Fail, ort.capi.onnxruntime_pybind11_state.InvalidGraph):
        return True
    return False


def test_the_newest_opsets_are_those_of_the_standard_and_of_the_table() -> None:
    schemas = onnx.defs.get_all_schemas_with_history()
    standard = {
        domain: max(s.since_version for s in schemas if s.domain == domain) for domain in {s.domain for s in schemas}
    }
    assert NEWEST_OPSETS == standard | {"com.microsoft": 1}
    for (domain, name), versions in registry.table().items():
        assert versions[-1].since <= NEWEST_OPSETS.get(domain, versions[-1].since), name


@pytest.mark.parametrize(("domain", "version", "text"), [
    ("", 99, r"opset 99 of ai\.onnx, the newest supported is 28 \(export it for opset 28 or older\)"),
    ("", 29, "opset 29 of ai.onnx"),
    ("ai.onnx.ml", 6, r"opset 6 of ai\.onnx\.ml, the newest supported is 5"),
    ("com.microsoft", 2, r"opset 2 of com\.microsoft, the newest supported is 1"),
])  # fmt: skip
def test_opsets_that_are_newer_than_we_know_are_refused(domain: str, version: int, text: str) -> None:
    data = model("Relu", ["N"], ["N"], {"": 20} | {domain: version})
    assert refused_by_onnxruntime(data)
    with pytest.raises(InvalidModel, match=text):
        load(data)


def test_opsets_of_other_domains_are_theirs() -> None:
    data = model("Relu", ["N"], ["N"], {"": 20, "my.ops": 99})
    assert not refused_by_onnxruntime(data)
    np.testing.assert_array_equal(InferenceSession(data).run(None, {"x": np.ones(2, np.float32)})[0], [1, 1])


@pytest.mark.parametrize(("op", "attribute", "value", "text"), [
    ("Softmax", "axis", 1.5, r'Softmax "n" \(opset 20\): attribute axis must be an int, is 1\.5'),
    ("LeakyRelu", "alpha", 1, "attribute alpha must be a float, is 1"),
    ("Transpose", "perm", [0.5, 1.5], r"attribute perm must be ints, is \(0\.5, 1\.5\)"),
    ("Transpose", "perm", 0, "attribute perm must be ints, is 0"),
    ("DepthToSpace", "blocksize", 2.0, "attribute blocksize must be an int, is 2.0"),
    ("DepthToSpace", "mode", 2, "attribute mode must be a string, is 2"),
    ("Gelu", "approximate", ["none"], "attribute approximate must be a string, is .'none',."),
])  # fmt: skip
def test_attributes_of_another_type_are_refused(op: str, attribute: str, value: object, text: str) -> None:
    needed = {"blocksize": 2} if op == "DepthToSpace" else {}
    shape: list[Any] = [1, 4, 2, 2] if op == "DepthToSpace" else ["N", 3]
    data = model(op, shape, [None] * len(shape), **{**needed, attribute: value})
    assert refused_by_onnxruntime(data)
    with pytest.raises(InvalidModel, match=text):
        InferenceSession(data)


def test_the_value_of_a_constant_is_a_tensor() -> None:
    node = helper.make_node("Constant", [], ["y"], value=1)
    graph = helper.make_graph([node], "g", [], [info("y", [])])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
    with pytest.raises(InvalidModel, match="attribute value must be a tensor, is 1"):
        InferenceSession(data)


def test_attributes_that_are_given_by_a_function_are_checked_too() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
        g (float[N, 3] x) => (float[N, 3] y) { y = local.F <a = 1.5> (x) }
        <domain: "local", opset_import: ["" : 20]> F <a> (x) => (y) { y = Softmax <axis: int = @a> (x) }"""
    with pytest.raises(InvalidModel, match="attribute axis must be an int"):
        InferenceSession(onnx.parser.parse_model(text).SerializeToString())


@pytest.mark.parametrize(("node", "refused"), [("Softmax <axis = 1> (x)", True), ("Relu (x)", False)])
def test_operators_of_functions_mean_what_they_mean_in_the_model(node: str, refused: bool) -> None:
    """The standard's checker refuses this; onnxruntime takes the model's meaning, whatever the function imports."""
    text = f"""<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
        g (float[2, 3, 4] x) => (float[2, 3, 4] y) {{ y = local.F (x) }}
        <domain: "local", opset_import: ["" : 11]> F (x) => (y) {{ y = {node} }}"""
    model = onnx.parser.parse_model(text)
    if refused:
        with pytest.raises(onnx.checker.ValidationError):
            onnx.checker.check_model(model)
        with pytest.raises(InvalidModel, match="opset 11.*has another definition at the model's opset 20"):
            InferenceSession(model.SerializeToString())
    else:
        InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("threads", [-1, 1.5, "2"])
def test_a_number_of_threads_that_is_none(threads: Any) -> None:
    with pytest.raises(InvalidInput, match="intra_op_num_threads cannot be"):
        InferenceSession(model("Relu", ["N"], ["N"]), SessionOptions(intra_op_num_threads=threads))


@pytest.mark.parametrize(("x", "y", "text"), [
    ([2, 3], [2, 4], r'output "y" is declared \[2, 4\], its nodes make \[2, 3\]'),
    (["N", 3], ["N", 4], r"declared \[N, 4\], its nodes make \[N, 3\]"),
    (["N", 3], ["M", 3, 1], r"declared \[M, 3, 1\], its nodes make \[N, 3\]"),
    ([2, 3], [], r"declared \[\], its nodes make \[2, 3\]"),
])  # fmt: skip
def test_a_declared_shape_that_cannot_be_is_told_of(
    x: list[Any], y: list[Any], text: str, capfd: Any, caplog: Any
) -> None:
    """Once, as a message of the session, whose severity may be set."""
    data, feeds = model("Softmax", x, y), {"x": np.ones((2, 3), np.float32)}
    expected = ort.InferenceSession(data).run(None, feeds)[0]
    assert "Error merging shape info for output" in capfd.readouterr().err
    session = InferenceSession(data)
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-6)
    assert len(caplog.records) == 1
    assert re.search(text, caplog.text)
    caplog.clear()
    quiet = SessionOptions()
    quiet.log_severity_level = 3
    InferenceSession(data, quiet)
    assert not caplog.records


@pytest.mark.parametrize("shape", [
    None, [], ["N", 3, None], [None, None, None], ["batch", 3, "k"], [2, 3, 4], ["N", "M", "K"],
])  # fmt: skip
def test_outputs_have_the_shapes_that_nodes_make(shape: list[Any] | None) -> None:
    """Where the model says less than they do. (Where it says what cannot be, onnxruntime may tell no dims.)"""
    nodes = [helper.make_node("Softmax", ["x"], ["y"]), helper.make_node("Shape", ["x"], ["s"])]
    nodes.append(helper.make_node("Concat", ["x", "x"], ["z"], axis=0))
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape), onnx.ValueInfoProto(name="s")]
    outputs.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, None])
    graph = helper.make_graph(nodes, "g", [x], outputs)
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    ours, theirs = (
        [(arg.name, arg.type, arg.shape) for arg in session.get_outputs()]
        for session in (InferenceSession(data), ort.InferenceSession(data))
    )
    assert ours[1:] == theirs[1:]
    assert shape == [] or ours == theirs


@pytest.mark.parametrize(("x", "y"), [
    (["N", 3], ["N", 3]), (["N", 3], ["M", None]), (["N", 3], [2, "K"]), ([2, 3], ["A", "B"]), ([0, 3], [0, 3]),
])  # fmt: skip
def test_a_declared_shape_that_may_be_is_not(x: list[Any], y: list[Any], capfd: Any) -> None:
    data = model("Softmax", x, y)
    ort.InferenceSession(data)
    assert "Error merging" not in capfd.readouterr().err
    InferenceSession(data)  # a warning would be an error here
