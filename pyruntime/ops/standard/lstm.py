"""GRU and LSTM, built on `recurrent.Layer`."""

# T steps, B batch, I inputs, H hidden, D directions

from __future__ import annotations

from functools import partial, reduce
from operator import add
from typing import Any

from pyruntime.frontend.registry import attributes_of, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, clip, maximum, minimum, round_even, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.lib.recurrent_activations import Activation
from pyruntime.ops.standard.recurrent import GRU, LSTM, Cell, Layer, Stage, Unit, layer_of


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
    if linear_before_reset:
        rb = None if b is None else t.reshape(t.slice(b, 1, 5 * layer.H, layer.H), (layer.D, 1, layer.H))
        stage = Stage(0, 3, (0, 1, 2), _linear_gru)
        return layer.run(Cell("gru", layer, sets, xs, (stage,), layer.use(rb), is_split=True), lens, [start])
    stages = (Stage(0, 2, (1,), lambda f, u: [f[0](u.gate(1)) * u.states[0]]), Stage(2, 1, (0, 2), _reset_gru))
    return layer.run(Cell("gru", layer, sets, xs, stages), lens, [start])


def _linear_gru(f: list[Activation], u: Unit) -> list[Expr]:
    z, r = f[0](u.gate(0)), f[0](u.gate(1))
    new = f[1](u.x[2] + r * reduce(add, u.extras, u.r[2]))
    return [(1.0 - z) * new + z * u.states[0]]


def _reset_gru(f: list[Activation], u: Unit) -> list[Expr]:
    z = f[0](u.gate(0))
    return [(1.0 - z) * f[1](u.gate(2)) + z * u.states[0]]


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

    def formula(f: list[Activation], u: Unit) -> list[Expr]:
        def gate(n: int, peephole: int, cell: Expr) -> Expr:
            return u.gate(n) if peepholes is None else u.gate(n) + u.extras[peephole] * cell

        old = u.states[1]
        i = f[0](gate(0, 0, old))
        forget = 1.0 - i if input_forget else f[0](gate(2, 2, old))
        new = forget * old + i * f[1](u.gate(3))
        return [f[0](gate(1, 1, new)) * f[2](new), new]

    cell = Cell("lstm", layer, sets, xs, (Stage(0, 4, (0, 1, 2, 3), formula),), peep)
    return layer.run(cell, lens, initial, partial(_round, layer) if rounded else None)


def _round(layer: Layer, k: Builder, h: Tensor, gates: Tensor, d: Expr, b: Expr) -> None:
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
