"""Networks whose recurrence is a Scan or a Loop, and a task that needs their memory: which symbol came last?

T steps, B batch, V symbols (0: a blank), D channels, N states of a channel. "ids" int32 (T, B) -> "logits" (T, B, V)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

SYMBOLS, WIDTH, STATES, STEPS, ROWS = 8, 16, 4, 24, 16  # V, D, N, T, B
RATE = 0.02  # of Adam
LOSSES = Path(__file__).with_name("loop_losses.json")  # of its first steps, by name of the network: by JAX

# After Mamba (A. Gu, T. Dao, 2023): a selective scan, whose decay depends on the input.
MAMBA = """e = Gather (embedding, ids)
    xz = MatMul (e, w_in)
    before, z = Split <axis = -1, num_outputs = 2> (xz)
    open = Sigmoid (before)
    x = Mul (before, open)
    d = MatMul (x, w_delta)
    moved = Add (d, b_delta)
    delta = Softplus (moved)
    bc = MatMul (x, w_bc)
    b, c = Split <axis = -1, num_outputs = 2> (bc)
    speed = Exp (a_log)
    a = Neg (speed)
    shape = Shape <start = 1> (ids)
    whole = Concat <axis = 0> (shape, sizes)
    h0 = ConstantOfShape (whole)
    h, y = Scan <num_scan_inputs = 4, body = step (float[B, 16, 4] old, float[B, 16] x_t, float[B, 16] delta_t,
            float[B, 4] b_t, float[B, 4] c_t) => (float[B, 16, 4] new, float[B, 16] y_t) {
        wide = Unsqueeze (delta_t, last)
        exponent = Mul (wide, a)
        decay = Exp (exponent)
        kept = Mul (decay, old)
        dx = Mul (delta_t, x_t)
        column = Unsqueeze (dx, last)
        b_row = Unsqueeze (b_t, middle)
        added = Mul (column, b_row)
        new = Add (kept, added)
        c_row = Unsqueeze (c_t, middle)
        parts = Mul (new, c_row)
        y_t = ReduceSum <keepdims = 0> (parts, last) }> (h0, x, delta, b, c)
    past = Mul (x, skip)
    both = Add (y, past)
    opening = Sigmoid (z)
    gate = Mul (z, opening)
    gated = Mul (both, gate)
    mixed = MatMul (gated, w_out)
    out = Add (e, mixed)
    logits = MatMul (out, head)"""

# After RWKV-4 (B. Peng et al., 2023): an average of all values so far, whose weights decay, in a numerically safe form.
RWKV = """e = Gather (embedding, ids)
    count = Shape <end = 1> (ids)
    less = Sub (count, one)
    before = Slice (e, zero, less, zero)
    pads = Constant <value_ints = [1, 0, 0, 0, 0, 0]> ()
    previous = Pad (before, pads)
    change = Sub (previous, e)
    share = Mul (change, mix)
    x = Add (e, share)
    k = MatMul (x, w_k)
    v = MatMul (x, w_v)
    opened = MatMul (x, w_r)
    r = Sigmoid (opened)
    speed = Exp (decay)
    w = Neg (speed)
    shape = Shape <start = 1> (ids)
    whole = Concat <axis = 0> (shape, sizes)
    sums = ConstantOfShape (whole)
    highest = ConstantOfShape <value = float[1] {-1e30}> (whole)
    trip = Squeeze (count)
    num, den, top, y = Loop (trip, "", sums, sums, highest) <body = step (int64 turn, bool on, float[B, 16] aa,
            float[B, 16] bb, float[B, 16] pp) =>
            (bool go, float[B, 16] aa2, float[B, 16] bb2, float[B, 16] pp2, float[B, 16] y_t) {
        go = Identity (on)
        k_t = Gather (k, turn)
        v_t = Gather (v, turn)
        now = Add (k_t, u)
        most = Max (pp, now)
        p1 = Sub (pp, most)
        e1 = Exp (p1)
        p2 = Sub (now, most)
        e2 = Exp (p2)
        n1 = Mul (e1, aa)
        n2 = Mul (e2, v_t)
        n = Add (n1, n2)
        d1 = Mul (e1, bb)
        d = Add (d1, e2)
        y_t = Div (n, d)
        faded = Add (pp, w)
        pp2 = Max (faded, k_t)
        p3 = Sub (faded, pp2)
        e3 = Exp (p3)
        p4 = Sub (k_t, pp2)
        e4 = Exp (p4)
        a1 = Mul (e3, aa)
        a2 = Mul (e4, v_t)
        aa2 = Add (a1, a2)
        b1 = Mul (e3, bb)
        bb2 = Add (b1, e4) }>
    gated = Mul (r, y)
    mixed = MatMul (gated, w_out)
    out = Add (e, mixed)
    logits = MatMul (out, head)"""

TEXTS = {"mamba": MAMBA, "rwkv": RWKV}
INTEGERS = {
    "mamba": {"sizes": [WIDTH, STATES], "last": [-1], "middle": [1]},
    "rwkv": {"sizes": [WIDTH], "zero": [0], "one": [1]},
}


def curves() -> dict[str, list[float]]:
    """The losses that JAX 0.10.2 found; scripts/jax_loops.py stored them."""
    found: dict[str, list[float]] = json.loads(LOSSES.read_text())
    return found


def weights(name: str) -> dict[str, np.ndarray]:
    """What a network starts with; name: of TEXTS"""
    rng = np.random.default_rng(5)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return np.asarray(rng.normal(size=(rows, columns)) * rows**-0.5)

    made = {"embedding": matrix(SYMBOLS, WIDTH), "head": matrix(WIDTH, SYMBOLS), "w_out": matrix(WIDTH, WIDTH)}
    if name == "mamba":
        made |= {"w_in": matrix(WIDTH, 2 * WIDTH), "w_delta": matrix(WIDTH, WIDTH), "w_bc": matrix(WIDTH, 2 * STATES)}
        made |= {"b_delta": np.full(WIDTH, -1.0), "skip": np.ones(WIDTH)}
        made["a_log"] = np.log(np.arange(1, STATES + 1)) + np.zeros((WIDTH, STATES))
    else:
        made |= {key: matrix(WIDTH, WIDTH) for key in ("w_k", "w_v", "w_r")}
        made |= {"mix": np.linspace(0, 0.5, WIDTH), "decay": np.linspace(-4, 1, WIDTH), "u": np.zeros(WIDTH)}
    return {key: x.astype(np.float32) for key, x in made.items()}


def network(name: str) -> bytes:
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        {name} (int32[T, B] ids) => (float[T, B, {SYMBOLS}] logits) {{ {TEXTS[name]} }}""")
    integers = {key: np.array(x, np.int64) for key, x in INTEGERS[name].items()}
    values = {**weights(name), **integers}
    model.graph.initializer.extend(numpy_helper.from_array(x, key) for key, x in values.items())
    return model.SerializeToString()


def batches(count: int) -> Iterator[dict[str, np.ndarray]]:
    """Feeds of steps: "ids", most of them blanks, and the "target" of each place, int32 (T, B): the last symbol up to
    there that is no blank, or 0."""
    rng = np.random.default_rng(6)
    for _ in range(count):
        ids = rng.integers(1, SYMBOLS, (STEPS, ROWS)) * (rng.random((STEPS, ROWS)) < 0.3)
        target = ids.copy()
        for n in range(1, STEPS):
            target[n] = np.where(ids[n], ids[n], target[n - 1])
        yield {"ids": ids.astype(np.int32), "target": target.astype(np.int32)}
