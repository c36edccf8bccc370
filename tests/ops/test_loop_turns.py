"""Loops that only a run can end, in turns of three steps, against the same loops step by step and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from kit.gpu import GPU
from pyruntime.passes.loops import whole_loops
from pyruntime.passes.loops.turn_writer import MOST_STEPS
from tests.ops.compare import by_onnxruntime, parsed
from tests.ops.test_whole_loops import opened, same

LENGTH = 3
STEPS = [1, 2, 3, 4, 6, 7]  # edges of turns

# h: a state (2, 40); i: the number of the step; x: (rows, 2, 40). What a step computes: v, the new state, and o, m.
BODIES = {
    "columns": "u = Gather <axis = 0> (x, i)  k = Mul (h, half)  v = Add (k, u)  o = Neg (v)  m = Identity (i)",
    "the number of the step": """f = Cast <to = 1> (i)  k = Mul (h, half)  v = Add (k, f)  o = Sub (v, h)
        m = Add (i, i)""",
    "products": """t = Transpose (h)  k = MatMul (h, t)  s = Tanh (k)  a = MatMul (s, h)  v = Tanh (a)
        o = MatMul (s, v)  m = ArgMax <axis = 1, keepdims = 0> (v)""",
    "a branch": """r = Gather <axis = 0> (x, i)  p = Mod (i, two)  q = Equal (p, one)
        v = If (q) <then_branch = t () => (float[2, 40] a) { a = Softmax (r) },
                    else_branch = e () => (float[2, 40] b1) { b1 = Tanh (h) }>
        o = Add (v, r)  m = Identity (p)""",
    "loops in the body": """p, j = Loop (two, , h, i) <body = c1 (int64 a1, bool a2, float[2, 40] a3, int64 a4)
            => (bool b1, float[2, 40] b3, int64 b4) { b1 = Less (a4, two)  b3 = Tanh (a3)  b4 = Add (a4, one) }>
        v = Loop (i, , p) <body = c2 (int64 d1, bool d2, float[2, 40] d3) => (bool e1, float[2, 40] e3)
            { e1 = Identity (d2)  d4 = Cast <to = 1> (d1)  d5 = Add (d3, d4)  e3 = Sin (d5) }>
        o = Add (v, p)  m = Identity (j)""",
}  # fmt: skip
# The limit and the first condition of a Loop
FORMS = {
    "a tensor": "(n, , start, zero)", "a tensor and a condition": "(n, go, start, zero)", "none": "(, go, start, zero)",
    "a dim": "(rows, go, start, zero)", "a large number": "(most, , start, zero)", "a constant": "(six, , start, zero)",
}  # fmt: skip


def model(body: str, form: str, stacks: bool = True, is_endless: bool = False) -> onnx.ModelProto:
    """A Loop that runs `last` steps, unless its limit is smaller or `go` does not hold."""
    kind = "int64[2] m" if "ArgMax" in body else "int64 m"
    rows = f", float[2, 40] o, {kind}" if stacks else ""
    going = "more = Identity (c)" if is_endless else "more = Less (e, last)"
    return parsed(
        f"""g (float[T, 2, 40] x, float[2, 40] start, int64 n, int64 last, bool go)
            => (float[2, 40] y, int64 count{", float[k, 2, 40] ys, int64[k, l] ms" if stacks else ""}) {{
        half = Constant <value = float {{0.5}}> ()  six = Constant <value = int64 {{6}}> ()
        zero = Constant <value = int64 {{0}}> ()  one = Constant <value = int64 {{1}}> ()
        two = Constant <value = int64 {{2}}> ()  most = Constant <value = int64 {{{1 << 62}}}> ()
        whole = Shape <start = 0, end = 1> (x)  rows = Squeeze (whole)
        y, count{", ys, ms" if stacks else ""} = Loop <body = b (int64 i, bool c, float[2, 40] h, int64 d)
                => (bool more, float[2, 40] v, int64 e{rows}) {{ e = Add (d, one)  {going}  {body} }}> {FORMS[form]}
    }}""".replace("int64[k, l]", "int64[k, 2]" if "ArgMax" in body else "int64[k]")
    )


def feeds_of(steps: int, limit: int = 8, go: bool = True) -> dict[str, Any]:
    rng = np.random.default_rng(steps)
    made = {name: rng.standard_normal(s).astype(np.float32) for name, s in (("x", (8, 2, 40)), ("start", (2, 40)))}
    return {**made, "n": np.array(limit), "last": np.array(steps), "go": np.array(go)}


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_loops, "turn_length", lambda unit: LENGTH)


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("form", FORMS)
def test_limits(form: str, name: str) -> None:
    m = model(BODIES[name], form)
    whole, steps = opened(m, threads=2), opened(m, passes=False)
    for count in STEPS:
        for feeds in (feeds_of(count), feeds_of(8, count), feeds_of(8, -1), feeds_of(count, go=False)):
            got = whole.run(None, feeds)
            same(got, steps.run(None, feeds))
            same(got[:2], by_onnxruntime(m, feeds)[:2])
    # The Loop, a Read, and one of the limit and of the condition each if shapes must fit only if the body runs
    reads = {"a tensor": 1, "none": 1, "a dim": 1, "a tensor and a condition": 2}
    checks = reads.get(form, 0) if name in ("columns", "a branch") else 0
    assert whole.explain()["placement"]["control"] == 2 + checks


@pytest.mark.parametrize("name", ["columns", "products"])
@pytest.mark.parametrize("form", ["a tensor", "none", "a large number"])
def test_no_stacks(form: str, name: str) -> None:
    m = model(BODIES[name], form, stacks=False)
    whole = opened(m)
    for count in STEPS:
        same(whole.run(None, feeds_of(count)), by_onnxruntime(m, feeds_of(count)))


@pytest.mark.parametrize("name", BODIES)
def test_a_counted_loop_whose_count_is_a_tensor(name: str) -> None:
    """It needs no turns: its count becomes a symbol."""
    m = model(BODIES[name], "a tensor", is_endless=True)
    whole, steps = opened(m), opened(m, passes=False)
    for limit in (-3, 0, 1, 5):
        got = whole.run(None, feeds_of(8, limit))
        same(got, steps.run(None, feeds_of(8, limit)))
        assert len(got[2]) == max(limit, 0)
    assert whole.explain()["placement"]["control"] == 1  # a Read


@pytest.mark.parametrize("form", FORMS)
def test_on_the_gpu(form: str) -> None:
    """The steps are counted in floats, because sums of 64-bit integers stay on the CPU."""
    m = parsed(f"""g (float[T, 2, 40] x, float[2, 40] start, int64 n, float last, bool go)
            => (float[2, 40] y, float count, float[k, 2, 40] ys) {{
        one = Constant <value = float {{1}}> ()  zero = Constant <value = float {{0}}> ()
        six = Constant <value = int64 {{6}}> ()  most = Constant <value = int64 {{{1 << 62}}}> ()
        axis = Constant <value = int64[1] {{1}}> ()  whole = Shape <start = 0, end = 1> (x)  rows = Squeeze (whole)
        y, count, ys = Loop <body = b (int64 i, bool c, float[2, 40] h, float d)
                => (bool more, float[2, 40] v, float e, float[2, 40] o) {{
            u = Gather <axis = 0> (x, i)  s = ReduceSum <keepdims = 1> (h, axis)  k = Add (s, u)  v = Tanh (k)
            o = Neg (v)  e = Add (d, one)  more = Less (e, last) }}> {FORMS[form]}
    }}""")
    whole, steps = opened(m, providers=[GPU]), opened(m, passes=False)
    found = next(n for n in whole.explain()["nodes"] if n["op"] == "Loop")
    assert found["place"] == "webgpu"
    for count in (1, 3, 7):
        for feeds in (feeds_of(count), feeds_of(8, count), feeds_of(8, -1), feeds_of(count, go=False)):
            feeds["last"] = feeds["last"].astype(np.float32)
            same(whole.run(None, feeds), steps.run(None, feeds))


def test_numbers_of_steps_beyond_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of 2^30 steps; the last steps have numbers beyond 2^31."""
    m = parsed("""g (int64 last) => (int64 y, int64 z) {
        zero = Constant <value = int64 {0}> ()
        y, z = Loop (, , zero, zero) <body = b (int64 i, bool c, int64 h, int64 k) => (bool more, int64 v, int64 w)
            { v = Identity (i)  f = Cast <to = 6> (i)  w = Cast <to = 7> (f)  more = Less (i, last) }>
    }""")
    assert opened(m).run(None, {"last": np.array(5)}) == [5, 5]
    monkeypatch.setattr(whole_loops, "turn_length", lambda unit: 1 << 30)
    last = MOST_STEPS + 1000
    assert opened(m).run(None, {"last": np.array(last)}) == [last, last - (1 << 32)]


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("width", ["8", "M"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another state"])
def test_without_columns(beside: bool, width: str, on_gpu: bool) -> None:
    """A loop whose states are empty takes its steps."""
    results, body = "", ""
    if beside:
        results, body = ", float[3] w", "t = ReduceSum <keepdims = 1> (f)  a = Tanh (t)  w = Add (f, a)"
    m = parsed(f"""g (int64 last, float[N, {width}] x, float[3] first)
            => (float[N, {width}] y{", float[3] k" * beside}, float[T, N, {width}] z) {{
        y{", k" * beside}, z = Loop (, , x{", first" * beside}) <body =
            b (int64 i, bool c, float[N, {width}] h{", float[3] f" * beside})
            => (bool more, float[N, {width}] v{results}, float[N, {width}] s)
            {{ more = Less (i, last)  e = Exp (h)  v = Tanh (h)  s = Neg (e)  {body} }}>
    }}""")
    whole, steps = opened(m, providers=[GPU]) if on_gpu else opened(m), opened(m, passes=False)
    sizes = [(0, 8), (2, 8), (0, 8), (3, 8)] if width == "8" else [(0, 8), (2, 70), (1, 0), (0, 0), (3, 5)]
    for rows, columns in sizes:
        x = np.full((rows, columns), 0.3, np.float32)
        feeds = {"last": np.array(4), "x": x, "first": np.ones(3, np.float32)}
        found = whole.run(None, feeds)
        same(found, steps.run(None, feeds), 1e-6)
        same(found, by_onnxruntime(m, feeds), 1e-5)


def test_rows_that_no_step_has_made_reach_the_gpu() -> None:
    """The GPU reads all rows of a turn, and refuses numbers of more than 32 bits, which their memory may have had."""
    m = parsed("""g (float[T, 6] x, float[6, 6] w, float[6] h, int64 first) => (int64[k] y, float[6] v) {
        size = Shape <start = 0, end = 1> (x)  n = Squeeze (size)  zero = Constant <value = int64 {0}> ()
        v, f, y = Loop (n, , h, first) <body = l (int64 i, bool c, float[6] p, int64 token)
                => (bool go, float[6] q, int64 next, int64 o) {
            u = Gather (x, i)  e = Gather (w, token)  a = Add (p, u)  b = Add (a, e)  q = Tanh (b)  d = MatMul (q, w)
            next = ArgMax <axis = 0, keepdims = 0> (d)  o = Identity (next)  t = Equal (next, zero)  go = Not (t) }>
    }""")
    session = opened(m, providers=[GPU])
    assert [x for x in session.listing().splitlines() if ":int64[" in x and " at " in x and x.endswith(" = 0")]
    for steps in (1, 2, 5):
        rng = np.random.default_rng(0)
        feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in
                 {"x": (steps, 6), "w": (6, 6), "h": 6}.items()} | {"first": np.array(1)}  # fmt: skip
        same(session.run(None, feeds), by_onnxruntime(m, feeds))
