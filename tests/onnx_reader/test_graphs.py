"""Graphs: names, order, scopes, attributes, functions, opsets, IR versions."""

from __future__ import annotations

import onnx
import pytest
from onnx import AttributeProto, TensorProto, TypeProto, helper, parser

from pyruntime.errors import InvalidModel
from pyruntime.ir.dtype import F32
from pyruntime.onnx import load
from pyruntime.onnx.graph import AttrRef, Graph, SequenceType, TensorType, Weight, captures, subgraphs
from pyruntime.onnx.node_order import topological
from pyruntime.onnx.parse_graph import NEWEST_OPSETS
from pyruntime.onnx.weight_values import elements

HEAD = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>'


def read(text: str, head: str = HEAD) -> Graph:
    return load(parser.parse_model(head + text).SerializeToString())


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


# Names and order


def test_unsorted_nodes_are_sorted_and_else_keep_their_order() -> None:
    graph = read("g (float x) => (float y) { a = Neg(x) y = Add(b, c) c = Abs(a) b = Exp(x) }")
    assert ops(graph) == ["Neg", "Abs", "Exp", "Add"]
    assert ops(read("g (float x) => (float y) { a = Neg(x) b = Exp(x) y = Add(b, a) }")) == ["Neg", "Exp", "Add"]


def test_what_a_subgraph_captures_is_needed_before_its_node() -> None:
    branch = "g () => (float r) { r = Neg(late) }"
    other = "h () => (float r) { r = Identity(x) }"
    graph = read(f"g (float x, bool c) => (float y) {{ y = If(c) <then_branch = {branch}, else_branch = {other}> "
                 "late = Abs(x) }")  # fmt: skip
    assert ops(graph) == ["Abs", "If"]
    then = graph.nodes[1].attrs["then_branch"]
    assert isinstance(then, Graph) and captures(then) == {"late"}
    assert then.functions is graph.functions and then.opsets == graph.opsets


def test_known_domains_need_no_import() -> None:
    """onnxruntime takes its newest opset, also inside of branches and functions."""
    branch = "t () => (float r) { r = com.microsoft.FastGelu(x) }"
    text = f"g (float x, bool c) => (float y) {{ y = If(c) <then_branch = {branch}, else_branch = {branch}> }}"
    graph = read(text)
    assert [inner.nodes[0].opset for inner in subgraphs(graph.nodes[0])] == [1, 1]
    newest = read("g (float x) => (float y) { a = com.microsoft.FastGelu(x) y = Relu(a) }",
                  '<ir_version: 10, opset_import: ["com.microsoft" : 1]>')  # fmt: skip
    assert newest.nodes[1].opset == NEWEST_OPSETS[""]
    with pytest.raises(InvalidModel, match="no opset"):
        read("g (float x) => (float y) { y = Relu(x) }", "<ir_version: 10, opset_import: []>")


@pytest.mark.parametrize(("message", "node", "text"), [
    ('input "q" is not defined', 'Neg "y"', "g (float x) => (float y) { y = Neg(q) }"),
    ('no node makes output "z" of graph "g"', "", "g (float x) => (float z) { y = Neg(x) }"),
    ('"y" is already defined', 'Abs "y"', "g (float x) => (float y) { y = Neg(x) y = Abs(x) }"),
    ('"x" is already defined', 'Abs "x"', "g (float x) => (float x) { x = Abs(x) }"),
    ("form a cycle", 'Add "a"', "g (float x) => (float y) { a = Add(x, b) b = Neg(a) y = Abs(x) }"),
    ('imports no opset for domain "far"', 'far.Op "y"', "g (float x) => (float y) { y = far.Op(x) }"),
    ('graph input "x"', "", "g (float x, float x) => (float y) { y = Neg(x) }"),
    ('input "q" is not defined', 'If "y"', "g (bool x) => (float y) { y = If(x) <then_branch = t () => (float r) "
     "{ r = Neg(q) }, else_branch = e () => (float r) { r = Neg(x) }> }"),
])  # fmt: skip
def test_refused(message: str, node: str, text: str) -> None:
    with pytest.raises(InvalidModel) as caught:
        read(text)
    assert message in caught.value.message
    assert caught.value.node.startswith(node)


def test_topological() -> None:
    assert topological([{2}, set(), {1}]) == [1, 2, 0]
    assert topological([{1}, {0}, set()]) == [2]
    assert topological([]) == []


# Attributes


def test_every_kind_of_attribute() -> None:
    proto = parser.parse_model(HEAD + "g (float x) => (float y) { y = local.Op(x) }")
    node = proto.graph.node[0]
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [1], [2.0])
    sparse = onnx.SparseTensorProto(values=tensor, indices=helper.make_tensor("i", 7, [1], [1]), dims=[3])
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, ["n", None, 3]))
    body = parser.parse_graph("b () => (float r) { r = Identity(x) }")
    many: dict[str, object] = {
        "f": 1.5, "i": -3, "s": "é", "raw": b"\xff\x00", "t": tensor, "g": body, "st": sparse, "tp": kind,
        "fs": [1.0, -2.0], "is": [-1, 1 << 40, 300], "ss": ["a", b"\xff"], "ts": [tensor], "gs": [body, body],
        "sts": [sparse], "tps": [kind, TypeProto()],
    }  # fmt: skip
    node.attribute.extend(helper.make_attribute(key, value) for key, value in many.items())
    node.attribute.add(name="zero", type=AttributeProto.INT)
    node.attribute.add(name="empty", type=AttributeProto.INTS)
    attrs = load(proto.SerializeToString()).nodes[0].attrs
    plain = {key: attrs[key] for key in ("f", "i", "s", "raw", "fs", "is", "ss", "zero", "empty")}
    assert plain == {"f": 1.5, "i": -3, "s": "é", "raw": b"\xff\x00", "fs": (1.0, -2.0), "is": (-1, 1 << 40, 300),
                     "ss": ("a", b"\xff"), "zero": 0, "empty": ()}  # fmt: skip
    assert attrs["tp"] == SequenceType(TensorType(F32, ("n", None, 3)))
    assert attrs["tps"] == (attrs["tp"], None)
    weight, dense = attrs["t"], attrs["st"]
    assert isinstance(weight, Weight) and elements(weight) == [2.0]
    assert isinstance(dense, Weight) and elements(dense) == [0.0, 2.0, 0.0]
    inner = attrs["gs"]
    assert isinstance(inner, tuple) and [ops(graph) for graph in inner] == [["Identity"]] * 2


def test_attribute_faults_name_the_node() -> None:
    proto = parser.parse_model(HEAD + "g (float x) => (float y) { y = Neg(x) }")
    proto.graph.node[0].attribute.add(name="a", type=AttributeProto.TENSOR)
    with pytest.raises(InvalidModel, match=r'Neg "y" \(opset 21\): attribute "a" of type 4 has no value'):
        load(proto.SerializeToString())
    proto.graph.node[0].attribute[0].CopyFrom(AttributeProto(name="a", ref_attr_name="b", type=AttributeProto.INT))
    with pytest.raises(InvalidModel, match="no attribute of a function"):
        load(proto.SerializeToString())


# Functions

FUNCTION = """
<domain: "local", opset_import: ["" : 13], overload: "two">
Twice <axis, k: int = 3> (a) => (b) { t = Cast <to: int = @k> (a)  b = Softmax <axis: int = @axis> (t) }
"""


def test_functions() -> None:
    graph = read("g (float x) => (float y) { y = local.Twice:two <axis = 1> (x) }" + FUNCTION)
    function = graph.functions["local", "Twice", "two"]
    assert (function.inputs, function.outputs, function.attrs) == (("a",), ("b",), ("axis",))
    assert function.defaults == {"k": 3}
    assert [(node.op, node.opset, dict(node.attrs)) for node in function.nodes] == [
        ("Cast", 13, {"to": AttrRef("k")}), ("Softmax", 13, {"axis": AttrRef("axis")}),
    ]  # fmt: skip
    assert (graph.nodes[0].overload, graph.nodes[0].opset) == ("two", 1)


@pytest.mark.parametrize(("message", "functions"), [
    ("already defined", FUNCTION + FUNCTION),
    ("calls itself", '<domain: "local", opset_import: ["local" : 1]> F (a) => (b) { b = local.F(a) }'),
    ("calls itself", '<domain: "local", opset_import: ["local" : 1]> F (a) => (b) { b = local.G(a) }'
                     '<domain: "local", opset_import: ["local" : 1]> G (a) => (b) { b = local.F(a) }'),
    ("is not defined", '<domain: "local", opset_import: ["" : 13]> F (a) => (b) { b = Neg(c) }'),
    ("no node makes output", '<domain: "local", opset_import: ["" : 13]> F (a) => (b) { c = Neg(a) }'),
    ('refers to "q"', '<domain: "local", opset_import: ["" : 13]> F (a) => (b) { b = Cast <to: int = @q> (a) }'),
])  # fmt: skip
def test_function_refused(message: str, functions: str) -> None:
    with pytest.raises(InvalidModel, match=message):
        read("g (float x) => (float y) { y = Neg(x) }" + functions)


# Versions


def weighted(ir: int) -> onnx.ModelProto:
    text = "g (float[1] x, float[1] w) => (float[1] y) <float[1] w = {2.0}> { y = Add(x, w) }"
    proto = parser.parse_model(f'<ir_version: {ir}, opset_import: ["ai.onnx" : 7]>' + text)
    if "w" not in [value.name for value in proto.graph.input]:
        proto.graph.input.add(name="w")
    return proto


@pytest.mark.parametrize("ir", range(1, 15))
def test_ir_versions(ir: int) -> None:
    graph = load(weighted(ir).SerializeToString())
    assert [value.name for value in graph.inputs] == (["x"] if ir < 4 else ["x", "w"])
    assert list(graph.weights) == ["w"] and graph.opsets == {"": 7} and graph.nodes[0].opset == 7


def test_ir_refused() -> None:
    for ir, message in ((15, "newest supported is 14"), (0, "not an ONNX model"), (-1, "not an ONNX model")):
        proto = weighted(10)
        proto.ir_version = ir
        with pytest.raises(InvalidModel, match=message):
            load(proto.SerializeToString())


def test_attributes_before_ir_2_have_no_type() -> None:
    proto = weighted(1)
    proto.opset_import.pop()
    proto.graph.node[0].attribute.add(name="axis", i=4)
    (node,) = load(proto.SerializeToString()).nodes
    assert (node.attrs, node.opset) == ({"axis": 4}, 1)


def test_opsets_given_twice() -> None:
    proto = weighted(10)
    proto.opset_import.add(domain="", version=7)
    assert load(proto.SerializeToString()).opsets == {"": 7}
    proto.opset_import.add(domain="", version=8)
    with pytest.raises(InvalidModel, match="given twice"):
        load(proto.SerializeToString())


def test_metadata() -> None:
    proto = weighted(10)
    proto.producer_name, proto.model_version, proto.graph.doc_string = "me", -2, "a graph"
    proto.metadata_props.add(key="description", value="mine")
    graph = load(proto.SerializeToString())
    assert graph.metadata == {"ir_version": "10", "producer_name": "me", "model_version": "-2",
                              "graph_description": "a graph"}  # fmt: skip
    assert graph.props == {"description": "mine"}
