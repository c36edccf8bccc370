"""The model with codes for the weights of its layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyruntime.ir.dtype import F32
from pyruntime.onnx.edit import FileModel, FileNode, Part, insert, new, new_node
from pyruntime.onnx.model_file import Open, inlined, used
from pyruntime.onnx.write import INITIALIZER, INPUT, OUTPUT, VALUE_INFO, Piece, value_info
from pyruntime.quantization.layers import find_layers
from pyruntime.quantization.options import Options
from pyruntime.quantization.rewrite import KEPT, MICROSOFT, Made, Writer


@dataclass(frozen=True, slots=True)
class NewModel:
    """pieces: of the file; made: the new initializers in it; sizes: bytes of the weight of each layer"""

    pieces: list[Piece]
    made: Mapping[str, Made]
    sizes: Sequence[int] = ()


def with_codes(open_model: Open, plan: Sequence[int], options: Options) -> NewModel:
    """The model in which layer n of `find_layers` has weights of plan[n] bits."""
    model = open_model()
    layers = find_layers(model, options.smallest)
    writer = Writer(model, layers, options)
    new_nodes: dict[FileNode, list[FileNode]] = {}
    for layer, bits in zip(layers, plan, strict=True):
        if bits != KEPT:
            new_nodes[layer.node] = writer.nodes(layer, bits, layer.node.outputs[0])
    sizes = [sum(map(writer.size, new_nodes[a.node])) if a.node in new_nodes else a.weight.size for a in layers]
    for graph in model.graph.all():
        graph.replace_nodes({node: new_nodes[node] for node in graph.nodes if node in new_nodes})
    read = used(list(model.graph.all()))
    made = {name: one for name, one in writer.made.items() if name in read}
    _add(model, made)
    remove_unused(model, {layer.weight_name for layer in layers})
    _import_domain(model)
    return NewModel(inlined(model), made, sizes)


def _add(model: FileModel, made: Mapping[str, Made]) -> None:
    insert(model.graph.parts, [Part(INITIALIZER, pieces=one.pieces(name)) for name, one in made.items()])


def remove_unused(model: FileModel, weights: set[str]) -> None:
    """Remove the weights that nothing reads any more, and what only prepared them."""
    every = list(model.graph.all())
    for source in ("Transpose", "Constant"):
        read = used(every)
        for graph in every:
            found = [n for n in graph.nodes if n.op == source and weights & {*n.inputs, *n.outputs}]
            graph.remove(node.part for node in found if node.outputs[0] not in read)
    gone = weights - used(every)
    is_old = model.ir_version < 4  # then constants are inputs, too
    for graph in every:
        for number in (INITIALIZER, VALUE_INFO, *[INPUT] * is_old):
            graph.remove([part for name, part in graph.named(number) if name in gone])
    if is_old:  # from 4 on, new initializers need not be inputs too; the old ones stay constants
        constants = {name for name, _ in model.graph.named(INITIALIZER)}
        model.graph.remove([part for name, part in model.graph.named(INPUT) if name in constants])
        model.ir_version = 4


def _import_domain(model: FileModel) -> None:
    if any(node.domain == MICROSOFT for graph in model.graph.all() for node in graph.nodes):
        model.import_opset(MICROSOFT, 1)


def with_errors(open_model: Open, plan: Sequence[int], options: Options) -> NewModel | None:
    """A model whose outputs "error n" and "size n" are the squared sums of layer n's error and result, where each layer
    reads what it reads in the model without codes; None if there is no such layer. Layers inside of branches and loops
    have none."""
    model = open_model()
    layers = find_layers(model, options.smallest)
    writer = Writer(model, layers, options)
    graph = model.graph
    graph.remove([part for _, part in graph.named(OUTPUT)])
    outputs = []
    for n, (layer, bits) in enumerate(zip(layers, plan, strict=True)):
        if bits == KEPT or not layer.is_top:
            continue
        y = layer.node.outputs[0]
        nodes = writer.nodes(layer, bits, f"{y}.coded")
        wide = [f"{name}.wide" for name in (y, f"{y}.coded")]
        nodes += [new_node("Cast", [name], f"{name}.wide", attributes={"to": F32.code}) for name in (y, f"{y}.coded")]
        nodes.append(new_node("Sub", wide, f"{y}.difference"))
        for source, name in ((f"{y}.difference", f"error {n}"), (wide[0], f"size {n}")):
            nodes.append(new_node("ReduceSumSquare", [source], name, attributes={"keepdims": 0}))
            outputs.append(new(OUTPUT, value_info(name, F32, ())))
        graph.add_nodes(nodes)
    if not outputs:
        return None
    insert(graph.parts, outputs)
    _add(model, writer.made)
    _import_domain(model)
    return NewModel(inlined(model), writer.made)
