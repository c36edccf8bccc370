"""Takes apart initializers that torch.onnx made one because their numbers were equal, and ties those that it made two.

Its TorchScript exporter joins equal parameters and writes an Identity with the name of each that is gone. Its exporter
of torch.export joins them without a trace but its list of parameters and buffers, so only parameters and running
statistics all of whose numbers are equal, such as the zeros of biases, are told apart: by the modules of the nodes that
read them. Both fold the transpose of a matrix that is also an embedding, whose two uses then are two initializers; so
has a layer that is called with two and with three axes, as Gemm and as MatMul.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pyruntime.onnx.edit import FileModel, FileNode, NodeWriter, NodeWriters, new_node, renamed
from pyruntime.onnx.graph import Graph, Node, Weight
from pyruntime.onnx.write import Piece, literal, tensor
from pyruntime.training.graph.constant_values import is_uniform
from pyruntime.training.graph.torch_notes import BUFFER, PARAMETER, TorchNotes

_TIED = "/transposed"  # after the name of a matrix


@dataclass(frozen=True, slots=True)
class Separated:
    """graph: with the weights as the module has them; writers: of the nodes that change in the model's file, by first
    output; added: names of weights that the file does not have; gone: names of those that nothing reads any more"""

    graph: Graph
    writers: NodeWriters = field(default_factory=dict)
    added: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    def pieces(self, trained: Sequence[str]) -> list[Piece]:
        """The weights to add to the file. trained: names of those that have new values"""
        found: list[Piece] = []
        for w in (self.graph.weights[name] for name in self.added):
            found += tensor(w.name, w.dtype, w.shape, None if w.name in trained else literal(w.read()))
        return found


def separated(graph: Graph) -> Separated:
    notes = TorchNotes(graph)
    if not notes.is_torch:
        return Separated(graph)
    weights, nodes, writers = dict(graph.weights), list[Node](), dict[str, NodeWriter]()
    outputs = {v.name for v in graph.outputs}
    for node in graph.nodes:
        w = weights.get(node.inputs[0]) if node.inputs else None
        is_copy = w is not None and node.op == "Identity" and w.dtype.is_float and node.outputs[0] not in outputs
        if w is not None and is_copy and _is_own(node, notes, graph):
            weights[node.outputs[0]] = replace(w, name=node.outputs[0])
            writers[node.outputs[0]] = _nothing
            continue
        names = dict(_own_names(node, weights, notes))
        for place, new in names.items():
            weights[new] = replace(weights[node.inputs[place]], name=new)
        if names:
            writers[node.outputs[0]] = partial(_with_inputs, names)
            node = replace(node, inputs=tuple(names.get(n, name) for n, name in enumerate(node.inputs)))
        nodes.append(node)
    added = tuple(n for n in weights if n not in graph.weights)
    return _tied(Separated(replace(graph, weights=weights, nodes=tuple(nodes)), writers, added), notes)


def _is_own(copy: Node, notes: TorchNotes, graph: Graph) -> bool:
    """Whether an Identity stands for a parameter of its own: it has its name, or another module reads it."""
    name, source = copy.outputs[0], copy.inputs[0]
    if notes.is_named(name):
        return True
    if not name.startswith("onnx::"):
        return False
    own, others = (
        {_called(notes.module(n)) for n in graph.nodes if x in n.inputs and n is not copy} for x in (name, source)
    )
    return own.isdisjoint(others)


def _called(module: str) -> str:
    """The module without the number of the call: "layer_1" is the second call of "layer"."""
    head, _, count = module.rpartition("_")
    return head if head and count.isdecimal() else module


def _own_names(node: Node, weights: Mapping[str, Weight], notes: TorchNotes) -> Iterator[tuple[int, str]]:
    """The inputs of a node that are joined parameters of other modules, or running statistics that are joined with any,
    and their own names."""
    statistics = {3: "running_mean", 4: "running_var"} if node.op == "BatchNormalization" else {}
    for n, name in enumerate(node.inputs):
        own = f"{node.module}.{statistics.get(n, name.rpartition('.')[2])}"
        kind = BUFFER if n in statistics else PARAMETER
        is_other = own != name and own not in weights and notes.kinds.get(own) == kind
        if is_other and node.module and name in weights and weights[name].dtype.is_float and is_uniform(weights[name]):
            yield n, own


# ── matrices that are also in the file as transposed ones ─────────────────────────────────────────────────────────


def _tied(found: Separated, notes: TorchNotes) -> Separated:
    graph, writers = found.graph, dict(found.writers)
    tables, matrices = ({n.inputs[k] for n in graph.nodes if n.op == op} for op, k in (("Gather", 0), ("Gemm", 1)))

    def modules(w: Weight) -> set[str]:
        return {_called(notes.module(n)) for n in graph.nodes if w.name in n.inputs}

    pairs = {
        b.name: a for b in graph.weights.values() if not notes.is_named(b.name) or notes.sources(b.name)
        for a in map(graph.weights.get, sorted(tables | matrices))
        if a is not None and _is_transposed(a, b) and (a.name in tables or modules(a) & modules(b))
    }  # fmt: skip
    nodes: list[Node] = []
    for node in graph.nodes:
        for name in [n for n in node.inputs if n in pairs]:
            table = pairs[name].name
            nodes.append(Node("Transpose", "", node.opset, "", (table,), (node.outputs[0] + _TIED,), {"perm": (1, 0)}))
            writers[node.outputs[0]] = partial(_with_transposed, name, table)
            node = replace(node, inputs=tuple(node.outputs[0] + _TIED if n == name else n for n in node.inputs))
        nodes.append(node)
    weights = {n: w for n, w in graph.weights.items() if n not in pairs}
    return replace(found, graph=replace(graph, nodes=tuple(nodes), weights=weights), writers=writers, gone=tuple(pairs))


def _is_transposed(a: Weight, b: Weight) -> bool:
    if len(a.shape) != 2 or a.shape != b.shape[::-1] or a.dtype is not b.dtype or a.dtype.name != "float32":
        return False
    rows, columns = a.shape
    if rows < 2 or columns < 2 or a.name == b.name or _at(a, 1) != _at(b, rows) or _at(a, columns) != _at(b, 1):
        return False
    x, y = array("f", a.read()), array("f", b.read())
    return len(set(x)) > 1 and all(x[n * columns : (n + 1) * columns] == y[n::rows] for n in range(rows))


def _at(w: Weight, place: int) -> bytes:
    assert w.source is not None
    return w.source.read(w.offset + 4 * place, 4)


# ── in the file ───────────────────────────────────────────────────────────────────────────────────────────────────


def _nothing(model: FileModel, node: FileNode) -> list[FileNode]:
    return []


def _with_inputs(names: Mapping[int, str], model: FileModel, node: FileNode) -> list[FileNode]:
    return [renamed(model.wire, node, {**names}, {})]


def _with_transposed(name: str, table: str, model: FileModel, node: FileNode) -> list[FileNode]:
    new = node.outputs[0] + _TIED
    transposed = new_node("Transpose", [table], new, new, attributes={"perm": [1, 0]})
    return [transposed, *_with_inputs({n: new for n, x in enumerate(node.inputs) if x == name}, model, node)]


def in_turn(first: NodeWriters, then: NodeWriters) -> NodeWriters:
    """Writers of nodes that two tables change, one after the other."""

    def both(name: str, model: FileModel, node: FileNode) -> list[FileNode]:
        made = first[name](model, node)
        return [x for n in made for x in (then[name](model, n) if n.outputs[:1] == [name] else [n])]

    return {**then, **first, **{name: partial(both, name) for name in first.keys() & then.keys()}}
