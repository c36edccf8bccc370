"""Recurrences of published architectures, with the operators that exports of their code have.

T steps, B batch, D channels, N state size, H heads, K and V sizes of keys and values. `ARCHITECTURES` has all by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, helper

from bench.loop_decoders import DECODERS
from bench.loop_nodes import FLOAT, INT64, Feeds, Nodes, finished, normal, recurrence, value

Model = tuple[ModelProto, Feeds]
Names = dict[str, str]


def gate(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers between 0 and 1."""
    return (1 / (1 + np.exp(-normal(rng, *shape)))).astype(np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def mamba_block(
    steps: int, form: str, b: int = 1, width: int = 128, d: int = 256, n: int = 16, rank: int = 8, window: int = 4
) -> Model:
    """Mamba's block as its `step` computes it: a convolution of the last four inputs, selective scan, gate, and the
    products around them."""
    rng = np.random.default_rng(0)
    weights = {
        "in_w": normal(rng, width, 2 * d, scale=width**-0.5), "conv_w": normal(rng, d, window, scale=0.5),
        "conv_b": normal(rng, d), "x_w": normal(rng, d, rank + 2 * n, scale=d**-0.5),
        "dt_w": normal(rng, rank, d, scale=rank**-0.5), "dt_b": normal(rng, d) - 3,
        "a_log": normal(rng, d, n, scale=0.5), "skip": normal(rng, d), "out_w": normal(rng, d, width, scale=d**-0.5),
    }  # fmt: skip

    def step(k: Nodes, x: Names, s: Names) -> Any:
        part, z = k.parts(k("MatMul", x["x"], "in_w"), [d, d])
        conv = k("Concat", k.part(s["conv"], 1, window, 2), k.wide(part, -1), axis=2)
        mixed = k.silu(k("Add", k.total(k("Mul", conv, "conv_w"), -1), "conv_b"))
        dt, in_gate, out_gate = k.parts(k("MatMul", mixed, "x_w"), [rank, n, n])
        dt = k.wide(k("Softplus", k("Add", k("MatMul", dt, "dt_w"), "dt_b")), -1)
        decay = k("Exp", k("Mul", dt, k("Neg", k("Exp", "a_log"))))
        change = k("Mul", k.wide(mixed, -1), k("Mul", dt, k.wide(in_gate, 1)))
        ssm = k("Add", k("Mul", s["ssm"], decay), change)
        y = k("Add", k.narrow(k("MatMul", ssm, k.wide(out_gate, -1)), -1), k("Mul", "skip", mixed))
        return {"conv": conv, "ssm": ssm}, {"y": k("MatMul", k("Mul", y, k.silu(z)), "out_w")}

    states = {"conv": zeros(b, d, window), "ssm": zeros(b, d, n)}
    return recurrence("mamba_block", form, steps, {"x": normal(rng, steps, b, width)}, states, weights, step)


def mamba2(steps: int, form: str, b: int = 1, h: int = 8, p: int = 64, n: int = 64) -> Model:
    """Mamba-2: a decay for each head, states of P x N. Its einsums are Einsum in the Loop, MatMul and Mul in the
    Scan."""
    rng = np.random.default_rng(0)
    scans = {
        "x": normal(rng, steps, b, h, p), "dt": np.log1p(np.exp(normal(rng, steps, b, h) - 2)),
        "b": normal(rng, steps, b, n), "c": normal(rng, steps, b, n, scale=n**-0.5),
    }  # fmt: skip
    weights = {"a": -np.exp(normal(rng, h)), "skip": normal(rng, h, 1)}

    def step(k: Nodes, x: Names, s: Names) -> Any:
        decay = k("Unsqueeze", k("Exp", k("Mul", x["dt"], "a")), k.constant([-1, -2]))
        if form == "loop":
            change = k("Einsum", x["dt"], x["b"], x["x"], equation="bh,bn,bhp->bhpn")
            state = k("Add", k("Mul", s["s"], decay), change)
            y = k("Einsum", state, x["c"], equation="bhpn,bn->bhp")
        else:
            scaled = k("Mul", x["x"], k.wide(x["dt"], -1))
            change = k("Mul", k.wide(scaled, -1), k("Unsqueeze", x["b"], k.constant([1, 2])))
            state = k("Add", k("Mul", s["s"], decay), change)
            y = k.narrow(k("MatMul", state, k("Unsqueeze", x["c"], k.constant([1, 3]))), -1)
        return {"s": state}, {"y": k("Add", y, k("Mul", "skip", x["x"]))}

    return recurrence("mamba2", form, steps, scans, {"s": zeros(b, h, p, n)}, weights, step)


def rwkv(steps: int, form: str, version: int, b: int = 1, h: int = 8, n: int = 64) -> Model:
    """The matrix states of RWKV-5 (a decay for each channel), -6 (which depends on the step) and -7 (a delta rule)."""
    rng = np.random.default_rng(0)
    scans = {s: normal(rng, steps, b, h, n, scale=n**-0.5) for s in ("r", "k", "v")}
    weights = {"u": normal(rng, h, n, 1)}
    if version == 5:
        weights["w"] = gate(rng, h, n, 1)
    elif version == 6:
        scans["w"] = normal(rng, steps, b, h, n)
    else:
        del weights["u"]
        scans["w"] = gate(rng, steps, b, h, n)
        keys = normal(rng, steps, b, h, n)
        scans["a"] = -keys / np.linalg.norm(keys, axis=-1, keepdims=True)
        scans["b"] = -scans["a"] * gate(rng, steps, b, h, n)

    def step(k: Nodes, x: Names, s: Names) -> Any:
        if version == 7:
            state = k("Mul", s["s"], k.wide(x["w"], 2))
            state = k("Add", state, k("MatMul", k("MatMul", s["s"], k.wide(x["a"], 3)), k.wide(x["b"], 2)))
            state = k("Add", state, k("MatMul", k.wide(x["v"], 3), k.wide(x["k"], 2)))
            return {"s": state}, {"y": k.narrow(k("MatMul", state, k.wide(x["r"], 3)), 3)}
        at = k("MatMul", k.wide(x["k"], 3), k.wide(x["v"], 2))
        y = k("MatMul", k.wide(x["r"], 2), k("Add", k("Mul", "u", at), s["s"]))
        decay = "w" if version == 5 else k.wide(k("Exp", k("Neg", k("Exp", x["w"]))), 3)
        return {"s": k("Add", at, k("Mul", decay, s["s"]))}, {"y": k.narrow(y, 2)}

    return recurrence(f"rwkv{version}", form, steps, scans, {"s": zeros(b, h, n, n)}, weights, step)


def slstm(steps: int, form: str, b: int = 1, h: int = 4, d: int = 128) -> Model:
    """xLSTM's sLSTM: exponential gates with a running maximum, recurrent weights for each head."""
    rng = np.random.default_rng(0)
    weights = {"r": normal(rng, h, d // h, 4 * d // h, scale=(d // h) ** -0.5), "bias": normal(rng, 4 * d)}

    def step(k: Nodes, x: Names, s: Names) -> Any:
        heads = k("MatMul", k.shaped(s["y"], b, h, 1, -1), "r")
        heads = k("Transpose", k.shaped(heads, b, h, 4, -1), perm=[0, 2, 1, 3])
        raw = k("Add", k("Add", x["x"], k.shaped(heads, b, -1)), "bias")
        i, f, z, o = k.parts(raw, [d] * 4)
        rest = k("Add", s["m"], k("Neg", k("Softplus", k("Neg", f))))
        fresh = k("ReduceMin", k("Cast", k("Equal", s["n"], k.number(0)), to=FLOAT), keepdims=0)
        m = k("Where", k("Greater", fresh, k.number(0)), i, k("Max", i, rest))
        new, old = k("Exp", k("Sub", i, m)), k("Exp", k("Sub", rest, m))
        c = k("Add", k("Mul", old, s["c"]), k("Mul", new, k("Tanh", z)))
        n = k("Add", k("Mul", old, s["n"]), new)
        y = k("Div", k("Mul", k("Sigmoid", o), c), n)
        return {"y": y, "c": c, "n": n, "m": m}, {"ys": y}

    states = {s: zeros(b, d) for s in "ycnm"}
    return recurrence("slstm", form, steps, {"x": normal(rng, steps, b, 4 * d)}, states, weights, step)


def mlstm(steps: int, form: str, b: int = 1, h: int = 4, d: int = 64) -> Model:
    """xLSTM's mLSTM: a matrix memory C, a normaliser N and a running maximum M for each head."""
    rng = np.random.default_rng(0)
    scans = {s: normal(rng, steps, b, h, d) for s in ("q", "k", "v")}
    scans |= {"i": normal(rng, steps, b, h), "f": normal(rng, steps, b, h) + 3}

    def step(k: Nodes, x: Names, s: Names) -> Any:
        i, f = (k("Unsqueeze", x[s], k.constant([-1, -2])) for s in ("i", "f"))
        log_f = k("Neg", k("Softplus", k("Neg", f)))
        m = k("Max", k("Add", log_f, s["m"]), i)
        old, new = k("Exp", k("Sub", k("Add", log_f, s["m"]), m)), k("Exp", k("Sub", i, m))
        key = k("Div", k.wide(x["k"], -1), k.number(d**0.5))
        c = k("Add", k("Mul", old, s["c"]), k("Mul", new, k("MatMul", key, k.wide(x["v"], 2))))
        n = k("Add", k("Mul", old, s["n"]), k("Mul", new, key))
        query = k.wide(x["q"], 2)
        least = k("Add", k("Max", k("Abs", k("MatMul", query, n)), k("Exp", k("Neg", m))), k.number(1e-6))
        return {"c": c, "n": n, "m": m}, {"y": k.narrow(k("Div", k("MatMul", query, c), least), 2)}

    states = {"c": zeros(b, h, d, d), "n": zeros(b, h, d, 1), "m": zeros(b, h, 1, 1)}
    return recurrence("mlstm", form, steps, scans, states, {}, step)


def delta_buffer(steps: int, b: int = 1, h: int = 8, d: int = 64) -> Model:
    """Gated delta net as transformers' code for Qwen3-Next exports: the time is the third axis, and each step writes
    its row of an output that the Loop carries."""
    rng = np.random.default_rng(0)
    feeds = {s: normal(rng, b, h, steps, d, scale=d**-0.5) for s in ("q", "k", "v")}
    feeds |= {"g": -np.abs(normal(rng, b, h, steps, scale=0.1)), "beta": gate(rng, b, h, steps)}
    states = {"s": zeros(b, h, d, d), "out": zeros(b, h, steps, d)}
    n, trip = Nodes("b_"), Nodes("m_")
    n("Identity", "going", out="going_on")
    q, k, v, g, beta = (n("Gather", s, "turn", axis=2) for s in ("q", "k", "v", "g", "beta"))
    state = n("Mul", "s_in", n("Unsqueeze", n("Exp", g), n.constant([-1, -2])))
    known = n.total(n("Mul", state, n.wide(k, -1)), -2)
    change = n("Mul", n("Sub", v, known), n.wide(beta, -1))
    state = n("Add", state, n("Mul", n.wide(k, -1), n.wide(change, -2)), out="s_next")
    row = n.wide(n.total(n("Mul", state, n.wide(q, -1)), -2), 2)
    n("ScatterElements", "out_in", n("Expand", "turn", n("Shape", row)), row, axis=2, out="out_next")
    inputs = [value(f"{s}_in", x.shape if s == "s" else [b, h, "T", d]) for s, x in states.items()]
    body = helper.make_graph(
        n.nodes, "body", [value("turn", [], INT64), value("going", [], 9), *inputs],
        [value("going_on", [], 9), value("s_next", None), value("out_next", None)], n.weights,
    )  # fmt: skip
    count = trip("Squeeze", trip.part(trip("Shape", "q"), 2, 3, 0))
    loop = helper.make_node("Loop", [count, "", "s", "out"], ["s_out", "y"], body=body)
    shapes: dict[str, list[Any]] = {s: [b, h, "T", *x.shape[3:]] for s, x in feeds.items()}
    shapes |= {"s": [b, h, d, d], "out": [b, h, "T", d]}
    graph = helper.make_graph(
        [*trip.nodes, loop], "delta_buffer", [value(s, x) for s, x in shapes.items()],
        [value("s_out", None), value("y", None)], trip.weights,
    )  # fmt: skip
    return finished(graph), {**feeds, **states}


def retnet(steps: int, form: str, b: int = 1, h: int = 8, key: int = 32, v: int = 64) -> Model:
    """RetNet's recurrent form with its running scale, and the norm of each head."""
    rng = np.random.default_rng(0)
    scans = {s: normal(rng, steps, b, h, 1, key, scale=key**-0.5) for s in ("q", "k")}
    scans["v"] = normal(rng, steps, b, h, v, 1)
    weights = {"decay": (1 - 2.0 ** (-5 - np.arange(h))).astype(np.float32)[:, None, None]}

    def step(k: Nodes, x: Names, s: Names) -> Any:
        scale = k("Add", k("Mul", s["scale"], "decay"), k.number(1))
        root = k("Sqrt", scale)
        kept = k("Div", k("Mul", k("Sqrt", s["scale"]), "decay"), root)
        state = k("Add", k("Mul", s["kv"], kept), k("Div", k("Mul", x["k"], x["v"]), root))
        y = k.total(k("Mul", x["q"], state), 3)
        norm = k("Sqrt", k("Add", k("ReduceMean", k("Mul", y, y), k.constant([-1])), k.number(1e-6)))
        return {"kv": state, "scale": scale}, {"y": k("Div", y, norm)}

    return recurrence("retnet", form, steps, scans, {"kv": zeros(b, h, v, key), "scale": zeros(h, 1, 1)}, weights, step)


def griffin(steps: int, form: str, b: int = 1, h: int = 8, d: int = 32) -> Model:
    """Griffin's RG-LRU: gates with weights for each block, a decay in logarithms, and resets where documents begin."""
    rng = np.random.default_rng(0)
    scans: Feeds = {"x": normal(rng, steps, b, h * d), "position": np.arange(steps)[:, None] % 100}
    weights = {"a": normal(rng, h * d)}
    for s in ("i", "r"):
        weights |= {f"{s}_w": normal(rng, h, d, d, scale=d**-0.5), f"{s}_b": normal(rng, h, d)}

    def step(k: Nodes, x: Names, s: Names) -> Any:
        def linear(name: str) -> str:
            made = k("Einsum", k.shaped(x["x"], b, h, d), f"{name}_w", equation="bhi,hij->bhj")
            return k.shaped(k("Sigmoid", k("Add", made, f"{name}_b")), b, h * d)

        reset = k("Equal", k.wide(x["position"], -1), k.constant(0))
        log_a = k("Mul", k("Mul", k.number(-8), linear("r")), k("Softplus", "a"))
        multiplier = k("Sqrt", k("Sub", k.number(1), k("Exp", k("Mul", k.number(2), log_a))))
        multiplier = k("Where", reset, k.number(1), multiplier)
        a = k("Where", reset, k.number(0), k("Exp", log_a))
        new = k("Add", k("Mul", a, s["h"]), k("Mul", k("Mul", x["x"], linear("i")), multiplier))
        return {"h": new}, {"y": new}

    return recurrence("griffin", form, steps, scans, {"h": zeros(b, h * d)}, weights, step)


ARCHITECTURES: dict[str, Callable[[int], Model]] = {
    "mamba_block_scan": lambda t: mamba_block(t, "scan"),
    "mamba_block_loop": lambda t: mamba_block(t, "loop"),
    "mamba2_scan": lambda t: mamba2(t, "scan"),
    "mamba2_loop": lambda t: mamba2(t, "loop"),
    "rwkv5_loop": lambda t: rwkv(t, "loop", 5),
    "rwkv6_scan": lambda t: rwkv(t, "scan", 6),
    "rwkv7_loop": lambda t: rwkv(t, "loop", 7),
    "rwkv7_scan": lambda t: rwkv(t, "scan", 7),
    "slstm_scan": lambda t: slstm(t, "scan"),
    "slstm_loop": lambda t: slstm(t, "loop"),
    "mlstm_scan": lambda t: mlstm(t, "scan"),
    "mlstm_loop": lambda t: mlstm(t, "loop"),
    "delta_buffer_loop": delta_buffer,
    "retnet_scan": lambda t: retnet(t, "scan"),
    "retnet_loop": lambda t: retnet(t, "loop"),
    "griffin_scan": lambda t: griffin(t, "scan"),
    "griffin_loop": lambda t: griffin(t, "loop"),
    **DECODERS,
}
