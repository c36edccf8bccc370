"""Loops that become one procedure, against onnxruntime and against the same loops step by step."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import pytest

from kit.gpu import GPU
from pyruntime import InferenceSession, SessionOptions
from pyruntime.providers.wasm.native.kinds import KINDS
from tests.ops.compare import by_onnxruntime, check, parsed
from tests.ops.node import f32

STEP_BY_STEP = ["hoisted_products", "whole_loops"]
WHOLE = "written as one procedure"
Feeds = dict[str, np.ndarray]

# h, c: states (2, N); u: a slice (2, N) of x; w: a matrix (N, N). What a step computes: v and d, the new states, and o.
BODIES = {
    "columns": "g = Sigmoid (u)  k = Mul (h, g)  v = Add (k, u)  o = Tanh (v)",
    "the state is read after its new value": "v = Add (h, u)  o = Mul (h, v)",
    "softmax": "k = Add (h, u)  v = Softmax <axis = -1> (k)  o = Sub (v, h)",
    "softmax of columns": "k = Add (h, u)  v = Softmax <axis = 0> (k)  o = Sub (v, h)",
    "columns mix": "m = ReduceMean <keepdims = 1> (h, zero)  k = Sub (h, m)  v = Add (k, u)  o = Add (m, u)",
    "normalisation": """m = ReduceMean <keepdims = 1> (h, one)  k = Sub (h, m)  s = Mul (k, k)
        q = ReduceMean <keepdims = 1> (s, one)  r = Sqrt (q)  e = Div (k, r)  v = Add (e, u)  o = Add (m, u)""",
    "a shift": """k = Slice (h, one, last, one)  j = Slice (u, zero, one, one)  v = Concat <axis = 1> (k, j)
        o = Neg (v)""",
    "a rotation": """k = Slice (h, one, last, one)  j = Slice (h, zero, one, one)  v = Concat <axis = 1> (k, j)
        o = Add (v, u)""",
    "a product of the state": "k = MatMul (h, w)  j = Add (k, u)  v = Tanh (j)  o = Identity (v)",
    "a product with a transpose": """t = Transpose <perm = [1, 0]> (w)  k = MatMul (h, t)  j = Add (k, u)  v = Tanh (j)
        o = Neg (v)""",
    "two products": "a = MatMul (h, w)  k = Tanh (a)  j = MatMul (k, w)  v = Add (j, u)  o = Add (v, a)",
    "products that leave the loop": """a = MatMul (u, w)  k = Tanh (a)  j = MatMul (k, w)  g = Mul (h, j)
        v = Add (g, k)  o = Add (v, a)""",
    "a reshape": """k = Reshape (h, turned)  j = Reshape (u, turned)  a = Add (k, j)  v = Reshape (a, shape)
        o = Mul (v, v)""",
    "products of the state with itself": """t = Transpose <perm = [1, 0]> (h)  k = MatMul (h, t)  j = MatMul (k, h)
        s = Tanh (j)  v = Add (s, u)  o = Identity (s)""",
    "sums along both axes": """t = Transpose <perm = [1, 0]> (h)  r = ReduceSum <keepdims = 1> (h, zero)
        q = ReduceSum <keepdims = 1> (t, one)  p = Mul (r, q)  y1 = MatMul (u, p)  s = Tanh (y1)  v = Add (s, h)
        o = Add (u, r)""",
    "a transpose": """t = Transpose <perm = [1, 0]> (h)  s = Softmax <axis = 0> (t)  k = Transpose <perm = [1, 0]> (s)
        v = Add (k, u)  o = Mul (h, k)""",
    "a branch": """total = ReduceSum <keepdims = 0> (u)  test = Greater (total, none)
        k = If (test) <then_branch = t () => (float[2, N] p) { p = Neg (h) },
                       else_branch = e () => (float[2, N] q) { q = Tanh (h) }>
        v = Add (k, u)  o = Mul (k, k)""",
    "a branch with products and sums": """total = ReduceSum <keepdims = 0> (h)  test = Greater (total, none)
        k = If (test) <then_branch = t () => (float[2, N] p) { p1 = MatMul (h, w)  p = Softmax (p1) },
                       else_branch = e () => (float[2, N] q) { q1 = ReduceSum <keepdims = 1> (u, one)
                                                               q = Mul (q1, h) }>
        v = Add (k, u)  o = Mul (k, k)""",
    "a branch inside a branch": """total = ReduceSum <keepdims = 0> (u)  test = Greater (total, none)
        k = If (test) <then_branch = t () => (float[2, N] p) {
                p1 = ReduceMax <keepdims = 0> (h)  p2 = Greater (p1, total)
                p = If (p2) <then_branch = a () => (float[2, N] r) { r = CumSum (h, one) },
                             else_branch = b () => (float[2, N] r1) { r1 = Tanh (h) }> },
            else_branch = e () => (float[2, N] q) { q1 = ArgMax <axis = 1, keepdims = 0> (h)
                                                    q = Gather <axis = 0> (w, q1) }>
        v = Tanh (k)  o = Mul (k, u)""",
    "the place of the largest": """a = ArgMax <axis = 1, keepdims = 1> (h)  f = Cast <to = 1> (a)  v = Sub (u, f)
        o = Add (h, f)""",
    "a row that data choose": """a = ArgMax <axis = 1, keepdims = 0> (h)  r = Gather <axis = 0> (w, a)
        k = Add (r, u)  v = Tanh (k)  o = Mul (r, h)""",
    "the largest": "v = Max (h, u)  a = ReduceMax <keepdims = 1> (v, one)  o = Sub (v, a)",
    "states change places": "v = Identity (c)  d = Identity (h)  o = Add (h, u)",
    "states change places and values": "v = Add (c, u)  d = Tanh (h)  o = Add (h, c)",
    "a cell": """s = Add (h, c)  g = Sigmoid (s)  a = MatMul (h, w)  b1 = Tanh (a)  m = Mul (g, b1)  d = Add (m, c)
        e = Tanh (d)  v = Mul (e, g)  o = Add (v, u)""",
    "a delta rule": """s = ReduceSum <keepdims = 1> (c, one)  f = Sub (u, s)  e1 = Mul (f, h)  e = Tanh (e1)
        d = Add (c, e)  z = ReduceSum <keepdims = 1> (d, zero)  k = Add (h, z)  v = Tanh (k)  o = Mul (d, z)""",
    "a value that two phases need": """e = Sigmoid (u)  f = Mul (h, e)  s = ReduceSum <keepdims = 1> (f, one)
        g = Sub (u, s)  b1 = Mul (g, e)  v = Add (f, b1)  p = Mul (v, e)  o = ReduceSum <keepdims = 1> (p, one)""",
    "a sort": "k = Add (h, u)  p, q = TopK <axis = 1> (k, last)  f = Cast <to = 1> (q)  v = Tanh (p)  o = Sub (f, h)",
    "a running sum": "r = CumSum (u, one)  k = Mul (h, r)  v = Tanh (k)  o = CumSum <reverse = 1> (h, one)",
    "a scatter into a state": """a = ArgMax <axis = 1, keepdims = 1> (u)  j = Slice (u, zero, one, one)
        v = ScatterElements <axis = 1> (h, a, j)  o = Neg (v)""",
    "a scatter into a state that is read later": """a = ArgMax <axis = 1, keepdims = 1> (u)
        a3 = Unsqueeze (a, zero)  t = Unsqueeze (h, zero)  u3 = Unsqueeze (u, zero)  j = Slice (u3, zero, one, two)
        s = ScatterElements <axis = 2> (t, a3, j)  v = Squeeze (s, zero)  o = Sub (h, v)""",
    "an inner loop": """s = ReduceSum <keepdims = 0> (h, one)
        e, es = Scan <num_scan_inputs = 1, scan_input_axes = [1], body = inner (float[2] k, float[2] p) =>
            (float[2] q, float[2] r) { j = Mul (k, p)  q = Tanh (j)  r = Neg (k) }> (s, u)
        g = Transpose <perm = [1, 0]> (es)  f = Unsqueeze (e, one)  v = Add (g, f)  o = Mul (v, h)""",
    "an inner loop that data count": """a = ArgMax <axis = 1, keepdims = 0> (u)  k = ReduceMax <keepdims = 0> (a)
        e = Loop (k, , h) <body = inner (int64 j, bool b1, float[2, N] p) => (bool b2, float[2, N] q)
            { b2 = Identity (b1)  r = Add (p, u)  q = Tanh (r) }>
        v = Add (e, u)  o = Sub (v, h)""",
    "an inner loop whose count is far below zero": """a = ArgMax <axis = 1, keepdims = 0> (u)
        most = ReduceMax <keepdims = 0> (a)  much = Constant <value = int64 {2147483690}> ()  k = Sub (most, much)
        e = Loop (k, , h) <body = inner (int64 j, bool b1, float[2, N] p) => (bool b2, float[2, N] q)
            { b2 = Identity (b1)  r = Add (p, u)  q = Tanh (r) }>
        v = Add (e, u)  o = Sub (v, h)""",
    "a result that is a state": "v = Add (h, u)  o = Identity (v)",
    "a result that is an input": "v = Add (h, u)  o = Identity (u)",
    "a state that stays": "v = Identity (h)  o = Add (v, u)",
    "comparisons": "b1 = Greater (h, u)  v = Where (b1, h, u)  b2 = Not (b1)  f = Cast <to = 1> (b2)  o = Add (f, v)",
}  # fmt: skip
ON_GPU = [
    "columns", "softmax", "a rotation", "two products", "a product with a transpose", "a branch",
    "products of the state with itself", "the place of the largest", "states change places and values", "a delta rule",
]  # fmt: skip


def model(body: str, form: str, rows: str = "T", width: int = 20) -> onnx.ModelProto:
    """form: scan, loop or reversed; rows: the length of x"""
    if " d = " not in body:
        body += "  d = Identity (c)"
    states = "float[2, N] h, float[2, N] c"
    results = "float[2, N] v, float[2, N] d, float[2, P] o"
    directions = "scan_input_directions = [1], scan_output_directions = [1]," if form == "reversed" else ""
    node = f"Scan <num_scan_inputs = 1, {directions} body = b ({states}, float[2, N] u) => ({results}) {{ {body} }}>"
    call = f"{node} (start, second, x)"
    if form == "loop":
        body = f"more = Identity (going)  u = Gather <axis = 0> (x, i)  {body}"
        node = f"Loop <body = b (int64 i, bool going, {states}) => (bool more, {results}) {{ {body} }}>"
        call = f"{node} (n, , start, second)"
    text = f"""g (float[{rows}, 2, N] x, float[2, N] start, float[2, N] second, float[N, N] w)
            => (float[2, N] y, float[2, N] y2, float[{rows}, 2, P] ys) {{
        zero = Constant <value = int64[1] {{0}}> ()  one = Constant <value = int64[1] {{1}}> ()
        two = Constant <value = int64[1] {{2}}> ()  none = Constant <value = float {{0.0}}> ()
        last = Constant <value = int64[1] {{{width}}}> ()
        turned = Constant <value = int64[2] {{5, {2 * width // 5}}}> ()
        shape = Constant <value = int64[2] {{2, {width}}}> ()
        whole = Shape <start = 0, end = 1> (x)  n = Squeeze (whole)
        y, y2, ys = {call}
    }}"""
    return parsed(text.replace("N]", f"{width}]"))


def feeds_of(steps: int, width: int = 20) -> Feeds:
    rng = np.random.default_rng(steps)
    made = {"x": (steps, 2, width), "start": (2, width), "second": (2, width), "w": (width, width)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in made.items()}
    feeds["w"] /= np.float32(width) ** 0.5
    return feeds


def opened(
    m: onnx.ModelProto, passes: bool = True, threads: int = 1, providers: Any = ("wasm",), code: bool = True
) -> InferenceSession:  # fmt: skip
    """A session; checks how its loop runs. passes: whether loops become procedures, even if steps inside WebAssembly
    would take less time; code: whether products may be machine code"""
    options = SessionOptions(intra_op_num_threads=threads, native_code=code)
    options.disabled_passes = [] if passes else STEP_BY_STEP
    with patch("pyruntime.passes.loops.bodies.BATCH", math.inf):
        session = InferenceSession(m.SerializeToString(), options, providers=list(providers))
    found = [n["loop"] for n in session.explain()["nodes"] if n["op"] in ("Loop", "Scan")]
    assert {text.removesuffix(", which runs in turns") for text in found} == {WHOLE if passes else ""}
    return session


def same(got: list[np.ndarray], want: list[np.ndarray], tolerance: float = 1e-4) -> None:
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("form", ["scan", "loop", "reversed"])
@pytest.mark.parametrize("name", BODIES)
def test_bodies(name: str, form: str) -> None:
    m = model(BODIES[name], form)
    whole, steps = opened(m), opened(m, passes=False)
    for count in (0, 1, 5):
        feeds = feeds_of(count)
        got = whole.run(None, feeds)
        same(got, steps.run(None, feeds))
        if count:
            same(got, by_onnxruntime(m, feeds))
        else:
            same(got[:2], [feeds["start"], feeds["second"]])
            assert got[2].shape[0] == 0
    fixed = opened(model(BODIES[name], form, "5"), code=False)
    same(fixed.run(None, feeds), got)
    assert fixed.explain()["placement"].get("control", 0) == 0


@pytest.mark.parametrize("width", [64, 130])
@pytest.mark.parametrize("name", [name for name in BODIES if name != "a reshape"])
def test_chunks_of_columns_and_two_threads(name: str, width: int) -> None:
    """130 columns have a partial chunk; with 64, products have several vectors at once."""
    m = model(BODIES[name], "scan", width=width)
    feeds = feeds_of(4, width)
    same(opened(m, threads=2, code=False).run(None, feeds), opened(m, passes=False).run(None, feeds))


@pytest.mark.parametrize("name", ON_GPU)
def test_on_the_gpu(name: str) -> None:
    m = model(BODIES[name], "scan")
    whole, steps = opened(m, providers=[GPU]), opened(m, passes=False)
    assert {n["place"] for n in whole.explain()["nodes"] if n["op"] == "Scan"} == {"webgpu"}
    for count in (0, 5):
        feeds = feeds_of(count)
        same(whole.run(None, feeds), steps.run(None, feeds))


TYPES = {  # element type, body
    "double": "k = Mul (h, u)  s = ReduceSum <keepdims = 1> (k, one)  g = Tanh (s)  v = Add (g, u)  o = Mul (v, h)",
    "float16": """k = Mul (h, u)  t = Transpose <perm = [1, 0]> (k)  e = Neg (u)  p = MatMul (e, t)
        s = ReduceSum <keepdims = 1> (p, one)  g = Tanh (s)  v = Add (g, u)  o = Mul (v, h)""",
    "int64": "k = Mul (h, u)  s = ReduceSum <keepdims = 1> (k, one)  v = Sub (u, s)  o = Add (v, h)",
    "int32": "k = Mul (h, u)  m = ReduceMax <keepdims = 1> (k, one)  v = Sub (u, m)  o = Add (v, h)",
    "bool": "k = Xor (h, u)  v = Not (k)  o = And (h, v)",
}


@pytest.mark.parametrize("dtype", TYPES)
def test_types_of_states(dtype: str) -> None:
    text = f"""g (D[T, 2, 70] x, D[2, 70] start) => (D[2, 70] y, D[T, 2, 70] ys) {{
        one = Constant <value = int64[1] {{1}}> ()
        y, ys = Scan <num_scan_inputs = 1, body = b (D[2, 70] h, D[2, 70] u) => (D[2, 70] v, D[2, 70] o)
            {{ {TYPES[dtype]} }}> (start, x)
    }}"""
    m = parsed(text.replace("D[", f"{dtype}["))
    kind = {"double": np.float64}.get(dtype) or np.dtype(dtype)
    rng = np.random.default_rng(0)
    draw = (lambda *s: rng.integers(0, 2, s)) if dtype == "bool" else lambda *s: 3 * rng.standard_normal(s)
    feeds = {"x": draw(4, 2, 70).astype(kind), "start": draw(2, 70).astype(kind)}
    got = opened(m).run(None, feeds)
    rounding = 2e-2 if dtype == "float16" else 1e-6
    same(got, opened(m, passes=False).run(None, feeds), rounding)
    if dtype != "float16":  # onnxruntime rounds between operations
        same(got, by_onnxruntime(m, feeds), rounding)


@pytest.mark.parametrize("going", [True, False])
@pytest.mark.parametrize("condition", ["more = Greater (m, small)", "more = Less (i, four)", "more = Less (small, m)"])
def test_a_loop_that_may_end_before_its_limit(condition: str, going: bool) -> None:
    """Two stacks have as many rows as steps have run."""
    m = parsed(f"""g (float[3, 40] x, bool go) => (float[3, 40] y, float[k, 3, 40] ys, float[k] zs) {{
        n = Constant <value = int64 {{12}}> ()  most = Constant <value = float {{0.8}}> ()
        small = Constant <value = float {{0.5}}> ()  four = Constant <value = int64 {{4}}> ()
        y, ys, zs = Loop <body = b (int64 i, bool c, float[3, 40] h)
                => (bool more, float[3, 40] v, float[3, 40] o, float m)
            {{ v = Mul (h, most)  o = Neg (v)  m = ReduceMax <keepdims = 0> (v)  {condition} }}> (n, go, x)
    }}""")
    x = np.abs(np.random.default_rng(0).standard_normal((3, 40))).astype(np.float32)
    check(m, {"x": x, "go": np.array(going)})
    opened(m)


REASONS = {  # why a loop stays step by step, body of a Loop with the state h (4, N), further inputs
    "shapes depend on the step": ("v = Concat <axis = 0> (h, x)", "20"),
    'its body has the procedure "running", which threads run faster': (
        "s = ReduceSum <keepdims = 0> (h)  k = Add (large, s)  d = CumSum (k, axis)"
        "  r = ReduceMean <keepdims = 0> (d)  v = Mul (h, r)", "5"),
    "its body has a Loop kernel": (
        "w, r = Loop (trip, go, h) <body = b2 (int64 j, bool d, float[N, 4] p)"
        "  => (bool e, float[N, 4] q, float k) { s = ReduceSum <keepdims = 0> (p)  e = Less (s, limit)"
        "  q = Add (p, p)  k = Identity (s) }>  t = ReduceMax <keepdims = 0> (r)  v = Div (w, t)", "5"),
    "its body has a Host kernel": ("s = Cast <to = 8> (h)  v = Cast <to = 1> (s)", "5"),
    "its body has a Read kernel": ("z = NonZero (h)  s = Shape (z)  f = Cast <to = 1> (s)"
                                   "  r = ReduceSum <keepdims = 0> (f)  v = Mul (h, r)", "5"),
    'its body calls the routine "matmul" for large products': ("a = MatMul (h, large)  b1 = MatMul (a, back)"
                                                               "  v = Tanh (b1)", "5"),
    'its body calls the routine "conv" for large products': (
        "k = Constant <value = int64[4] {16, 1, 3, 3}> ()  w = ConstantOfShape <value = float[1] {0.01}> (k)"
        "  one = Constant <value = int64[4] {1, 1, 4, 4}> ()  a = Reshape (h, one)"
        "  b1 = Conv <pads = [1, 1, 1, 1]> (a, w)  d = ReduceSum <keepdims = 0> (b1, zeros)  v = Tanh (d)", "300"),
}  # fmt: skip


EXECUTOR = ("shapes", "its body has a Loop", "its body has a Host", "its body has a Read")  # why it runs each step


@pytest.mark.parametrize("reason", REASONS)
def test_why_a_loop_runs_step_by_step(reason: str) -> None:
    body, trip = REASONS[reason]
    m = parsed(f"""g (float[4, 4] x, int64 trip, bool go, float[4, 40000] large, float[40000, 4] back)
            => (float[N, 4] y) {{
        axis = Constant <value = int64 {{0}}> ()  zeros = Constant <value = int64[2] {{0, 1}}> ()
        n = Constant <value = int64 {{{trip}}}> ()
        limit = Constant <value = float {{900.0}}> ()
        y = Loop <body = b (int64 i, bool c, float[N, 4] h) => (bool more, float[N, 4] v)
            {{ more = Identity (c)  {body} }}> (n, , x)
    }}""")
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {"x": np.abs(rng.standard_normal((4, 4))), "large": rng.standard_normal((4, 40000)) / 99}
    feeds["back"] = rng.standard_normal((40000, 4)) / 99
    feeds = {k: v.astype(np.float32) for k, v in feeds.items()}
    feeds |= {"trip": np.array(3), "go": np.array(True)}
    session = InferenceSession(m.SerializeToString(), providers=["wasm"])
    where = "" if reason.startswith(EXECUTOR) else ", inside WebAssembly"
    assert f"runs step by step{where}: {reason}" in [n["loop"] for n in session.explain()["nodes"]]
    if "Host" not in reason and "shapes" not in reason:  # onnxruntime writes texts of numbers differently
        same(session.run(None, feeds), by_onnxruntime(m, feeds), 1e-3)


PRODUCTS = [  # in a step: rows, products, steps (T: not known), further kernels; whether procedures take less time
    (2, 1, "T", "", True), (16, 1, "T", "", False), (16, 4, "T", "", False), (1, 4, "T", "", True),
    (16, 1, "12", "", True), (16, 1, "5", "", True), (1, 4, "400", "", True), (4, 2, "400", "", False),
    (16, 1, "T", """q = ReduceMax <keepdims = 0> (u)  t = Less (q, limit)  m = If (t) <
        then_branch = a () => (float[N, 48] p) { p = Abs (k) }, else_branch = e () => (float[N, 48] p) { p = Neg (k) }>
        """, True),
]  # fmt: skip


@pytest.mark.parametrize("rows, count, steps, more, is_whole", PRODUCTS)
def test_products_that_together_take_longer_in_loops(
    rows: int, count: int, steps: str, more: str, is_whole: bool
) -> None:  # fmt: skip
    """Without machine code, routines gain more on products than a step inside WebAssembly costs, unless steps are few:
    the executor runs the first ones, and all steps with branches."""
    body = "  ".join(f"h{n + 1} = MatMul (h{n}, w)" for n in range(count))
    m = parsed(f"""g (float[{steps}, {rows}, 48] x, float[{rows}, 48] start, float[48, 48] w)
            => (float[{rows}, 48] y) {{
        limit = Constant <value = float {{3.0}}> ()
        y = Scan <num_scan_inputs = 1, body = b (float[{rows}, 48] h0, float[{rows}, 48] u) => (float[{rows}, 48] v)
            {{ {body}  k = Add (h{count}, u)  {more or "m = Identity (k)"}  v = Tanh (m) }}> (start, x)
    }}""")
    why = 'runs step by step, inside WebAssembly: its body calls the routine "matmul" for large products'
    sessions = [InferenceSession(m.SerializeToString(), SessionOptions(native_code=x)) for x in (False, True)]
    for session in sessions:
        has_code = session.explain()["native_code"] in KINDS
        assert (WHOLE if is_whole or has_code else why) in [n["loop"] for n in session.explain()["nodes"]]
    rng = np.random.default_rng(0)
    length = 5 if steps == "T" else int(steps)
    feeds = {"x": rng.standard_normal((length, rows, 48)), "start": rng.standard_normal((rows, 48))}
    feeds["w"] = rng.standard_normal((48, 48)) / 7
    feeds = {name: x.astype(np.float32) for name, x in feeds.items()}
    for session in sessions:
        same(session.run(None, feeds), by_onnxruntime(m, feeds), 1e-5)


def test_a_product_that_leaves_the_loop_is_one_call() -> None:
    session = opened(model(BODIES["products that leave the loop"], "scan"))
    assert [n["calls"] for n in session.explain()["nodes"] if n["op"].endswith("MatMul")] == [1, 1]


# s: (2, 3, 4, 6), read as rows; u: (6); v: the rows' results as (2, 3, 4), from which the new state follows
ROWS = {
    "products": "a = Reshape (s, rows)  k = Unsqueeze (u, one)  b1 = MatMul (a, k)  v = Reshape (b1, three)",
    "batched products": "k = Unsqueeze (u, one)  b1 = MatMul (s, k)  v = Squeeze (b1, last)",
    "sums": "a = Reshape (s, rows)  b1 = Mul (a, u)  c = ReduceSum <keepdims = 0> (b1, one)  v = Reshape (c, three)",
    "indices": """a = Reshape (s, rows)  b1 = ArgMax <axis = 1, keepdims = 0> (a)  c = Cast <to = 1> (b1)
        v = Reshape (c, three)""",
    "running sums": """a = Reshape (s, rows)  b1 = CumSum (a, one)  c = ReduceMax <keepdims = 0> (b1, one)
        v = Reshape (c, three)""",
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_flattened_rows_that_are_divided_again(name: str) -> None:
    """States that a step reads as rows have columns, if a reshape divides the rows of the result as the state's."""
    m = parsed(f"""g (float[T, 6] x, float[2, 3, 4, 6] start) => (float[2, 3, 4, 6] y, float[T, 2, 3, 4] ys) {{
        rows = Constant <value = int64[2] {{24, 6}}> ()  three = Constant <value = int64[3] {{2, 3, 4}}> ()
        one = Constant <value = int64[1] {{1}}> ()  last = Constant <value = int64[1] {{-1}}> ()
        y, ys = Scan <num_scan_inputs = 1, body = b (float[2, 3, 4, 6] s, float[6] u)
            => (float[2, 3, 4, 6] r, float[2, 3, 4] v) {{
                {ROWS[name]}  t = Tanh (v)  e = Unsqueeze (t, last)  f = Add (s, e)  g1 = Mul (f, u)  r = Tanh (g1)
        }}> (start, x)
    }}""")
    sessions = [opened(m), opened(m, code=False), opened(m, providers=[GPU])]
    rng = np.random.default_rng(0)
    for count in (1, 5):
        feeds = {"x": f32(rng.normal(size=(count, 6))), "start": f32(rng.normal(size=(2, 3, 4, 6)))}
        for session in sessions:
            same(session.run(None, feeds), by_onnxruntime(m, feeds))
    text = sessions[1].listing()  # ":= div(" is of the number of a unit, other quotients are in indices of loads
    assert name in ("indices", "running sums") or text.count("div(") == text.count(":= div(")


SUMS = {  # h, u: (2, N); s: (N, N), to which each step adds products; the new values are v and r; o is stacked
    "of slices": "t = Transpose <perm = [1, 0]> (u)  p = MatMul (t, u)  r = Add (s, p)  v = Add (h, u)  o = Neg (v)",
    "of a state": "t = Transpose <perm = [1, 0]> (h)  p = MatMul (t, u)  r = Add (p, s)  v = Tanh (u)  o = Neg (h)",
    "of results": """v = Tanh (u)  o = Mul (h, v)  t = Transpose <perm = [1, 0]> (o)  p = MatMul (t, v)
        q = Transpose <perm = [1, 0]> (p)  r = Add (s, q)""",
    "two products": """k = Mul (h, u)  v = Tanh (k)  o = Sub (v, h)  a = Transpose <perm = [1, 0]> (k)
        p = MatMul (a, v)  g = Add (p, s)  b1 = Transpose <perm = [1, 0]> (u)  q = MatMul (b1, k)  r = Add (g, q)""",
}


@pytest.mark.parametrize("name", [*SUMS, "of a sum that the steps read"])
def test_sums_of_products_leave_the_loop(name: str) -> None:
    """One product of all steps follows the loop, unless a step reads the sum."""
    body = SUMS.get(name) or "t = Transpose <perm = [1, 0]> (u)  p = MatMul (t, u)  r = Add (s, p)  v = Tanh (u)" \
        "  m = MatMul (h, s)  o = Add (m, u)"  # fmt: skip
    m = parsed(f"""g (float[T, 2, 20] x, float[2, 20] start, float[20, 20] w)
            => (float[2, 20] y, float[20, 20] total, float[T, 2, 20] ys) {{
        y, total, ys = Scan <num_scan_inputs = 1, body = b (float[2, 20] h, float[20, 20] s, float[2, 20] u)
            => (float[2, 20] v, float[20, 20] r, float[2, 20] o) {{ {body} }}> (start, w, x)
    }}""")
    sessions = [opened(m), opened(m, providers=[GPU])]
    steps = opened(m, passes=False)
    calls = [n["calls"] for n in sessions[0].explain()["nodes"] if n["op"].endswith("MatMul")]
    assert calls == {"two products": [1, 1]}.get(name, [1] if name in SUMS else [])
    for count in (0, 1, 5):
        feeds = feeds_of(count)
        feeds.pop("second")
        for session in sessions:
            same(session.run(None, feeds), steps.run(None, feeds))
        if count:
            same(session.run(None, feeds), by_onnxruntime(m, feeds))


READ_ELSEWHERE = {
    "carried on": "to = Identity (r)", "computed on": "e = Sin (r)  to = Add (w, e)",
    "carried in its place": "to = Neg (r)",
}  # fmt: skip


@pytest.mark.parametrize("name", READ_ELSEWHERE)
def test_a_sum_that_another_result_reads_stays(name: str) -> None:
    m = parsed(f"""g (float[T, 2, 20] x, float[20, 20] start) => (float[20, 20] total, float[20, 20] other) {{
        total, other = Scan <num_scan_inputs = 1, body = b (float[20, 20] s, float[20, 20] w, float[2, 20] u)
            => (float[20, 20] r, float[20, 20] to) {{
                t = Transpose <perm = [1, 0]> (u)  p = MatMul (t, u)  r = Add (s, p)
                {READ_ELSEWHERE[name]} }}> (start, start, x)
    }}""")
    rng = np.random.default_rng(3)
    feeds = {"x": rng.random((5, 2, 20), np.float32), "start": rng.random((20, 20), np.float32)}
    for session in (opened(m), opened(m, providers=[GPU])):
        same(session.run(None, feeds), by_onnxruntime(m, feeds), 1e-5)


@pytest.mark.parametrize("code", [False, True])
def test_matrices_of_several_chunks_of_columns(code: bool) -> None:
    """Each unit reads the blocks of its chunk. The product stays in the loop, because data end it."""
    m = parsed("""g (float[1, 128] x, int64 most, float[48] base, float[48, 128] w) => (float[1, 128] y) {
        half = Constant <value = float {0.5}> ()  seven = Constant <value = int64 {7}> ()
        y = Loop (most, , x) <body = b (int64 i, bool c, float[1, 128] h) => (bool d, float[1, 128] v) {
            f = Cast <to = 1> (i)  a = Mul (base, f)  e = Sin (a)  u = Unsqueeze (e, zero)  p = MatMul (u, w)
            k = Mul (h, half)  v = Add (k, p)  d = Less (i, seven) }>
    }""")
    m.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "zero"))
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(s).astype(np.float32) for name, s in
             {"x": (1, 128), "base": 48, "w": (48, 128)}.items()} | {"most": np.array(20)}  # fmt: skip
    same(opened(m, code=code).run(None, feeds), by_onnxruntime(m, feeds))


@pytest.mark.parametrize("rows", ["B", "3", "4"])
def test_rows_share_the_loads_of_matrices(rows: str) -> None:
    """Pairs of rows are computed at once; an odd row alone. A part of a matrix, and a transposed one, are packed."""
    m = parsed(f"""g (float[T, {rows}, 64] x, float[{rows}, 64] start, float[64, 64] w, float[64, 96] part)
            => (float[{rows}, 64] y, float[T, {rows}, 64] ys) {{
        first = Constant <value = int64[1] {{32}}> ()  end = Constant <value = int64[1] {{96}}> ()
        one = Constant <value = int64[1] {{1}}> ()
        turned = Transpose <perm = [1, 0]> (w)  some = Slice (part, first, end, one)
        y, ys = Scan <num_scan_inputs = 1, body = b (float[{rows}, 64] h, float[{rows}, 64] u)
            => (float[{rows}, 64] v, float[{rows}, 64] o) {{
                p = MatMul (h, turned)  a = Add (p, u)  c = Tanh (a)  q = MatMul (c, some)  v = Tanh (q)
                o = Sub (v, u) }}> (start, x)
    }}""")
    sessions = [opened(m), opened(m, threads=2, code=False)]
    for count in (1, 2, 3, 5) if rows == "B" else (int(rows),):
        rng = np.random.default_rng(count)
        shapes = {"x": (4, count, 64), "start": (count, 64), "w": (64, 64), "part": (64, 96)}
        feeds = {
            name: (rng.standard_normal(s) / (8 if s[0] == 64 else 1)).astype(np.float32) for name, s in shapes.items()
        }
        for session in sessions:
            same(session.run(None, feeds), by_onnxruntime(m, feeds), 1e-5)


@pytest.mark.parametrize("rows", ["R", "3", "4", "6"])
@pytest.mark.parametrize("length", [15, 16])
def test_rows_that_are_summed_along_themselves_are_read_four_at_once(rows: str, length: int) -> None:
    """As in Mamba's states of (channels, numbers): y = Σ c[n]·h[r, n]. Rows that are left over are read one by one."""
    m = parsed(f"""g (float[T, {rows}] x, float[T, {length}] c, float[T, {length}] d, float[{rows}, {length}] start)
            => (float[{rows}, {length}] h_out, float[T, {rows}] ys) {{
        h_out, ys = Scan <num_scan_inputs = 3, body = b
            (float[{rows}, {length}] h, float[{rows}] u, float[{length}] v, float[{length}] w)
            => (float[{rows}, {length}] n, float[{rows}] y) {{
                one = Constant <value = int64[1] {{1}}> ()  a = Unsqueeze (u, one)  e = Sigmoid (a)  k = Mul (h, e)
                s = Mul (a, w)  n = Add (k, s)  p = Mul (n, v)  q = ReduceSum <keepdims = 0> (p, one)
                r = Mul (n, w)  t = ReduceMax <keepdims = 0> (r, one)  y = Sub (q, t) }}> (start, x, c, d)
    }}""")
    sessions = [opened(m), opened(m, threads=2)]
    if rows != "3":
        assert sessions[0].listing().count("sum(") == (8 if rows == "4" else 10)  # of kernels, and of loops
    for count in (1, 2, 3, 4, 5, 8, 9) if rows == "R" else (int(rows),):
        rng = np.random.default_rng(count)
        shapes = {"x": (40, count), "c": (40, length), "d": (40, length), "start": (count, length)}
        feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        for session in sessions:
            same(session.run(None, feeds), by_onnxruntime(m, feeds), 1e-5)
