"""LinearAttention: a recurrence over a state matrix, recorded as a loop over the steps.

Letters: N batch, H heads, G state heads (each serves H / G query heads), T steps, D key size, M value size."""

from __future__ import annotations

from typing import Any

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, X, cast, dim, exp
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.standard.attention import default_scale
from pyruntime.ops.standard.control import iterate

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
    _check(t, query, key, value, past_state, decay, beta, q_num_heads, kv_num_heads)
    groups, share = kv_num_heads, q_num_heads // kv_num_heads
    n, steps, _ = query.shape
    d, m = sh.floordiv(query.shape[2], q_num_heads), sh.floordiv(value.shape[2], groups)
    factor: Any = scale or default_scale(d, F32)
    queries = t.reshape(t.cast(query, F32), (n, steps, groups, share, d))
    keys, values = (t.reshape(t.cast(x, F32), (n, steps, groups, w)) for x, w in ((key, d), (value, m)))
    factors = None if decay is None else t.map(exp(X), t.cast(decay, F32))
    weights = None if beta is None else t.cast(beta, F32)

    def step(number: Tensor, carried: list[Any]) -> tuple[None, list[Any], list[Any]]:
        s = cast(number.at(), I32)

        def now(x: Tensor) -> Tensor:
            return t.compute((x.shape[0], *x.shape[2:]), lambda b, *i: x.at(b, s, *i))

        k, new, (state,) = now(keys), now(values), carried
        if factors is not None:
            wide = sh.compare("ne", factors.shape[2], groups)
            f, rows, place = now(factors), dim(sh.select(wide, d, 1)), dim(wide)
            state = t.compute(state.shape, lambda b, g, r, c: state.at(b, g, r, c) * f.at(b, g * rows + r * place))
        if weights is not None:
            w, each = now(weights), dim(sh.compare("ne", weights.shape[2], 1))
            had = t.reduce_compute("sum", new.shape, [d], lambda b, g, c, r: state.at(b, g, r, c) * k.at(b, g, r))
            new = t.compute(new.shape, lambda b, g, c, v=new: w.at(b, g * each) * (v.at(b, g, c) - had.at(b, g, c)))
        last = t.compute(state.shape, lambda b, g, r, c: state.at(b, g, r, c) + k.at(b, g, r) * new.at(b, g, c))
        q = now(queries)

        def term(b: Expr, g: Expr, h: Expr, c: Expr, r: Expr) -> Expr:
            return last.at(b, g, r, c) * q.at(b, g, h, r)

        y = t.reduce_compute("sum", (n, groups, share, m), [d], term)
        return None, [last], [t.map(X * factor, y)]

    start = t.fill((n, groups, d, m), 0.0, F32) if past_state is None else t.cast(past_state, F32)
    state, y = iterate(t, None, None, [start], step, steps)
    y = t.reshape(t.transpose(y, [1, 0, 2, 3, 4]), (n, steps, q_num_heads * m))
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
