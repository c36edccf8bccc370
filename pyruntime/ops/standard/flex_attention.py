"""FlexAttention: attention whose scores and probabilities are modified by subgraphs of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.expr import X
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.formula import sum_type
from pyruntime.ops.standard.attention import default_scale, masked_softmax, require_values, shared_product
from pyruntime.ops.standard.cast import float_of

if TYPE_CHECKING:
    from pyruntime.onnx.graph import Graph


@op("FlexAttention", since=1, domain="ai.onnx.preview")
def flex_attention(
    t: Tracer, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, softmax_precision: int | None = None,
    score_mod: Graph | None = None, prob_mod: Graph | None = None,
) -> Tensor:  # fmt: skip
    """prob_mod(softmax(score_mod(q·kᵀ·scale)))·v; scale is 1/√D by default, softmax is in float32 or wider.

    Shapes: q (N, H, S, D), k (N, G, T, D), v (N, G, T, Dv), G divides H -> (N, H, S, Dv)
    Errors: ShapeError if score_mod or prob_mod changes the shape of its input
    Spec:   https://onnx.ai/onnx/operators/onnx_aionnxpreview_FlexAttention.html"""
    precision = float_of(t, softmax_precision) if softmax_precision else sum_type(q.dtype)
    factor = default_scale(q.shape[3], q.dtype) if scale is None else scale
    require_values(t, k, v)
    scores = t.cast(t.map(X * factor, shared_product(t, q, t.transpose(k, [0, 1, 3, 2]))), precision)
    probabilities = masked_softmax(t, _modify(t, score_mod, scores))
    weights = t.cast(_modify(t, prob_mod, probabilities), v.dtype)
    return t.cast(shared_product(t, weights, v), q.dtype)


def _modify(t: Tracer, graph: Any, x: Tensor) -> Tensor:
    """The result of a subgraph with one input and one output; x itself if there is no subgraph."""
    if graph is None:
        return x
    (y,) = t.subgraph(graph, [x])
    if y.rank != x.rank:
        raise t.shape_error(f"the subgraph changes rank {x.rank} to {y.rank}")
    for n, (a, b) in enumerate(zip(x.shape, y.shape, strict=True)):
        t.require_equal(a, b, f"the subgraph changes axis {n}")
    return y
