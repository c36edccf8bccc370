"""The graph: plain immutable data as read from a model, and queries about the names that its parts use.

Spec: https://github.com/onnx/onnx/blob/main/docs/IR.md
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import DType


class Source(Protocol):
    """Random access to the bytes of a model file or an external data file."""

    name: str  # "" for the model file itself, else the external location as written in the model
    size: int

    def read(self, offset: int, size: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class TensorType:
    """shape: None for unknown rank; a dim is an int, a name (dim_param), or None for unknown
    meanings: the denotation of each dim ("DATA_BATCH", …), if the model has any
    """

    dtype: DType | None
    shape: tuple[int | str | None, ...] | None
    meanings: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class SequenceType:
    elem: Type


@dataclass(frozen=True, slots=True)
class OptionalType:
    elem: Type


@dataclass(frozen=True, slots=True)
class MapType:
    key: DType
    value: Type


Type = TensorType | SequenceType | OptionalType | MapType


def tensor_type(t: Type | None) -> TensorType | None:
    """The type of a tensor or an optional tensor; None for other types."""
    inner = t.elem if isinstance(t, OptionalType) else t
    return inner if isinstance(inner, TensorType) else None


def _with_tensor_type(value: Value, t: TensorType) -> Value:
    return replace(value, type=OptionalType(t) if isinstance(value.type, OptionalType) else t)


@dataclass(frozen=True, slots=True)
class Value:
    name: str
    type: Type | None


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant tensor: the location of its elements, without a copy.

    The elements are source[offset : offset + size], little-endian, row-major; sub-byte types are packed as in ONNX (low
    bits first). A string tensor has `strings` instead. is_state: runs change it (a weight that is trained)
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    source: Source | None = None
    offset: int = 0
    size: int = 0
    strings: tuple[bytes, ...] | None = None
    is_state: bool = False

    def read(self) -> bytes:
        assert self.source is not None
        return self.source.read(self.offset, self.size)


_LABEL_END = re.compile(r'" \(opset -?\d+\)(?= > |$)')


def enclosing(label: str) -> list[str]:
    """The labels of the nodes that call the functions around a node, outermost first, and the node's own label."""
    return [label[: end.end()] for end in _LABEL_END.finditer(label)] or [label]


def operator_of(label: str) -> str:
    """The operator of a node, with its domain, from the node's label."""
    *_, outer, own = ["", *enclosing(label)]
    return own[len(outer) :].removeprefix(" > ").partition(' "')[0]


@dataclass(frozen=True, slots=True)
class Node:
    """inputs, outputs: names of values; "" stands for an absent optional value
    opset: the version of `domain` that the model imports
    module: the part of the network that torch.onnx made it from (torch.export's "layers.0.q_proj"), or ""
    """

    op: str
    domain: str
    opset: int
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, object] = field(default_factory=dict)
    overload: str = ""
    module: str = ""

    @property
    def label(self) -> str:
        """The node in messages. Quotes are removed from its name, so that `enclosing` finds the end."""
        domain = f"{self.domain}." if self.domain else ""
        return f'{domain}{self.op} "{self.shown}" (opset {self.opset})'

    @property
    def shown(self) -> str:
        return (self.name or (self.outputs[0] if self.outputs else "")).replace('"', "'")


def distinct(node: Node, labels: Counter[str]) -> Node:
    """The node with a unique label: a number is appended to its name if `labels` contains the label. Counts the
    label."""
    labels[node.label] += 1
    count = labels[node.label]
    return node if count == 1 else distinct(replace(node, name=f"{node.shown} #{count}"), labels)


@dataclass(frozen=True, slots=True)
class Function:
    """A model-local function. attrs: names of required attributes; defaults: the other attributes with their
    defaults."""

    name: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: tuple[str, ...]
    defaults: Mapping[str, object]
    nodes: tuple[Node, ...]
    values: Mapping[str, Type] = field(default_factory=dict)  # value_info


@dataclass(frozen=True, slots=True)
class AttrRef:
    """A reference to the attribute `name` of a function, from an attribute of a node inside the function."""

    name: str


@dataclass(frozen=True, slots=True)
class Graph:
    """weights: the initializers by name; an input that is also a weight is overridable (IR >= 4); unused: names of
    inputs of the model that are left out, because no output depends on them."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    weights: Mapping[str, Weight] = field(default_factory=dict)
    values: Mapping[str, Type] = field(default_factory=dict)  # value_info
    functions: Mapping[tuple[str, str, str], Function] = field(default_factory=dict)  # (domain, name, overload)
    opsets: Mapping[str, int] = field(default_factory=dict)
    # ir_version, producer_name, producer_version, domain, model_version, description, graph_description
    metadata: Mapping[str, str] = field(default_factory=dict)
    props: Mapping[str, str] = field(default_factory=dict)  # metadata_props
    unused: tuple[str, ...] = ()
    # what torch.onnx notes: of a weight what it was computed from, by name; "": parameters and buffers of its module
    notes: Mapping[str, str] = field(default_factory=dict)

    def with_nodes(self, nodes: tuple[Node, ...]) -> Graph:
        return replace(self, nodes=nodes)

    def with_meanings(self, sizes: Mapping[str, int]) -> Graph:
        """The graph with these sizes for dims of inputs with these denotations, unless a dim is an int already."""
        return replace(self, inputs=tuple(_meant(v, sizes) for v in self.inputs))

    def with_dims(self, sizes: Mapping[str, int]) -> Graph:
        """The graph with these sizes for named dims of inputs and outputs. Warns of names that no input has, and
        ignores them."""
        types = [tensor_type(v.type) for v in self.inputs]
        named = {d for t in types if t is not None for d in t.shape or ()}
        for name, size in sizes.items():
            if name not in named:
                known = ", ".join(sorted(d for d in named if isinstance(d, str))) or "none"
                warnings.warn(f'no input has the free dimension "{name}" (named dimensions: {known})', stacklevel=2)
            elif not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise InvalidInput(f'the free dimension "{name}" cannot be {size!r}', hint="give an integer from 0 on")
        return self._renamed(sizes)

    def with_dims_apart(self, names: Iterable[str]) -> Graph:
        """Return the graph in which dims with these names are unknown and independent of each other."""
        return self._renamed(dict.fromkeys(names))

    def _renamed(self, sizes: Mapping[str, int | None]) -> Graph:
        inputs, outputs = (tuple(_sized(v, sizes) for v in values) for values in (self.inputs, self.outputs))
        return replace(self, inputs=inputs, outputs=outputs)


def _sized(value: Value, sizes: Mapping[str, int | None]) -> Value:
    t = tensor_type(value.type)
    if t is None or t.shape is None:
        return value
    shape = tuple(sizes.get(d, d) if isinstance(d, str) else d for d in t.shape)
    return _with_tensor_type(value, replace(t, shape=shape))


def _meant(value: Value, sizes: Mapping[str, int]) -> Value:
    t = tensor_type(value.type)
    if t is None or not t.meanings or t.shape is None:
        return value
    dims = tuple(d if isinstance(d, int) else sizes.get(m, d) for d, m in zip(t.shape, t.meanings, strict=True))
    return _with_tensor_type(value, replace(t, shape=dims))


def subgraphs(node: Node) -> Iterator[Graph]:
    """The graphs among a node's attributes."""
    for value in node.attrs.values():
        if isinstance(value, Graph):
            yield value
        elif isinstance(value, tuple) and value and isinstance(value[0], Graph):
            yield from value


def all_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph, its branches and loops, and the model's functions."""
    for nodes in (graph.nodes, *(function.nodes for function in graph.functions.values())):
        for node in nodes:
            yield node
            for inner in subgraphs(node):
                yield from all_nodes(inner)


def captures(graph: Graph) -> set[str]:
    """The names that a graph uses from the scopes around it."""
    free = {value.name for value in graph.outputs}
    own = {value.name for value in graph.inputs}
    own.update(graph.weights)
    for node in graph.nodes:
        free.update(uses(node))
        own.update(node.outputs)
    return free - own - {""}


def uses(node: Node) -> set[str]:
    """The names that a node uses: its inputs, what its subgraphs capture, and what Gradient differentiates."""
    needed = set(node.inputs)
    if node.op == "Gradient":
        for value in [node.attrs.get(name) for name in ("xs", "zs", "y")]:
            needed |= {name for name in (value if isinstance(value, tuple) else (value,)) if isinstance(name, str)}
    needed.discard("")
    for graph in subgraphs(node):
        needed |= captures(graph)
    return needed
