"""Loops whose steps WebAssembly runs without the executor, against onnxruntime and against the executor's steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import pytest

from pyruntime import InferenceSession, RunOptions, SessionOptions
from pyruntime.errors import ExecutionError, OutOfMemory, Terminated
from pyruntime.runtime.repeats import Repeats
from tests.ops.compare import by_onnxruntime, parsed

Feeds = dict[str, np.ndarray]
STEP_BY_STEP = ["hoisted_products", "whole_loops"]
# i: number of the step; h, d, e: states (1, 16); u: row i of x; v, f, g: their new values; o: to stack.
BODIES = {
    "a product": "k = MatMul (h, w)  a = Add (k, u)  v = Tanh (a)  f = Identity (d)  g = Identity (e)  o = Neg (v)",
    "a convolution": """j = Reshape (h, image)  k = Conv <pads = [1, 1]> (j, filter)  a = Reshape (k, row)
        b1 = Add (a, u)  v = Tanh (b1)  f = Identity (d)  g = Identity (e)  o = Identity (v)""",
    "a product of bytes": """q, s, z = DynamicQuantizeLinear (h)  k = MatMulInteger (q, bytes, z)
        t = Cast <to = 1> (k)  a = Mul (t, s)  b1 = Mul (a, small)  v = Add (b1, u)  f = Sub (u, d)  g = Identity (e)
        o = Sub (v, f)""",
    "attention": """t = Transpose <perm = [1, 0]> (w)  k = MatMul (h, t)  s = Softmax (k)  a = MatMul (s, w)
        v = Add (a, u)  d1, d2 = Split <axis = 1, num_outputs = 2> (d)
        u1, u2 = Split <axis = 1, num_outputs = 2> (u)  f = Concat <axis = 1> (d2, u1)  g = Mul (e, s)
        o = Mul (f, s)""",
    "states change places": "v = Identity (d)  f = Identity (e)  g = Add (h, u)  o = Sub (h, e)",
    "states that no step reads": "v = Tanh (u)  f = Neg (u)  g = Abs (u)  o = Add (u, u)",
    "the number of the step": """s = Cast <to = 1> (i)  k = Mul (h, tenth)  v = Add (k, s)  f = Add (d, s)
        g = Identity (e)  o = Identity (v)""",
}  # fmt: skip
CONDITIONS = {
    "always": "more = Identity (c)",
    "of the number": "more = Less (i, last)",
    "of data": "m = ReduceMax <keepdims = 0> (u)  more = Less (m, limit)",
}
COUNTS = (0, 1, 2, 3, 5, 40, 700)


def model(body: str, condition: str = "always", count: str = "count") -> onnx.ModelProto:
    """count: "count", all rows of x; or "" for a loop that its condition ends"""
    return parsed(f"""g (float[T, 1, 16] x, float[1, 16] h0, float[1, 16] d0, float[1, 16] e0, float[16, 16] w,
                         float[2, 2, 3] filter, int8[16, 16] bytes)
            => (float[1, 16] y, float[1, 16] y2, float[1, 16] y3, float[k, 1, 16] ys, int64[k] numbers) {{
        n = Shape <start = 0, end = 1> (x)  count = Squeeze (n)  last = Constant <value = int64 {{25}}> ()
        limit = Constant <value = float {{3.0}}> ()  tenth = Constant <value = float {{0.1}}> ()
        small = Constant <value = float {{0.002}}> ()
        image = Constant <value = int64[3] {{1, 2, 8}}> ()  row = Constant <value = int64[2] {{1, 16}}> ()
        y, y2, y3, ys, numbers = Loop <body = b
                (int64 i, bool c, float[1, 16] h, float[1, 16] d, float[1, 16] e)
                => (bool more, float[1, 16] v, float[1, 16] f, float[1, 16] g, float[1, 16] o, int64 number)
            {{ u = Gather (x, i)  number = Identity (i)  {body}  {CONDITIONS[condition]} }}> ({count}, , h0, d0, e0)
    }}""")


def feeds_of(count: int) -> Feeds:
    rng = np.random.default_rng(count)
    shapes = {"x": (count, 1, 16), "h0": (1, 16), "d0": (1, 16), "e0": (1, 16), "w": (16, 16), "filter": (2, 2, 3)}
    feeds = {name: (0.5 * rng.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
    feeds["w"] *= np.float32(0.2)  # so that differences of rounding die out
    feeds["x"][30:31] = 4  # the largest: the condition of data ends there
    return {**feeds, "bytes": rng.integers(-99, 99, (16, 16), dtype=np.int8)}


def opened(m: onnx.ModelProto, threads: int = 1, **options: Any) -> InferenceSession:
    """A session whose loops stay step by step."""
    how = SessionOptions(intra_op_num_threads=threads, disabled_passes=STEP_BY_STEP, **options)
    return InferenceSession(m.SerializeToString(), how, providers=["wasm"])


@contextmanager
def batches() -> Iterator[list[int]]:
    """The numbers of steps that WebAssembly has run in each batch."""
    found: list[int] = []
    real = Repeats.took

    def took(self: Repeats, steps: int, milliseconds: float) -> int:
        found.append(steps)
        return real(self, steps, milliseconds)

    with patch.object(Repeats, "took", took):
        yield found


@contextmanager
def by_the_executor() -> Iterator[None]:
    with patch("pyruntime.native.execution.control.repeats", lambda *_: None):
        yield


def same(got: list[np.ndarray], want: list[np.ndarray], tolerance: float = 1e-4) -> None:
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "condition"),
    [*[(name, "always") for name in BODIES], ("a product", "of data"), ("states change places", "of the number")],
)
def test_bodies(name: str, condition: str) -> None:
    m = model(BODIES[name], condition)
    session = opened(m)
    for count in COUNTS:
        feeds = feeds_of(count)
        with batches() as found:
            got = session.run(None, feeds)
        with by_the_executor():
            want = session.run(None, feeds)
        same(got, want, 0)
        if count:
            same(got, by_onnxruntime(m, feeds), 1e-3)
        ran = {"always": count, "of the number": min(count, 26), "of data": min(count, 31)}[condition]
        assert len(got[3]) == ran
        assert count >= 4 or not found
    assert condition != "always" or 600 < sum(found) < 700 and len(found) < 60
    same(session.run(["y2", "ys"], feeds), [got[1], got[3]], 0)


def test_a_loop_that_its_condition_ends() -> None:
    m = model(BODIES["a product"], "of data", "")
    same(opened(m).run(None, feeds_of(40)), by_onnxruntime(m, feeds_of(40)))


def test_two_threads() -> None:
    m = model(BODIES["a product"])
    session = opened(m, 2)
    with batches() as found:
        same(session.run(None, feeds_of(40)), by_onnxruntime(m, feeds_of(40)))
    assert found


OTHERS = {  # loops that need the executor in each step: a body of a loop with the state h, feeds of x
    "shapes that grow": ("float[P, 4] h", "v = Concat <axis = 0> (h, x)", np.ones((2, 4), np.float32)),
    "strings": ("string[N] h", "v = StringConcat (h, x)", np.array(["a", "é"], object)),
    "a branch": ("float[N, 4] h", """s = ReduceSum <keepdims = 0> (h)  t = Less (s, limit)
        v = If (t) <then_branch = a () => (float[N, 4] p) { p = Add (h, x) },
                    else_branch = b2 () => (float[N, 4] q) { q = MatMul (h, square) }>""", np.ones((2, 4), np.float32)),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_bodies_that_need_the_executor(name: str) -> None:
    state, body, x = OTHERS[name]
    kind = state.partition("[")[0]
    m = parsed(f"""g ({kind}{[*x.shape]} x, float[4, 4] square) => ({state.replace(" h", " y").replace("P", "R")}) {{
        n = Constant <value = int64 {{40}}> ()  limit = Constant <value = float {{20.0}}> ()
        y = Loop <body = b (int64 i, bool c, {state}) => (bool more, {state.replace(" h", " v").replace("P", "Q")})
            {{ more = Identity (c)  {body} }}> (n, , x)
    }}""")
    feeds = {"x": x, "square": np.eye(4, dtype=np.float32)}
    session = opened(m)
    with batches() as found:
        (got,) = session.run(None, feeds)
    (want,) = by_onnxruntime(m, feeds)
    assert not found and got.shape == want.shape and (got == want).all()


def test_a_loop_inside_a_loop() -> None:
    """The inner one stacks 12 rows in each of 6 steps of the outer one."""
    m = parsed("""g (float[1, 16] x, float[16, 16] w) => (float[1, 16] y, float[A, B, 1, 16] ys) {
        n = Constant <value = int64 {6}> ()  n2 = Constant <value = int64 {12}> ()
        y, ys = Loop <body = b (int64 i, bool c, float[1, 16] h)
                => (bool more, float[1, 16] v, float[k, 1, 16] rows) {
            more = Identity (c)
            v, rows = Loop <body = b2 (int64 i2, bool c2, float[1, 16] h2)
                => (bool more2, float[1, 16] v2, float[1, 16] r2) {
                more2 = Identity (c2)  k2 = MatMul (h2, w)  v2 = Tanh (k2)  r2 = Neg (v2) }> (n2, , h) }> (n, , x)
    }""")
    feeds = {name: x for name, x in feeds_of(1).items() if name == "w"} | {"x": feeds_of(1)["h0"]}
    session = opened(m)
    with batches() as found:
        same(session.run(None, feeds), by_onnxruntime(m, feeds))
    assert sum(found) > 36


INDICES = """g (int64[T] x, float[5] words) => (float y, float[k] ys) {
    n = Shape <start = 0, end = 1> (x)  count = Squeeze (n)  zero = Constant <value = float {0.0}> ()
    y, ys = Loop <body = b (int64 i, bool c, float h) => (bool more, float v, float o) {
        more = Identity (c)  j = Gather (x, i)  o = Gather (words, j)  v = Add (h, o) }> (count, , zero)
}"""


def test_an_index_out_of_range_ends_the_batch() -> None:
    m = parsed(INDICES)
    session = opened(m)
    feeds = {"x": np.arange(400) % 5, "words": np.arange(5, dtype=np.float32)}
    want = by_onnxruntime(m, feeds)
    same(session.run(None, feeds), want)
    wrong = feeds["x"].copy()
    wrong[300], wrong[301] = 7, 9
    with batches() as found, pytest.raises(ExecutionError, match=r"Gather.* 7 .*5"):
        session.run(None, {**feeds, "x": wrong})
    assert sum(found) < 301
    same(session.run(None, feeds), want)


ENDLESS = """g (float[1, 64] x, float[64, 64] w, bool go) => (float[1, 64] y STACK) {
    y STACKED = Loop <body = b (int64 i, bool c, float[1, 64] h) => (bool more, float[1, 64] v ROW)
        { more = Identity (c)  k = MatMul (h, w)  v = Tanh (k)  OUT }> (, go, x)
}"""


def endless(stacks: bool) -> onnx.ModelProto:
    words = {"STACKED": ", ys", "STACK": ", float[k, 1, 64] ys", "ROW": ", float[1, 64] o", "OUT": "o = Neg (v)"}
    text = ENDLESS
    for word, new in words.items():
        text = text.replace(word, new if stacks else "")
    return parsed(text)


def test_a_run_is_stopped_between_batches() -> None:
    session = opened(endless(False))
    feeds = {"x": feeds_of(1)["h0"].repeat(4, 1), "w": np.eye(64, dtype=np.float32), "go": np.array(True)}
    options = RunOptions()
    timer = threading.Timer(0.3, lambda: setattr(options, "terminate", True))
    timer.start()
    start = time.perf_counter()
    with batches() as found, pytest.raises(Terminated):
        session.run(None, feeds, options)
    assert time.perf_counter() - start < 5 and sum(found) > 1000
    (got,) = session.run(None, {**feeds, "go": np.array(False)})
    same([got], [feeds["x"]], 0)


def test_rows_larger_than_a_batch_and_memory_limits() -> None:
    """Rows of 24 KiB do not fit a batch; a stack beyond the limit is refused, and the session stays usable."""
    m = parsed("""g (float[T, 6000] x, float[6000] h0) => (float[6000] y, float[k, 6000] ys) {
        n = Shape <start = 0, end = 1> (x)  count = Squeeze (n)
        y, ys = Loop <body = b (int64 i, bool c, float[6000] h) => (bool more, float[6000] v, float[6000] o) {
            more = Identity (c)  u = Gather (x, i)  v = Add (h, u)  o = Neg (v) }> (count, , h0)
    }""")
    session = opened(m, memory_limit=16 << 20)
    x, h = np.ones((40, 6000), np.float32), np.zeros(6000, np.float32)
    with batches() as found:
        same(session.run(None, {"x": x, "h0": h}), by_onnxruntime(m, {"x": x, "h0": h}))
    assert not found
    with pytest.raises(OutOfMemory):
        session.run(None, {"x": np.ones((400, 6000), np.float32), "h0": h})
    same(session.run(None, {"x": x, "h0": h}), by_onnxruntime(m, {"x": x, "h0": h}))


def test_exported_programs(tmp_path: Path) -> None:
    m = model(BODIES["a product"])
    session = opened(m)
    (tmp_path / "loop.pyrt").write_bytes(session.export(weights=True))
    again = InferenceSession(tmp_path / "loop.pyrt", providers=["wasm"])
    with batches() as found:
        same(again.run(None, feeds_of(40)), session.run(None, feeds_of(40)), 1e-5)
    assert found
