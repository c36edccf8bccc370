"""Edits a model file: its graphs and nodes as fields that are replaced, added or left out. Everything else is copied as
it is, so that a large file is never parsed whole and names, metadata and unknown fields stay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pyruntime.errors import InvalidInput, InvalidModel
from pyruntime.ir.dtype import DType
from pyruntime.onnx.file_kind import is_ort_format, not_onnx
from pyruntime.onnx.graph import Source, Weight
from pyruntime.onnx.load import FIRST_BYTES
from pyruntime.onnx.parse_graph import ATTRIBUTE_TAGS, NODE_TAGS, OPSET_TAGS
from pyruntime.onnx.parse_tensors import LOCATION, TENSOR_TAGS, TensorReader
from pyruntime.onnx.parse_types import VALUE_TAGS
from pyruntime.onnx.protobuf import Wire, signed
from pyruntime.onnx.sources import External
from pyruntime.onnx.write import (
    ATTRIBUTE,
    GRAPH,
    INITIALIZER,
    IR_VERSION,
    NODE,
    NODE_INPUT,
    NODE_OUTPUT,
    OPSETS,
    Piece,
    Value,
    around,
    copy,
    integer,
    joined,
    literal,
    message,
    node,
    opset,
    tensor,
)  # fmt: skip

NodeWriter = Callable[["FileModel", "FileNode"], "Sequence[FileNode]"]
NodeWriters = Mapping[str, NodeWriter]


@dataclass(slots=True, eq=False)
class Part:
    """A field of a message: the span [first, end) of the file, with its payload from `start`, unless `inner` has the
    fields of its payload, or `pieces` the whole field."""

    number: int
    first: int = 0
    start: int = 0
    end: int = 0
    inner: list[Part] | None = None
    pieces: list[Piece] | None = None

    def open(self, wire: Wire) -> list[Part]:
        """The fields of the payload, which may be changed in place."""
        if self.inner is None:
            self.inner = parts_of(wire, self.start, self.end)
        return self.inner


def parts_of(wire: Wire, start: int, end: int) -> list[Part]:
    parts, first = [], start
    for tag, a, b in wire.fields(start, end):
        parts.append(Part(tag >> 3, first, a, b))
        first = b
    return parts


def written(parts: Iterable[Part]) -> list[Piece]:
    pieces: list[Piece] = []
    for part in parts:
        if part.pieces is not None:
            pieces += part.pieces
        elif part.inner is not None:
            pieces += around(part.number, written(part.inner))
        else:
            pieces.append(copy(part.first, part.end))
    return joined(pieces)


def new(number: int, payload: bytes) -> Part:
    """A field with this payload."""
    return Part(number, pieces=[literal(message(number, payload))])


def initializer(name: str, dtype: DType, shape: Sequence[int], data: bytes) -> Part:
    return Part(INITIALIZER, pieces=tensor(name, dtype, shape, literal(data) if data else None))


def insert(parts: list[Part], added: Sequence[Part]) -> None:
    """Adds fields where writers of protobuf put them: behind those of the same or a lower number."""
    for part in added:
        place = max((n + 1 for n, old in enumerate(parts) if old.number <= part.number), default=0)
        parts.insert(place, part)


@dataclass(slots=True, eq=False)
class FileNode:
    """A node of the file, or a new one. attributes: integers, floats, lists of integers, spans of tensors, graphs"""

    part: Part
    op: str
    domain: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def graphs(self) -> list[FileGraph]:
        return [g for v in self.attributes.values() if isinstance(v, list) for g in v if isinstance(g, FileGraph)]


def new_node(
    op: str, inputs: Sequence[str], output: str, name: str = "", domain: str | None = None,
    attributes: Mapping[str, Value] | None = None,
) -> FileNode:  # fmt: skip
    part = new(NODE, node(op, inputs, [output], name, domain, attributes))
    return FileNode(part, op, domain or "", name, list(inputs), [output])


def renamed(wire: Wire, old: FileNode, inputs: Mapping[int, str], outputs: Mapping[int, str]) -> FileNode:
    """A copy of a node of the file with other names for some inputs and outputs."""
    found = {NODE_INPUT: list(old.inputs), NODE_OUTPUT: list(old.outputs)}
    changed = {NODE_INPUT: inputs, NODE_OUTPUT: outputs}
    counts = dict.fromkeys(found, 0)
    parts = []
    for part in old.part.inner or parts_of(wire, old.part.start, old.part.end):
        if part.number in found:
            at = counts[part.number]
            counts[part.number] += 1
            if (name := changed[part.number].get(at)) is not None:
                found[part.number][at] = name
                part = new(part.number, name.encode())
        parts.append(part)
    copied = Part(NODE, inner=parts)
    return FileNode(copied, old.op, old.domain, old.name, found[NODE_INPUT], found[NODE_OUTPUT], old.attributes)


@dataclass(slots=True, eq=False)
class FileGraph:
    """parts: the fields of the graph"""

    file: FileModel
    parts: list[Part]
    _nodes: list[FileNode] | None = None

    @property
    def nodes(self) -> list[FileNode]:
        if self._nodes is None:
            self._nodes = [self.file.node(part) for part in self.parts if part.number == NODE]
        return self._nodes

    def all(self) -> Iterator[FileGraph]:
        """This graph and those of branches and loops in it, innermost first."""
        for n in self.nodes:
            for graph in n.graphs:
                yield from graph.all()
        yield self

    def named(self, number: int) -> Iterator[tuple[str, Part]]:
        """Names and parts of a field: initializers, inputs, outputs, types of values."""
        for part in self.parts:
            if part.number == number and part.pieces is None:
                yield self.file.name_of(part), part

    def replace_nodes(self, nodes: Mapping[FileNode, Sequence[FileNode]]) -> None:
        """Puts others in place of some nodes."""
        parts = {old.part: [n.part for n in made] for old, made in nodes.items()}
        self._nodes = [n for old in self.nodes for n in nodes.get(old, [old])]
        self.parts[:] = [p for part in self.parts for p in parts.get(part, [part])]

    def add_nodes(self, nodes: Sequence[FileNode]) -> None:
        self._nodes = [*self.nodes, *nodes]
        insert(self.parts, [n.part for n in nodes])

    def remove(self, parts: Iterable[Part]) -> None:
        gone = set(parts)
        self._nodes = None if self._nodes is None else [n for n in self._nodes if n.part not in gone]
        self.parts[:] = [part for part in self.parts if part not in gone]


class FileModel:
    """A model file that is edited. Errors: InvalidInput for ONNX Runtime's format, InvalidModel for others"""

    def __init__(self, source: Source, external: External | None = None) -> None:
        if is_ort_format(source):
            raise InvalidInput("a model in ONNX Runtime's format cannot be written", hint="use the .onnx file")
        self.source, self.external = source, external or External(None)
        self.wire = Wire(source)
        self.tensors = TensorReader(self.wire, self.external, require_data=True)
        try:
            self.parts = parts_of(self.wire, 0, source.size)
            graphs = [part for part in self.parts if part.number == GRAPH]
            if not graphs:
                raise InvalidModel("the model has no graph")
        except InvalidModel as error:
            raise not_onnx(source, FIRST_BYTES) or error from None
        self.graph = FileGraph(self, graphs[-1].open(self.wire))

    def opened(self, name: str) -> Source:
        """The file of external data with this name; the model's own for ""."""
        return self.external.get(name) if name else self.source

    @property
    def ir_version(self) -> int:
        return next((signed(p.start) for p in reversed(self.parts) if p.number == IR_VERSION), 0)

    @ir_version.setter
    def ir_version(self, version: int) -> None:
        others = [part for part in self.parts if part.number != IR_VERSION]
        self.parts[:] = [Part(IR_VERSION, pieces=[literal(integer(IR_VERSION, version))]), *others]

    def opsets(self) -> dict[str, int]:
        """The version of each domain that the model imports."""
        found = {}
        for part in self.parts:
            if part.number == OPSETS and part.pieces is None:
                inner = self.wire.gather(part.start, part.end, OPSET_TAGS)
                found[self._text(inner, 1)] = signed(inner[2][-1][1]) if 2 in inner else 0
        return found

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return max((v for domain, v in self.opsets().items() if domain in ("", "ai.onnx")), default=1)

    def import_opset(self, domain: str, version: int) -> None:
        if domain not in self.opsets():
            insert(self.parts, [new(OPSETS, opset(domain, version))])

    def pieces(self) -> list[Piece]:
        return written(self.parts)

    def node(self, part: Part) -> FileNode:
        wire = self.wire
        found = wire.gather(part.start, part.end, NODE_TAGS)
        inputs, outputs = ([wire.text(a, b) for _, a, b in found.get(n, ())] for n in (NODE_INPUT, NODE_OUTPUT))
        made = FileNode(part, self._text(found, 4), self._text(found, 7), self._text(found, 3), inputs, outputs)
        if ATTRIBUTE in found:
            made.attributes = self._attributes(part)
        return made

    def _attributes(self, node: Part) -> dict[str, Any]:
        """The attributes that edits need: integers, floats, spans of tensors, and graphs."""
        attributes: dict[str, Any] = {}
        parts = parts_of(self.wire, node.start, node.end)
        for part in parts:
            if part.number != ATTRIBUTE:
                continue
            found = self.wire.gather(part.start, part.end, ATTRIBUTE_TAGS, runs=True)
            name = self._text(found, 1)
            if found.keys() & {6, 11}:
                node.inner = parts
                graphs = [inner for inner in part.open(self.wire) if inner.number in (6, 11)]
                attributes[name] = [FileGraph(self, inner.open(self.wire)) for inner in graphs]
            elif 5 in found:
                _, a, b = found[5][-1]
                attributes[name] = a, b
            elif 2 in found:
                attributes[name] = self.wire.floats(found[2][-1:])[0]
            elif 3 in found:
                attributes[name] = signed(found[3][-1][1])
            elif 8 in found:
                attributes[name] = [signed(n) for n in self.wire.ints(found[8])]
        return attributes

    def name_of(self, part: Part) -> str:
        """The name of an initializer, or of a value."""
        if part.number == INITIALIZER:
            return self._text(self.wire.gather(part.start, part.end, TENSOR_TAGS, runs=True), 8)
        return self._text(self.wire.gather(part.start, part.end, VALUE_TAGS), 1)

    def is_external(self, part: Part) -> bool:
        """Whether the values of an initializer are in a file beside the model."""
        found = self.wire.gather(part.start, part.end, TENSOR_TAGS, runs=True)
        return LOCATION in found and found[LOCATION][-1][1] == 1

    def weight(self, span: tuple[int, int]) -> Weight:
        """The tensor with this payload."""
        return self.tensors.tensor(*span)

    def _text(self, found: Mapping[int, Sequence[tuple[int, int, int]]], number: int) -> str:
        return self.wire.text(*found[number][-1][1:]) if number in found else ""


def export_plan(
    source: Source, weights: Mapping[str, tuple[DType, tuple[int, ...]]], nodes: NodeWriters = MappingProxyType({}),
    more: Sequence[Piece] = (), gone: Collection[str] = (),
) -> list[Piece]:  # fmt: skip
    """The pieces of the model file with new values for these weights, of which it says type and shape. nodes: what
    replaces the node with this first output, also in branches and loops; more: fields of the graph to add; gone: names
    of initializers to leave out. Errors: InvalidInput if the file is not in ONNX's format"""
    file = FileModel(source)
    graph = file.graph
    graph.remove([part for name, part in graph.named(INITIALIZER) if name in gone] if gone else ())
    for name, part in graph.named(INITIALIZER):
        if name in weights:
            part.pieces = tensor(name, *weights[name])
    for inner in graph.all() if nodes else ():
        found = {n: nodes[n.outputs[0]](file, n) for n in inner.nodes if n.outputs and n.outputs[0] in nodes}
        inner.replace_nodes(found)
    graph.parts.append(Part(0, pieces=list(more)))
    return file.pieces()
