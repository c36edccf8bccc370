"""Scales of quantisation that are trained, and stay above 0.

LSQ (https://arxiv.org/abs/1902.08153) trains them by the gradient through rounding, which passes as if nothing were
rounded, divided by √(n · q): n values share a scale, q is the largest code above the zero point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyruntime.errors import InvalidInput
from pyruntime.frontend.own_gradients import Cotangents
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, U8, bounds
from pyruntime.ir.expr import Expr, X, cast, dim, maximum, select, sqrt
from pyruntime.ir.kernel import Tensor
from pyruntime.onnx.graph import Graph, Node, all_nodes
from pyruntime.onnx.weight_values import elements
from pyruntime.training.derive.backward_walk import Walk
from pyruntime.training.graph.graph_names import COPY, DOMAIN
from pyruntime.training.graph.recipe import Recipe, matches

REASON = 'is a scale of quantisation, which scales="lsq" trains'
_CODERS = ("QuantizeLinear", "DequantizeLinear")
_LEAST = 2.0**-100


def scales_of(graph: Graph, ops: Sequence[str] = _CODERS) -> list[str]:
    """Names of the initializers that are scales of these operators."""
    nodes = [n for n in all_nodes(graph) if n.op in ops and n.domain == "" and len(n.inputs) > 1]
    return [n for n in dict.fromkeys(node.inputs[1] for node in nodes) if n in graph.weights]


def learned_scales(graph: Graph, recipe: Recipe) -> list[str]:
    """Of these, what LSQ trains: float32 scales of what the model quantises itself. Errors: InvalidInput without any"""
    found = [n for n in scales_of(graph, _CODERS[:1]) if graph.weights[n].dtype is F32]
    if not found:
        hint = "quantize_static(model, samples, trainable=True) makes such a model"
        raise InvalidInput("the model has no QuantizeLinear with a constant scale of float32", hint=hint)
    return [n for n in found if not matches(n, recipe.frozen)]


def with_learned_scales(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph in which these scales have LSQ's gradients."""
    renamed: dict[str, str] = {}
    nodes: list[Node] = []
    for n in graph.nodes:
        scale = n.inputs[1] if n.op in _CODERS and n.domain == "" else ""
        if n.op == _CODERS[0] and scale in names and scale not in renamed:
            zero = graph.weights.get(n.inputs[2]) if len(n.inputs) > 2 else None
            zeros = [z for z in elements(zero) if isinstance(z, int)] if zero else [0]
            most = int(bounds(zero.dtype if zero else U8)[1]) - max(zeros, default=0)
            renamed[scale] = f"{COPY}{scale}/scale"
            attrs = {"most": max(most, 1), "is_weight": int(n.inputs[0] in graph.weights)}
            operands = (scale, n.inputs[0])
            nodes.append(Node("LearnedScale", DOMAIN, 1, renamed[scale], operands, (renamed[scale],), attrs))
        inputs = (*n.inputs[:1], renamed[scale], *n.inputs[2:]) if scale in renamed else n.inputs
        nodes.append(replace(n, inputs=inputs))
    return replace(graph, nodes=tuple(nodes), opsets={**graph.opsets, DOMAIN: 1})


@op("LearnedScale", since=1, domain=DOMAIN)
def learned_scale(t: Tracer, scale: Tensor, x: Tensor, *, most: int, is_weight: int) -> Tensor:
    """The scale. x: what has it, a weight, or values of a batch, of whose samples one counts"""
    count = sh.size(x.shape if is_weight else x.shape[1:]) // sh.size(scale.shape)
    return t.own_gradient(t.map(X, scale), _divided, scale, sqrt(cast(dim(count * most), F32)))


def _divided(walk: Walk, g: Tensor, scale: Tensor, by: Expr) -> Cotangents:
    return [(scale, walk.t.map(X / by, g))]


def positive(old: Expr, new: Expr, is_relative: bool) -> Expr:
    """The new value of a scale that was above 0: at least half of the old one. is_relative: for optimisers whose steps
    have the size of the rate, whatever the gradient; that of a scale is then a share of it"""
    step = (new - old) * old if is_relative else new - old
    return select(old > 0.0, maximum(maximum(old + step, old * 0.5), _LEAST), new)
