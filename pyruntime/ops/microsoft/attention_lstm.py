"""AttnLSTM: an LSTM with Bahdanau attention over a memory at each step.

Letters: T steps, B batch, I inputs, H hidden, D directions, M steps of the memory, E its depth, K depth of the
attention, A size of the attention state (E, or the columns of AW)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyruntime.frontend.registry import attributes_of, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, X, Y, cast, const, dim, guard, maximum, select, tanh
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.recurrent_activations import Activation
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.standard.control import iterate
from pyruntime.ops.standard.matmul import product
from pyruntime.ops.standard.recurrent import LSTM, layer_of
from pyruntime.ops.standard.reduce import softmax_of


@op("AttnLSTM", domain=MICROSOFT)
@attributes_of(layer_of)
def attn_lstm(
    t: Tracer, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lens: Tensor | None = None,
    h0: Tensor | None = None, c0: Tensor | None = None, p: Tensor | None = None, qw: Tensor | None = None,
    mw: Tensor | None = None, v: Tensor | None = None, memory: Tensor | None = None,
    memory_lens: Tensor | None = None, aw: Tensor | None = None, *, input_forget: int = 0, **cell: Any,
) -> list[Tensor]:  # fmt: skip
    """LSTM of x concatenated with the attention state of the previous step. This state is c = softmax(v ·
    tanh(memory · mw + h · qw)) · memory or, with aw, (h, c) · aw.
    Shapes: x (T, B, I), w (D, 4H, I + A), r (D, 4H, H), b (D, 8H), p (D, 3H), qw (D, H, K), mw (D, E, K), v (D, K),
    memory (B, M, E), aw (D, H + E, A) -> (T, D, B, H), (D, B, H), (D, B, H)"""
    if qw is None or mw is None or v is None or memory is None:
        raise t.unsupported("QW, MW, V and M are needed", "use LSTM for a cell without attention")
    depth = memory.shape[2]
    size = depth if aw is None else aw.shape[2]
    layer, sets = layer_of(t, 4, (x, t.slice(w, 2, 0, x.shape[2]), r), LSTM, **cell)
    count, batch, hidden = layer.D, layer.B, layer.H
    t.require_shape("W", w, (count, 4 * hidden, x.shape[2] + size))
    t.require_shape("QW", qw, (count, hidden, mw.shape[-1]))
    t.require_shape("MW", mw, (count, depth, qw.shape[-1]))
    t.require_shape("V", v, (count, qw.shape[-1]))
    t.require_shape("M", memory, (batch, memory.shape[1], depth))
    t.require_shape("AW", aw, (count, hidden + depth, size))
    t.require_shape("P", p, (count, 3 * hidden))
    t.require_shape("sequence_lens", lens, (batch,))
    t.require_shape("memory_seq_lens", memory_lens, (batch,))
    for state in (h0, c0):
        t.require_shape("an initial state", state, (count, batch, hidden))
    xs = layer.project(b)

    def at(operand: Tensor, d: int) -> Tensor:
        return t.squeeze(t.slice(operand, 0, d, 1), [0])

    def at_or_none(operand: Tensor | None, d: int) -> Tensor | None:
        return None if operand is None else at(operand, d)

    weights = t.slice(w, 2, x.shape[2], size)
    results = []
    for d in range(count):
        one = _Direction(
            t, d, layer.direction == "reverse" or d == 1, bool(input_forget), sets[-1 if d else 0], xs, lens,
            at_or_none(p, d), at(weights, d), at(r, d), at(qw, d), at(mw, d), at(v, d), memory, memory_lens,
            at_or_none(aw, d),
        )  # fmt: skip
        results.append(one.run(at_or_none(h0, d), at_or_none(c0, d)))
    y, h, c = (t.concat([t.unsqueeze(parts[n], [axis]) for parts in results], axis) for n, axis in enumerate((1, 0, 0)))
    return [y, h, c]


@dataclass(frozen=True, slots=True)
class _Direction:
    """One direction with its weights: wa (4H, A) from the attention state to the gates, r (4H, H), qw (H, K), mw (E,
    K), …"""

    t: Tracer
    d: int
    reverse: bool
    coupled: bool
    f: list[Activation]
    xs: Tensor
    lens: Tensor | None
    p: Tensor | None
    wa: Tensor
    r: Tensor
    qw: Tensor
    mw: Tensor
    v: Tensor
    memory: Tensor
    memory_lens: Tensor | None
    aw: Tensor | None

    def run(self, h0: Tensor | None, c0: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Y (T, B, H), and the last h and c (B, H)."""
        t, dtype = self.t, self.xs.dtype
        steps, batch, hidden = self.xs.shape[0], self.xs.shape[1], self.xs.shape[4]
        keys = product(t, self.memory, self.mw)
        start = [t.fill((batch, hidden), 0.0, dtype) if x is None else x for x in (h0, c0)]
        attended = t.fill((batch, self.wa.shape[1]), 0.0, dtype)

        def step(n: Tensor, state: list[Tensor]) -> tuple[None, list[Tensor], list[Tensor]]:
            h, c = self._cell(cast(n.at(), I32), *state)
            output = t.compute(h.shape, lambda b, j: select(cast(n.at(), I32) < self._length(b), h.at(b, j), 0.0))
            return None, [h, c, self._attended(keys, h)], [output]

        h, c, _, stacked = iterate(t, None, None, [*start, attended], step, steps)
        if not self.reverse:
            return stacked, h, c

        def unreversed(s: Expr, b: Expr, j: Expr) -> Expr:
            left = self._length(b) - 1 - s
            return guard(left >= 0, stacked.at(left, b, j), 0.0)

        return t.compute(stacked.shape, unreversed), h, c

    def _length(self, b: Expr) -> Expr:
        """The number of steps of a batch row."""
        steps = self.xs.shape[0]
        return dim(steps) if self.lens is None else self.t.checked_index(self.lens.at(b), steps + 1)

    def _cell(self, n: Expr, h: Tensor, c: Tensor, attended: Tensor) -> tuple[Tensor, Tensor]:
        """h and c after step n. Rows that have ended keep their h and c."""
        t, f, hidden, p = self.t, self.f, dim(self.xs.shape[4]), self.p
        rows = t.map(X + Y, *[product(t, x, t.transpose(w, [1, 0])) for x, w in ((h, self.r), (attended, self.wa))])

        def gate(b: Expr, j: Expr, g: int, peep: int = 0, seen: Tensor | None = None) -> Expr:
            time = maximum(self._length(b) - 1 - n, 0) if self.reverse else n
            total = self.xs.at(time, b, self.d, g, j) + rows.at(b, hidden * g + j)
            return total if p is None or seen is None else total + p.at(hidden * peep + j) * seen.at(b, j)

        def cell(b: Expr, j: Expr) -> Expr:
            i = f[0](gate(b, j, 0, 0, c))
            forget = 1.0 - i if self.coupled else f[0](gate(b, j, 2, 2, c))
            return select(n < self._length(b), forget * c.at(b, j) + i * f[1](gate(b, j, 3)), c.at(b, j))

        new = t.compute(c.shape, cell)

        def output(b: Expr, j: Expr) -> Expr:
            out = f[0](gate(b, j, 1, 1, new)) * f[2](new.at(b, j))
            return select(n < self._length(b), out, h.at(b, j))

        return t.compute(h.shape, output), new

    def _attended(self, keys: Tensor, h: Tensor) -> Tensor:
        """The attention state for the next step, (B, A)."""
        t, (batch, steps, depth) = self.t, keys.shape
        query = product(t, h, self.qw)

        def score(b: Expr, m: Expr, k: Expr) -> Expr:
            return self.v.at(k) * tanh(keys.at(b, m, k) + query.at(b, k))

        scores = t.reduce_compute("sum", (batch, steps), (depth,), score)
        lens = self.memory_lens
        if lens is not None:
            total, own = scores, lens

            def masked(b: Expr, m: Expr) -> Expr:
                inside = m <= t.checked_index(own.at(b) - 1, steps)
                return select(inside, total.at(b, m), const(float("-inf"), total.dtype))

            scores = t.compute(total.shape, masked)
        shares = softmax_of(t, scores, [1])
        context = t.squeeze(product(t, t.unsqueeze(shares, [1]), self.memory), [1])
        return context if self.aw is None else product(t, t.concat([h, context], 1), self.aw)
