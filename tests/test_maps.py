"""Maps at a session's border: ai.onnx.ml's ZipMap, DictVectorizer and CastMap, as onnxruntime runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import ValueInfoProto, helper

from pyruntime import InferenceSession, InvalidInput, UnsupportedOp

DOMAIN = "ai.onnx.ml"
SCORES = np.float32([[0.1, 0.2, 0.7], [1, 2, 3]])


def tensor(name: str, kind: int) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, None)


def mapping(name: str, key: int, value: int) -> ValueInfoProto:
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))
    return helper.make_value_info(name, kind)


def maps(name: str, key: int) -> ValueInfoProto:
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(T.FLOAT, []))
    return helper.make_value_info(name, helper.make_sequence_type_proto(kind))


def model(op: str, x: ValueInfoProto, y: ValueInfoProto, *after: Any, **attrs: Any) -> bytes:
    nodes = [helper.make_node(op, ["x"], ["y"], domain=DOMAIN, **attrs), *after]
    graph = helper.make_graph(nodes, "g", [x], [y])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def zipped(**attrs: Any) -> bytes:
    return model(
        "ZipMap", tensor("x", T.FLOAT), maps("y", T.STRING if "classlabels_strings" in attrs else T.INT64), **attrs
    )


def same(data: bytes, x: Any) -> None:
    ours, theirs = InferenceSession(data), onnxruntime.InferenceSession(data)
    for get in ("get_inputs", "get_outputs"):
        (ours_is,), (theirs_is,) = getattr(ours, get)(), getattr(theirs, get)()
        assert (ours_is.name, ours_is.type) == (theirs_is.name, theirs_is.type)
    (found,), (expected,) = ours.run(None, {"x": x}), theirs.run(None, {"x": x})
    if isinstance(expected, list):
        assert found == expected and [list(row) for row in found] == [list(row) for row in expected]
    else:
        assert found.dtype == expected.dtype and found.tolist() == expected.tolist()


@pytest.mark.parametrize("x", [SCORES, SCORES[0], SCORES[:0]], ids=str)
@pytest.mark.parametrize(
    "labels", [{"classlabels_int64s": [7, -1, 5]}, {"classlabels_strings": ["b", "c", "a"]}], ids=str
)
def test_scores_by_class(labels: dict[str, Any], x: Any) -> None:
    same(zipped(**labels), x)


@pytest.mark.parametrize("x", [{"a": 1.0, "c": 2.0}, {"z": 1.0}, {"c": 3}], ids=str)
def test_columns_by_key(x: Any) -> None:
    same(
        model("DictVectorizer", mapping("x", T.STRING, T.FLOAT), tensor("y", T.FLOAT), string_vocabulary=["c", "a"]), x
    )


def test_columns_by_number() -> None:
    same(
        model("DictVectorizer", mapping("x", T.INT64, T.FLOAT), tensor("y", T.FLOAT), int64_vocabulary=[5, 2]),
        {2: 1.5},
    )


@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
@pytest.mark.parametrize(("to", "kind"), [("TO_FLOAT", T.FLOAT), ("TO_INT64", T.INT64), ("TO_STRING", T.STRING)])
@pytest.mark.parametrize("x", [{3: 1.5, 1: 2.0}, {9: 1.0}, {0: 0.1}], ids=str)
def test_maps_become_rows(form: str, to: str, kind: int, x: Any) -> None:
    same(model("CastMap", mapping("x", T.INT64, T.FLOAT), tensor("y", kind), cast_to=to, map_form=form, max_map=5), x)


BY_NAME = model("DictVectorizer", mapping("x", T.STRING, T.FLOAT), tensor("y", T.FLOAT), string_vocabulary=["a"])


@pytest.mark.parametrize(("data", "x", "text"), [
    (zipped(classlabels_int64s=[1, 2]), SCORES, r"2 classes do not fit scores of shape \(2, 3\)"),
    (BY_NAME, {1: 1.0},
     "a dict with keys of string is expected"),
    (BY_NAME, {"a": "b"},
     "value of another type"),
    (model("CastMap", mapping("x", T.INT64, T.FLOAT), tensor("y", T.FLOAT), map_form="SPARSE", max_map=3), {-1: 1.0},
     "key -1 is negative"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(data: bytes, x: Any, text: str) -> None:
    session = InferenceSession(data)
    with pytest.raises(InvalidInput, match=text):
        session.run(None, {"x": x})
    with pytest.raises(InvalidInput, match='input "x"'):
        session.run(None, {})


def test_a_map_inside_a_graph_is_refused_by_name() -> None:
    inner = helper.make_node("SequenceLength", ["y"], ["n"])
    data = model("ZipMap", tensor("x", T.FLOAT), tensor("n", T.INT64), inner, classlabels_int64s=[1, 2, 3])
    with pytest.raises(UnsupportedOp, match="ZipMap"):
        InferenceSession(data).run(None, {"x": SCORES})


def test_no_program_in_a_file() -> None:
    scores = helper.make_tensor_value_info("x", T.FLOAT, ["N", 3])
    session = InferenceSession(model("ZipMap", scores, maps("y", T.INT64), classlabels_int64s=[1, 2, 3]))
    with pytest.raises(InvalidInput, match="maps"):
        session.export()
