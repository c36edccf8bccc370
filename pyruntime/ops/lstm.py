"""GRU and LSTM, on the `Layer` of `recurrent`."""

# T steps, B batch, I inputs, H hidden, D directions

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.expr import Expr, const
from pyruntime.kernel import Builder, Tensor
from pyruntime.ops.gates import Activation
from pyruntime.ops.recurrent import Layer, activation_sets
from pyruntime.ops.registry import op
from pyruntime.tracer import Tracer


@op("GRU", since=1)
def gru(
    t: Tracer, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lens: Tensor | None = None,
    h0: Tensor | None = None, *, activations: Sequence[str] = (), activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (), clip: float | None = None, direction: str = "forward",
    hidden_size: int | None = None, layout: int = 0, linear_before_reset: int = 0, output_sequence: int = 0,
) -> list[Tensor | None]:  # fmt: skip
    """z = f(Wz·x + Rz·h + b), r = f(Wr·x + Rr·h + b), n = g(Wh·x + Rh·(r∘h) + b), h = (1-z)∘n + z∘h; with
    linear_before_reset n = g(Wh·x + Wb + r∘(Rh·h + Rb)). Gates in the order z r h.

    Shapes: x (T, B, I), w (D, 3H, I), r (D, 3H, H), b (D, 6H) -> (T, D, B, H), (D, B, H)
    Spec: https://onnx.ai/onnx/operators/onnx__GRU.html"""
    layer = Layer(t, 3, (x, w, r), direction, layout, hidden_size)
    sets = activation_sets(layer, activations, ["Sigmoid", "Tanh"], activation_alpha, activation_beta, clip)
    xs = layer.project(b, apart=1 if linear_before_reset else 0)
    start = layer.use(h0)
    rb = layer.use(t.slice(b, 1, 5 * layer.H, layer.H) if b is not None and linear_before_reset else None)
    step = _linear_step(layer, sets, xs, rb) if linear_before_reset else _reset_step(layer, sets, xs)
    return layer.run("gru", lens, [start], [(layer.D * layer.B, 3, layer.H)], step)


def _linear_step(layer: Layer, sets: list[list[Activation]], xs: Tensor, rb: Tensor | None):  # type: ignore[no-untyped-def]
    def step(k: Builder, p: Expr, d: Expr, b: Expr, time: Expr, states: list[Tensor], gates: Tensor) -> None:
        h = states[0]

        def start(g: int, j: Expr) -> Expr:
            if g < 2:
                return layer.at_step(xs, time, b, d, g, j)
            return const(0.0, layer.dtype) if rb is None else rb[d, j]

        layer.dots(
            k, [0, 1, 2], d, start, lambda i: h.at(*layer.state(d, b, i)),
            lambda g, j, total: k.store(gates, (p, g, j), total),
        )  # fmt: skip

        def write(f: list[Activation]) -> None:
            with k.loop(layer.H, "vector") as j:
                z, r = f[0](gates[p, 0, j]), f[0](gates[p, 1, j])
                new = f[1](layer.at_step(xs, time, b, d, 2, j) + r * gates[p, 2, j])
                at = layer.state(d, b, j)
                k.store(h, at, (1.0 - z) * new + z * h.at(*at))

        layer.per_direction(k, d, sets, write)

    return step


def _reset_step(layer: Layer, sets: list[list[Activation]], xs: Tensor):  # type: ignore[no-untyped-def]
    def step(k: Builder, p: Expr, d: Expr, b: Expr, time: Expr, states: list[Tensor], gates: Tensor) -> None:
        h = states[0]

        def start(g: int, j: Expr) -> Expr:
            return layer.at_step(xs, time, b, d, g, j)

        def keep(g: int, j: Expr, total: Expr) -> None:
            k.store(gates, (p, g, j), total)

        layer.dots(k, [0, 1], d, start, lambda i: h.at(*layer.state(d, b, i)), keep)

        def reset(f: list[Activation]) -> None:
            with k.loop(layer.H, "vector") as j:  # r∘h replaces r
                k.store(gates, (p, 1, j), f[0](gates[p, 1, j]) * h.at(*layer.state(d, b, j)))

        def write(f: list[Activation]) -> None:
            with k.loop(layer.H, "vector") as j:
                z, at = f[0](gates[p, 0, j]), layer.state(d, b, j)
                k.store(h, at, (1.0 - z) * f[1](gates[p, 2, j]) + z * h.at(*at))

        layer.per_direction(k, d, sets, reset)
        layer.dots(k, [2], d, start, lambda i: gates[p, 1, i], keep)
        layer.per_direction(k, d, sets, write)

    return step


@op("LSTM", since=1)
def lstm(
    t: Tracer, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lens: Tensor | None = None,
    h0: Tensor | None = None, c0: Tensor | None = None, peepholes: Tensor | None = None, *,
    activations: Sequence[str] = (), activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
    clip: float | None = None, direction: str = "forward", hidden_size: int | None = None, input_forget: int = 0,
    layout: int = 0, output_sequence: int = 0,
) -> list[Tensor | None]:  # fmt: skip
    """i, o, f = σ(W·x + R·h + b + P∘c), c = f∘c + i∘g(Wc·x + Rc·h + b), h = o∘tanh(c); o looks at the new c. Gates in
    the order i o f c, peepholes i o f; with input_forget f = 1 - i.

    Shapes: x (T, B, I), w (D, 4H, I), r (D, 4H, H), b (D, 8H), p (D, 3H) -> (T, D, B, H), (D, B, H), (D, B, H)
    Spec: https://onnx.ai/onnx/operators/onnx__LSTM.html"""
    layer = Layer(t, 4, (x, w, r), direction, layout, hidden_size)
    sets = activation_sets(layer, activations, ["Sigmoid", "Tanh", "Tanh"], activation_alpha, activation_beta, clip)
    xs = layer.project(b)
    start = [layer.use(h0), layer.use(c0)]
    peep = layer.use(None if peepholes is None else t.reshape(peepholes, (layer.D, 3, layer.H)))

    def step(k: Builder, p: Expr, d: Expr, b: Expr, time: Expr, states: list[Tensor], gates: Tensor) -> None:
        h, c = states
        layer.dots(
            k, range(4), d, lambda g, j: layer.at_step(xs, time, b, d, g, j),
            lambda i: h.at(*layer.state(d, b, i)), lambda g, j, total: k.store(gates, (p, g, j), total),
        )  # fmt: skip

        def write(f: list[Activation]) -> None:
            with k.loop(layer.H, "vector") as j:
                at = layer.state(d, b, j)
                old = k.let(c.at(*at))

                def gate(g: int, cell: Expr) -> Expr:
                    x = gates[p, g, j]
                    return x if peep is None else x + peep[d, g, j] * cell

                i = k.let(f[0](gate(0, old)))
                forget = 1.0 - i if input_forget else f[0](gate(2, old))
                new = k.let(forget * old + i * f[1](gates[p, 3, j]))
                k.store(c, at, new)
                k.store(h, at, f[0](gate(1, new)) * f[2](new))

        layer.per_direction(k, d, sets, write)

    return layer.run("lstm", lens, start, [(layer.D * layer.B, 4, layer.H)], step)
