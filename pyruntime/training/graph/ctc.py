"""Connectionist temporal classification (Graves and others, 2006): the loss of texts whose places in time are unknown.

The labels of a sample, with a blank before, between and after them, are the states of a chain; a path through it emits
a symbol per step of time. All sums of probabilities are logarithms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, cast, const, dim, exp, guard, log, maximum, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.training.derive.backward_walk import Walk

# T steps of time, N samples, C symbols, S labels, L = 2·S + 1 states
NOTHING = -1e30  # the logarithm of 0: sums with it stay finite
LARGEST = 1e29  # losses above it are infinite


@dataclass(frozen=True, slots=True)
class Chain:
    """logs: (T, N, C), logarithms of probabilities; labels: (N, S); steps, counts: (N), of the logs and labels that
    count"""

    t: Tracer
    logs: Tensor
    labels: Tensor
    steps: Tensor
    counts: Tensor
    blank: int

    @property
    def states(self) -> sh.AnyDim:
        return self.labels.shape[1] * 2 + 1

    def length(self, n: Expr) -> Expr:
        return self.t.checked_index(self.steps.at(n), self.logs.shape[0] + 1)

    def used(self, n: Expr) -> Expr:
        """How many states count."""
        return self.t.checked_index(self.counts.at(n), self.labels.shape[1] + 1) * 2 + 1

    def symbol(self, n: Expr, state: Expr) -> Expr:
        blank = const(self.blank, self.labels.dtype)
        label = guard(state % 2 == 1, self.labels.at(n, state / 2), blank)
        return self.t.checked_index(label, self.logs.shape[2])

    def sums(self, is_reversed: bool) -> Tensor:
        """(N, T, L): the probability of all paths from the start to a state at a step, its own symbol included.
        is_reversed: steps and states count from the end, and so do paths"""
        logs, length, states = self.logs, self.logs.shape[0], self.states

        def body(k: Builder, out: Tensor) -> None:
            with k.parallel(dim(logs.shape[1])) as n:
                steps, used = k.let(self.length(n)), k.let(self.used(n))
                with k.loop(dim(length)) as step, k.loop(dim(states)) as s:
                    k.store(out, (n, step, s), NOTHING)
                    with k.when((step < steps) & (s < used)):
                        time, place = k.let(steps - 1 - step if is_reversed else step), s
                        symbol = k.let(self.symbol(n, k.let(used - 1 - place if is_reversed else place)))
                        two = k.let(maximum(place - 2, 0))
                        other = self.symbol(n, k.let(used - 1 - two if is_reversed else two))
                        can_skip = (place > 1) & (symbol != self.blank) & (symbol != other)
                        nothing = const(NOTHING, logs.dtype)

                        def before(back: int, is_there: Expr, n: Any = n, step: Any = step, s: Any = s) -> Expr:
                            return k.let(guard((step > 0) & is_there, out.at(n, step - 1, s - back), nothing))

                        first = select((step == 0) & (place < 2), const(0.0, logs.dtype), nothing)
                        parts = [k.let(first), before(0, place >= 0), before(1, place > 0), before(2, can_skip)]
                        k.store(out, (n, step, s), _log_sum(parts, k.let) + logs.at(time, n, symbol))

        tensors = [logs, self.labels, self.steps, self.counts]
        shape = (logs.shape[1], length, states)
        return self.t.loops("ctc", tensors, [(shape, logs.dtype)], body)[0]


def _log_sum(parts: list[Expr], let: Callable[[Expr], Expr]) -> Expr:
    most = parts[0]
    for x in parts[1:]:
        most = maximum(most, x)
    most = let(most)
    total = exp(parts[0] - most)
    for x in parts[1:]:
        total = total + exp(x - most)
    return most + log(total)


def ctc_of(chain: Chain) -> Tensor:
    """(N): minus the logarithm of the probability of the labels; above LARGEST if they do not fit into the steps."""
    alpha = chain.sums(False)
    dtype = alpha.dtype

    def of(n: Expr) -> Expr:
        steps, used = chain.length(n), chain.used(n)
        nothing = const(NOTHING, dtype)
        ends = [guard((steps > 0) & (used >= m), alpha.at(n, steps - 1, used - m), nothing) for m in (1, 2)]
        empty = select((steps == 0) & (used == 1), const(0.0, dtype), nothing)
        return -_log_sum([empty, *ends], lambda x: x)

    found = chain.t.compute((alpha.shape[0],), of)
    return chain.t.own_gradient(found, _gradient, chain.logs, chain.labels, chain.steps, chain.counts, chain.blank,
                                alpha, found)  # fmt: skip


def _gradient(
    walk: Walk, g: Tensor, logs: Tensor, labels: Tensor, steps: Tensor, counts: Tensor, blank: int, alpha: Tensor,
    found: Tensor,
) -> list[tuple[Tensor, Tensor]]:  # fmt: skip
    """Of a logarithm: minus the share of the paths that emit the symbol then."""
    t = walk.t
    chain = Chain(t, logs, labels, steps, counts, blank)
    beta = chain.sums(True)

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(logs.shape[1])) as n:
            length, used = k.let(chain.length(n)), k.let(chain.used(n))
            loss = k.let(found.at(n))
            factor = k.let(select(loss < LARGEST, -g.at(n), const(0.0, g.dtype)))
            with k.loop(dim(logs.shape[0])) as step:
                with k.loop(dim(logs.shape[2])) as c:
                    k.store(out, (step, n, c), 0.0)
                with k.when(step < length), k.loop(used) as s:
                    symbol = k.let(chain.symbol(n, s))
                    both = alpha.at(n, step, s) + beta.at(n, length - 1 - step, used - 1 - s)
                    share = exp(both - logs.at(step, n, symbol) + loss)
                    k.store(out, (step, n, symbol), out.at(step, n, symbol) + share * factor)

    args = [logs, labels, steps, counts, alpha, beta, found, g]
    return [(logs, t.loops("ctc_gradient", args, [(logs.shape, logs.dtype)], body)[0])]


def mean_of(t: Tracer, found: Tensor, counts: Tensor, zero_infinity: bool, is_sum: bool) -> Tensor:
    """The mean over samples of the loss by the number of labels, or the sum of the losses."""

    def of(n: Expr) -> Expr:
        loss = found.at(n)
        kept = select(loss < LARGEST, loss, const(0.0 if zero_infinity else float("inf"), found.dtype))
        return kept if is_sum else kept / maximum(cast(counts.at(n), found.dtype), const(1.0, found.dtype))

    values = t.compute(found.shape, of)
    whole = t.reduce("sum", values, [0], keepdims=False)
    return whole if is_sum else t.compute((), lambda: whole.at() / cast(dim(found.shape[0]), found.dtype))
