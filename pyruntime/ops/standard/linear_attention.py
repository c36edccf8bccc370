"""LinearAttention: a recurrence over a state matrix, compiled to one loop kernel.

Letters: N batch, H heads, G state heads (each serves H / G query heads), T steps, D key size, M value size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, const, dim, exp, rem
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.standard.attention import default_scale


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of LinearAttention, as float32.

    past: the state before the first step; decay: logarithms of factors of the state; beta: factors of what a step adds
    to it (shapes: see `linear_attention`); None for inputs that the node lacks
    heads: of queries, H; groups: heads of keys and values, G; scale: a factor of the outputs
    """

    query: Tensor
    key: Tensor
    value: Tensor
    past: Tensor | None
    decay: Tensor | None
    beta: Tensor | None
    heads: int
    groups: int
    scale: Any

    @property
    def tensors(self) -> list[Tensor]:
        found = (self.query, self.key, self.value, self.past, self.decay, self.beta)
        return [x for x in found if x is not None]

    @property
    def sizes(self) -> tuple[Any, Any, Any, Any]:
        """N, T, D, M."""
        d, m = sh.floordiv(self.query.shape[2], self.heads), sh.floordiv(self.value.shape[2], self.groups)
        return (*self.query.shape[:2], d, m)

    @property
    def has_wide_decay(self) -> sh.AnyDim:
        """1 if there is a decay for each row of a state, 0 if there is one for each state."""
        assert self.decay is not None
        return sh.compare("ne", self.decay.shape[2], self.groups)

    def query_at(self, b: Expr, s: Expr, h: Expr, r: Expr) -> Expr:
        return self.query.at(b, s, h * dim(self.sizes[2]) + r)

    def key_at(self, b: Expr, s: Expr, g: Expr, r: Expr) -> Expr:
        return self.key.at(b, s, g * dim(self.sizes[2]) + r)

    def value_at(self, b: Expr, s: Expr, g: Expr, c: Expr) -> Expr:
        return self.value.at(b, s, g * dim(self.sizes[3]) + c)

    def factor_at(self, b: Expr, s: Expr, g: Expr, r: Expr) -> Expr:
        """What a step multiplies row r of a state by."""
        assert self.decay is not None
        wide = self.has_wide_decay
        return exp(self.decay.at(b, s, g * dim(sh.select(wide, self.sizes[2], 1)) + r * dim(wide)))

    def beta_at(self, b: Expr, s: Expr, g: Expr) -> Expr:
        assert self.beta is not None
        return self.beta.at(b, s, g * dim(sh.compare("ne", self.beta.shape[2], 1)))


LINEAR_ATTENTION = GradientRule[Operands]()

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
    factor: Any = scale or default_scale(sh.floordiv(query.shape[2], q_num_heads), F32)
    q, k, v = (t.cast(x, F32) for x in (query, key, value))
    past, logs, weights = (None if x is None else t.cast(x, F32) for x in (past_state, decay, beta))
    of = Operands(q, k, v, past, logs, weights, q_num_heads, kv_num_heads, factor)
    n, steps, d, m = of.sizes

    def body(k: Builder, out: Tensor, state: Tensor) -> None:
        with k.parallel(n * kv_num_heads * m) as i:
            column = k.let(rem(i, dim(m)))
            group = k.let(rem(i / dim(m), kv_num_heads))
            batch = k.let(i / dim(m) / kv_num_heads)
            _recurrence(k, out, state, of, (batch, group, column))

    shapes = [((n, steps, q_num_heads * m), F32), ((n, kv_num_heads, d, m), F32)]
    y, state = t.loops("linear_attention", of.tensors, shapes, body)
    t.own_gradient(y, LINEAR_ATTENTION, of)
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


def _recurrence(k: Builder, out: Tensor, state: Tensor, of: Operands, place: tuple[Expr, Expr, Expr]) -> None:
    """One column of one state, over all steps."""
    _, steps, d, m = of.sizes
    b, g, c = place
    with k.loop(d) as r:
        k.store(state, (b, g, r, c), const(0.0) if of.past is None else of.past.at(b, g, r, c))
    with k.loop(steps) as s:
        if of.decay is not None:
            with k.loop(d) as r:
                k.store(state, (b, g, r, c), state.at(b, g, r, c) * of.factor_at(b, s, g, r))
        new = k.let(of.value_at(b, s, g, c))
        if of.beta is not None:
            stored = _dot(k, d, lambda r: state.at(b, g, r, c) * of.key_at(b, s, g, r))
            new = k.let(of.beta_at(b, s, g) * (new - stored))
        with k.loop(d) as r:
            k.store(state, (b, g, r, c), state.at(b, g, r, c) + of.key_at(b, s, g, r) * new)
        with k.loop(of.heads // of.groups) as share:
            h = k.let(g * (of.heads // of.groups) + share)
            y = _dot(k, d, lambda r: state.at(b, g, r, c) * of.query_at(b, s, h, r))
            k.store(out, (b, s, h * dim(m) + c), y * of.scale)


def _dot(k: Builder, extent: sh.AnyDim, term: Callable[[Expr], Expr]) -> Expr:
    """Σ term(r) over r."""
    total = k.var(0.0, F32)
    with k.loop(extent) as r:
        total.set(total.get + term(r))
    return k.let(total.get)
