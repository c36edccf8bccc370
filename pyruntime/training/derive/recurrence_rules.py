"""The gradients of RNN, GRU and LSTM, derived from the formulas of their cells.

The hidden states of all steps are known, so one product gives what R contributes to the gates of all steps. A procedure
then goes from the last step to the first and finds the cotangents of the gates, because only they depend on later
steps. The gradients of R, of the projected inputs and of initial states follow by products and sums over all steps.

Letters: T steps, B batch, H hidden, D directions, G gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial, reduce
from operator import add

from pyruntime.frontend.own_gradients import Cotangents
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, Scalar, const, dim, guard, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.lib.recurrent_activations import Activation
from pyruntime.ops.standard.matmul import product
from pyruntime.ops.standard.recurrent import RECURRENCE, Cell, Packed, Stage, Unit, let_shared
from pyruntime.training.derive.backward_walk import OutputCotangents, Walk
from pyruntime.training.derive.derivative import contributions
from pyruntime.training.derive.reverse_recurrence import CHUNK, ReverseRecurrence, procedure
from pyruntime.training.derive.routine_rules import swapped

Initial = tuple[Tensor | None, ...]


@RECURRENCE.function
def recurrence(
    walk: Walk, gs: OutputCotangents | Tensor, cell: Cell, r: Tensor, lens: Tensor | None, initial: Initial,
    y: Tensor, requested: Sequence[int],
) -> Cotangents:  # fmt: skip
    """y: all hidden states; gs: of y, then of the final states with the numbers `requested`"""
    of_y, *of_last = [gs] if isinstance(gs, Tensor) else gs
    known = dict(zip(requested, of_last, strict=True))
    made = _Gradient(walk, cell, r, lens, initial, y)
    return made.record(of_y, [known.get(n) for n in range(len(initial))])


class _Gradient:
    """Records the kernels. before: the hidden state before each step; sums: what R adds to each gate; vectors: what R
    is multiplied by, for each stage; all have axes D, T, B first. packed: R of each stage, for its product with the
    cotangents of its gates"""

    def __init__(
        self, walk: Walk, cell: Cell, r: Tensor, lens: Tensor | None, initial: Initial, y: Tensor
    ) -> None:  # fmt: skip
        self.layer = layer = copy(cell.layer)
        layer.t, layer.r, layer.args = walk.t, r, []
        self.walk, self.t, self.cell, self.lens, self.initial, self.y = walk, walk.t, cell, lens, initial, y
        self.shape = (layer.D, layer.T, layer.B)
        self.before = self.t.compute((*self.shape, layer.H), self._before)
        self.vectors, self.packed = [self.before], []
        sums: list[Tensor] = []
        for stage in cell.stages:
            part = layer.r if stage.count == layer.gates else self.t.slice(layer.r, 1, stage.first, stage.count)
            matrix = self.t.reshape(part, (layer.D, stage.count * layer.H, layer.H))
            made = product(self.t, self._rows(self.vectors[-1]), swapped(self.t, matrix))
            sums.append(self.t.reshape(made, (*self.shape, stage.count, layer.H)))
            self.sums = sums[0] if len(sums) == 1 else self.t.concat(sums, 3)
            if stage is not cell.stages[-1]:
                self.vectors.append(self.t.compute(self.before.shape, partial(self._vector, stage)))
            transposed = lambda d, _, unit, i, r=matrix: r.at(d, i, unit)  # noqa: E731
            self.packed.append(Packed(layer, [0], transposed, stage.count * layer.H))

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

    def _vector(self, stage: Stage, d: Expr, time: Expr, b: Expr, j: Expr) -> Expr:
        values = [stage.formula(f, self.unit(d, time, b, j))[0] for f in self.cell.sets]
        return values[0] if len(values) == 1 else select(d < 1, *values)

    def unit(self, d: Expr, time: Expr, b: Expr, j: Expr, *more_states: Expr) -> Unit:
        r = [self.sums.at(d, time, b, n, j) for n in range(self.sums.shape[3])]
        return self.cell.unit(time, d, b, j, r, [self.before.at(d, time, b, j), *more_states])

    def _rows(self, x: Tensor) -> Tensor:
        """x (D, T, B, …) as (D, T·B, size of the rest)."""
        return self.t.reshape(x, (self.layer.D, self.layer.T * self.layer.B, sh.size(x.shape[3:])))

    def record(self, of_y: Tensor | None, of_last: Sequence[Tensor | None]) -> Cotangents:
        """of_y, of_last: cotangents of Y and of the final states"""
        layer, extras = self.layer, self.cell.extras
        gates: sh.Shape = (*self.shape, layer.gates * layer.H)
        state: sh.Shape = (layer.D, layer.B, layer.H)
        outputs = {"of_sums": gates} | ({"of_xs": gates} if self.cell.is_split else {})
        outputs |= {f"of_state{n}": state for n in range(len(self.initial))}
        outputs |= {} if extras is None else {"of_extras": (layer.B, *extras.shape)}
        scratch: dict[str, sh.Shape] = {"back": (layer.D, layer.B, 1, layer.padded_units)}
        if len(self.initial) > 1:
            chunks = sh.ceildiv(layer.T, CHUNK)
            scratch |= {"cell": state, "marks": (chunks, *state), "cells": (sh.minimum(layer.T, CHUNK), *state)}
        args = [self.cell.xs, self.sums, self.before, extras, self.lens, of_y, *of_last, *self.initial, *layer.args]

        def body(k: Builder, tensors: Mapping[str, Tensor]) -> None:
            def work(d: Expr, rows: list[Expr]) -> None:
                _Backward(self, k, tensors, d, rows).run(of_y, of_last)

            layer.blocks(k, self.lens is not None, work)

        return self._cotangents(procedure(self.t, f"{self.cell.name}_back", args, layer.dtype, outputs, scratch, body))

    def _cotangents(self, made: Mapping[str, Tensor]) -> Cotangents:
        t, layer, extras = self.t, self.layer, self.cell.extras
        of_xs = t.reshape(made.get("of_xs", made["of_sums"]), (*self.shape, layer.gates, layer.H))
        out = [(self.cell.xs, t.transpose(of_xs, [2, 1, 0, 3, 4] if layer.layout else [1, 2, 0, 3, 4]))]
        for n, start in enumerate(self.initial):
            if start is not None:
                found = made[f"of_state{n}"]
                out.append((start, t.transpose(found, [1, 0, 2]) if layer.layout else found))
        if self.walk.is_active(layer.r):
            parts = []
            for stage, vector in zip(self.cell.stages, self.vectors, strict=True):
                rows = self._rows(made["of_sums"])
                if stage.count != layer.gates:
                    rows = t.slice(rows, 2, stage.first * layer.H, stage.count * layer.H)
                parts.append(product(t, swapped(t, rows), self._rows(vector)))
            out.append((layer.r, t.reshape(parts[0] if len(parts) == 1 else t.concat(parts, 1), layer.r.shape)))
        if extras is not None:
            out.append((extras, t.reduce("sum", made["of_extras"], [0], keepdims=False)))
        return out


class _Backward(ReverseRecurrence):
    """Writes the backward loop over the steps for some rows of the batch.

    Cotangents (docs/architecture.md):
    of_sums, of_xs: of what the recurrent weights R, and what the inputs, add to the gates in each step
    of_states: of the states before the step that the loop does next, without the part that comes through R
    back: that part
    of_extras: of `cell.extras`, a row for each row of the batch

    Values of an LSTM's second state, which is computed again:
    state, marks, cells: the current one, those before each chunk of steps, those before each step of a chunk
    """

    def __init__(
        self, gradient: _Gradient, k: Builder, tensors: Mapping[str, Tensor], d: Expr, rows: list[Expr]
    ) -> None:  # fmt: skip
        self.gradient, self.k, self.d, self.rows = gradient, k, d, rows
        self.layer, self.cell = layer, cell = gradient.layer, gradient.cell
        self.of_sums, self.back = tensors["of_sums"], tensors["back"]
        self.of_xs, self.of_extras = tensors.get("of_xs"), tensors.get("of_extras")
        self.of_states = [tensors[f"of_state{n}"] for n in range(len(gradient.initial))]
        self.replays = "cell" in tensors
        if self.replays:
            self.state, self.marks, self.cells = (tensors[name] for name in ("cell", "marks", "cells"))
        self.read = (cell.xs, gradient.sums, gradient.before, cell.extras, tensors.get("cells"))
        self.steps = layer.steps(k, gradient.lens, rows[0])
        self.each = partial(layer.each_unit, k, d, rows)

    def run(self, of_y: Tensor | None, of_last: Sequence[Tensor | None]) -> None:
        k, d, layer, initial = self.k, self.d, self.layer, self.gradient.initial
        self.of_y = of_y

        def start(f: list[Activation], b: Expr, j: Expr) -> None:
            at, place = (d, b, j), layer.state(d, b, j)
            pairs = [*zip(of_last, self.of_states, strict=True), *([(initial[1], self.state)] if self.replays else [])]
            for x, target in pairs:
                k.store(target, at, 0.0 if x is None else x.at(*place))
            k.store(self.back, (d, b, 0, j), 0.0)
            if self.of_extras is not None:
                for n in range(self.of_extras.shape[2]):
                    k.store(self.of_extras, (b, d, n, j), 0.0)

        self.each([[]], start)
        self.over_steps(self.steps)
        self.each([[]], lambda f, b, j: self.add(self.of_states[0], (d, b, j), self.back.at(d, b, 0, j)))
        if self.gradient.lens is not None:
            with k.loop(dim(layer.T) - self.steps) as n, k.loop(layer.gates * layer.H, "vector") as i:
                for of in filter(None, (self.of_sums, self.of_xs)):
                    k.store(of, (d, self.steps + n, self.rows[0], i), 0.0)

    def copy_states(self, chunk: Expr, is_back: bool) -> None:
        def copied(f: list[Activation], b: Expr, j: Expr) -> None:
            at, stored = (self.d, b, j), (chunk, self.d, b, j)
            if is_back:
                self.k.store(self.state, at, self.marks.at(*stored))
            else:
                self.k.store(self.marks, stored, self.state.at(*at))

        self.each([[]], copied)

    def forward(self, step: Expr, place: Expr | None) -> None:
        k, time = self.k, self.k.let(self.layer.time(self.d, step, self.steps))

        def write(f: list[Activation], b: Expr, j: Expr) -> None:
            at = (self.d, b, j)
            old = k.let(self.state.at(*at))
            if place is not None:
                k.store(self.cells, (place, *at), old)
            unit = self.gradient.unit(self.d, time, b, j, old)
            k.store(self.state, at, self.cell.stages[-1].formula(f, unit)[1])

        self.each(self.cell.sets, write)

    def backward(self, step: Expr, place: Expr) -> None:
        d, time = self.d, self.k.let(self.layer.time(self.d, step, self.steps))
        for stage, packed in reversed([*zip(self.cell.stages, self.gradient.packed, strict=True)]):
            self.each(self.cell.sets, partial(self._unit_backwards, stage, time, place))
            first = dim(stage.first * self.layer.H)
            row = lambda b, i, first=first: self.of_sums.at(d, time, b, i + first)  # noqa: E731
            packed.dots(self.k, d, self.rows, row, self.back)

    def _unit_backwards(self, stage: Stage, time: Expr, place: Expr, f: list[Activation], b: Expr, j: Expr) -> None:
        """Store the cotangents of all that the formula of a stage reads of a unit: the derivatives of the sum of its
        results times their cotangents."""
        k, d, is_last = self.k, self.d, stage is self.cell.stages[-1]
        unit = self.gradient.unit(d, time, b, j, *([self.cells.at(place, d, b, j)] if self.replays else []))
        gs = self._of_states(time, b, j) if is_last else [self.back.at(d, b, 0, j)]
        total = reduce(add, [value * k.let(g) for value, g in zip(stage.formula(f, unit), gs, strict=True)])
        found = contributions(total, const(1.0, total.dtype), lambda x: x in self.read)
        values = let_shared(k, [value for _, value in found])
        of = {load.key(): value for (load, _), value in zip(found, values, strict=True)}

        def store(target: Tensor | None, at: tuple[Scalar, ...], load: Expr, adds: bool) -> None:
            if target is not None and (load.key() in of or not adds):
                value = of.get(load.key(), const(0.0, target.dtype))
                k.store(target, at, target.at(*at) + value if adds else value)

        for g in stage.reads:
            at = (d, time, b, dim(self.layer.H * g) + j)
            store(self.of_sums, at, unit.r[g], adds=False)
            store(self.of_xs, at, unit.x[g], adds=False)
        for load, target in zip(unit.states, self.of_states, strict=True):
            store(target, (d, b, j), load, adds=not is_last)
        for n, load in enumerate(unit.extras):
            store(self.of_extras, (b, d, n, j), load, adds=True)

    def _of_states(self, time: Expr, b: Expr, j: Expr) -> list[Expr]:
        """The cotangents of the states after a step: those of h also come through R, and from Y."""
        h, *others = [x.at(self.d, b, j) for x in self.of_states]
        h = h + self.back.at(self.d, b, 0, j)
        return [h if self.of_y is None else h + self.of_y.at(*self.layer.place(time, self.d, b, j)), *others]
