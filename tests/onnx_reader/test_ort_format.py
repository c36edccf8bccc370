"""ONNX Runtime's own format: files of each level of optimisation, run on this engine and on ONNX Runtime."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from kit import zoo
from kit.models import TOLERANCE, assert_close
from kit.ort_format import LEVELS, saved
from pyruntime import InferenceSession
from pyruntime.errors import InvalidModel, PyRuntimeError, UnsupportedOp
from pyruntime.onnx.graph import Graph, Node
from pyruntime.onnx.load import load
from pyruntime.onnx.weight_values import elements
from tests.ops.compare import parsed, same


def peer(model: bytes, feeds: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


ZOO = [("gpt2_tiny", level) for level in LEVELS[:3]] + [
    ("lstm_tagger", "ENABLE_BASIC"),
    ("bert_tiny", "ENABLE_EXTENDED"),
]


@pytest.mark.parametrize(("name", "level"), [*ZOO, ("mobilenet_v2.qdq", "ENABLE_EXTENDED")])
def test_models(name: str, level: str, tmp_path: Path) -> None:
    path = tmp_path / "model.ort"
    saved(zoo.materialize(name).read_bytes(), path, level)
    got = InferenceSession(str(path), providers=["wasm"]).run(None, zoo.inputs(name))
    assert_close(zoo.expected(name), got, TOLERANCE.get(name, 1e-4))


BRANCHES = """agraph (float[N, 3] x, bool c, int64 n) => (float[N, M] y, float[N, 3] z)
    <float[3] w = {1.0, -2.0, 0.5}, int64[2] axes = {0, 1}> {
    y = If (c) <
        then_branch = one () => (float[N, K] a) { a = Concat <axis = 1> (x, x) },
        else_branch = two () => (float[N, L] b) { b = Mul (x, w) }>
    z = Loop (n, , x) <body = three (int64 i, bool going, float[N, 3] v) => (bool on, float[N, 3] u) {
        on = Identity (going)
        u = Add (v, w)
    }>
}"""
WORDS = """agraph (string[N] x) => (string[N] y, int64[N] known)
    <string[3] keys = {"a", "b", "c d"}> {
    y = StringNormalizer <case_change_action = "UPPER", stopwords = ["the", "x"], locale = "C"> (x)
    known = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_int64s = [4, 9], default_int64 = -1> (x)
}"""
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "branches": (BRANCHES, {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "c": np.array(True), "n": np.array(3)}),
    "words": (WORDS, {"x": np.array(["a", "the", "b"], object)}),
    "attributes": (
        """agraph (float[1, 2, 5, 5] x) => (float[1, 3, 3, 3] y) {
            n = Constant <value_floats = ["""
        + ", ".join(str(n / 7) for n in range(54))
        + """]> ()
            d = Constant <value = int64[4] {3, 2, 3, 3}> ()   w = Reshape (n, d)
            s = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w)
            y = LeakyRelu <alpha = 0.3> (s) }""",
        {"x": np.linspace(-1, 1, 50, dtype=np.float32).reshape(1, 2, 5, 5)},
    ),
    "sequences": (
        """agraph (float[N] a, float[N] b) => (seq(float[N]) y, float[N] last) {
            y = SequenceConstruct (a, b)  n = Constant <value = int64 {-1}> ()  last = SequenceAt (y, n) }""",
        {"a": np.ones(3, np.float32), "b": np.zeros(3, np.float32)},
    ),
}  # fmt: skip


def model_of(text: str) -> bytes:
    return parsed(text, 18, **{"ai.onnx.ml": 3}).SerializeToString()


@pytest.mark.parametrize("name", SMALL)
def test_what_a_model_may_hold(name: str, tmp_path: Path) -> None:
    text, feeds = SMALL[name]
    data = saved(model_of(text), tmp_path / "model.ort")
    want = peer(data, feeds)
    for got, known in zip(InferenceSession(data, providers=["wasm"]).run(None, feeds), want, strict=True):
        same(got, known)


def flat(node: Node) -> Any:
    def plain(value: Any) -> Any:
        if isinstance(value, Graph):
            return [flat(n) for n in value.nodes], [v.name for v in value.inputs], [v.name for v in value.outputs]
        return value if not hasattr(value, "dtype") else (value.dtype, value.shape, elements(value))

    return node.op, node.domain, node.inputs, node.outputs, {k: plain(v) for k, v in node.attrs.items()}


@pytest.mark.parametrize("name", ["branches", "words"])
def test_the_same_graph_as_from_onnx(name: str, tmp_path: Path) -> None:
    """Attributes that ONNX leaves to their defaults are written out by ONNX Runtime."""
    data = model_of(SMALL[name][0])
    ours, theirs = load(data), load(saved(data, tmp_path / "model.ort"))
    assert (theirs.inputs, theirs.outputs) == (ours.inputs, ours.outputs)
    used = {i for n in ours.nodes for i in n.inputs}
    for key in ours.weights.keys() & used:
        assert elements(theirs.weights[key]) == elements(ours.weights[key])
    for a, b in zip(map(flat, ours.nodes), map(flat, theirs.nodes), strict=True):
        assert b[:4] == a[:4]
        assert {k: b[4][k] for k in a[4]} == a[4]


def test_sparse_weights(tmp_path: Path) -> None:
    values = helper.make_tensor("w", 1, [2], [3.0, 4.0])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", 7, [2], [1, 4]), [2, 3])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, [2, 3])],
        [helper.make_tensor_value_info("y", 1, [2, 3])],
    )  # fmt: skip
    graph.sparse_initializer.append(sparse)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    data = saved(model.SerializeToString(), tmp_path / "model.ort")
    (y,) = InferenceSession(data, providers=["wasm"]).run(None, {"x": np.zeros((2, 3), np.float32)})
    np.testing.assert_array_equal(y, [[0, 3, 0], [0, 4, 0]])


def test_metadata(tmp_path: Path) -> None:
    model = onnx.load_from_string(model_of(SMALL["words"][0]))
    model.producer_name, model.model_version, model.doc_string = "someone", 7, "what it does"
    model.metadata_props.add(key="author", value="me")
    data = saved(model.SerializeToString(), tmp_path / "model.ort")
    graph = load(data)
    known = {"producer_name": "someone", "model_version": "7", "description": "what it does", "ir_version": "10"}
    assert {key: graph.metadata[key] for key in known} == known
    assert graph.props == {"author": "me"}


def test_operators_of_one_processor_are_refused_by_name(tmp_path: Path) -> None:
    text = "agraph (float[1, 32, 8, 8] x, float[64, 32, 3, 3] w) => (float[1, 64, 6, 6] y) { y = Conv (x, w) }"
    model = parsed(text, 18)
    weight = model.graph.input.pop()
    shape = [d.dim_value for d in weight.type.tensor_type.shape.dim]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), "w"))
    data = saved(model.SerializeToString(), tmp_path / "model.ort", "ENABLE_ALL")
    assert "com.microsoft.nchwc" in {node.domain for node in load(data).nodes}
    with pytest.raises(UnsupportedOp, match=r"com\.microsoft\.nchwc\.\w+ .* is unknown"):
        InferenceSession(data, providers=["wasm"])


@functools.cache
def small(name: str, folder: Path) -> bytes:
    return saved(model_of(SMALL[name][0]), folder / f"{name}.ort")


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Changed or missing bytes give an error of ours or a graph, and nothing else, in short time."""
    rng, data = random.Random(seed), small("branches", tmp_path_factory.getbasetemp())
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 1, 4, 40))):
            damaged[rng.randrange(8, len(data))] = rng.choice((0, 1, 4, 127, 128, 255, rng.randrange(256)))
        damaged = damaged[: rng.choice((len(data), len(data), rng.randrange(8, len(data))))]
        try:
            load(bytes(damaged))
        except PyRuntimeError as error:
            refused += isinstance(error, InvalidModel)
    assert refused > 50


def test_a_file_without_a_model() -> None:
    with pytest.raises(InvalidModel, match="cut off|damaged"):
        load(b"\x18\0\0\0ORTM" + bytes(30))


def test_tables_named_too_often() -> None:
    """A graph whose tables refer to each other would be endless."""
    with pytest.raises(InvalidModel, match="references parts of the file too often"):
        load(_bomb())


def _bomb() -> bytes:
    """Subgraphs in 30 levels, each referenced twice by the one around it: 2^30 of them."""
    import flatbuffers

    b = flatbuffers.Builder(1024)

    def table(**fields: int) -> int:
        b.StartObject(13)
        for key, value in fields.items():
            if key == "kind":
                b.PrependInt32Slot(2, value, 0)
            else:
                b.PrependUOffsetTRelativeSlot(int(key[1:]), value, 0)
        return b.EndObject()

    def vector(items: list[int]) -> int:
        b.StartVector(4, len(items), 4)
        for item in reversed(items):
            b.PrependUOffsetTRelative(item)
        return b.EndVector()

    inner = table()
    domain, key = b.CreateString(""), b.CreateString("body")
    for _ in range(30):
        attribute = table(f0=key, kind=10, f12=vector([inner, inner]))
        inner = table(f2=vector([table(f5=key, f10=vector([attribute]))]))
    b.StartObject(2)
    b.PrependUOffsetTRelativeSlot(0, domain, 0)
    b.PrependInt64Slot(1, 18, 0)
    opset = b.EndObject()
    model = table(f1=vector([opset]), f7=inner)
    b.Finish(table(f1=model), b"ORTM")
    return bytes(b.Output())
