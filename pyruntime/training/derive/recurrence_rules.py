"""The gradients of RNN, GRU and LSTM.

The hidden states of all steps are known, so one product gives what R contributes to the gates of all steps. A procedure
then goes from the last step to the first and finds what flows into the gates; that is all that depends on later steps.
The gradients of R, of the projected inputs and of initial states follow by products and sums over all steps.

Letters: T steps, B batch, H hidden, D directions, G gates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from pyruntime.frontend.own_gradients import Cotangents
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, Scalar, const, dim, guard, rewrite, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.lib.recurrent_activations import Activation
from pyruntime.ops.standard.matmul import product
from pyruntime.ops.standard.recurrent import MAX_UNITS, RECURRENCE, Cell, Layer, Packed
from pyruntime.training.derive.backward_walk import OutputCotangents, Walk
from pyruntime.training.derive.derivative import contributions, zero_like
from pyruntime.training.derive.routine_rules import swapped

Initial = tuple[Tensor | None, ...]


@RECURRENCE.function
def recurrence(
    walk: Walk, gs: OutputCotangents | Tensor, cell: Cell, r: Tensor, lens: Tensor | None, initial: Initial,
    y: Tensor, requested: Sequence[int],
) -> Cotangents:  # fmt: skip
    """y: all hidden states; gs: of y, then of the final states with the numbers `requested`"""
    into_y, *into_states = [gs] if isinstance(gs, Tensor) else gs
    layer = copy(cell.layer)
    layer.t, layer.r, layer.args = walk.t, r, []
    known = _Known(layer, cell, lens, initial, y)
    last = dict(zip(requested, into_states, strict=True))
    return _KINDS[cell.kind](walk, known, into_y, [last.get(n) for n in range(len(initial))]).record()


class _Known:
    """What the forward pass leaves. before: the hidden state before each step, and sums: what R adds to each gate, both
    with axes D, T, B first; reset: in a GRU, r∘h, which its last gate multiplies with R"""

    def __init__(self, layer: Layer, cell: Cell, lens: Tensor | None, initial: Initial, y: Tensor) -> None:
        self.layer, self.cell, self.lens, self.initial, self.y = layer, cell, lens, initial, y
        self.t, self.xs = layer.t, cell.xs
        self.shape = (layer.D, layer.T, layer.B)
        self.before = self.t.compute((*self.shape, layer.H), self._before)
        self.reset: Tensor | None = None
        self.sums = self._sums()

    def _before(self, d: Expr, time: Expr, b: Expr, j: Expr) -> Expr:
        layer, start = self.layer, self.initial[0]
        first = const(0.0, layer.dtype) if start is None else start.at(*layer.state(d, b, j))
        end = dim(layer.T)
        if self.lens is not None:
            end = self.t.checked_index(self.lens.at(b), layer.T + 1)
        forward = guard(time > 0, self.y.at(*layer.place(time - 1, d, b, j)), first)
        backward = guard(time + 1 < end, self.y.at(*layer.place(time + 1, d, b, j)), first)
        if layer.direction == "bidirectional":
            return guard(d > 0, backward, forward)
        return backward if layer.direction == "reverse" else forward

    def rows(self, x: Tensor) -> Tensor:
        """x (D, T, B, …) as (D, T·B, size of the rest)."""
        return self.t.reshape(x, (self.layer.D, self.layer.T * self.layer.B, sh.size(x.shape[3:])))

    def matrix(self, first: int, count: int) -> Tensor:
        """R of some gates as (D, count·H, H)."""
        layer = self.layer
        part = layer.r if count == layer.gates else self.t.slice(layer.r, 1, first, count)
        return self.t.reshape(part, (layer.D, count * layer.H, layer.H))

    def _times(self, x: Tensor, first: int, count: int) -> Tensor:
        y = product(self.t, self.rows(x), swapped(self.t, self.matrix(first, count)))
        return self.t.reshape(y, (*self.shape, count, self.layer.H))

    def _sums(self) -> Tensor:
        if self.cell.kind != "gru":
            return self._times(self.before, 0, self.layer.gates)
        both, t, layer = self._times(self.before, 0, 2), self.t, self.layer

        def reset(d: Expr, time: Expr, b: Expr, j: Expr) -> Expr:
            a = both.at(d, time, b, 1, j) + layer.at_step(self.xs, time, b, d, 1, j)
            return per_direction(d, self.cell.sets, lambda f: f[0](a)) * self.before.at(d, time, b, j)

        self.reset = t.compute(self.before.shape, reset)
        return t.concat([both, self._times(self.reset, 2, 1)], 3)


def per_direction(d: Expr, sets: list[list[Activation]], value: Callable[[list[Activation]], Expr]) -> Expr:
    return value(sets[0]) if len(sets) == 1 else select(d < 1, value(sets[0]), value(sets[1]))


def through(f: Activation, a: Expr, made: Expr, g: Expr) -> Expr:
    """What flows into a if g flows into made = f(a)."""
    spot = Tensor((), a.dtype, None)  # type: ignore[arg-type]
    parts = contributions(f(spot.at()), g, lambda x: x is spot, made)
    if not parts:
        return zero_like(g)
    return rewrite(parts[0][1], lambda x: a if x.op == "at" and x.value is spot else None)


class _Backward:
    """The procedure, and what follows from its results. Subclasses state the derivatives of a step.

    gates: what flows into the gates of all steps (D, T, B, G, H), and, where that differs, into what R adds to the last
    one (own); carried: the flow into each state before the step that comes next; more: for each batch row, into
    `cell.more`"""

    has_own = False

    def __init__(self, walk: Walk, known: _Known, into_y: Tensor | None, into_states: Sequence[Tensor | None]) -> None:
        self.walk, self.t, self.known, self.into_y, self.into_states = walk, walk.t, known, into_y, into_states
        self.layer, self.cell, self.more = known.layer, known.cell, known.cell.more
        self.xs, self.sums, self.before = known.xs, known.sums, known.before
        self.packed = self.packs()

    def packs(self) -> list[Packed]:
        return [self.transposed(0, self.layer.gates)]

    def transposed(self, first: int, count: int) -> Packed:
        """R of some gates, packed so that `dots` multiplies rows of flows into these gates with it."""
        r = self.known.matrix(first, count)
        return Packed(self.layer, [0], lambda d, _, unit, i: r.at(d, i, unit), count * self.layer.H)

    def record(self) -> Cotangents:
        layer, known, dtype = self.layer, self.known, self.layer.dtype
        lead, units = (layer.D, layer.B), sh.ceildiv(layer.H, MAX_UNITS) * MAX_UNITS
        all_gates = (*known.shape, layer.gates, layer.H)
        shapes = [all_gates, *[(*lead, layer.H)] * len(known.initial)]
        shapes += [(*known.shape, layer.H)] * self.has_own
        shapes += [] if self.more is None else [(layer.B, *self.more.shape)]
        scratch = [(*lead, layer.gates * layer.H), (*lead, 1, units), *self.more_scratch()]
        given = [self.xs, self.sums, self.before, self.more, known.lens, self.into_y, *self.into_states, *known.initial]
        args = list(dict.fromkeys([x for x in (*given, *layer.args) if x is not None]))

        def body(k: Builder, *tensors: Tensor) -> None:
            self.use(k, list(tensors))
            layer.blocks(k, known.lens is not None, self.work)

        types = [(s, dtype) for s in shapes]
        name = f"{self.cell.kind.replace(' ', '_')}_back"
        made = list(self.t.loops(name, args, types, body, [(s, dtype) for s in scratch]))
        return self.given(made)

    def more_scratch(self) -> list[tuple[Any, ...]]:
        return []

    def use(self, k: Builder, tensors: list[Tensor]) -> None:
        count = len(self.known.initial)
        self.k, self.gates = k, tensors.pop(0)
        self.carried, rest = tensors[:count], tensors[count:]
        self.own = rest.pop(0) if self.has_own else None
        self.into_more = None if self.more is None else rest.pop(0)
        self.flat, self.back, *self.spare = rest

    def given(self, made: list[Tensor]) -> Cotangents:
        t, layer, known = self.t, self.layer, self.known
        gates, *rest = made
        order = [2, 1, 0, 3, 4] if layer.layout else [1, 2, 0, 3, 4]
        out = [(self.xs, t.transpose(gates, order))]
        for start, flow in zip(known.initial, rest, strict=False):
            if start is not None:
                out.append((start, t.transpose(flow, [1, 0, 2]) if layer.layout else flow))
        rest = rest[len(known.initial) :]
        own = rest.pop(0) if self.has_own else None
        if self.walk.is_active(layer.r):
            out.append((layer.r, t.reshape(self.into_matrix(gates, own), layer.r.shape)))
        if self.more is not None:
            out.append((self.more, t.reduce("sum", rest[0], [0], keepdims=False)))
        return out

    def into_matrix(self, gates: Tensor, own: Tensor | None) -> Tensor:
        """(D, G·H, H)."""
        t, last = self.t, self.layer.gates - 1
        whole = self.known.rows(gates)
        if own is None and self.known.reset is None:
            return self.into_rows(whole, self.before)
        first = t.slice(whole, 2, 0, last * self.layer.H)
        rest = t.slice(whole, 2, last * self.layer.H, self.layer.H) if own is None else self.known.rows(own)
        parts = [self.into_rows(first, self.before), self.into_rows(rest, self.known.reset or self.before)]
        return t.concat(parts, 1)

    def into_rows(self, flow: Tensor, x: Tensor) -> Tensor:
        return product(self.t, swapped(self.t, flow), self.known.rows(x))

    # ── the procedure ────────────────────────────────────────────────────────────────────────────────────────────

    def work(self, d: Expr, rows: list[Expr]) -> None:
        k, layer, known = self.k, self.layer, self.known
        steps = layer.steps(k, known.lens, rows[0])
        for b in rows:
            self.start(d, b)
        self.prepare(d, rows, steps)
        with k.loop(steps) as s:
            time = k.let(layer.time(d, steps - 1 - s, steps))
            self.step(d, rows, time)
        for b in rows:
            with k.loop(layer.H, "vector") as j:
                h = self.carried[0]
                k.store(h, (d, b, j), h.at(d, b, j) + self.back.at(d, b, 0, j))
        if known.lens is not None:
            with k.loop(dim(layer.T) - steps) as s, k.loop(layer.gates) as g, k.loop(layer.H, "vector") as j:
                k.store(self.gates, (d, steps + s, rows[0], g, j), 0.0)
                if self.own is not None:
                    k.store(self.own, (d, steps + s, rows[0], j), 0.0)

    def start(self, d: Expr, b: Expr) -> None:
        k = self.k
        with k.loop(self.layer.H, "vector") as j:
            for flow, state in zip(self.into_states, self.carried, strict=True):
                k.store(state, (d, b, j), 0.0 if flow is None else flow.at(*self.layer.state(d, b, j)))
            k.store(self.back, (d, b, 0, j), 0.0)
            for at in self.places_of_more(d, b, j):
                assert self.into_more is not None
                k.store(self.into_more, at, 0.0)

    def places_of_more(self, d: Expr, b: Expr, j: Expr) -> list[tuple[Scalar, ...]]:
        if self.more is None:
            return []
        return [(b, d, j)] if self.more.rank == 2 else [(b, d, g, j) for g in range(3)]

    def prepare(self, d: Expr, rows: list[Expr], steps: Expr) -> None:
        """What goes over the steps forwards, before the others."""

    def step(self, d: Expr, rows: list[Expr], time: Expr) -> None:
        self.each(d, rows, time, self.element)
        self.dots(d, rows, self.packed[0])

    def each(self, d: Expr, rows: list[Expr], time: Expr, write: Callable[..., None]) -> None:
        """write(activations, d, b, time, j) for all units of the rows."""

        def all_rows(f: list[Activation]) -> None:
            for b in rows:
                with self.k.loop(self.layer.H, "vector") as j:
                    write(f, d, b, time, j)

        self.layer.per_direction(self.k, d, self.cell.sets, all_rows)

    def dots(self, d: Expr, rows: list[Expr], packed: Packed, first: int = 0) -> None:
        offset = dim(first * self.layer.H)
        packed.dots(self.k, d, rows, lambda b, i: self.flat.at(d, b, i + offset if first else i), self.back)

    def element(self, f: list[Activation], d: Expr, b: Expr, time: Expr, j: Expr) -> None:
        raise NotImplementedError

    # ── of one unit ──────────────────────────────────────────────────────────────────────────────────────────────

    def total(self, d: Expr, b: Expr, time: Expr, j: Expr) -> Expr:
        """What flows into h after a step."""
        total = self.carried[0].at(d, b, j) + self.back.at(d, b, 0, j)
        return self.k.let(total if self.into_y is None else total + self.into_y.at(*self.layer.place(time, d, b, j)))

    def gate(self, g: int, d: Expr, b: Expr, time: Expr, j: Expr) -> Expr:
        return self.sums.at(d, time, b, g, j) + self.layer.at_step(self.xs, time, b, d, g, j)

    def keep(self, g: int, d: Expr, b: Expr, time: Expr, j: Expr, flow: Expr, own: Expr | None = None) -> None:
        """Store what flows into a gate. own: into what R adds to it, if this differs"""
        k = self.k
        k.store(self.gates, (d, time, b, g, j), flow)
        k.store(self.flat, (d, b, dim(self.layer.H * g) + j), flow if own is None else own)

    def add_more(self, at: tuple[Scalar, ...], flow: Expr) -> None:
        assert self.into_more is not None
        self.k.store(self.into_more, at, self.into_more.at(*at) + flow)


class _RNN(_Backward):
    def element(self, f: list[Activation], d: Expr, b: Expr, time: Expr, j: Expr) -> None:
        k = self.k
        g, a = self.total(d, b, time, j), k.let(self.gate(0, d, b, time, j))
        k.store(self.carried[0], (d, b, j), 0.0)
        self.keep(0, d, b, time, j, k.let(through(f[0], a, k.let(f[0](a)), g)))


class _LinearGRU(_Backward):
    """n = g(xn + r∘(Rh·h + Rb))."""

    has_own = True

    def element(self, f: list[Activation], d: Expr, b: Expr, time: Expr, j: Expr) -> None:
        k, at = self.k, (d, b, time, j)
        g, old = self.total(*at), k.let(self.before.at(d, time, b, j))
        az, ar = k.let(self.gate(0, *at)), k.let(self.gate(1, *at))
        z, r = k.let(f[0](az)), k.let(f[0](ar))
        own = self.sums.at(d, time, b, 2, j)
        own = k.let(own if self.more is None else own + self.more.at(d, j))
        an = k.let(self.layer.at_step(self.xs, time, b, d, 2, j) + r * own)
        n = k.let(f[1](an))
        into_n = k.let(through(f[1], an, n, g * (1.0 - z)))
        into_own = k.let(into_n * r)
        self.keep(0, *at, k.let(through(f[0], az, z, g * (old - n))))
        self.keep(1, *at, k.let(through(f[0], ar, r, into_n * own)))
        self.keep(2, *at, into_n, into_own)
        assert self.own is not None
        k.store(self.own, (d, time, b, j), into_own)
        k.store(self.carried[0], (d, b, j), g * z)
        if self.more is not None:
            self.add_more((b, d, j), into_own)


class _ResetGRU(_Backward):
    """n = g(xn + Rh·(r∘h)): what flows into r∘h is known after a product with Rh."""

    def packs(self) -> list[Packed]:
        return [self.transposed(0, 2), self.transposed(2, 1)]

    def step(self, d: Expr, rows: list[Expr], time: Expr) -> None:
        self.each(d, rows, time, self.element)
        self.dots(d, rows, self.packed[1], 2)
        self.each(d, rows, time, self.into_reset)
        self.dots(d, rows, self.packed[0])

    def element(self, f: list[Activation], d: Expr, b: Expr, time: Expr, j: Expr) -> None:
        k, at = self.k, (d, b, time, j)
        g, old = self.total(*at), k.let(self.before.at(d, time, b, j))
        az, an = k.let(self.gate(0, *at)), k.let(self.gate(2, *at))
        z, n = k.let(f[0](az)), k.let(f[1](an))
        self.keep(0, *at, k.let(through(f[0], az, z, g * (old - n))))
        self.keep(2, *at, k.let(through(f[1], an, n, g * (1.0 - z))))
        k.store(self.carried[0], (d, b, j), g * z)

    def into_reset(self, f: list[Activation], d: Expr, b: Expr, time: Expr, j: Expr) -> None:
        k, at, h = self.k, (d, b, time, j), self.carried[0]
        g, ar = k.let(self.back.at(d, b, 0, j)), k.let(self.gate(1, *at))
        r = k.let(f[0](ar))
        self.keep(1, *at, k.let(through(f[0], ar, r, g * self.before.at(d, time, b, j))))
        k.store(h, (d, b, j), h.at(d, b, j) + g * r)


class _LSTM(_Backward):
    """A pass over the steps forwards finds the cell states, element by element."""

    def more_scratch(self) -> list[tuple[Any, ...]]:
        return [(*self.known.shape, self.layer.H)]

    def peep(self, g: int, d: Expr, j: Expr, cell: Expr) -> Expr:
        assert self.more is not None
        return self.more.at(d, g, j) * cell

    def input(self, g: int, d: Expr, b: Expr, time: Expr, j: Expr, cell: Expr | None = None) -> Expr:
        a = self.gate(g, d, b, time, j)
        return self.k.let(a if self.more is None or cell is None else a + self.peep(g, d, j, cell))

    def prepare(self, d: Expr, rows: list[Expr], steps: Expr) -> None:
        k, layer, start, cells = self.k, self.layer, self.known.initial[1], self.spare[0]
        with k.loop(steps) as s:
            time = k.let(layer.time(d, s, steps))
            last = k.let(layer.time(d, s - 1, steps))

            def write(f: list[Activation], d: Expr, b: Expr, time: Expr, j: Expr) -> None:
                first = const(0.0, layer.dtype) if start is None else start.at(*layer.state(d, b, j))
                k.store(cells, (d, time, b, j), guard(s > 0, self.after(f, d, b, last, j), first))

            self.each(d, rows, time, write)

    def after(self, f: list[Activation], d: Expr, b: Expr, time: Expr, j: Expr) -> Expr:
        """The cell state after a step."""
        old, at = self.spare[0].at(d, time, b, j), (d, b, time, j)
        gates = [self.gate(g, *at) for g in range(4)]
        if self.more is not None:
            gates[0], gates[2] = (gates[g] + self.peep(g, d, j, old) for g in (0, 2))
        i = f[0](gates[0])
        forget = 1.0 - i if self.cell.coupled else f[0](gates[2])
        return forget * old + i * f[1](gates[3])

    def element(self, f: list[Activation], d: Expr, b: Expr, time: Expr, j: Expr) -> None:
        k, at, c, coupled = self.k, (d, b, time, j), self.carried[1], self.cell.coupled
        old = k.let(self.spare[0].at(d, time, b, j))
        ai, af, ag = self.input(0, *at, old), self.input(2, *at, old), self.input(3, *at)
        i, g = k.let(f[0](ai)), k.let(f[1](ag))
        forget = k.let(1.0 - i if coupled else f[0](af))
        new = k.let(forget * old + i * g)
        ao = self.input(1, *at, new)
        o, shown, flow = k.let(f[0](ao)), k.let(f[2](new)), self.total(*at)
        into_o = k.let(through(f[0], ao, o, flow * shown))
        into_c = c.at(d, b, j) + through(f[2], new, shown, flow * o)
        into_c = k.let(into_c if self.more is None else into_c + self.peep(1, d, j, into_o))
        into_i = k.let(through(f[0], ai, i, into_c * (g - old if coupled else g)))
        into_f = const(0.0, self.layer.dtype) if coupled else k.let(through(f[0], af, forget, into_c * old))
        flows = {0: into_i, 1: into_o, 2: into_f, 3: k.let(through(f[1], ag, g, into_c * i))}
        for n, value in flows.items():
            self.keep(n, *at, value)
        before = into_c * forget
        if self.more is not None:
            before = before + self.peep(0, d, j, into_i) + self.peep(2, d, j, into_f)
            for n, value in ((0, into_i * old), (1, into_o * new), (2, into_f * old)):
                self.add_more((b, d, n, j), value)
        k.store(c, (d, b, j), before)
        k.store(self.carried[0], (d, b, j), 0.0)


_KINDS: dict[str, type[_Backward]] = {"rnn": _RNN, "gru": _ResetGRU, "linear gru": _LinearGRU, "lstm": _LSTM}
