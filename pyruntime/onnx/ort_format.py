"""Reads ONNX Runtime's file format (.ort): an optimised model as FlatBuffers.

Fields are identified by their numbers in the schema.
Spec: https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/flatbuffers/schema/ort.fbs
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Mapping

from pyruntime.errors import InvalidModel
from pyruntime.ir.dtype import I8, I16, I32, I64, STRING
from pyruntime.onnx.flatbuffer import Buffer, Table
from pyruntime.onnx.graph import Graph, MapType, Node, SequenceType, Source, TensorType, Type, Value, Weight, distinct
from pyruntime.onnx.node_order import sort_nodes
from pyruntime.onnx.parse_graph import NEWEST_OPSETS, normal_domain, opset_of, str_or_bytes
from pyruntime.onnx.parse_tensors import MAX_RANK, densified, dtype_of, true_is_one
from pyruntime.onnx.protobuf import check_depth
from pyruntime.onnx.sources import MemorySource
from pyruntime.onnx.weight_values import elements

# numbers of fields: of the session, then of its tables
_MODEL = 1
_IR, _OPSETS, _MODEL_VERSION, _GRAPH, _GRAPH_DOC, _PROPS = 0, 1, 5, 7, 8, 9
_METADATA = {2: "producer_name", 3: "producer_version", 4: "domain", 6: "description"}
_WEIGHTS, _VALUES, _NODES, _INPUTS, _OUTPUTS, _SPARSE = 0, 1, 2, 5, 6, 7
_NODE_NAME, _DOMAIN, _OP, _NODE_INPUTS, _NODE_OUTPUTS, _ATTRIBUTES = 0, 2, 5, 8, 9, 10
_NAME, _KIND = 0, 2  # of attributes
_DIMS, _DATA_TYPE, _RAW, _STRINGS, _OUTSIDE = 2, 3, 4, 5, 6  # of tensors


def read_ort_format(source: Source) -> Graph:
    """The graph of a model in ONNX Runtime's format. Errors: InvalidModel with the byte or the node at fault."""
    model = Buffer(source).root().table(_MODEL)
    graph = model and model.table(_GRAPH)
    if model is None or graph is None:
        raise InvalidModel("the model is damaged: it has no graph")
    opsets = {normal_domain(t.text(0)): t.number(1, "q") for t in model.tables(_OPSETS)}
    ir = model.number(_IR, "q")
    metadata = {"ir_version": str(ir), "graph_description": model.raw(_GRAPH_DOC).decode(errors="replace")}
    metadata |= {key: text for n, key in _METADATA.items() if (text := model.raw(n).decode(errors="replace"))}
    metadata["model_version"] = str(model.number(_MODEL_VERSION, "q"))
    props = {t.text(0): t.text(1) for t in model.tables(_PROPS)}
    read = _Reader(opsets, ir).graph(graph, 0)
    return Graph(
        read.name, read.inputs, read.outputs, read.nodes, read.weights, read.values, {}, opsets, metadata, props
    )


class _Reader:
    """Reads the graphs of one model. It has no functions, because ONNX Runtime has inlined them."""

    def __init__(self, opsets: Mapping[str, int], ir: int) -> None:
        self.opsets = opsets
        self.ir = ir
        self.labels: Counter[str] = Counter()
        single: dict[int, Callable[[Table, int], object]] = {
            1: lambda t, _: t.real(3),
            2: lambda t, _: t.number(4, "q"),
            3: lambda t, _: str_or_bytes(t.raw(5)),
            4: lambda t, _: _weight(_there(t.table(6), t)),
            5: lambda t, depth: self.graph(_there(t.table(7), t), depth + 3),
        }
        lists: dict[int, Callable[[Table, int], object]] = {
            6: lambda t, _: t.numbers(8, "f"),
            7: lambda t, _: t.numbers(9, "q"),
            8: lambda t, _: tuple(map(str_or_bytes, t.raws(10))),
            9: lambda t, _: tuple(map(_weight, t.tables(11))),
            10: lambda t, depth: tuple([self.graph(g, depth + 3) for g in t.tables(12)]),
        }
        self.kinds = single | lists

    def graph(self, table: Table, depth: int) -> Graph:
        check_depth(depth, table.at)
        weights: dict[str, Weight] = {}
        for weight in [*map(_weight, table.tables(_WEIGHTS)), *map(_sparse, table.tables(_SPARSE))]:
            if not weight.name or weight.name in weights:
                raise InvalidModel(f'initializer "{weight.name}" has no name or a name that is in use')
            weights[weight.name] = weight
        types = {t.text(0): _type(t.table(2), 0) for t in table.tables(_VALUES)}
        inputs, outputs = table.texts(_INPUTS), table.texts(_OUTPUTS)
        nodes = [self.node(t, depth) for t in table.tables(_NODES)]
        nodes = sort_nodes(nodes, {*inputs, *weights}, outputs, "the graph", nested=depth > 0)
        free = [name for name in inputs if self.ir >= 4 or name not in weights]
        return Graph(
            "",
            tuple(Value(name, types.get(name)) for name in free),
            tuple(Value(name, types.get(name)) for name in outputs),
            tuple(nodes),
            weights,
            {name: kind for name, kind in types.items() if kind is not None},
            {},
            self.opsets,
        )

    def node(self, table: Table, depth: int) -> Node:
        domain = normal_domain(table.text(_DOMAIN))
        opset, newest = opset_of(self.opsets, domain), NEWEST_OPSETS.get(domain)
        attrs: dict[str, object] = {}
        ends = table.texts(_NODE_INPUTS), table.texts(_NODE_OUTPUTS)
        node = distinct(Node(table.text(_OP), domain, opset, table.text(_NODE_NAME), *ends, attrs), self.labels)
        if not opset:
            raise InvalidModel(f'the model imports no opset for domain "{domain}"', node=node.label)
        if newest is not None and opset > newest:
            text = f"the model is for opset {opset} of {domain or 'ai.onnx'}, the newest supported is {newest}"
            raise InvalidModel(text, node=node.label)
        for t in table.tables(_ATTRIBUTES):
            kind = t.number(_KIND)
            if kind not in self.kinds:
                raise InvalidModel(f'attribute "{t.text(_NAME)}" of type {kind} is not known', node=node.label)
            attrs[t.text(_NAME)] = self.kinds[kind](t, depth)
        return node


def _there(part: Table | None, whole: Table) -> Table:
    if part is None:
        raise InvalidModel(f"the model is damaged: the table at byte {whole.at} lacks a part")
    return part


def _weight(table: Table) -> Weight:
    name = table.text(_NAME)
    what = f'tensor "{name}" at byte {table.at}'
    dtype, shape = dtype_of(table.number(_DATA_TYPE), what), _dims(table, _DIMS, what)
    if dtype is STRING:
        strings = tuple(table.raws(_STRINGS))
        if len(strings) != math.prod(shape):
            raise InvalidModel(f"{what} has {len(strings)} strings, its shape is {shape}")
        return Weight(name, dtype, shape, strings=strings)
    start, count = table.span(_RAW, 1)
    size = (math.prod(shape) * dtype.bits + 7) // 8
    if count != size:
        outside = " in a file of its own" if table.number(_OUTSIDE, "q") > 0 else ""
        raise InvalidModel(f"{what} of type {dtype} and shape {shape} needs {size} bytes, it holds {count}{outside}")
    return true_is_one(Weight(name, dtype, shape, table.buffer.source, start, size))


def _sparse(table: Table) -> Weight:
    values, indices = (_weight(_there(table.table(n), table)) for n in (0, 1))
    what = f'sparse tensor "{values.name}" at byte {table.at}'
    return densified(values, _wide(indices, what), _dims(table, 2, what), what)


def _wide(indices: Weight, what: str) -> Weight:
    """The indices as int64: ONNX Runtime writes them in the shortest type."""
    if indices.dtype not in (I8, I16, I32, I64):
        raise InvalidModel(f"{what}: indices are {indices.dtype}")
    places = [int(n.real) for n in elements(indices) if not isinstance(n, bytes)]
    data = struct.pack(f"<{len(places)}q", *places)
    return Weight(indices.name, I64, indices.shape, MemorySource(data), 0, len(data))


def _dims(table: Table, field: int, what: str) -> tuple[int, ...]:
    dims = tuple(int(d) for d in table.numbers(field, "q"))
    if len(dims) > MAX_RANK or any(d < 0 for d in dims):
        raise InvalidModel(f"{what} has an impossible shape: {dims[:MAX_RANK]}")
    return dims


def _type(table: Table | None, depth: int) -> Type | None:
    """None if unknown. A type has a denotation (0), a tag (1) and a value (2), whose table depends on the tag."""
    value = table and table.table(2)
    if table is None or value is None:
        return None
    check_depth(depth, table.at)
    tag = table.number(1, "B")
    if tag == 1:
        return _tensor(value)
    if tag not in (2, 3):
        return None
    inner = _type(value.table(0 if tag == 2 else 1), depth + 1)
    if inner is None:
        raise InvalidModel(f"a sequence or map type has no element type, at byte {value.at}")
    return SequenceType(inner) if tag == 2 else MapType(dtype_of(value.number(0), "the key of a map type"), inner)


def _tensor(table: Table) -> TensorType:
    code, shape = table.number(0), table.table(1)
    dtype = dtype_of(code, f"a tensor type at byte {table.at}") if code else None
    if shape is None:
        return TensorType(dtype, None)
    dims = shape.tables(0)
    meanings = tuple(d.text(1) for d in dims)
    return TensorType(dtype, tuple(_dim(d.table(0)) for d in dims), meanings if any(meanings) else ())


def _dim(table: Table | None) -> int | str | None:
    """A number (1) or a name (2)."""
    kind = table.number(0, "b") if table is not None else 0
    if table is None or kind not in (1, 2):
        return None
    if kind == 1:
        value = table.number(1, "q")
        return value if value >= 0 else None
    name = table.text(2)
    return name if name not in ("", "?") else None
