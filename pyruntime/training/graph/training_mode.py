"""Operators that differ in training: Dropout, BatchNormalization, and those that draw random numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyruntime.errors import InvalidModel
from pyruntime.frontend import registry
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, F32
from pyruntime.ir.expr import X, Y, cast, const, dim, select
from pyruntime.ir.kernel import Tensor
from pyruntime.onnx.graph import Graph, Node, subgraphs, uses
from pyruntime.ops.lib.formula import numeric
from pyruntime.ops.standard import norm, random
from pyruntime.runtime.step_numbers import DRAW, SEED
from pyruntime.runtime.training_steps import NUMBERS
from pyruntime.training.graph.graph_names import COPY, DOMAIN
from pyruntime.training.graph.torch_notes import TorchNotes

RANDOM = ("RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Bernoulli", "Multinomial")


@op("BatchNormalization", since=1, domain=DOMAIN)
def batch_normalization(
    t: Tracer, x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5,
    momentum: float = 0.9, unbiased: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Normalises by the statistics of the batch; further outputs: the new running statistics. unbiased: the variance
    that runs is the sample's, as in PyTorch, not the batch's own, as in ONNX."""
    y, new_mean, new_var = norm.batch_normalization(
        t, x, scale, b, mean, var, epsilon=epsilon, momentum=momentum, training_mode=1
    )
    if unbiased:
        count = cast(dim(sh.size([d for n, d in enumerate(x.shape) if n != 1])), var.dtype)
        more = select(count > 1.0, count / (count - 1.0), 1.0)
        new_var = t.map(X * momentum + (Y - X * momentum) * more, var, new_var)
    return y, new_mean, new_var


@op("Dropout", since=1, domain=DOMAIN)
def dropout(
    t: Tracer, x: Tensor, numbers: Tensor, ratio: Tensor | None = None, *, share: float = 0.5
) -> tuple[Tensor, ...]:
    """Drops other elements in each batch."""
    with _draws(t, numbers):
        kept = const(share, F32) if ratio is None else cast(numeric(t, t.reshape(ratio, ())).at(), F32)
        return random.drop(t, x, kept, None, BOOL)


@op("Random", since=1, domain=DOMAIN)
def drawn(t: Tracer, numbers: Tensor, *operands: Tensor, kind: str, opset: int, attributes: Any = ()) -> Any:
    """A random operator of ONNX, with other numbers in each batch."""
    found = registry.find("", kind, opset, t.node)
    with _draws(t, numbers):
        return found.lower(t, *operands, **{**found.schema.floats, **dict(attributes)})


def _draws(t: Tracer, numbers: Tensor) -> Any:
    return random.varied(t, numbers.at(SEED), numbers.at(DRAW))


@dataclass(frozen=True, slots=True)
class TrainingMode:
    """nodes: compute what differs in training; renamed: new names of values that differ; statistics: names of the new
    values of running statistics"""

    nodes: list[Node] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    statistics: dict[str, str] = field(default_factory=dict)


def training_mode(graph: Graph) -> TrainingMode:
    """Errors: InvalidModel if an inner graph or a function has operators that differ in training."""
    _check_inner(graph)
    for function in graph.functions.values():
        _check(function.nodes, "function")
    mode = TrainingMode()
    renamed, statistics = mode.renamed, mode.statistics
    for node in graph.nodes:
        changed = _CHANGED.get(node.op, _same)(node, graph) if node.domain == "" else node
        if changed is node and renamed.keys().isdisjoint(uses(node)):
            continue
        for name in filter(None, changed.outputs):
            renamed[name] = COPY + name
        copy = renamed_node(changed, renamed)
        if changed.op == "BatchNormalization" and changed.domain == DOMAIN:
            statistics |= {s: f"{COPY}{node.outputs[0]}/{s}" for s in node.inputs[3:5]}
            copy = replace(copy, outputs=(copy.outputs[0], *[statistics[s] for s in node.inputs[3:5]]))
        mode.nodes.append(copy)
    return mode


def renamed_node(node: Node, names: Mapping[str, str]) -> Node:
    """The node with other names of values, in its inner graphs, too."""

    def name(x: str) -> str:
        return names.get(x, x)

    def inner(graph: Graph) -> Graph:
        own = {v.name for v in graph.inputs} | {o for n in graph.nodes for o in n.outputs} | graph.weights.keys()
        rest = {old: new for old, new in names.items() if old not in own}
        outputs = tuple(replace(v, name=rest.get(v.name, v.name)) for v in graph.outputs)
        return replace(graph, nodes=tuple(renamed_node(n, rest) for n in graph.nodes), outputs=outputs)

    attrs = {k: inner(v) if isinstance(v, Graph) else v for k, v in node.attrs.items()}
    return replace(
        node, inputs=tuple(map(name, node.inputs)), outputs=tuple(map(name, node.outputs)), attrs=attrs,
        name=COPY + node.shown,
    )  # fmt: skip


def _same(node: Node, graph: Graph) -> Node:
    return node


def _dropout(node: Node, graph: Graph) -> Node:
    attrs = {"share": node.attrs["ratio"]} if "ratio" in node.attrs else {}
    ratio = node.inputs[1:2] if node.opset >= 12 else ()
    outputs = tuple(node.outputs) if any(node.outputs[1:]) else node.outputs[:1]
    return replace(
        node, domain=DOMAIN, opset=1, inputs=(node.inputs[0], NUMBERS, *ratio), outputs=outputs, attrs=attrs
    )  # fmt: skip


def _batch_normalization(node: Node, graph: Graph) -> Node:
    if node.attrs.get("spatial", 1) != 1 or not all(name in graph.weights for name in node.inputs[3:5]):
        return replace(node) if node.attrs.get("training_mode") else node  # its statistics are not the model's own
    attrs = {k: v for k, v in node.attrs.items() if k in ("epsilon", "momentum")}
    attrs["unbiased"] = int(TorchNotes(graph).is_torch)
    return replace(node, domain=DOMAIN, opset=1, outputs=node.outputs[:1], attrs=attrs)


def _random(node: Node, graph: Graph) -> Node:
    attrs = {"kind": node.op, "opset": node.opset, "attributes": tuple(node.attrs.items())}
    return replace(node, op="Random", domain=DOMAIN, opset=1, inputs=(NUMBERS, *node.inputs), attrs=attrs)


_CHANGED: dict[str, Callable[[Node, Graph], Node]] = {
    "Dropout": _dropout,
    "BatchNormalization": _batch_normalization,
    **dict.fromkeys(RANDOM, _random),
}


def _check_inner(graph: Graph) -> None:
    for node in graph.nodes:
        for inner in subgraphs(node):
            _check(inner.nodes, "branch or loop")
            _check_inner(inner)


def _check(nodes: Sequence[Node], place: str) -> None:
    if found := next((n for n in nodes if n.op in _CHANGED and n.domain == ""), None):
        text = f"in a {place} it cannot be in training mode"
        raise InvalidModel(text, node=found.label, hint='train with mode "inference"')
