"""Gradients of loops of many steps, which keep the states of some steps and run the others again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.loop_models import build
from bench.loop_training import derived
from pyruntime import InferenceSession, SessionOptions
from pyruntime.errors import ExecutionError
from pyruntime.training.derive import control_rules, long_loops
from tests.ops.compare import parsed

TRAINING = "ai.onnx.preview.training"
STEPS = [1, 64, 128, 131, 200]  # of one session: no chunk, a whole one, several, and a rest

# Recurrences of x (double[T, 3]) and w (double[5, 3]) that give y (double[T, 3]).
LOOPS: dict[str, str] = {
    "Scan": """h0 = Mul(w, w)
        last, y = Scan<num_scan_inputs = 1, body = b (double[5, 3] h, double[3] row)
                => (double[5, 3] next, double[3] out) {
            p = Mul(h, row)
            q = Add(p, w)
            next = Sin(q)
            wide = Mul(next, row)
            out = ReduceSum<keepdims = 0>(wide, axis) }>(h0, x)""",
    "backwards, two slices, an integer and two states": """xt = Transpose(x)
        h0 = Mul(w, w)
        n0 = Constant<value_int = 3>()
        last, end, number, y = Scan<num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
                scan_output_directions = [1],
                body = b (double[5, 3] h, double[5, 3] k, int64 n, double[3] row, double[3] other)
                => (double[5, 3] next, double[5, 3] k2, int64 n2, double[3] out) {
            p = Mul(k, row)
            next = Sub(p, other)
            s = Add(h, w)
            k2 = Cos(s)
            one = Constant<value_int = 1>()
            n2 = Add(n, one)
            five = Constant<value_int = 5>()
            m = Mod(n, five)
            scale = Cast<to = 11>(m)
            wide = Mul(next, scale)
            out = ReduceSum<keepdims = 0>(wide, axis) }>(h0, w, n0, xt, x)""",
    "Loop": """h0 = Mul(w, w)
        shape = Shape<end = 1>(x)
        count = Squeeze(shape)
        last, y = Loop(count, "", h0) <body = b (int64 i, bool on, double[5, 3] h)
            => (bool go, double[5, 3] next, double[3] out) {
            go = Identity(on)
            row = Gather(x, i)
            p = Mul(h, row)
            q = Sub(p, w)
            next = Tanh(q)
            wide = Exp(next)
            out = ReduceSum<keepdims = 0>(wide, axis) }>""",
    "Loop with an inner loop": """h0 = Mul(w, w)
        shape = Shape<end = 1>(x)
        count = Squeeze(shape)
        last, y = Loop(count, "", h0) <body = b (int64 i, bool on, double[5, 3] h)
            => (bool go, double[5, 3] next, double[3] out) {
            go = Identity(on)
            row = Gather(x, i)
            two = Constant<value_int = 2>()
            next = Loop(two, "", h) <body = c (int64 j, bool on2, double[5, 3] k) => (bool go2, double[5, 3] k2) {
                go2 = Identity(on2)
                kr = Mul(k, row)
                kw = Add(kr, w)
                k2 = Sin(kw) }>
            wide = Exp(next)
            out = ReduceSum<keepdims = 0>(wide, axis) }>""",
}
# Loops that end when a row of x is the first with a large number, or at its last row.
ENDING = {
    "stacks": """h0 = Mul(w, w)
        limit = Constant<value_float = 2.5>()
        most = CastLike(limit, x)
        shape = Shape<end = 1>(x)
        rows = Squeeze(shape)
        one = Constant<value_int = 1>()
        less = Sub(rows, one)
        last, n, y, z = Loop("", "", h0, less) <body = b (int64 i, bool on, double[5, 3] h, int64 n)
            => (bool go, double[5, 3] next, int64 n2, double[3] out, double[5] out2) {
            n2 = Identity(n)
            row = Gather(x, i)
            p = Mul(h, row)
            q = Sub(p, w)
            next = Tanh(q)
            wide = Exp(next)
            out = ReduceSum<keepdims = 0>(wide, axis)
            end = Constant<value_ints = [1]>()
            out2 = ReduceMax<keepdims = 0>(h, end)
            none = Constant<value_ints = [0]>()
            large = ReduceMax<keepdims = 0>(row, none)
            small = Less(large, most)
            before = Less(i, n)
            go = And(small, before) }>
        zz = Mul(z, z)
        total2 = ReduceSum<keepdims = 0>(zz)""",
    "no stacks": """h0 = Mul(w, w)
        limit = Constant<value_float = 2.5>()
        most = CastLike(limit, x)
        shape = Shape<end = 1>(x)
        rows = Squeeze(shape)
        last = Loop(rows, "", h0) <body = b (int64 i, bool on, double[5, 3] h) => (bool go, double[5, 3] next) {
            row = Gather(x, i)
            p = Mul(h, row)
            q = Sub(p, w)
            next = Sin(q)
            none = Constant<value_ints = [0]>()
            large = ReduceMax<keepdims = 0>(row, none)
            go = Less(large, most) }>
        y = Sin(last)
        total2 = ReduceSum<keepdims = 0>(y)""",
}


def session(name: str, length: int | str, **options: Any) -> InferenceSession:
    text = f"""g (double[{length}, 3] x, double[5, 3] w) => (double s, double[{length}, 3] dx, double[5, 3] dw)
        <int64[1] axis = {{0}}> {{
        {LOOPS[name]}
        yy = Mul(y, y)
        total = ReduceSum<keepdims = 0>(yy)
        more = ReduceSum<keepdims = 0>(last)
        s = Add(total, more)
        dx, dw = {TRAINING}.Gradient<xs = ["x", "w"], y = "s">(x, w) }}"""
    model = parsed(text, 22, **{TRAINING: 1}).SerializeToString()
    return InferenceSession(model, SessionOptions(**options), providers=["wasm"])


def feeds(length: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(length)
    return {"x": rng.normal(size=(length, 3)), "w": rng.normal(size=(5, 3))}


def is_divided(name: str, length: int | str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the gradient of a loop divides it into chunks."""
    found: list[int] = []
    part = long_loops._Division._part

    def counting(self: Any, *args: Any) -> Any:
        found.append(1)
        return part(self, *args)

    with monkeypatch.context() as m:
        m.setattr(long_loops._Division, "_part", counting)
        session(name, length)
    return bool(found)


@pytest.mark.parametrize("name", LOOPS)
def test_gradients_are_those_of_all_states(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_divided(name, "T", monkeypatch) and not is_divided(name, 100, monkeypatch)
    several, steps = session(name, "T"), session(name, "T", disabled_passes=["whole_loops"])
    static = {length: session(name, length) for length in (128, 131)}
    monkeypatch.setattr(control_rules, "is_long", lambda *_: False)
    whole = session(name, "T")
    for length in STEPS:
        given = feeds(length)
        want = whole.run(None, given)
        for one in (several, steps, *([static[length]] if length in static else [])):
            for a, b in zip(one.run(None, given), want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12 * float(np.abs(b).max(initial=1.0)))


def test_differences() -> None:
    for name in LOOPS:
        one, given = session(name, "T"), feeds(150)
        _, dx, dw = one.run(None, given)
        rng = np.random.default_rng(7)
        along = {"x": rng.normal(size=(150, 3)), "w": rng.normal(size=(5, 3))}
        ends = [
            float(one.run(["s"], {k: v + step * along[k] for k, v in given.items()})[0]) for step in (1e-6, -1e-6)
        ]  # fmt: skip
        got = (dx * along["x"]).sum() + (dw * along["w"]).sum()
        np.testing.assert_allclose(got, (ends[0] - ends[1]) / 2e-6, rtol=1e-5, err_msg=name)


def test_a_second_derivative() -> None:
    """It agrees with the first one's differences, for numbers of steps with and without a rest."""
    text = f"""g (double[T, 3] x, double[5, 3] w) => (double[5, 3] d, double[5, 3] dd) <int64[1] axis = {{0}}> {{
        {LOOPS["Scan"]}
        s = ReduceSum<keepdims = 0>(y)
        d = {TRAINING}.Gradient<xs = ["w"], y = "s">(w)
        dd = {TRAINING}.Gradient<xs = ["w"], y = "d">(w) }}"""
    one = InferenceSession(parsed(text, 22, **{TRAINING: 1}).SerializeToString(), providers=["wasm"])
    along = np.random.default_rng(7).normal(size=(5, 3))
    for length in (40, 128, 131):
        given = feeds(length)
        _, dd = one.run(None, given)
        moved = [{**given, "w": given["w"] + step * along} for step in (1e-6, -1e-6)]
        ends = [float(one.run(["d"], f)[0].sum()) for f in moved]
        np.testing.assert_allclose((dd * along).sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-4)


def test_an_index_out_of_range_is_found() -> None:
    text = f"""g (double[N, 3] x) => (double[N, 3] d) <double[3] one = {{1, 1, 1}}, int64 count = {{130}}> {{
        last = Loop(count, "", one) <body = b (int64 i, bool on, double[3] h) => (bool go, double[3] next) {{
            go = Identity(on)
            row = Gather(x, i)
            p = Mul(h, row)
            next = Tanh(p) }}>
        s = ReduceSum<keepdims = 0>(last)
        d = {TRAINING}.Gradient<xs = ["x"], y = "s">(x) }}"""
    one = InferenceSession(parsed(text, 22, **{TRAINING: 1}).SerializeToString(), providers=["wasm"])
    with pytest.raises(ExecutionError):
        one.run(None, {"x": np.ones((129, 3))})
    (d,) = one.run(None, {"x": np.ones((132, 3))})
    assert (d[-2:] == 0).all() and (d[:130] != 0).any()


def test_memory_is_that_of_some_states() -> None:
    """A state of 64 KiB takes 64 MiB in 1,024 steps."""
    model, given = derived(*build("delta_scan", 1024))
    raw = model.SerializeToString()
    one = InferenceSession(raw, providers=["wasm"])
    found = one.run(None, given)
    assert one.memory().peak < 24 << 20
    assert np.isfinite(found[0])


@pytest.mark.parametrize("form", ["(steps, go, w)", '("", go, w)', '(steps, "", w)'])
def test_memory_of_loops_whose_end_only_a_run_tells(form: str) -> None:
    """The same, if a tensor is the number of steps, if the loop ends by a condition, and by either."""
    going = "Identity(on)" if form.endswith('"", w)') else "Less(i, end)"
    text = f"""g (float[128, 128] w, int64 steps, int64 end, bool go) => (float s, float[128, 128] d) {{
        last, n = Loop {form} <body = b (int64 i, bool on, float[128, 128] h, int64 m)
            => (bool more, float[128, 128] next, int64 m2) {{
            more = {going}
            m2 = Identity(i)
            next = Sin(h) }}>
        s = ReduceSum<keepdims = 0>(last)
        d = {TRAINING}.Gradient<xs = ["w"], y = "s">(w) }}""".replace(", w)", ", w, steps)")
    one = InferenceSession(parsed(text, 22, **{TRAINING: 1}).SerializeToString(), providers=["wasm"])
    given = {"w": np.full((128, 128), 0.5, np.float32), "go": np.array(True)}
    for steps in (1000, 70, 1, 1000):
        _, d = one.run(None, {**given, "steps": np.array(steps), "end": np.array(steps - 1)})
        h, want = np.float64(0.5), 1.0
        for _ in range(steps):
            h, want = np.sin(h), want * np.cos(h)
        np.testing.assert_allclose(d, want, rtol=1e-3)
    assert one.memory().peak < 24 << 20


def test_a_gpu_gives_the_same() -> None:
    model, given = derived(*build("mamba_scan", 131))
    raw = model.SerializeToString()
    want = InferenceSession(raw, providers=["wasm"]).run(None, given)
    one = InferenceSession(raw, providers=["webgpu"])
    assert {n["place"] for n in one.explain()["nodes"] if n["op"] == "gradient of Scan"} == {"webgpu"}
    for a, b in zip(one.run(None, given), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * float(np.abs(b).max()))


@pytest.mark.parametrize(("count", "size"), [(128, 64), (1000, 50), (131, 64), (4096, 64), (65536, 256), (10007, 100)])
def test_sizes_of_chunks(count: int, size: int) -> None:
    assert long_loops.chunk_size(count) == size


def ending(name: str, **options: Any) -> InferenceSession:
    text = f"""g (double[T, 3] x, double[5, 3] w) => (double s, double[T, 3] dx, double[5, 3] dw)
        <int64[1] axis = {{0}}> {{
        {ENDING[name]}
        yy = Mul(y, y)
        total = ReduceSum<keepdims = 0>(yy)
        more = ReduceSum<keepdims = 0>(last)
        s = Sum(total, total2, more)
        dx, dw = {TRAINING}.Gradient<xs = ["x", "w"], y = "s">(x, w) }}"""
    return InferenceSession(parsed(text, 22, **{TRAINING: 1}).SerializeToString(), SessionOptions(**options))


@pytest.mark.parametrize("passes", [[], ["whole_loops"]])
@pytest.mark.parametrize("name", ENDING)
def test_loops_that_end_by_a_condition(name: str, passes: list[str]) -> None:
    """Differences, of sessions that run several numbers of steps."""
    one = ending(name, disabled_passes=passes)
    for steps in (1, 2, 63, 64, 65, 128, 129, 150):
        given = feeds(150)
        given["x"] = np.clip(given["x"], -2, 2)
        given["x"][steps - 1, 1] = 3.0
        _, dx, dw = one.run(None, given)
        assert (dx[steps:] == 0).all() and dx[:steps].any()
        rng = np.random.default_rng(7)
        along = {"x": rng.normal(size=(150, 3)), "w": rng.normal(size=(5, 3))}
        ends = [
            float(one.run(["s"], {k: v + step * along[k] for k, v in given.items()})[0]) for step in (1e-6, -1e-6)
        ]  # fmt: skip
        got = (dx * along["x"]).sum() + (dw * along["w"]).sum()
        np.testing.assert_allclose(got, (ends[0] - ends[1]) / 2e-6, rtol=1e-5, err_msg=f"{steps} steps")
