"""Bodies of loops unlike those of recurrent networks, as one procedure, step by step and in onnxruntime."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.ops.compare import by_onnxruntime, parsed
from tests.ops.test_whole_loops import opened, same

CONSTANTS = """zero = Constant <value = int64[1] {0}> ()  one = Constant <value = int64[1] {1}> ()
    two = Constant <value = int64[1] {2}> ()  three = Constant <value = int64[1] {3}> ()
    five = Constant <value = int64[1] {5}> ()  nine = Constant <value = int64[1] {9}> ()
    ten = Constant <value = int64[1] {10}> ()  i0 = Constant <value = int64 {0}> ()
    i1 = Constant <value = int64 {1}> ()
    i4 = Constant <value = int64 {4}> ()  f0 = Constant <value = float {0.0}> ()
    f1 = Constant <value = float {1.0}> ()  half = Constant <value = float {0.5}> ()
    tenth = Constant <value = float {0.1}> ()"""

# Feeds, outputs, and the loop
MODELS: dict[str, tuple[str, str, str]] = {
    "a ring buffer with a place": (
        "float[T, 2, 8] x, float[4, 2, 8] h, int64 n",
        "float[4, 2, 8] b, int64 p, float[T, 2, 8] y",
        """b, p, y = Scan <num_scan_inputs = 1, body = s (float[4, 2, 8] k, int64 at, float[2, 8] u)
            => (float[4, 2, 8] l, int64 to, float[2, 8] o) {
        a = Unsqueeze (at, zero)  c = Unsqueeze (a, zero)  v = Unsqueeze (u, zero)  l = ScatterND (k, c, v)
        m = ReduceMean <keepdims = 0> (l, zero)  d = Add (at, i1)  to = Mod (d, i4)  o = Sub (u, m) }> (h, n, x)"""),
    "bool states and masks": (
        "float[T, 16] x, bool[16] flags, float[16] h",
        "bool[16] m, float[16] v, float[T, 16] y, bool[T, 16] z",
        """m, v, y, z = Scan <num_scan_inputs = 1, body = s (bool[16] k, float[16] p, float[16] u)
            => (bool[16] l, float[16] q, float[16] o, bool[16] w) {
        g = Greater (u, half)  l = Xor (k, g)  a = Where (l, u, p)  b = Abs (p)  c = Less (b, half)  d = Not (k)
        e = And (c, d)  q = Where (e, f0, a)  o = Mul (q, u)  w = Or (e, l) }> (flags, h, x)"""),
    "states in rotation": (
        "float[T, 12] x, float[12] h, float[12] c, int64[12] n",
        "float[12] v, float[12] d, int64[12] m, int64[T, 12] y",
        """v, d, m, y = Scan <num_scan_inputs = 1, body = s (float[12] a, float[12] b, int64[12] k, float[12] u)
            => (float[12] e, float[12] f, int64[12] l, int64[12] o) {
        e = Identity (b)  f = Add (a, u)  g = Greater (a, b)  w = Cast <to = 7> (g)  l = Add (k, w)
        q = Mul (l, three)  o = Mod (q, i4) }> (h, c, n, x)"""),
    "a walk on a graph, which ends at node 0": (
        "int64[20] next, float[20, 6] table, int64 n, float[6] h",
        "int64 m, float[6] v, int64[k] y, float[k] z",
        """most = Constant <value = int64 {15}> ()
        m, v, y, z = Loop <body = s (int64 i, bool c, int64 at, float[6] p)
            => (bool go, int64 to, float[6] q, int64 o, float w) {
        r = Gather <axis = 0> (table, at)  q = Add (p, r)  to = Gather <axis = 0> (next, at)
        w = ReduceSum <keepdims = 0> (q)  e = Equal (to, i0)  go = Not (e)  o = Identity (at) }> (most, , n, h)"""),
    "windows": (
        "float[T, 3] x, float[3, 8] h",
        "float[3, 8] v, float[T, 3, 4] y",
        """v, y = Scan <num_scan_inputs = 1, body = s (float[3, 8] p, float[3] u) => (float[3, 8] q, float[3, 4] o) {
        t = Slice (p, one, nine, one)  w = Unsqueeze (u, one)  q = Concat <axis = 1> (t, w)
        a = Slice (q, one, five, one)  seven = Constant <value = int64[1] {7}> ()  b = Slice (q, three, seven, one)
        d = Mul (a, b)  o = Tanh (d) }> (h, x)"""),
    "an edit distance": (
        "int64[T] n, int64[9] word, float[10] h",
        "float[10] v, float[T, 10] y",
        """v, y = Scan <num_scan_inputs = 1, body = s (float[10] p, int64 u) => (float[10] q, float[10] o) {
        e = Equal (u, word)  d = Not (e)  c = Cast <to = 1> (d)  a = Slice (p, zero, nine, zero)
        b = Slice (p, one, ten, zero)  f = Add (a, c)  g = Add (b, f1)  w = Min (f, g)
        k = Slice (p, zero, one, zero)  l = Add (k, f1)  m = Squeeze (l)
        r, rs = Scan <num_scan_inputs = 1, body = t (float i, float j) => (float i2, float i3) {
            i1a = Add (i, f1)  i2 = Min (i1a, j)  i3 = Identity (i2) }> (m, w)
        q = Concat <axis = 0> (l, rs)  o = Identity (q) }> (h, n)"""),
    "a sequence inside a step": (
        "float[T, 6] x, float[6] h",
        "float[6] v, float[T, 12] y",
        """v, y = Scan <num_scan_inputs = 1, body = s (float[6] p, float[6] u) => (float[6] q, float[12] o) {
        a = SequenceConstruct (p, u)  b = SequenceAt (a, i1)  c = ConcatFromSequence <axis = 0> (a)  o = Tanh (c)
        d = Mul (p, half)  q = Add (b, d) }> (h, x)"""),
    "power iteration until it converges": (
        "float[9, 9] a, float[9] h",
        "float[9] v, float y",
        """most = Constant <value = int64 {200}> ()
        v, y = Loop <body = s (int64 i, bool c, float[9] p, float l) => (bool go, float[9] q, float m) {
        b = MatMul (a, p)  m = ReduceL2 <keepdims = 0> (b)  q = Div (b, m)  d = Sub (q, p)
        e = ReduceL1 <keepdims = 0> (d)  go = Greater (e, tenth) }> (most, , h, f0)"""),
    "the largest three leave the state": (
        "float[T, 16] x, float[16] h",
        "float[16] v, int64[T, 3] y, float[T] z",
        """v, y, z = Scan <num_scan_inputs = 1, body = s (float[16] p, float[16] u)
            => (float[16] q, int64[3] o, float w) {
        k = Add (p, u)  b, o = TopK (k, three)  depth = Constant <value = int64 {16}> ()
        pair = Constant <value = float[2] {0.0, 1.0}> ()  c = OneHot (o, depth, pair)
        m = ReduceSum <keepdims = 0> (c, zero)  d = Mul (m, k)  e = Mul (p, half)  q = Sub (e, d)
        w = ReduceMax <keepdims = 0> (b) }> (h, x)"""),
    "noise from a state of int64": (
        "float[T, 5] x, int64 n",
        "int64 m, float[T, 5] y",
        """m, y = Scan <num_scan_inputs = 1, body = s (int64 p, float[5] u) => (int64 q, float[5] o) {
        a = Constant <value = int64 {1103515245}> ()  b = Constant <value = int64 {12345}> ()
        c = Constant <value = int64 {2147483648}> ()  d = Mul (p, a)  e = Add (d, b)  q = Mod (e, c)
        f = Cast <to = 1> (q)  g = Constant <value = float {4.6566e-10}> ()  k = Mul (f, g)
        o = Add (u, k) }> (n, x)"""),
    "a stencil with padding": (
        "float[T] x, float[6, 10] h",
        "float[6, 10] v, float[T] y",
        """v, y = Scan <num_scan_inputs = 1, body = s (float[6, 10] p, float u) => (float[6, 10] q, float o) {
        pads = Constant <value = int64[4] {1, 1, 1, 1}> ()  a = Pad <mode = "edge"> (p, pads)
        s1 = Constant <value = int64[2] {0, 1}> ()  e1 = Constant <value = int64[2] {6, 11}> ()  b = Slice (a, s1, e1)
        s2 = Constant <value = int64[2] {1, 2}> ()  e2 = Constant <value = int64[2] {7, 12}> ()  c = Slice (a, s2, e2)
        d = Add (b, c)  e = Mul (d, half)  f = Sub (e, p)  g = Mul (f, u)  q = Add (p, g)
        o = ReduceMax <keepdims = 0> (q) }> (h, x)"""),
    "attention over a window": (
        "float[T, 2, 8] x, float[2, 5, 8] h",
        "float[2, 5, 8] v, float[T, 2, 8] y",
        """v, y = Scan <num_scan_inputs = 1, body = s (float[2, 5, 8] p, float[2, 8] u)
            => (float[2, 5, 8] q, float[2, 8] o) {
        a = Slice (p, one, five, one)  b = Unsqueeze (u, one)  q = Concat <axis = 1> (a, b)
        c = Transpose <perm = [0, 2, 1]> (q)  d = MatMul (b, c)  e = Softmax <axis = -1> (d)  f = MatMul (e, q)
        o = Squeeze (f, one) }> (h, x)"""),
    "windows with padding": (
        "float[T, 12] x, float[1, 2, 12] h, float[3, 2, 5] w",
        "float[1, 2, 12] v, float[T, 6] y",
        """v, y = Scan <num_scan_inputs = 1, body = s (float[1, 2, 12] p, float[12] u)
            => (float[1, 2, 12] q, float[6] o) {
        a = Conv <pads = [2, 2]> (p, w)  b = ReduceMax <keepdims = 1> (a, one)  c = Tanh (b)  d = Add (c, u)
        e = Mul (p, half)  q = Add (e, d)  f = MaxPool <kernel_shape = [3], strides = [2], pads = [1, 0]> (a)
        g = ReduceSum <keepdims = 0> (f, one)  o = Squeeze (g, zero) }> (h, x)"""),
    "rows of a buffer that the loop carries": (
        "float[2, T, 8] x, float[2, T, 8] h, float[2, 8] c",
        "float[2, T, 8] v, float[2, 8] d",
        """size = Shape <start = 1, end = 2> (x)  most = Squeeze (size)
        v, d = Loop <body = s (int64 i, bool go, float[2, T, 8] p, float[2, 8] k)
            => (bool on, float[2, T, 8] q, float[2, 8] l) {
        on = Identity (go)  u = Gather <axis = 1> (x, i)  a = Mul (k, half)  l = Add (a, u)  r = Unsqueeze (l, one)
        g = Shape (r)  b = Expand (i, g)  q = ScatterElements <axis = 1> (p, b, r) }> (most, , h, c)"""),
    "a scatter into halves of an input": (
        "float16[T, 3, 8] x, float16[3, 8] h, int64 last",
        "float16[3, 8] v, float16[t, 3, 8] y",
        """v, y = Loop <body = s (int64 i, bool c, float16[3, 8] p) => (bool go, float16[3, 8] q, float16[3, 8] o) {
        go = Less (i, last)  u = Gather <axis = 0> (x, i)  a = ArgMax <axis = -1, keepdims = 1> (u)
        b = Slice (u, zero, one, one)  r = ScatterElements <axis = -1> (u, a, b)  q = Max (p, r)
        o = Neg (r) }> ( , , h)"""),
    "a product whose elements are units": (
        "float[T, 64, 2] x, float[64, 1] h, float[2, 1] w, int64 last",
        "float[64, 1] v",
        """v = Loop <body = s (int64 i, bool c, float[64, 1] p) => (bool go, float[64, 1] q) {
        go = Less (i, last)  u = Gather <axis = 0> (x, i)  k = MatMul (u, w)  a = Tanh (k)
        q = Min (a, p) }> ( , , h)"""),
    "states of seven types": (
        "float[T, 6] x, double[6] d, float16[6] h, int64[6] n, bool[6] b, int32[2] k, uint8[6] z",
        "double[6] d2, float16[6] h2, int64[6] n2, bool[6] b2, int32[2] k2, uint8[6] z2, double[T] y, bool[T, 6] w",
        """three32 = Constant <value = int32 {3}> ()
        d2, h2, n2, b2, k2, z2, y, w = Scan <num_scan_inputs = 1, body = s (double[6] da, float16[6] ha, int64[6] na,
            bool[6] ba, int32[2] ka, uint8[6] za, float[6] u) => (double[6] db, float16[6] hb, int64[6] nb, bool[6] bb,
            int32[2] kb, uint8[6] zb, double o, bool[6] p) {
        ud = Cast <to = 11> (u)  dm = Mul (da, ud)  db = Tanh (dm)  uh = Cast <to = 10> (u)  hb = Max (ha, uh)
        g = Greater (u, half)  gi = Cast <to = 7> (g)  ns = Add (na, gi)  nb = Mod (ns, three)
        bb = Xor (ba, g)  kb = Mul (ka, three32)  gz = Cast <to = 2> (g)  zb = Add (za, gz)
        o = ReduceSum <keepdims = 0> (db)  p = Not (bb) }> (d, h, n, b, k, z, x)"""),
    "axes and directions": (
        "float[3, T] x, float[T, 3] x2, float[2, 3, T] x3, float[3] h",
        "float[3] v, float[3, T] y, float[2, T, 3] z",
        """v, y, z = Scan <num_scan_inputs = 3, scan_input_axes = [1, 0, -1], scan_input_directions = [1, 0, 1],
            scan_output_axes = [1, -2], scan_output_directions = [0, 1], body = s (float[3] p, float[3] u, float[3] u2,
            float[2, 3] u3) => (float[3] q, float[3] o, float[2, 3] o2) {
        a = Add (p, u)  b = Mul (u2, half)  q = Sub (a, b)  o = Tanh (q)  o2 = Add (u3, q) }> (h, x, x2, x3)"""),
    "names that hide others": (
        "float[T, 5] x, float[5] h, float[5] a",
        "float[5] v, float[T, 5] y, float[5] z",
        """b = Neg (a)
        v, y = Scan <num_scan_inputs = 1, body = s (float[5] h2, float[5] u) => (float[5] q, float[5] o) {
        c = Add (h2, a)  d = Mul (c, u)  g = ReduceSum <keepdims = 0> (d)  f = Greater (g, f0)
        q = If (f) <then_branch = t () => (float[5] r) { r = Tanh (d) },
                    else_branch = e () => (float[5] r) { r = Add (b, h2) }>
        o = Sub (q, b) }> (h, x)  z = Add (b, v)"""),
    "a number that an inner loop changes": (
        "float[T] x, float h",
        "float v, float[T] y",
        """v, y = Scan <num_scan_inputs = 1, body = s (float p, float u) => (float q, float o) {
        q = Loop <body = l (int64 j, bool c, float p2) => (bool go, float q2) {
            k = Cast <to = 1> (j)  a = Mul (p2, half)  b = Add (a, k)  q2 = Sin (b)  go = Identity (c) }> (i4, , p)
        o = Mul (q, u) }> (h, x)"""),
    "loops in a scan in a step": (
        "float[T, 4] x, float[4] h, int64 n",
        "float[4] v, float[T, 4] y",
        """v, y = Scan <num_scan_inputs = 1, body = s (float[4] p, float[4] u) => (float[4] q, float[4] o) {
        r = Loop <body = l (int64 j, bool c, float[4] p2) => (bool go, float[4] q2) {
            k = Add (j, i1)  f = Cast <to = 1> (k)  a = Mul (p2, half)  b = Add (a, f)  q2 = Tanh (b)
            go = Identity (c) }> (n, , p)
        q = Mul (r, u)  o = Identity (q) }> (h, x)"""),
    "a generator of random bits": (
        "int64[T] x, uint32[4] s",
        "uint32[4] m, uint32[T, 4] y",
        """k13 = Constant <value = uint32 {13}> ()  k17 = Constant <value = uint32 {17}> ()
        m, y = Scan <num_scan_inputs = 1, body = l (uint32[4] p, int64 u) => (uint32[4] q, uint32[4] o) {
        a = BitShift <direction = "LEFT"> (p, k13)  b = BitwiseXor (p, a)
        c = BitShift <direction = "RIGHT"> (b, k17)  q = BitwiseXor (b, c)  t = Cast <to = 12> (u)
        o = BitwiseAnd (q, t) }> (s, x)"""),
    "a scatter of what was sorted": (
        "float[T, 8] x, float[4, 8] h, int64[3] n",
        "float[4, 8] v, int64[3] m, float[T, 3] y",
        """v, m, y = Scan <num_scan_inputs = 1, body = s (float[4, 8] p, int64[3] n1, float[8] u)
            => (float[4, 8] q, int64[3] n2, float[3] o) {
        k, ki = TopK (u, three)  row = ReduceMax <keepdims = 0> (p, zero)  o = GatherElements <axis = 0> (row, ki)
        a = Mod (n1, i4)  b = Unsqueeze (a, one)  um = Unsqueeze (u, zero)
        sh = Constant <value = int64[2] {3, 8}> ()  w = Expand (um, sh)  q = ScatterND <reduction = "max"> (p, b, w)
        cs = CumSum (n1, i0)  c2 = Add (cs, ki)  n2 = Mod (c2, nine) }> (h, n, x)"""),
    "a product of states, which change places": (
        "float[T, 5] x, float[5, 5] c, float[5, 5] b",
        "float[5, 5] v, float[5, 5] w, float[T, 5] y",
        """v, w, y = Scan <num_scan_inputs = 1, body = s (float[5, 5] p, float[5, 5] r, float[5] u)
            => (float[5, 5] p2, float[5, 5] r2, float[5] o) {
        t = Transpose <perm = [1, 0]> (p)  m = MatMul (t, r)  k = Unsqueeze (u, one)  p2 = Add (r, k)  r2 = Tanh (m)
        d = MatMul (r, u)  o = Tanh (d) }> (c, b, x)"""),
    "an empty state beside numbers": (
        "float[T, 0] x, float[0] h, float c, int64 n",
        "float[0] v, float c2, int64 n2, float[T, 0] y, float[T] z",
        """v, c2, n2, y, z = Scan <num_scan_inputs = 1, body = s (float[0] p, float b, int64 k, float[0] u)
            => (float[0] q, float b2, int64 k2, float[0] o, float w) {
        m = Mul (p, b)  q = Add (m, u)  e = Mul (b, half)  b2 = Add (e, f1)  k2 = Add (k, i1)  o = Tanh (q)
        w = Identity (b2) }> (h, c, n, x)"""),
    "resized and filtered": (
        "float[T, 6] x, float[1, 1, 6] h, float[2, 1, 3] w",
        "float[1, 1, 6] v, float[T, 1, 2, 12] y",
        """twice = Constant <value = float[3] {1.0, 1.0, 2.0}> ()
        v, y = Scan <num_scan_inputs = 1, body = s (float[1, 1, 6] p, float[6] u)
            => (float[1, 1, 6] q, float[1, 2, 12] o) {
        b = Add (p, u)  c = Conv <pads = [1, 1]> (b, w)  o = Resize <mode = "linear"> (c, , twice)
        m = ReduceMean <keepdims = 1> (c, one)  q = Tanh (m) }> (h, x)"""),
}  # fmt: skip


def feeds_of(declared: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {}

    for kind, shape, name in re.findall(r"(\w+)(?:\[([^\]]*)\])? (\w+)", declared):
        dims = [7 if d.strip() == "T" else int(d) for d in shape.split(",")] if shape else []
        dtype = np.dtype({"float": "float32", "double": "float64"}.get(kind, kind))
        if dtype.kind == "f":
            feeds[name] = np.asarray(rng.standard_normal(dims), dtype)
        else:
            feeds[name] = np.asarray(rng.integers(*((0, 2) if kind == "bool" else (1, 4)), dims), dtype)
    return feeds


@pytest.mark.parametrize("name", MODELS)
def test_odd_bodies(name: str) -> None:
    declared, outputs, text = MODELS[name]
    m = parsed(f"g ({declared}) => ({outputs}) {{ {CONSTANTS} {text} }}")
    feeds = feeds_of(declared)
    if name == "power iteration until it converges":
        feeds["a"] = feeds["a"] @ feeds["a"].T
    got = opened(m).run(None, feeds)
    same(got, opened(m, passes=False).run(None, feeds))
    same(got, by_onnxruntime(m, feeds))


@pytest.mark.parametrize("columns", [6, 64, 130])
def test_rows_that_sum_along_their_own_axis(columns: int) -> None:
    """A selective scan: the axis of the states that is independent is not the last one."""
    m = parsed(
        """g (float[T, D] x, float[T, 12] b, float[D, 12] a, float[D, 12] h) => (float[D, 12] v, float[T, D] y) {
        one = Constant <value = int64[1] {1}> ()  two = Constant <value = float {2.0}> ()
        v, y = Scan <num_scan_inputs = 2, body = s (float[D, 12] p, float[D] u, float[12] w)
                => (float[D, 12] q, float[D] o) {
            k = Unsqueeze (u, one)  d = Mul (k, a)  e = Tanh (d)  f = Mul (e, p)  g = Mul (k, w)  q = Add (f, g)
            l = Mul (q, w)  r = ReduceSum <keepdims = 0> (l, one)  c = Mul (u, two)  o = Add (r, c) }> (h, x, b)
    }""".replace("D", str(columns))
    )
    rng = np.random.default_rng(0)
    shapes = {"x": (5, columns), "b": (5, 12), "a": (columns, 12), "h": (columns, 12)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    for threads in (1, 2):
        got = opened(m, threads=threads).run(None, feeds)
        same(got, by_onnxruntime(m, feeds))
