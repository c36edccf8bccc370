"""Whole loops on the GPU: states in local memory, and shaders of few tensors, against onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.loop_models import build
from kit.gpu import GPU
from pyruntime import InferenceSession
from pyruntime.providers.webgpu.schedules import local_states, workgroup_procedure
from pyruntime.providers.webgpu.wgpu_device import shared_device
from tests.ops.compare import by_onnxruntime, parsed

MOST = local_states.MOST
# A column of n numbers, whose mean each step subtracts; and n columns that mix.
OWN = """g (float[T, 130] x, float[N, 130] start) => (float[N, 130] y, float[T, 130] ys) {
    zero = Constant <value = int64[1] {0}> ()
    y, ys = Scan <num_scan_inputs = 1, body = b (float[N, 130] h, float[130] u) => (float[N, 130] v, float[130] o) {
        m = ReduceMean <keepdims = 0> (h, zero)  a = Add (h, u)  v = Sub (a, m)  o = Abs (m) }> (start, x)
}"""
MIXED = """g (float[T, N] x, float[N] start) => (float[N] y, float[T, N] ys) {
    y, ys = Scan <num_scan_inputs = 1, body = b (float[N] h, float[N] u) => (float[N] v, float[N] o) {
        s = Softmax (h)  v = Add (s, u)  o = Mul (v, h) }> (start, x)
}"""


def same(got: list[Any], want: list[Any]) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-5)


def feeds_of(steps: int, *shape: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(steps)
    made = {"x": (steps, shape[-1]), "start": shape}
    return {name: rng.standard_normal(s).astype(np.float32) for name, s in made.items()}


@pytest.mark.parametrize("text, n, memory", [
    (OWN, 1, "private"), (OWN, 2, "private"), (OWN, MOST - 1, "private"), (OWN, MOST, "private"), (OWN, MOST + 1, ""),
    (MIXED, 63, "workgroup"), (MIXED, 65, "workgroup"), (MIXED, 1000, "workgroup"), (MIXED, 20_000, ""),
])  # fmt: skip
def test_states_in_local_memory(text: str, n: int, memory: str) -> None:
    """States of a column are in registers, those that mix are in workgroup memory, as far as there is room."""
    m = parsed(text.replace("N", str(n)))
    session = InferenceSession(m.SerializeToString(), providers=[GPU])
    assert ("[local0]" in session.listing()) == bool(memory)
    for steps in (1, 7):
        feeds = feeds_of(steps, n, 130) if text is OWN else feeds_of(steps, n)
        same(session.run(None, feeds), by_onnxruntime(m, feeds))
    start = feeds_of(0, n, 130) if text is OWN else feeds_of(0, n)
    y, ys = session.run(None, start)
    np.testing.assert_array_equal(y, start["start"])
    assert ys.shape[0] == 0


def test_local_memory_that_is_read_inside_of_bounds() -> None:
    """A running sum in a branch reads its neighbours in workgroup memory."""
    m = parsed("""g (float[T, 5] x, float[5] start) => (float[5] y, float[T, 5] ys) {
        zero = Constant <value = int64 {0}> ()  none = Constant <value = float {0.0}> ()
        y, ys = Scan <num_scan_inputs = 1, body = b (float[5] h, float[5] u) => (float[5] v, float[5] o) {
            total = ReduceSum <keepdims = 0> (u)  test = Greater (total, none)
            k = If (test) <then_branch = t () => (float[5] p) { p = Softmax (u) },
                           else_branch = e () => (float[5] q) { q = Mul (h, u) }>
            o = CumSum (k, zero)  v = Tanh (o) }> (start, x) }""")
    session = InferenceSession(m.SerializeToString(), providers=[GPU])
    assert "guard(" in session.listing()
    feeds = feeds_of(9, 5, 5)
    feeds["start"] = feeds["start"][0]
    same(session.run(None, feeds), by_onnxruntime(m, feeds))


def test_states_of_dynamic_length_stay_in_buffers() -> None:
    m = parsed(OWN.replace("N", "n"))
    session = InferenceSession(m.SerializeToString(), providers=[GPU])
    assert "[local0]" not in session.listing()
    feeds = feeds_of(5, 9, 130)
    same(session.run(None, feeds), by_onnxruntime(m, feeds))


@pytest.mark.parametrize("limit", [4, 5, 7, 8, 10])
@pytest.mark.parametrize("name", ["rwkv_scan", "griffin_scan", "slstm_scan"])
def test_shaders_of_few_tensors(name: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of more tensors than a shader may have join some: scratch memory, inputs, and outputs."""
    device = shared_device()
    monkeypatch.setattr(device, "adapter", replace(device.adapter, storage_buffers=limit))
    m, feeds = build(name, 9)
    session = InferenceSession(m.SerializeToString(), providers=[GPU])
    (loop,) = (n for n in session.explain()["nodes"] if n["loop"])
    assert loop["place"] == "webgpu" and len(loop["kernels"]) > 1
    same(session.run(None, feeds), by_onnxruntime(m, feeds))


@pytest.mark.parametrize("name, outside", [("lstm_scan", 1), ("griffin_scan", 2), ("mamba_block_scan", 1),
                                           ("rwkv7_scan", 0), ("delta_scan", 0)])  # fmt: skip
def test_long_sums_leave_loops(name: str, outside: int) -> None:
    """Those that depend on the step alone are computed for all steps at once; not products of two vectors."""
    for steps in (1, 9):
        m, feeds = build(name, steps)
        session = InferenceSession(m.SerializeToString(), providers=[GPU])
        if steps > 1:
            assert session.listing().count(" = sum over [") == outside
        same(session.run(None, feeds), by_onnxruntime(m, feeds))


# Procedures in the body: an inner loop, the best four of 132, and running sums of 32 rows.
PROCEDURES = {
    "inner loop": ("""g (float[T, 2, 16, 1] x, float[2, 16, 16] start) => (float[2, 16, 16] h, float[T, 2, 16] y) {
        h, y = Scan <num_scan_inputs = 1, body = b (float[2, 16, 16] s, float[2, 16, 1] v)
                                                => (float[2, 16, 16] n, float[2, 16] o) {
            four = Constant <value = int64 {4}> ()  last = Constant <value = int64[1] {-1}> ()
            half = Constant <value = float {0.5}> ()
            s1 = Loop (four, , s) <body = c (int64 i, bool go, float[2, 16, 16] u) => (bool on, float[2, 16, 16] w) {
                on = Identity (go)  t = Softmax (u)  k = MatMul (t, u)  m = Add (u, k)  w = Mul (m, half) }>
            n = Add (s1, v)  o = ReduceSum <keepdims = 0> (n, last) }> (start, x) }""", (2, 16, 1), (2, 16, 16)),
    "beams": ("""g (float[T, 132] x, float[4] start) => (float[4] h, int64[T, 4] y) {
        h, y = Scan <num_scan_inputs = 1, body = b (float[4] s, float[132] v) => (float[4] n, int64[4] o) {
            four = Constant <value = int64[1] {4}> ()  rows = Constant <value = int64 {33}> ()
            grid = Constant <value = int64[2] {4, 33}> ()  flat = Constant <value = int64[1] {-1}> ()
            last = Constant <value = int64[1] {1}> ()  column = Unsqueeze (s, last)  g = Reshape (v, grid)
            all = Add (g, column)  a = Reshape (all, flat)  best, at = TopK (a, four)  o = Div (at, rows)
            n = Tanh (best) }> (start, x) }""", (132,), (4,)),
    "running sums": ("""g (float[T, 32, 40] x, float[32, 40] start) => (float[32, 40] h, float[T, 32, 40] y) {
        h, y = Scan <num_scan_inputs = 1, body = b (float[32, 40] s, float[32, 40] v)
                                                => (float[32, 40] n, float[32, 40] o) {
            axis = Constant <value = int64 {1}> ()  a = Add (s, v)  o = CumSum (a, axis)  n = Tanh (o) }> (start, x)
    }""", (32, 40), (32, 40)),
}  # fmt: skip


@pytest.mark.parametrize("steps", [1, 9])
@pytest.mark.parametrize("name", PROCEDURES)
def test_procedures_in_bodies(name: str, steps: int) -> None:
    text, x, start = PROCEDURES[name]
    m = parsed(text)
    rng = np.random.default_rng(steps)
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in (("x", (steps, *x)), ("start", start))}
    session = InferenceSession(m.SerializeToString(), providers=[GPU])
    same(session.run(None, feeds), by_onnxruntime(m, feeds))
    assert [n["loop"] for n in session.explain()["nodes"] if n["op"] == "Scan"] == ["written as one procedure"]


def test_turns_share_a_dispatch() -> None:
    """Greedy decoding on one workgroup: a turn has many steps, unless all invocations repeat long sums."""
    m, feeds = build("greedy_loop", 100)
    session = InferenceSession(m.SerializeToString(), providers=[GPU])
    same(session.run(None, feeds), by_onnxruntime(m, feeds))
    (loop,) = (n for n in session.explain()["nodes"] if n["loop"])
    assert loop["loop"] == "written as one procedure, which runs in turns"
    assert "int64[14, 1]" in session.listing()


@pytest.mark.parametrize("text", [MIXED, """g (float[T, N] x, float[N] start) => (float[N] y, float[T] ys) {
    y, ys = Scan <num_scan_inputs = 1, body = b (float[N] h, float[N] u) => (float[N] v, float o) {
        d = Mul (u, h)  s = Sin (d)  v = Add (s, u)  a = Abs (v)  o = ReduceMax <keepdims = 0> (a) }> (start, x)
}"""])  # fmt: skip
def test_invocations_do_not_wait_for_each_element(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a workgroup share loops over elements, and each computes sums of all of them, so no barrier is in a loop
    but that of the steps."""
    sources: list[str] = []
    real = workgroup_procedure.print_procedure

    def recorded(*args: Any, **options: Any) -> Any:
        shader = real(*args, **options)
        sources.append(shader.source)
        return shader

    monkeypatch.setattr(workgroup_procedure, "print_procedure", recorded)
    m = parsed(text.replace("N", "37"))
    session = InferenceSession(m.SerializeToString(), providers=[GPU])
    feeds = feeds_of(6, 37)
    same(session.run(None, feeds), by_onnxruntime(m, feeds))
    (source,) = sources
    barriers = [line for line in source.splitlines() if "Barrier()" in line]
    assert max(len(line) - len(line.lstrip()) for line in barriers) == 4
