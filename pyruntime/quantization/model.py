"""The model with codes for the weights of its layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx
from onnx import GraphProto, ModelProto, NodeProto, helper

from pyruntime.quantization.layers import find_layers
from pyruntime.quantization.rewrite import KEPT, MICROSOFT, Writer


def copy_of(model: ModelProto) -> ModelProto:
    out = ModelProto()
    out.CopyFrom(model)
    return out


@dataclass(frozen=True, slots=True)
class Form:
    """smallest: elements of a weight that becomes codes; block: codes that share a scale; accuracy_level: of
    MatMulNBits"""

    smallest: int
    block: int
    accuracy_level: int


def with_codes(model: ModelProto, plan: Sequence[int], form: Form) -> tuple[ModelProto, list[int]]:
    """A copy of the model in which layer n of `find_layers` has weights of plan[n] bits, and the bytes of these."""
    out = copy_of(model)
    layers = find_layers(out, form.smallest)
    writer = Writer(out, form.block, form.accuracy_level)
    new: dict[int, list[NodeProto]] = {}
    for layer, bits in zip(layers, plan, strict=True):
        if bits != KEPT:
            new[id(layer.node)] = writer.nodes(layer, bits, layer.node.output[0])
    sizes = [sum(map(writer.size, new[id(a.node)])) if id(a.node) in new else a.size for a in layers]
    for graph in graphs(out.graph):
        nodes = [made for node in graph.node for made in new.get(id(node), [node])]
        kept = GraphProto()
        kept.node.extend(nodes)
        del graph.node[:]
        graph.node.extend(kept.node)
    used = _used(list(graphs(out.graph)))
    out.graph.initializer.extend(tensor for name, tensor in writer.made.items() if name in used)
    _remove_unused(out, {layer.weight_name for layer in layers})
    _import_domain(out)
    return out, sizes


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and those of branches and loops in it, innermost first."""
    for node in graph.node:
        for part in node.attribute:
            for inner in [part.g] * part.HasField("g") + list(part.graphs):
                yield from graphs(inner)
    yield graph


def _remove_unused(model: ModelProto, weights: set[str]) -> None:
    """Remove the weights that nothing reads any more, and what only prepared them."""
    every = list(graphs(model.graph))
    for source in ("Transpose", "Constant"):
        used = _used(every)
        for graph in every:
            for node in list(graph.node):
                is_ours = bool(weights & {*node.input, *node.output})
                if node.op_type == source and is_ours and node.output[0] not in used:
                    graph.node.remove(node)
    used = _used(every)
    for graph in every:
        for field in (graph.initializer, graph.value_info, graph.input):
            gone = [t for t in field if t.name in weights and t.name not in used]
            if field is graph.input and model.ir_version >= 4:
                continue
            for t in gone:
                field.remove(t)
    if model.ir_version < 4:  # from 4 on, new initializers need not be inputs too; the old ones stay constants
        constants = {t.name for t in model.graph.initializer}
        for value in [i for i in model.graph.input if i.name in constants]:
            model.graph.input.remove(value)
        model.ir_version = 4


def _used(every: list[GraphProto]) -> set[str]:
    return {name for g in every for n in g.node for name in n.input} | {o.name for g in every for o in g.output}


def _import_domain(model: ModelProto) -> None:
    has_nodes = any(node.domain == MICROSOFT for graph in graphs(model.graph) for node in graph.node)
    if has_nodes and all(o.domain != MICROSOFT for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))


def with_errors(model: ModelProto, plan: Sequence[int], form: Form) -> ModelProto:
    """A model whose outputs "error n" and "size n" are the squared sums of layer n's error and result, where each layer
    reads what it reads in the model without codes. Layers inside of branches and loops have none."""
    out = copy_of(model)
    writer = Writer(out, form.block, form.accuracy_level)
    del out.graph.output[:]
    for n, (layer, bits) in enumerate(zip(find_layers(out, form.smallest), plan, strict=True)):
        if bits == KEPT or not layer.is_top:
            continue
        y = layer.node.output[0]
        out.graph.node.extend(writer.nodes(layer, bits, f"{y}.coded"))
        wide = []
        for name in (y, f"{y}.coded"):
            out.graph.node.append(helper.make_node("Cast", [name], [f"{name}.wide"], to=onnx.TensorProto.FLOAT))
            wide.append(f"{name}.wide")
        out.graph.node.append(helper.make_node("Sub", wide, [f"{y}.difference"]))
        for source, name in ((f"{y}.difference", f"error {n}"), (wide[0], f"size {n}")):
            out.graph.node.append(helper.make_node("ReduceSumSquare", [source], [name], keepdims=0))
            out.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, []))
    out.graph.initializer.extend(writer.made.values())
    _import_domain(out)
    return out
