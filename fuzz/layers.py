"""Random stacks of equal layers, of which the compiler traces a few and copies the rest."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.case import Case
from fuzz.draw import Draw
from fuzz.loops import AXES, FLOATS, OPSET, WEIGHTED, Nodes, Value, info
from fuzz.minimise import pruned
from fuzz.node import IR, tensor

STORED = [Nodes.product, Nodes.softmax, Nodes.procedure]  # nothing is fused beyond their results
LAYERS = [3, 8, 9, 13, 20, 30]  # from eight on the compiler may copy layers


def case(draw: Draw) -> Case:
    """A model of layers with the same nodes, and mostly with other weights. One or two values pass from layer to layer;
    each layer may read an input, too."""
    kind, sizes = draw.pick(FLOATS), [draw.pick(AXES[:6]) for _ in range(2)]
    first = tuple(draw.pick(sizes) for _ in range(draw.pick([1, 2, 2, 3])))
    fed = [Value("x0", first, kind), Value("x1", first[draw.below(2) :], kind)]
    nodes, carried, shared = Nodes(draw, "v", kind), fed[: draw.between(1, 2)], fed[1:] * draw.below(2)
    seed, operators, own_weights = draw.below(2**31), draw.between(1, 6), draw.chance(0.8)
    for layer in range(draw.pick(LAYERS)):
        weights = len(nodes.weights)
        nodes.draw, nodes.values = Draw(f"layer/{seed}"), list(dict.fromkeys([*carried, *shared]))
        for _ in range(operators):
            nodes.draw.pick(STORED if nodes.draw.chance(0.4) else WEIGHTED)(nodes)
        carried = [nodes.fitted(x.shape, kind) for x in carried]
        if carried[0].shape == carried[-1].shape and nodes.draw.chance(0.3):
            carried.reverse()
        if own_weights:
            nodes.weights[weights:] = [_rolled(w, layer) for w in nodes.weights[weights:]]
    graph = helper.make_graph(
        nodes.nodes,
        "layers",
        [info(x.name, x.shape, kind) for x in fed],
        [onnx.ValueInfoProto(name=x.name) for x in dict.fromkeys(carried)],
        nodes.weights,
    )
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    model = pruned(whole, [x.name for x in graph.output])  # a graph with dead nodes is traced whole
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    used = {x.name for x in model.graph.input}
    feeds = {x.name: draw.rng.normal(size=x.shape).astype(dtype) for x in fed if x.name in used}
    return Case("layers", model.SerializeToString(), (feeds,), note=f"{len(nodes.nodes)} nodes")


def _rolled(weight: onnx.TensorProto, by: int) -> onnx.TensorProto:
    """A matrix with its elements moved on; other weights stay: they may be axes, or limits."""
    x = numpy_helper.to_array(weight)
    return tensor(np.roll(x, by), weight.name) if x.ndim > 1 else weight
