"""RNN, GRU and LSTM: one product projects all inputs, then one loop kernel runs the recurrence.

The recurrence is parallel over directions and pairs of batch rows. Each step multiplies R with the hidden states of
both rows, which share each load of R. R is packed so that four units are the lanes of a vector; where machine code
computes the products, they are plain loops. Then the step applies the activations to contiguous gates
(docs/design/cpu-kernels.md#recurrent-networks)."""

# T steps, B batch, I inputs, H hidden, D directions, G gates

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.frontend.registry import attributes_of, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32, DType
from pyruntime.ir.expr import Expr, Scalar, X, Y, const, dim, guard, select, walk, with_args
from pyruntime.ir.kernel import Accum, Builder, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.formula import sum_type
from pyruntime.ops.lib.recurrent_activations import Activation, activations
from pyruntime.ops.standard.matmul import product

DIRECTIONS = {"forward": 1, "foward": 1, "reverse": 1, "bidirectional": 2}  # "foward" is opset 1's default

LANES = 4
PARTS = {1: 4, 2: 4, 3: 2, 4: 2}  # number of gates -> vectors of units that are summed together per batch row
MAX_UNITS = LANES * max(PARTS.values())
LEAST_UNITS = 16  # for which calls of machine code pay


@dataclass(frozen=True, slots=True)
class Unit:
    """What a cell reads of one hidden unit. x, r: what the inputs and R · h add to each gate; states: before the step;
    extras: further weights, such as peepholes"""

    x: Sequence[Expr]
    r: Sequence[Expr]
    states: Sequence[Expr]
    extras: Sequence[Expr]

    def gate(self, n: int) -> Expr:
        return self.r[n] + self.x[n]


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a step: the product of some gates' R with a vector (h in the first stage), then a formula of each unit.
    first, count: the gates of the product; reads: the gates of the formula; formula: (activations, unit) -> the new
    states; in a stage before the last one, the vector of the next product"""

    first: int
    count: int
    reads: tuple[int, ...]
    formula: Callable[[list[Activation], Unit], list[Expr]]


@dataclass(frozen=True, slots=True)
class Cell:
    """What a step computes; the gradient is derived from it. sets: activations, for all directions or for each; xs: the
    projection; extras: weights (D, n, H); is_split: a formula uses what the inputs and R add to a gate separately"""

    name: str
    layer: Layer
    sets: list[list[Activation]]
    xs: Tensor
    stages: tuple[Stage, ...]
    extras: Tensor | None = None
    is_split: bool = False

    def unit(
        self, time: Expr, d: Expr, b: Expr, j: Expr, r: Sequence[Expr], states: Sequence[Expr]
    ) -> Unit:  # fmt: skip
        x = [self.layer.at_step(self.xs, time, b, d, n, j) for n in range(self.layer.gates)]
        extras = [] if self.extras is None else [self.extras.at(d, n, j) for n in range(self.extras.shape[1])]
        return Unit(x, r, states, extras)


def let_shared(k: Builder, values: list[Expr]) -> list[Expr]:
    """Floats that are computed here, each node once: nodes that are read more than once become variables, and so do the
    values if there are several. They must have no guard, whose other side must not be computed."""
    seen: set[int] = set()
    nodes = [x for value in values for x in walk(value, seen)]
    reads = Counter(id(a) for x in nodes for a in x.args)
    if len(values) > 1:
        reads.update({id(value): 2 for value in values})
    made: dict[int, Expr] = {}
    for x in nodes:
        value = with_args(x, [made[id(a)] for a in x.args], x.dtype)
        made[id(x)] = k.let(value) if reads[id(x)] > 1 and x.args and x.dtype.is_float else value
    return [made[id(value)] for value in values]


Rounding = Callable[[Builder, Tensor, Tensor, Expr, Expr], None]  # k, h, gates, d, b


@dataclass(slots=True)
class Run:
    """A recurrence inside its loop kernel. gates (D, B, G, units) is scratch; rounds: see `Layer.run`"""

    cell: Cell
    packed: list[Packed]
    y: Tensor | None
    states: list[Tensor]
    initial: Sequence[Tensor | None]
    lens: Tensor | None
    gates: Tensor
    rounds: Rounding | None


RECURRENCE = GradientRule[Cell, Tensor, Tensor | None, tuple[Tensor | None, ...], Tensor, tuple[int, ...]]()


class Layer:
    """The common part of the three operators: shapes, the projection, states, and the loop over steps."""

    def __init__(
        self, t: Tracer, gates: int, xwr: tuple[Tensor, Tensor, Tensor], direction: str, layout: int, size: int | None
    ) -> None:
        x, w, r = xwr
        if direction not in DIRECTIONS:
            raise t.unsupported(f"direction {direction!r} is not known")
        self.t, self.gates, self.direction, self.layout = t, gates, direction, layout
        self.out_type = x.dtype
        self.dtype: DType = sum_type(x.dtype)
        self.x, self.w = t.cast(x, self.dtype), t.cast(w, self.dtype)
        self.D = DIRECTIONS[direction]
        self.T, self.B = (x.shape[1], x.shape[0]) if layout else (x.shape[0], x.shape[1])
        self.H: AnyDim = r.shape[2]
        t.require_equal(self.H if size is None else size, self.H, "hidden_size and R differ")
        t.require_shape("W", w, (self.D, gates * self.H, x.shape[2]))
        t.require_shape("R", r, (self.D, gates * self.H, self.H))
        self.r = t.reshape(t.cast(r, self.dtype), (self.D, gates, self.H, self.H))
        self.args: list[Tensor] = []

    def use(self, x: Tensor | None) -> Tensor | None:
        """An optional operand in the type of the computation, listed as an argument of the kernel."""
        if x is None:
            return None
        x = self.t.cast(x, self.dtype)
        self.args.append(x)
        return x

    def project(self, bias: Tensor | None, without: int = 0) -> Tensor:
        """x · Wᵀ + Wb + Rb for all steps at once, without the Rb of the last `without` gates. Shape: (T, B, D, G, H),
        or (B, T, …) with layout 1."""
        t, rows = self.t, self.gates * self.H
        x = t.reshape(self.x, (self.T * self.B, self.x.shape[2]))
        w = t.transpose(t.reshape(self.w, (self.D * rows, self.w.shape[2])), [1, 0])
        y = t.cast(product(t, x, w), self.dtype)
        t.require_shape("B", bias, (self.D, 2 * rows))
        if bias is not None:
            b = t.cast(bias, self.dtype)
            both = rows - without * self.H
            joined = t.compute(
                (self.D, rows), lambda d, j: b[d, j] + guard(j < dim(both), b[d, j + dim(rows)], 0.0), self.dtype
            )
            y = t.map(X + Y, y, t.reshape(joined, (self.D * rows,)))
        lead = (self.B, self.T) if self.layout else (self.T, self.B)
        out = t.reshape(y, (*lead, self.D, self.gates, self.H))
        self.args.insert(0, out)
        return out

    def at_step(self, x: Tensor, time: Scalar, b: Scalar, d: Scalar, *rest: Scalar) -> Expr:
        return x.at(*((b, time) if self.layout else (time, b)), d, *rest)

    def state(self, d: Scalar, b: Scalar, j: Scalar) -> tuple[Scalar, ...]:
        """Coordinates in a state: (D, B, H), or (B, D, H) with layout 1."""
        return (b, d, j) if self.layout else (d, b, j)

    @property
    def padded_units(self) -> AnyDim:
        """Columns of what `Packed.dots` writes."""
        return sh.ceildiv(self.H, MAX_UNITS) * MAX_UNITS

    def run(
        self, cell: Cell, lens: Tensor | None, initial: Sequence[Tensor | None], rounds: Rounding | None = None
    ) -> list[Tensor | None]:  # fmt: skip
        """Y and the final states. rounds: stores a row of h, rounded, after the row's gates, for the products; then the
        recurrence has no gradient"""
        t = self.t
        packed = [Packed(self, range(s.first, s.first + s.count)) for s in cell.stages]
        asked = (*t.wanted, False, False, False)
        wanted = (asked[0] or (t.differentiates and rounds is None), *asked[1:])
        lead = (self.B, self.D) if self.layout else (self.D, self.B)
        y_shape = (self.B, self.T, self.D, self.H) if self.layout else (self.T, self.D, self.B, self.H)
        requested = [n for n in range(len(initial)) if wanted[1 + n]]
        hidden = [n for n in range(len(initial)) if n not in requested]
        shapes = [y_shape] * wanted[0] + [(*lead, self.H)] * len(requested)
        t.require_shape("sequence_lens", lens, (self.B,))
        for x in initial:
            t.require_shape("an initial state", x, (*lead, self.H))
        if lens is not None:
            self.args.append(lens)

        def body(k: Builder, *tensors: Tensor) -> None:
            rest = list(tensors)
            y = rest.pop(0) if wanted[0] else None
            states: dict[int, Tensor] = {n: rest.pop(0) for n in requested}
            states.update({n: rest.pop(0) for n in hidden})
            own = [states[n] for n in range(len(initial))]
            run = Run(cell, packed, y, own, initial, lens, rest[0], rounds)
            self.blocks(k, lens is not None, lambda d, rows: self._steps(k, run, d, rows))

        outputs = [(s, self.dtype) for s in shapes]
        gates = (self.D, self.B, self.gates + (rounds is not None), self.padded_units)
        inside = [((*lead, self.H), self.dtype) for _ in hidden] + [(gates, self.dtype)]
        made = t.loops(cell.name, self.args, outputs, body, inside)
        if wanted[0] and rounds is None:
            t.own_gradient(made[0], RECURRENCE, cell, self.r, lens, tuple(initial), made[0], tuple(requested))
        results = [t.cast(x, self.out_type) for x in made]
        found = [results.pop(0) if w else None for w in wanted[: 1 + len(initial)]]
        return found if asked[0] else [None, *found[1:]]

    def blocks(self, k: Builder, has_lens: bool, work: Callable[[Expr, list[Expr]], None]) -> None:
        """Does the work (direction, batch rows) for pairs of batch rows, or for single rows if there is one or their
        lengths may differ."""
        alone = has_lens or self.B == 1
        blocks = self.B if alone else sh.ceildiv(self.B, 2)
        with k.parallel(self.D * blocks) as p:
            d = const(0, I32) if self.D == 1 else k.let(p / dim(blocks))
            block = p if self.D == 1 else k.let(p - d * dim(blocks))
            if alone:
                work(d, [block])
                return
            first = k.let(block * 2)
            if isinstance(self.B, int) and self.B % 2 == 0:
                work(d, [first, first + 1])
                return
            with k.when(first + 1 < dim(self.B)):
                work(d, [first, first + 1])
            with k.otherwise():
                work(d, [first])

    def _steps(self, k: Builder, run: Run, d: Expr, rows: list[Expr]) -> None:
        y, lens = run.y, run.lens
        steps = self.steps(k, lens, rows[0])

        def start(f: list[Activation], b: Expr, j: Expr) -> None:
            for state, initial in zip(run.states, run.initial, strict=True):
                at = self.state(d, b, j)
                k.store(state, at, 0.0 if initial is None else initial.at(*at))

        self.each_unit(k, d, rows, [[]], start)
        with k.loop(steps) as s:
            time = k.let(self.time(d, s, steps))
            self._step(k, run, d, rows, time)
            for b in rows if y is not None else []:
                with k.loop(self.H, "vector") as j:
                    assert y is not None
                    k.store(y, self.place(time, d, b, j), run.states[0].at(*self.state(d, b, j)))
        if y is not None and lens is not None:
            with k.loop(dim(self.T) - steps) as s, k.loop(self.H, "vector") as j:
                k.store(y, self.place(steps + s, d, rows[0], j), 0.0)

    def _step(self, k: Builder, run: Run, d: Expr, rows: list[Expr], time: Expr) -> None:
        """Update the states of these batch rows in place."""
        h, gates, stages = run.states[0], run.gates, run.cell.stages
        if run.rounds is not None:
            for b in rows:
                run.rounds(k, h, gates, d, b)
        for n, (stage, packed) in enumerate(zip(stages, run.packed, strict=True)):
            # the vector of a later product replaces a gate that only the stage before reads
            row = stages[n - 1].reads[0] if n else self.gates

            def vector(b: Expr, i: Expr, row: int = row) -> Expr:
                return gates[d, b, row, i] if row < self.gates or run.rounds else h.at(*self.state(d, b, i))

            packed.dots(k, d, rows, vector, gates)

            def write(f: list[Activation], b: Expr, j: Expr, stage: Stage = stage) -> None:
                at, r = self.state(d, b, j), [gates[d, b, g, j] for g in range(self.gates)]
                unit = run.cell.unit(time, d, b, j, r, [x.at(*at) for x in run.states])
                targets = [(x, at) for x in run.states] if stage is stages[-1] else [(gates, (d, b, stage.reads[0], j))]
                for (target, place), value in zip(targets, let_shared(k, stage.formula(f, unit)), strict=True):
                    k.store(target, place, value)

            self.each_unit(k, d, rows, run.cell.sets, write)

    def steps(self, k: Builder, lens: Tensor | None, b: Expr) -> Expr:
        """The number of steps of a batch row."""
        return dim(self.T) if lens is None else k.let(self.t.checked_index(lens[b], self.T + 1))

    def place(self, time: Scalar, d: Scalar, b: Scalar, j: Scalar) -> tuple[Scalar, ...]:
        return (b, time, d, j) if self.layout else (time, d, b, j)

    def time(self, d: Expr, s: Expr, steps: Expr) -> Expr:
        if self.direction == "bidirectional":
            return select(d > 0, steps - 1 - s, s)
        return steps - 1 - s if self.direction == "reverse" else s

    def each_unit(
        self, k: Builder, d: Expr, rows: list[Expr], sets: list[list[Activation]],
        write: Callable[[list[Activation], Expr, Expr], None],
    ) -> None:  # fmt: skip
        """write(activations, b, j) for all units of the rows. sets: one for both directions, or one for each"""

        def all_rows(f: list[Activation]) -> None:
            for b in rows:
                with k.loop(self.H, "vector") as j:
                    write(f, b, j)

        if len(sets) == 1:
            all_rows(sets[0])
            return
        with k.when(d < 1):
            all_rows(sets[0])
        with k.otherwise():
            all_rows(sets[1])


def _activation_sets(
    layer: Layer, names: Sequence[str], default: Sequence[str], alpha: Sequence[float], beta: Sequence[float],
    limit: float | None,
) -> list[list[Activation]]:  # fmt: skip
    """One list of activations for all directions if they agree, else one per direction."""
    if limit is not None and not limit > 0:
        raise layer.t.unsupported(f"clip is {limit}, must be above 0")
    count, names = len(default), list(names) or list(default) * layer.D
    if len(names) == count:
        names = names * layer.D
    if len(names) < count * layer.D:
        raise layer.t.unsupported(f"{len(names)} activations, but {layer.D} directions need {count} each")
    same = layer.D == 1 or (names[:count] == names[count : 2 * count] and not alpha and not beta)
    functions = activations(layer.t, names[: count * layer.D], alpha, beta, limit)
    return [functions[:count]] if same else [functions[:count], functions[count:]]


RNN, GRU, LSTM = ["Tanh"], ["Sigmoid", "Tanh"], ["Sigmoid", "Tanh", "Tanh"]  # their default activations


def layer_of(
    t: Tracer, gates: int, xwr: tuple[Tensor, Tensor, Tensor], default: Sequence[str], layout: int = 0, *,
    activations: Sequence[str] = (), activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
    clip: float | None = None, direction: str = "forward", hidden_size: int | None = None,
) -> tuple[Layer, list[list[Activation]]]:  # fmt: skip
    """A layer and its activation sets. An LSTM's last activation, of the cell state, is not clipped, as in ONNX
    Runtime."""
    layer = Layer(t, gates, xwr, direction, layout, hidden_size)
    clipped, unclipped = (
        _activation_sets(layer, activations, default, activation_alpha, activation_beta, limit)
        for limit in (clip, None)
    )
    return layer, [[*f[:2], *g[2:]] for f, g in zip(clipped, unclipped, strict=True)]


class Packed:
    """Some gates of R as (D, units / (4 · parts), parts, G, H, 4): four units are the lanes of a vector. Machine code
    reads (D, G, H, units).

    element(d, gate, unit, i), length: a matrix with rows of another length instead of R"""

    def __init__(
        self, layer: Layer, gates: Sequence[int], element: Callable[..., Expr] | None = None,
        length: AnyDim | None = None,
    ) -> None:  # fmt: skip
        self.layer, self.gates, self.parts = layer, gates, PARTS[len(gates)]
        self.length = layer.H if length is None else length
        read = element or layer.r.at
        width = LANES * self.parts
        self.blocks = sh.ceildiv(layer.H, width)
        self.plain = layer.t.products and layer.dtype is F32 and sh.estimate(layer.H) >= LEAST_UNITS

        def unit_of(d: Expr, g: Expr, i: Expr, unit: Expr) -> Expr:
            gate = g if len(gates) == layer.gates else g + gates[0]
            return guard(unit < dim(layer.H), read(d, gate, unit, i), 0.0)

        def in_blocks(d: Expr, block: Expr, part: Expr, g: Expr, i: Expr, lane: Expr) -> Expr:
            return unit_of(d, g, i, block * width + part * LANES + lane)

        if self.plain:
            self.r = layer.t.compute((layer.D, len(gates), self.length, layer.padded_units), unit_of, layer.dtype)
        else:
            shape = (layer.D, self.blocks, self.parts, len(gates), self.length, LANES)
            self.r = layer.t.compute(shape, in_blocks, layer.dtype)
        layer.args.append(self.r)

    def dots(
        self, k: Builder, d: Expr, rows: list[Expr], vector: Callable[[Expr, Expr], Expr], out: Tensor,
    ) -> None:  # fmt: skip
        """out[d, b, g, j] = Σi R[d, g, j, i] · vector(b, i) for each of the rows b, gates g and units j. Up to twelve
        sums of four units run at once, which hides their latency."""
        if self.plain:
            self._plain_dots(k, d, rows, vector, out)
            return
        together = max(1, min(self.parts, 12 // (len(self.gates) * len(rows))))
        with k.parallel(self.blocks) as block:
            for first in range(0, self.parts, together):
                with k.loop(LANES, "vector") as lane:
                    at = range(first, min(first + together, self.parts))
                    self._sums(k, d, rows, vector, out, block, lane, at)

    def _plain_dots(
        self, k: Builder, d: Expr, rows: list[Expr], vector: Callable[[Expr, Expr], Expr], out: Tensor,
    ) -> None:  # fmt: skip
        for n, gate in enumerate(self.gates):
            with k.loop(len(rows)) as row, k.loop(self.layer.H, "vector") as j:
                b, total = rows[0] + row, k.var(0.0, self.layer.dtype)
                with k.loop(self.length) as i:
                    k.emit(Accum(total.get.value, "sum", vector(b, i) * self.r[d, n, i, j]))
                k.store(out, (d, b, gate, j), k.let(total.get))

    def _sums(
        self, k: Builder, d: Expr, rows: list[Expr], vector: Callable[[Expr, Expr], Expr], out: Tensor,
        block: Expr, lane: Expr, parts: range,
    ) -> None:  # fmt: skip
        dtype, gates = self.layer.dtype, range(len(self.gates))
        sums = {(b, part, g): k.var(0.0, dtype) for b in range(len(rows)) for part in parts for g in gates}
        with k.loop(self.length) as i:
            values = [k.let(vector(b, i)) for b in rows]
            for part in parts:
                for g in gates:
                    weight = k.let(self.r[d, block, part, g, i, lane])
                    for b, value in enumerate(values):
                        k.emit(Accum(sums[b, part, g].get.value, "sum", weight * value))
        for (b, part, g), total in sums.items():
            unit = block * (LANES * self.parts) + lane + part * LANES
            k.store(out, (d, rows[b], self.gates[g], unit), total.get)


@op("RNN", since=1)
@attributes_of(layer_of)
def rnn(
    t: Tracer, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lens: Tensor | None = None,
    h0: Tensor | None = None, *, layout: int = 0, output_sequence: int = 0, **cell: Any,
) -> list[Tensor | None]:  # fmt: skip
    """h = f(x·Wᵀ + h·Rᵀ + Wb + Rb).

    Shapes: x (T, B, I), w (D, H, I), r (D, H, H), b (D, 2H) -> (T, D, B, H), (D, B, H)
    Spec: https://onnx.ai/onnx/operators/onnx__RNN.html"""
    layer, sets = layer_of(t, 1, (x, w, r), RNN, layout, **cell)
    stage = Stage(0, 1, (0,), lambda f, u: [f[0](u.gate(0))])
    return layer.run(Cell("rnn", layer, sets, layer.project(b), (stage,)), lens, [layer.use(h0)])
