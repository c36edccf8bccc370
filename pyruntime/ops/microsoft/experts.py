"""Mixture of experts: a router picks k experts per row, and only their weights are read.

Letters: R rows (tokens), D features of the model, I features inside an expert, E experts, K of them picked."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, X, Y, cast, clip, const, dim, maximum, minimum, sigmoid
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.packed_codes import unpacked
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.standard.activation import gelu_tanh, swish
from pyruntime.ops.standard.reduce import softmax_of
from pyruntime.ops.standard.sort import topk_1

Weight = Callable[[Expr, Expr, Expr, Expr, int], Expr]
"""(expert, output feature, block, byte of the block, code of the byte) -> float32, before its scale is applied"""


class Layer(NamedTuple):
    """One layer of all experts: output and input features, weights, bias (E, out), and the scales of its blocks."""

    outs: sh.AnyDim
    ins: sh.AnyDim
    weight: Weight
    bias: Tensor | None
    blocks: sh.AnyDim = 1
    codes: int = 1  # per byte
    scale: Callable[[Expr, Expr, Expr], Expr] | None = None


class Activation(NamedTuple):
    name: str
    alpha: float
    beta: float
    limit: float | None
    fusion: int  # how the first layer holds SwiGLU's two products: 0 only one, 1 interleaved, 2 as halves


def _layer(t: Tracer, router: Tensor, w: Tensor, bias: Tensor | None) -> Layer:
    _check(t, router, w, bias)
    return Layer(w.shape[1], w.shape[2], lambda e, o, b, i, c: cast(w.at(e, o, i), F32), bias)


def _check(t: Tracer, router: Tensor, w: Tensor, bias: Tensor | None) -> None:
    t.require_equal(router.shape[1], w.shape[0], "numbers of experts of the router and of a layer differ")
    t.require_shape("a bias", bias, w.shape[:2])


@op("MoE", domain=MICROSOFT)
def moe(
    t: Tracer, x: Tensor, router_probs: Tensor, fc1: Tensor, fc1_bias: Tensor | None, fc2: Tensor,
    fc2_bias: Tensor | None = None, fc3: Tensor | None = None, fc3_bias: Tensor | None = None, *,
    activation_alpha: float = 1.0, activation_beta: float = 0.0, activation_type: str = "relu", k: int = 1,
    normalize_routing_weights: int = 0, swiglu_fusion: int = 0, swiglu_limit: float | None = None,
    use_sparse_mixer: int = 0,
) -> Tensor:  # fmt: skip
    """Σ over the picked experts of weight · fc2(f(fc1(x))), or of weight · fc2(f(fc1(x)) · fc3(x)).

    Shapes: x (*A, D), router_probs (R, E), fc1 and fc3 (E, I or 2·I, D), fc2 (E, D, I), biases (E, ·) -> (*A, D)"""
    if use_sparse_mixer:
        raise t.unsupported("use_sparse_mixer is not implemented")
    act = Activation(activation_type, activation_alpha, activation_beta, swiglu_limit, swiglu_fusion)
    gate = None if fc3 is None else _layer(t, router_probs, fc3, fc3_bias)
    first, second = _layer(t, router_probs, fc1, fc1_bias), _layer(t, router_probs, fc2, fc2_bias)
    picked = _picked(t, router_probs, None, k, normalize_routing_weights == 1)
    return _mix(t, x, picked, first, second, gate, act)


@op("QMoE", domain=MICROSOFT)
def qmoe(
    t: Tracer, x: Tensor, router_probs: Tensor, fc1: Tensor, fc1_scales: Tensor, fc1_bias: Tensor | None,
    fc2: Tensor, fc2_scales: Tensor, fc2_bias: Tensor | None = None, fc3: Tensor | None = None,
    fc3_scales: Tensor | None = None, fc3_bias: Tensor | None = None, fc1_zero_points: Tensor | None = None,
    fc2_zero_points: Tensor | None = None, fc3_zero_points: Tensor | None = None,
    router_weights: Tensor | None = None, *, accuracy_level: int = 0, activation_alpha: float = 1.0,
    activation_beta: float = 0.0, activation_type: str = "relu", block_size: int = 0, expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int = 0, fc2_expert_weight_bits: int = 0, fc3_expert_weight_bits: int = 0, k: int = 1,
    normalize_routing_weights: int = 0, quant_type: str = "int", swiglu_fusion: int = 0,
    swiglu_limit: float | None = None, use_sparse_mixer: int = 0, weights_prepacked: int = -1,
) -> Tensor:  # fmt: skip
    """MoE with weights of 2, 4 or 8 bits, the lowest bits first: (code - zero point) · scale. There is one scale per
    output feature, or per block of `block_size` input features.

    Shapes: fc (E, out, in·bits/8) uint8, scales (E, out) or (E, out, blocks), zero points packed alike; others as
    MoE's"""
    if use_sparse_mixer or quant_type != "int" or weights_prepacked == 1:
        raise t.unsupported("use_sparse_mixer, quant_type other than int, and prepacked weights are not implemented")
    act = Activation(activation_type, activation_alpha, activation_beta, swiglu_limit, swiglu_fusion)

    def layer(w: Tensor, scales: Tensor, zeros: Tensor | None, bias: Tensor | None, bits: int) -> Layer:
        _check(t, router_probs, w, bias)
        return _quantised_layer(t, w, scales, zeros, bias, bits or expert_weight_bits, block_size)

    gate = None
    if fc3 is not None and fc3_scales is not None:
        gate = layer(fc3, fc3_scales, fc3_zero_points, fc3_bias, fc3_expert_weight_bits)
    first = layer(fc1, fc1_scales, fc1_zero_points, fc1_bias, fc1_expert_weight_bits)
    second = layer(fc2, fc2_scales, fc2_zero_points, fc2_bias, fc2_expert_weight_bits)
    picked = _picked(t, router_probs, router_weights, k, normalize_routing_weights == 1 or router_weights is None)
    return _mix(t, x, picked, first, second, gate, act)


def _quantised_layer(
    t: Tracer, w: Tensor, scales: Tensor, zeros: Tensor | None, bias: Tensor | None, bits: int, block: int
) -> Layer:
    if bits not in (2, 4, 8):
        raise t.unsupported(f"expert_weight_bits {bits} is not one of 2, 4, 8")
    each = 8 // bits
    ins = w.shape[2] * each
    blocks = 1 if scales.rank == 2 else t.divided(ins, block, "input features into blocks")
    codes = t.reshape(w, (*w.shape[:2], blocks, sh.floordiv(w.shape[2], blocks)))

    def place(e: Expr, o: Expr, b: Expr) -> list[Expr]:
        return [e, o] if scales.rank == 2 else [e, o, b]

    def weight(e: Expr, o: Expr, b: Expr, j: Expr, c: int) -> Expr:
        code = cast(unpacked(codes.at(e, o, b, j), const(c, I32), bits), F32)
        if zeros is None:
            return code - float(1 << (bits - 1))
        *row, last = place(e, o, b)
        return code - cast(unpacked(zeros.at(*row, last / each), last, bits), F32)

    return Layer(w.shape[1], ins, weight, bias, blocks, each, lambda *at: cast(scales.at(*place(*at)), F32))


def _picked(t: Tracer, router: Tensor, weights: Tensor | None, k: int, normalize: bool) -> tuple[Tensor, Tensor]:
    """Weights (R, K) float32 and indices (R, K) of the experts of each row. In QMoE the weights always add up to 1, as
    in ONNX Runtime."""
    logits = t.cast(router, F32)
    values, experts = topk_1(t, logits if weights is not None else softmax_of(t, logits, [1]), k=k)
    if weights is not None:
        source = weights
        values = t.compute(values.shape, lambda r, n: cast(source.at(r, cast(experts.at(r, n), I32)), F32))
    if normalize:
        values = t.map(X / Y, values, t.reduce("sum", values, [1]))
    return values, experts


def _mix(
    t: Tracer, x: Tensor, picked: tuple[Tensor, Tensor], fc1: Layer, fc2: Layer, fc3: Layer | None, act: Activation
) -> Tensor:
    """The weighted sum over each row's experts."""
    share, experts = picked
    rows = t.reshape(t.cast(x, F32), (sh.size(x.shape[:-1]), x.shape[-1]))
    t.require_equal(rows.shape[0], share.shape[0], "numbers of rows of the input and of the router differ")
    t.require_equal(rows.shape[1], fc1.ins, "the first layer's weights do not fit the input")
    inner = _activate(t, act, *(_apply(t, f, t.unsqueeze(rows, [1]), experts) for f in (fc1, fc3) if f))
    t.require_equal(inner.shape[2], fc2.ins, "the second layer's weights do not fit the first's")
    outs = _apply(t, fc2, inner, experts)
    total = t.reduce("sum", t.map(X * Y, outs, t.unsqueeze(share, [2])), [1], keepdims=False)
    return t.cast(t.reshape(total, x.shape), x.dtype)


def _apply(t: Tracer, layer: Layer, x: Tensor, experts: Tensor) -> Tensor:
    """The layer of each row's experts applied to x: (R, K or 1, in) -> (R, K, out)."""
    shape = (*experts.shape, layer.outs)
    size = sh.floordiv(layer.ins, layer.blocks * layer.codes)
    own, x = x.shape[1] != 1, _by_codes(t, t.reshape(x, (*x.shape[:2], layer.blocks, size, layer.codes)))

    def body(r: Expr, k: Expr, o: Expr, b: Expr, j: Expr) -> Expr:
        e = cast(experts.at(r, k), I32)
        parts = [x.at(r, k if own else 0, b, c, j) * layer.weight(e, o, b, j, c) for c in range(layer.codes)]
        total = reduce(operator.add, parts)
        return total if layer.scale is None else total * layer.scale(e, o, b)

    y = t.reduce_compute("sum", shape, (layer.blocks, size), body)
    bias = layer.bias
    if bias is None:
        return y
    return t.compute(shape, lambda r, k, o: y.at(r, k, o) + cast(bias.at(cast(experts.at(r, k), I32), o), F32))


def _by_codes(t: Tracer, x: Tensor) -> Tensor:
    """(R, K, blocks, bytes, codes) -> (R, K, blocks, codes, bytes), materialised so that features for neighbouring
    bytes are contiguous."""
    *rows, blocks, size, codes = x.shape
    if codes == 1:
        return t.reshape(x, (*rows, blocks, codes, size))

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(rows[0])) as r, k.loop(dim(rows[1])) as n, k.loop(dim(blocks)) as b:
            for c in range(codes):
                with k.loop(dim(size)) as j:
                    k.store(out, (r, n, b, const(c, I32), j), x.at(r, n, b, j, c))

    return t.loops("by_codes", [x], [((*rows, blocks, codes, size), x.dtype)], body)[0]


def _activate(t: Tracer, act: Activation, y: Tensor, other: Tensor | None = None) -> Tensor:
    if act.name == "swiglu":
        return _swiglu(t, act, y, other)
    forms = {
        "relu": lambda: maximum(X, 0.0),
        "gelu": lambda: gelu_tanh(X),
        "silu": lambda: swish(X),
        "identity": lambda: X,
    }
    if act.name not in forms:
        raise t.unsupported(f'activation_type "{act.name}" is not known')
    y = t.map(forms[act.name](), y)
    return y if other is None else t.map(X * Y, y, other)


def _swiglu(t: Tracer, act: Activation, y: Tensor, other: Tensor | None) -> Tensor:
    """g · sigmoid(alpha · g) · (l + beta) of the gate g and the linear part l; g is clipped to at most the limit, l to
    ± the limit."""
    gate, linear = y, other
    if act.fusion:
        half = sh.floordiv(y.shape[2], 2)
        starts, step = ((0, 1), 2) if act.fusion == 1 else ((0, half), 1)
        gate, linear = (t.slice(y, 2, start, half, step) for start in starts)
    if linear is None:
        raise t.shape_error("swiglu without swiglu_fusion needs the third layer")
    g, linear_ = X, Y
    if act.limit is not None:
        g, linear_ = minimum(X, act.limit), clip(Y, -act.limit, act.limit)
    return t.map(g * sigmoid(g * act.alpha) * (linear_ + act.beta), gate, linear)
