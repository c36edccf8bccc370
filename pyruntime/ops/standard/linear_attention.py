"""LinearAttention: a recurrence over a state matrix, compiled to one loop kernel.

Letters: N batch, H heads, G state heads (each serves H / G query heads), T steps, D key size, M value size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, const, dim, exp, rem
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.standard.attention import default_scale

LINEAR_ATTENTION = GradientRule[list[Tensor], list[Tensor | None], tuple[Any, ...], Any]()

RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}


@op("LinearAttention", since=27)
def linear_attention(
    t: Tracer, query: Tensor, key: Tensor, value: Tensor, past_state: Tensor | None = None,
    decay: Tensor | None = None, beta: Tensor | None = None, *, chunk_size: int = 64, kv_num_heads: int,
    q_num_heads: int, scale: float = 0.0, update_rule: str = "gated_delta",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """For each step: state *= exp(decay); v = beta·(v - stateᵀ·k) in the delta rules; state += k⊗v; y = scale ·
    stateᵀ·q. The columns of the state are independent recurrences.

    Shapes: query (N, T, H·D), key (N, T, G·D), value (N, T, G·M), state (N, G, D, M), decay (N, T, G) or (N, T, G·D),
    beta (N, T, G) or (N, T, 1) -> (N, T, H·M), (N, G, D, M)
    Spec: https://onnx.ai/onnx/operators/onnx__LinearAttention.html"""
    if update_rule not in RULES:
        raise t.unsupported(f'update_rule "{update_rule}" is not known')
    gated, corrected = RULES[update_rule]
    if gated != (decay is not None) or corrected != (beta is not None):
        raise t.shape_error(f'decay and beta do not fit update_rule "{update_rule}"')
    n, steps = query.shape[:2]
    _check(t, query, key, value, past_state, decay, beta, q_num_heads, kv_num_heads)
    d, m = sh.floordiv(query.shape[2], q_num_heads), sh.floordiv(value.shape[2], kv_num_heads)
    factor: Any = scale or default_scale(d, F32)
    args = [t.cast(x, F32) for x in (query, key, value)]
    extras = [None if x is None else t.cast(x, F32) for x in (past_state, decay, beta)]
    sizes: tuple[Any, ...] = (n, steps, q_num_heads, kv_num_heads, d, m)

    def body(k: Builder, out: Tensor, state: Tensor) -> None:
        with k.parallel(n * kv_num_heads * m) as i:
            column = k.let(rem(i, dim(m)))
            group = k.let(rem(i / dim(m), kv_num_heads))
            batch = k.let(i / dim(m) / kv_num_heads)
            _recurrence(k, out, state, args, extras, sizes, (batch, group, column), factor)

    inputs = [*args, *[x for x in extras if x is not None]]
    shapes = [((n, steps, q_num_heads * m), F32), ((n, kv_num_heads, d, m), F32)]
    y, state = t.loops("linear_attention", inputs, shapes, body)
    t.own_gradient(y, LINEAR_ATTENTION, args, extras, sizes, factor)
    return t.cast(y, query.dtype), t.cast(state, query.dtype if past_state is None else past_state.dtype)


def _check(
    t: Tracer, query: Tensor, key: Tensor, value: Tensor, past: Tensor | None, decay: Tensor | None,
    beta: Tensor | None, heads: int, groups: int,
) -> None:  # fmt: skip
    if not groups or heads % groups:
        raise t.shape_error(f"{heads} query heads are not a multiple of {groups} key heads")
    d, m = sh.floordiv(query.shape[2], heads), sh.floordiv(value.shape[2], groups)
    for x, last in ((query, heads * d), (key, groups * d), (value, groups * m), (decay, None), (beta, None)):
        if x is not None:
            expected = (*query.shape[:2], x.shape[2] if last is None else last)
            for n, (a, b) in enumerate(zip(x.shape, expected, strict=True)):
                t.require_equal(a, b, f"the inputs disagree in axis {n}")
    for x, others in ((decay, groups * d), (beta, 1)):
        if x is not None:
            fits = sh.maximum(sh.compare("eq", x.shape[2], groups), sh.compare("eq", x.shape[2], others))
            t.require(fits, f"decay or beta has {x.shape[2]} numbers per step, must have {groups} or {others}")
    t.require_shape("past_state", past, (query.shape[0], groups, d, m))


def _recurrence(
    k: Builder, out: Tensor, state: Tensor, args: list[Tensor], extras: list[Tensor | None], sizes: tuple[Any, ...],
    place: tuple[Expr, Expr, Expr], scale: float | Expr,
) -> None:  # fmt: skip
    """One column of one state, over all steps."""
    query, key, value = args
    past, decay, beta = extras
    _, steps, heads, groups, d, m = sizes
    b, g, c = place
    with k.loop(d) as r:
        k.store(state, (b, g, r, c), const(0.0) if past is None else past.at(b, g, r, c))
    with k.loop(steps) as s:
        if decay is not None:
            wide = sh.compare("ne", decay.shape[2], groups)
            with k.loop(d) as r:
                factor = exp(decay.at(b, s, g * dim(sh.select(wide, d, 1)) + r * dim(wide)))
                k.store(state, (b, g, r, c), state.at(b, g, r, c) * factor)
        new = k.let(value.at(b, s, g * dim(m) + c))
        if beta is not None:
            stored = _dot(k, d, lambda r: state.at(b, g, r, c) * key.at(b, s, g * dim(d) + r))
            weight = beta.at(b, s, g * dim(sh.compare("ne", beta.shape[2], 1)))
            new = k.let(weight * (new - stored))
        with k.loop(d) as r:
            k.store(state, (b, g, r, c), state.at(b, g, r, c) + key.at(b, s, g * dim(d) + r) * new)
        with k.loop(heads // groups) as share:
            h = k.let(g * (heads // groups) + share)
            y = _dot(k, d, lambda r: state.at(b, g, r, c) * query.at(b, s, h * dim(d) + r))
            k.store(out, (b, s, h * dim(m) + c), y * scale)


def _dot(k: Builder, extent: sh.AnyDim, term: Callable[[Expr], Expr]) -> Expr:
    """Σ term(r) over r."""
    total = k.var(0.0, F32)
    with k.loop(extent) as r:
        total.set(total.get + term(r))
    return k.let(total.get)
