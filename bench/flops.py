"""Floating-point operations of a model, counted from its graph: 2 a multiply-add of products and convolutions.

Nothing else is counted, so omitted work (activations, norms, softmax) makes shares of the peak look smaller, not
larger. Shapes are those of a run by onnxruntime on the bench's feeds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import onnx

from bench import models
from bench.chromium import BUILD
from kit import zoo

Shape = tuple[int, ...]
Shapes = Callable[[int], Shape]  # shape of input n of a node; of its first output for n = -1


def _product(of: Shapes, node: onnx.NodeProto) -> int:
    return 2 * math.prod(of(-1)) * of(0)[-1]


def _gemm(of: Shapes, node: onnx.NodeProto) -> int:
    return 2 * math.prod(of(-1)) * of(0)[0 if _attribute(node, "transA", 0) else 1]


def _conv(of: Shapes, node: onnx.NodeProto) -> int:
    weight = 3 if node.op_type == "QLinearConv" else 1
    return 2 * math.prod(of(-1)) * math.prod(of(weight)[1:])


def _transposed(of: Shapes, node: onnx.NodeProto) -> int:
    return 2 * math.prod(of(0)) * math.prod(of(1)[1:])


def _blocked(of: Shapes, node: onnx.NodeProto) -> int:
    return 2 * math.prod(of(-1)) * _attribute(node, "K", 0)


def _recurrent(of: Shapes, node: onnx.NodeProto) -> list[int]:
    """Operations for the inputs of all steps, then for the state."""
    steps, batch = of(0)[:2]
    return [2 * steps * batch * math.prod(of(n)) for n in (1, 2)]


COUNTS: dict[str, Callable[[Shapes, onnx.NodeProto], int | list[int]]] = {
    **dict.fromkeys(["MatMul", "MatMulInteger", "QLinearMatMul", "DynamicQuantizeMatMul"], _product),
    **dict.fromkeys(["Conv", "ConvInteger", "QLinearConv"], _conv),
    **dict.fromkeys(["LSTM", "GRU", "RNN"], _recurrent),
    "ConvTranspose": _transposed,
    "Gemm": _gemm,
    "MatMulNBits": _blocked,
}


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    return next((onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def by_node(name: str) -> dict[str, list[int]]:
    """Return, by name of the node (or of its first output), the operations of its products, in the order of execution;
    cached in build/bench."""
    path, kept = models.path(name), BUILD / f"{name}.products.json"
    if not kept.exists() or kept.stat().st_mtime < path.stat().st_mtime:
        BUILD.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(count(onnx.load(path), models.feeds(name))))
    return json.loads(kept.read_text())


def total(name: str) -> int:
    return sum(map(sum, by_node(name).values()))


def count(model: onnx.ModelProto, feeds: zoo.Feeds) -> dict[str, list[int]]:
    """Nodes of the main graph; branches and bodies are not counted."""
    nodes = [node for node in model.graph.node if node.op_type in COUNTS]
    shapes = _shapes(model, nodes, feeds)

    def of(node: onnx.NodeProto) -> Shapes:
        return lambda n: shapes[node.output[0] if n < 0 else node.input[n]]

    made = {node.name or node.output[0]: COUNTS[node.op_type](of(node), node) for node in nodes}
    return {name: found if isinstance(found, list) else [found] for name, found in made.items()}


def _shapes(model: onnx.ModelProto, nodes: list[onnx.NodeProto], feeds: zoo.Feeds) -> dict[str, Shape]:
    """Return the shapes of the nodes' inputs and outputs."""
    shapes: dict[str, Shape] = {key: value.shape for key, value in feeds.items()}
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    wanted = {name for node in nodes for name in [*node.input, node.output[0]] if name} - shapes.keys()
    extra = sorted(wanted - {output.name for output in model.graph.output})
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in extra)
    session = zoo.oracle_session(model.SerializeToString())
    found = session.run(sorted(wanted), feeds) if wanted else []
    return shapes | {name: value.shape for name, value in zip(sorted(wanted), found, strict=True)}
