"""GRU and LSTM, built on `recurrent.Layer`."""

# T steps, B batch, I inputs, H hidden, D directions

from __future__ import annotations

from typing import Any

from pyruntime.frontend.registry import attributes_of, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, clip, maximum, minimum, round_even, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.lib.recurrent_activations import Activation
from pyruntime.ops.standard.recurrent import GRU, LSTM, Cell, Layer, Step, layer_of


@op("GRU", since=1)
@attributes_of(layer_of)
def gru(
    t: Tracer, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lens: Tensor | None = None,
    h0: Tensor | None = None, *, layout: int = 0, linear_before_reset: int = 0, output_sequence: int = 0, **cell: Any,
) -> list[Tensor | None]:  # fmt: skip
    """z = f(Wz·x + Rz·h + b), r = f(Wr·x + Rr·h + b), n = g(Wh·x + Rh·(r∘h) + b), h = (1-z)∘n + z∘h; with
    linear_before_reset n = g(Wh·x + Wb + r∘(Rh·h + Rb)). Gates in the order z r h.

    Shapes: x (T, B, I), w (D, 3H, I), r (D, 3H, H), b (D, 6H) -> (T, D, B, H), (D, B, H)
    Spec: https://onnx.ai/onnx/operators/onnx__GRU.html"""
    layer, sets = layer_of(t, 3, (x, w, r), GRU, layout, **cell)
    xs = layer.project(b, without=1 if linear_before_reset else 0)
    start = layer.use(h0)
    rb = layer.use(t.slice(b, 1, 5 * layer.H, layer.H) if b is not None and linear_before_reset else None)
    step = _linear_step(layer, sets, xs, rb) if linear_before_reset else _reset_step(layer, sets, xs)
    kept = Cell("linear gru" if linear_before_reset else "gru", layer, sets, xs, rb)
    return layer.run("gru", lens, [start], 3, step, kept)


def _linear_step(layer: Layer, sets: list[list[Activation]], xs: Tensor, rb: Tensor | None) -> Step:
    packed = layer.pack([0, 1, 2])

    def step(k: Builder, d: Expr, rows: list[Expr], time: Expr, states: list[Tensor], gates: Tensor) -> None:
        h = states[0]
        packed.dots(k, d, rows, lambda b, i: h.at(*layer.state(d, b, i)), gates)

        def write(f: list[Activation]) -> None:
            for b in rows:
                with k.loop(layer.H, "vector") as j:
                    zx, rx, nx = (layer.at_step(xs, time, b, d, g, j) for g in range(3))
                    z, r = f[0](gates[d, b, 0, j] + zx), f[0](gates[d, b, 1, j] + rx)
                    own = gates[d, b, 2, j] if rb is None else gates[d, b, 2, j] + rb[d, j]
                    new, at = f[1](nx + r * own), layer.state(d, b, j)
                    k.store(h, at, (1.0 - z) * new + z * h.at(*at))

        layer.per_direction(k, d, sets, write)

    return step


def _reset_step(layer: Layer, sets: list[list[Activation]], xs: Tensor) -> Step:
    both, last = layer.pack([0, 1]), layer.pack([2])

    def step(k: Builder, d: Expr, rows: list[Expr], time: Expr, states: list[Tensor], gates: Tensor) -> None:
        h = states[0]
        both.dots(k, d, rows, lambda b, i: h.at(*layer.state(d, b, i)), gates)

        def gate(g: int, b: Expr, j: Expr) -> Expr:
            return gates[d, b, g, j] + layer.at_step(xs, time, b, d, g, j)

        def reset(f: list[Activation]) -> None:
            for b in rows:
                with k.loop(layer.H, "vector") as j:  # r∘h overwrites r
                    k.store(gates, (d, b, 1, j), f[0](gate(1, b, j)) * h.at(*layer.state(d, b, j)))

        def write(f: list[Activation]) -> None:
            for b in rows:
                with k.loop(layer.H, "vector") as j:
                    z, at = f[0](gate(0, b, j)), layer.state(d, b, j)
                    k.store(h, at, (1.0 - z) * f[1](gate(2, b, j)) + z * h.at(*at))

        layer.per_direction(k, d, sets, reset)
        last.dots(k, d, rows, lambda b, i: gates[d, b, 1, i], gates)
        layer.per_direction(k, d, sets, write)

    return step


@op("LSTM", since=1)
@attributes_of(layer_of)
def lstm(
    t: Tracer, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lens: Tensor | None = None,
    h0: Tensor | None = None, c0: Tensor | None = None, peepholes: Tensor | None = None, *, input_forget: int = 0,
    layout: int = 0, output_sequence: int = 0, **cell: Any,
) -> list[Tensor | None]:  # fmt: skip
    """i, o, f = σ(W·x + R·h + b + P∘c), c = f∘c + i∘g(Wc·x + Rc·h + b), h = o∘tanh(c); o reads the new c. Gates in the
    order i o f c, peepholes i o f; with input_forget f = 1 - i.

    Shapes: x (T, B, I), w (D, 4H, I), r (D, 4H, H), b (D, 8H), p (D, 3H) -> (T, D, B, H), (D, B, H), (D, B, H)
    Spec: https://onnx.ai/onnx/operators/onnx__LSTM.html"""
    layer, sets = layer_of(t, 4, (x, w, r), LSTM, layout, **cell)
    return lstm_of(layer, sets, b, lens, (h0, c0), peepholes, input_forget)


def lstm_of(
    layer: Layer, sets: list[list[Activation]], b: Tensor | None, lens: Tensor | None,
    start: tuple[Tensor | None, Tensor | None], peepholes: Tensor | None, input_forget: int, rounded: bool = False,
) -> list[Tensor | None]:  # fmt: skip
    """The outputs of LSTM. rounded: R is multiplied by h rounded to 8 bits, with one range per row of h."""
    t, xs = layer.t, layer.project(b)
    initial = [layer.use(x) for x in start]
    peep = layer.use(None if peepholes is None else t.reshape(peepholes, (layer.D, 3, layer.H)))
    packed = layer.pack(range(4))

    def step(k: Builder, d: Expr, rows: list[Expr], time: Expr, states: list[Tensor], gates: Tensor) -> None:
        h, c = states
        for b in rows if rounded else []:
            _round(k, layer, h, gates, d, b)
        packed.dots(k, d, rows, lambda b, i: gates[d, b, 4, i] if rounded else h.at(*layer.state(d, b, i)), gates)

        def write(f: list[Activation]) -> None:
            for b in rows:
                cell(f, b)

        def cell(f: list[Activation], b: Expr) -> None:
            with k.loop(layer.H, "vector") as j:
                at = layer.state(d, b, j)
                old = k.let(c.at(*at))

                def gate(g: int, cell: Expr | None = None) -> Expr:
                    x = gates[d, b, g, j] + layer.at_step(xs, time, b, d, g, j)
                    return x if peep is None or cell is None else x + peep[d, g, j] * cell

                i = k.let(f[0](gate(0, old)))
                forget = 1.0 - i if input_forget else f[0](gate(2, old))
                new = k.let(forget * old + i * f[1](gate(3)))
                k.store(c, at, new)
                k.store(h, at, f[0](gate(1, new)) * f[2](new))

        layer.per_direction(k, d, sets, write)

    of = None if rounded else Cell("lstm", layer, sets, xs, peep, bool(input_forget))
    return layer.run("lstm", lens, initial, 5 if rounded else 4, step, of)


def _round(k: Builder, layer: Layer, h: Tensor, gates: Tensor, d: Expr, b: Expr) -> None:
    """Stores row b of h, rounded as by DynamicQuantizeLinear, after its gates."""
    high, low = k.var(0.0, F32), k.var(0.0, F32)
    with k.loop(layer.H) as j:
        value = k.let(h.at(*layer.state(d, b, j)))
        high.set(maximum(high.get, value))
        low.set(minimum(low.get, value))
    scale = k.let(select(high.get == low.get, 1.0, high.get - low.get) / 255.0)
    zero = k.let(round_even(clip(-low.get / scale, 0.0, 255.0)))
    with k.loop(layer.H, "vector") as j:
        code = clip(round_even(h.at(*layer.state(d, b, j)) / scale) + zero, 0.0, 255.0)
        k.store(gates, (d, b, 4, j), (code - zero) * scale)
