"""Every model of the ONNX backend suite and of the zoo, compared with the onnx package's own parse."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from pyruntime.onnx import graph as g
from pyruntime.onnx import load
from pyruntime.onnx.weight_values import unpack

A = onnx.AttributeProto
SHIPPED = sorted((Path(onnx.__file__).parent / "backend/test/data").glob("**/*.onnx"))
UNSORTED: set[str] = set()  # names of graphs whose nodes the reader has to sort
ZOO = sorted((Path(__file__).parents[2] / "kit" / "zoo").glob("*.onnx"))


def same_type(proto: onnx.TypeProto, got: g.Type | None) -> bool:
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, kind)
        assert isinstance(got, g.TensorType)
        assert (got.dtype.code if got.dtype else 0) == tensor.elem_type
        if not tensor.HasField("shape"):
            return got.shape is None
        dims = [getattr(d, d.WhichOneof("value")) if d.WhichOneof("value") else None for d in tensor.shape.dim]
        return got.shape == tuple(None if d in ("", -1) else d for d in dims)
    if kind == "sequence_type":
        return isinstance(got, g.SequenceType) and same_type(proto.sequence_type.elem_type, got.elem)
    if kind == "optional_type":
        return isinstance(got, g.OptionalType) and same_type(proto.optional_type.elem_type, got.elem)
    if kind == "map_type":
        assert isinstance(got, g.MapType)
        return got.key.code == proto.map_type.key_type and same_type(proto.map_type.value_type, got.value)
    return got is None


def same_tensor(proto: onnx.TensorProto, got: g.Weight) -> bool:
    assert (got.name, got.dtype.code, got.shape) == (proto.name, proto.data_type, tuple(proto.dims))
    if got.strings is not None:
        return list(got.strings) == list(proto.string_data)
    if got.source is None:  # a skeleton of the zoo
        return not proto.raw_data
    want = numpy_helper.to_array(proto)
    if got.dtype.bits < 8:
        want = want.astype(np.float32) if got.dtype.is_float else want.astype(np.int8)
        return got.dtype.is_float or unpack(got) == want.tobytes()
    return unpack(got) == want.tobytes()


def same_attribute(proto: onnx.AttributeProto, got: object) -> bool:
    if proto.ref_attr_name:
        return got == g.AttrRef(proto.ref_attr_name)
    if proto.type in (A.TENSOR, A.TENSORS):
        tensors = [proto.t] if proto.type == A.TENSOR else list(proto.tensors)
        return all(map(same_tensor, tensors, [got] if proto.type == A.TENSOR else got))  # type: ignore[call-overload]
    if proto.type in (A.GRAPH, A.GRAPHS):
        graphs = [proto.g] if proto.type == A.GRAPH else list(proto.graphs)
        for want, graph in zip(graphs, [got] if proto.type == A.GRAPH else got, strict=True):  # type: ignore
            same_graph(want, graph)
        return True
    if proto.type == A.TYPE_PROTO:
        return same_type(proto.tp, got)  # type: ignore[arg-type]
    if proto.type == A.SPARSE_TENSOR:
        return isinstance(got, g.Weight) and got.shape == tuple(proto.sparse_tensor.dims)
    if proto.type in (A.STRING, A.STRINGS):
        strings = [proto.s] if proto.type == A.STRING else list(proto.strings)
        found = [got] if proto.type == A.STRING else list(got)  # type: ignore[call-overload]
        return strings == [s.encode() if isinstance(s, str) else s for s in found]
    want = onnx.helper.get_attribute_value(proto)
    return got == (tuple(want) if proto.type in (A.FLOATS, A.INTS) else want)


def in_order(proto: onnx.GraphProto, known: set[str]) -> bool:
    known = known | {v.name for v in proto.input} | {t.name for t in proto.initializer}
    for node in proto.node:
        if not known.issuperset(filter(None, node.input)):
            return False
        known.update(node.output)
    return True


def same_nodes(protos: list[onnx.NodeProto], nodes: tuple[g.Node, ...]) -> None:
    for proto, node in zip(protos, nodes, strict=True):
        assert (node.op, node.name, node.overload) == (proto.op_type, proto.name, proto.overload)
        assert node.domain == ("" if proto.domain == "ai.onnx" else proto.domain)
        assert (node.inputs, node.outputs) == (tuple(proto.input), tuple(proto.output)), node.label
        assert list(node.attrs) == [a.name for a in proto.attribute], node.label
        assert all(same_attribute(a, node.attrs[a.name]) for a in proto.attribute), node.label


def same_graph(proto: onnx.GraphProto, got: g.Graph, ir: int = 14) -> None:
    assert got.name == proto.name
    weights = [t.name for t in proto.initializer] + [s.values.name for s in proto.sparse_initializer]
    assert list(got.weights) == weights
    assert all(same_tensor(t, got.weights[t.name]) for t in proto.initializer)
    inputs = [v for v in proto.input if ir >= 4 or v.name not in weights]
    for want, values in ((inputs, got.inputs), (proto.output, got.outputs)):
        assert [v.name for v in want] == [v.name for v in values]
        assert all(same_type(v.type, value.type) for v, value in zip(want, values, strict=True))
    assert all(same_type(v.type, got.values.get(v.name)) for v in proto.value_info)
    protos = list(proto.node)
    if got.name in UNSORTED:
        assert not in_order(proto, set())
        place = {node.outputs: i for i, node in enumerate(got.nodes)}
        protos.sort(key=lambda p: place[tuple(p.output)])
        known = {v.name for v in got.inputs} | {*got.weights, ""}
        for node in got.nodes:
            assert known.issuperset(node.inputs), node.label
            known.update(node.outputs)
    same_nodes(protos, got.nodes)


def same_model(proto: onnx.ModelProto, got: g.Graph) -> None:
    same_graph(proto.graph, got, proto.ir_version)
    opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}
    assert got.opsets == opsets
    assert all(node.opset == opsets[node.domain] for node in got.nodes)
    assert got.metadata["ir_version"] == str(proto.ir_version)
    assert got.metadata.get("producer_name", "") == proto.producer_name
    assert got.props == {p.key: p.value for p in proto.metadata_props}
    assert list(got.functions) == [(f.domain, f.name, f.overload) for f in proto.functions]
    for want, function in zip(proto.functions, got.functions.values(), strict=True):
        assert (function.inputs, function.outputs, function.attrs) == (
            tuple(want.input), tuple(want.output), tuple(want.attribute),
        )  # fmt: skip
        assert all(same_attribute(a, function.defaults[a.name]) for a in want.attribute_proto)
        assert all(same_type(v.type, function.values.get(v.name)) for v in want.value_info)
        same_nodes(list(want.node), function.nodes)


def node_models() -> Iterator[tuple[str, onnx.ModelProto]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        for case in collect_testcases(None):  # type: ignore[arg-type]
            if case.model is not None:
                yield case.name, case.model


def test_node_models() -> None:
    """All node cases in one test: making them takes seconds, reading them milliseconds."""
    models = list(node_models())
    assert len(models) > 1800
    for name, proto in models:
        try:
            same_model(proto, load(proto.SerializeToString()))
        except Exception as error:
            error.add_note(f"in {name}")
            raise


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.parent.name)
def test_shipped_models(path: Path) -> None:
    same_model(onnx.load(path), load(path))


@pytest.mark.parametrize("path", ZOO, ids=lambda p: p.stem)
def test_zoo(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stem == "llama_mini.fp16":  # its converter wrote casts after the nodes that use them
        monkeypatch.setitem(globals(), "UNSORTED", {load(path, require_data=False).name})
    same_model(onnx.load(path), load(path, require_data=False))


def test_there_is_a_zoo() -> None:
    assert len(ZOO) >= 20
