"""GraphProto, NodeProto and AttributeProto -> Graph and Node.

Spec: https://github.com/onnx/onnx/blob/main/docs/IR.md
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyruntime.errors import InvalidModel
from pyruntime.onnx.graph import AttrRef, Function, Graph, Node, Type, Value, Weight, distinct
from pyruntime.onnx.node_order import sort_nodes
from pyruntime.onnx.parse_tensors import TensorReader
from pyruntime.onnx.parse_types import VALUE_TAGS, TypeReader
from pyruntime.onnx.protobuf import Field, Fields, Wire, check_depth, signed, tags

FunctionKey = tuple[str, str, str]

# A newer opset may redefine a known operator. Other domains have no limit. A model that does not import one of these
# domains gets its newest opset, as in onnxruntime (core/graph/model.cc), whose own tools wrote such models.
NEWEST_OPSETS = {"": 28, "ai.onnx.ml": 5, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1, "com.microsoft": 1}

OPSET_TAGS = tags(varint="2", length="1")
_GRAPH = tags(length="1 2 5 10 11 12 13 14 15 16")
NODE_TAGS = tags(length="1 2 3 4 5 6 7 8 9 10")
_ENTRY = tags(length="1 2")  # of metadata
_SCOPES = "pkg.torch.onnx.name_scopes"
# what torch.onnx notes of a graph: the parameters and buffers of its module; and of a weight: what it was computed from
_NOTES = {"pkg.torch.export.ExportedProgram.graph_signature", "pkg.onnxscript.optimizer.folded_from"}
ATTRIBUTE_TAGS = tags(varint="3 8 20", length="1 4 5 6 7 8 9 10 11 13 14 15 21 22 23", fixed32="2 7")
# AttributeProto.type -> the field with the value: single values, then lists
_SINGLE = {1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 11: 22, 13: 14}
_LISTS = {6: 7, 7: 8, 8: 9, 9: 10, 10: 11, 12: 23, 14: 15}
_KIND_OF = {number: kind for table in (_SINGLE, _LISTS) for kind, number in table.items()}
_PLAIN = frozenset((1, 2, 3, 6, 7, 8))  # numbers and strings
_SHORT, _LONG = 64, 1 << 14  # bytes
_ABSENT: dict[int, object] = {1: 0.0, 2: 0, 3: ""}


@dataclass(frozen=True, slots=True)
class Scope:
    """The context that nodes inherit. refs: names of the enclosing function's attributes; None outside of functions;
    labels: number of nodes with each label so far."""

    opsets: Mapping[str, int]
    refs: frozenset[str] | None = None
    labels: Counter[str] = field(default_factory=Counter[str])


@dataclass(slots=True)
class _Parts:
    """A graph while its fields are read."""

    name: str = ""
    doc: str = ""
    nodes: list[Node] = field(default_factory=list[Node])
    inputs: dict[str, Value] = field(default_factory=dict[str, Value])
    outputs: list[Value] = field(default_factory=list[Value])
    values: dict[str, Type] = field(default_factory=dict[str, Type])
    weights: dict[str, Weight] = field(default_factory=dict[str, Weight])
    notes: dict[str, str] = field(default_factory=dict[str, str])


def normal_domain(domain: str) -> str:
    """The domain, with "" for "ai.onnx", the long name of the default domain."""
    return "" if domain == "ai.onnx" else domain


def opset_of(opsets: Mapping[str, int], domain: str) -> int:
    """The opset of a domain; the newest one for a known domain that the model does not import; 0 for an unknown one."""
    return opsets.get(domain) or (NEWEST_OPSETS.get(domain, 0) if opsets else 0)


def read_opsets(wire: Wire, found: list[Field]) -> dict[str, int]:
    """The imported opsets by domain (OperatorSetIdProto)."""
    opsets: dict[str, int] = {}
    for _, a, b in found:
        inner = wire.gather(a, b, OPSET_TAGS)
        domain = normal_domain(text_of(wire, inner, 1))
        version = signed(inner[2][-1][1]) if 2 in inner else 0
        if version < 1 or opsets.setdefault(domain, version) != version:
            raise InvalidModel(f'opset_import of domain "{domain}" is missing, zero or given twice at byte {a}')
        newest = NEWEST_OPSETS.get(domain, version)
        if version > newest:
            name = domain or "ai.onnx"
            hint = f"export it for opset {newest} or older"
            raise InvalidModel(
                f"the model is for opset {version} of {name}, the newest supported is {newest}", hint=hint
            )
    return opsets


def text_of(wire: Wire, found: Fields, number: int) -> str:
    """A name, "" if it is absent."""
    return wire.text(*found[number][-1][1:]) if number in found else ""


class BodyReader:
    """Reads the graphs of one model. `functions` is filled by the caller and shared by all graphs."""

    def __init__(self, wire: Wire, tensors: TensorReader, ir: int, functions: Mapping[FunctionKey, Function]) -> None:
        self.wire = wire
        self._tensors = tensors
        self.types = TypeReader(wire)
        self._plain: dict[bytes, tuple[str, object]] = {}
        self._ir = ir
        self._functions = functions

    def graph(self, start: int, end: int, scope: Scope, depth: int = 0) -> tuple[Graph, str]:
        """The graph and its doc string. Before IR 4 an initializer is also listed as an input, but is constant."""
        check_depth(depth, start)
        parts = _Parts()
        for tag, a, b in self.wire.fields(start, end):
            if tag == 0x0A:
                parts.nodes.append(self.node(a, b, scope, depth))
            elif tag == 0x2A or tag == 0x7A:  # initializer, sparse_initializer
                weight = self._tensors.tensor(a, b) if tag == 0x2A else self._tensors.sparse(a, b)
                if not weight.name or weight.name in parts.weights:
                    raise InvalidModel(f'initializer "{weight.name}" at byte {a} has no name or a name that is in use')
                parts.weights[weight.name] = weight
            elif tag in (0x5A, 0x62, 0x6A):  # input, output, value_info
                self._value(parts, tag, a, b)
            elif tag == 0x12:
                parts.name = self.wire.text(a, b)
            elif tag == 0x52:
                parts.doc = self.wire.bytes(a, b).decode(errors="replace")
            elif tag == 0x82:  # metadata_props
                self._note(parts, "", a, b)
            elif tag not in _GRAPH:
                self.wire.skip(tag, _GRAPH, b)
        return self._ordered(parts, scope, depth), parts.doc

    def _value(self, parts: _Parts, tag: int, start: int, end: int) -> None:
        name, kind = self.types.value(start, end)
        if tag == 0x6A:
            if kind is not None:
                parts.values[name] = kind
            if name in parts.weights:
                for _, a, b in self.wire.gather(start, end, VALUE_TAGS).get(4, ()):
                    self._note(parts, name, a, b)
        elif tag == 0x62:
            parts.outputs.append(Value(name, kind))
        elif not name or name in parts.inputs:
            raise InvalidModel(f'graph input "{name}" at byte {start} has no name or a name that is in use')
        else:
            parts.inputs[name] = Value(name, kind)

    def _note(self, parts: _Parts, name: str, start: int, end: int) -> None:
        """Keeps an entry of metadata if it is one of _NOTES. name: of the weight, or "" for the graph"""
        found = self.wire.gather(start, end, _ENTRY)
        if text_of(self.wire, found, 1) in _NOTES:
            parts.notes[name] = text_of(self.wire, found, 2)

    def _ordered(self, parts: _Parts, scope: Scope, depth: int) -> Graph:
        where = f'graph "{parts.name}"'
        known = parts.inputs.keys() | parts.weights.keys()
        outputs = [value.name for value in parts.outputs]
        nodes = sort_nodes(parts.nodes, known, outputs, where, nested=depth > 0)
        constant = parts.weights if self._ir < 4 else {}
        inputs = [value for value in parts.inputs.values() if value.name not in constant]
        return Graph(
            parts.name, tuple(inputs), tuple(parts.outputs), tuple(nodes), parts.weights, parts.values,
            self._functions, scope.opsets, notes=parts.notes,
        )  # fmt: skip

    def _module(self, found: Fields) -> str:
        """The module in a node's metadata: the name before the operation's, as in "['', 'layers.0', 'linear']"."""
        for _, start, end in found.get(9, ()):
            entry = self.wire.gather(start, end, _ENTRY)
            if text_of(self.wire, entry, 1) == _SCOPES:
                scopes = text_of(self.wire, entry, 2).split("'")[1::2]
                return scopes[-2] if len(scopes) > 1 else ""
        return ""

    def node(self, start: int, end: int, scope: Scope, depth: int) -> Node:
        wire = self.wire
        found = wire.gather(start, end, NODE_TAGS)
        name, op, domain, overload = (text_of(wire, found, number) for number in (3, 4, 7, 8))
        inputs = tuple([wire.text(a, b) for _, a, b in found.get(1, ())])
        outputs = tuple([wire.text(a, b) for _, a, b in found.get(2, ())])
        domain = normal_domain(domain)
        opset = opset_of(scope.opsets, domain)
        attrs: dict[str, object] = {}
        node = distinct(
            Node(op, domain, opset, name, inputs, outputs, attrs, overload, self._module(found)), scope.labels
        )
        try:
            if not op:
                raise InvalidModel(f"a node has no op_type at byte {start}")
            if not opset:
                raise InvalidModel(f'the model imports no opset for domain "{domain}"')
            for _, a, b in found.get(5, ()):
                key, value = self.attribute(a, b, scope, depth)
                if not key or key in attrs:
                    raise InvalidModel(f'attribute "{key}" at byte {a} has no name or a name that is in use')
                attrs[key] = value
        except InvalidModel as error:
            raise error.at(node.label) from error.__cause__
        return node

    def attribute(self, start: int, end: int, scope: Scope, depth: int) -> tuple[str, object]:
        """Name and value of an attribute. Short attributes repeat in a model, so equal ones are read once."""
        key = self.wire.bytes(start, end) if end - start <= _SHORT else b""
        if key in self._plain:
            return self._plain[key]
        found = self.wire.gather(start, end, ATTRIBUTE_TAGS, runs=end - start > _LONG)
        name, ref = text_of(self.wire, found, 1), text_of(self.wire, found, 21)
        if ref:
            if scope.refs is None or ref not in scope.refs:
                raise InvalidModel(f'attribute "{name}" refers to "{ref}", no attribute of a function around it')
            return name, AttrRef(ref)
        kind = found[20][-1][1] if 20 in found else 0
        if not kind:  # before IR 2 there was no type
            kind = next((_KIND_OF[number] for number in found if number in _KIND_OF), 0)
        number = _SINGLE.get(kind) or _LISTS.get(kind, 0)
        values = found.get(number, [])
        if kind in _LISTS:
            value: object = self._convert(kind, values, scope, depth)
        elif kind in _SINGLE and values:
            value = self._convert(kind, values[-1:], scope, depth)[0]
        elif kind in _ABSENT:
            value = _ABSENT[kind]
        else:
            raise InvalidModel(f'attribute "{name}" of type {kind} has no value at byte {start}')
        if key and kind in _PLAIN:
            self._plain[key] = name, value
        return name, value

    def _convert(self, kind: int, found: list[Field], scope: Scope, depth: int) -> tuple[object, ...]:
        wire = self.wire
        if kind in (2, 7):
            values = wire.ints(found)
            return tuple(values if max(values, default=0) >> 63 == 0 else map(signed, values))
        if kind in (1, 6):
            return tuple(wire.floats(found))
        if kind in (3, 8):
            parts = wire.parts(found)
            text = {part: str_or_bytes(part) for part in set(parts)}  # a tree ensemble has thousands of equal strings
            return tuple([text[part] for part in parts])
        if kind in (4, 9):
            return tuple([self._tensors.tensor(a, b) for _, a, b in found])
        if kind in (11, 12):
            return tuple([self._tensors.sparse(a, b) for _, a, b in found])
        if kind in (5, 10):
            return tuple([self.graph(a, b, scope, depth + 3)[0] for _, a, b in found])
        return tuple([self.types.type(a, b) for _, a, b in found])


def str_or_bytes(data: bytes) -> str | bytes:
    """A string attribute; bytes if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
