"""If, Loop and Scan decided at run time, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from kit.interpret import run
from pyruntime import InferenceSession
from pyruntime.errors import ExecutionError, ShapeError
from tests.ops.compare import by_onnxruntime, by_session, check, parsed, same

TRUE, FALSE = np.array(True), np.array(False)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


CONSTANTS = """{
        zero = Constant <value = int64[1] {0}> ()
        oneone = Constant <value = int64[1] {1}> ()
        flat = Constant <value = int64[1] {-1}> ()
        two = Constant <value = int64 {2}> ()
        limit = Constant <value = float {50.0}> ()
        half = Constant <value = float {2.0}> ()
        one = Constant <value = int64 {1}> ()
        three = Constant <value = int64[1] {3}> ()
        zero0 = Constant <value = int64 {0}> ()
        minus = Constant <value = int64 {-1}> ()
"""


def graph(text: str) -> onnx.ModelProto:
    return parsed(text.replace("{\n", CONSTANTS, 1))


IFS = {
    "outer values, constants and twins come out": """g (bool c, float[a, b] x)
            => (float[a, b] p, float[a, b] q, float[1] r) {
        y = Neg (x)
        p, q, r = If (c) <
            then_branch = t () => (float[a, b] p1, float[a, b] q1, float[1] r1) {
                p1 = Identity (y)  q1 = Identity (y)  r1 = Constant <value = float[1] {1.0}> () },
            else_branch = e () => (float[a, b] p2, float[a, b] q2, float[1] r2) {
                p2 = Add (x, y)  q2 = Mul (x, x)  r2 = Constant <value = float[1] {2.0}> () }>
    }""",
    "dims differ": """g (bool c, float[a, b] x) => (float[m, n] z) {
        y = If (c) <
            then_branch = t () => (float[m, n] p) { p = Concat <axis = 0> (x, x, x) },
            else_branch = e () => (float[m, n] p2) { p2 = Transpose <perm = [1, 0]> (x) }>
        s = ReduceSum <keepdims = 1> (y)
        z = Div (y, s)
    }""",
    "only the shape is read": """g (bool c, float[a, b] x) => (int64[2] z) {
        y = If (c) <
            then_branch = t () => (float[m, n] p) { p = Concat <axis = 0> (x, x, x) },
            else_branch = e () => (float[m, n] p2) { p2 = Transpose <perm = [1, 0]> (x) }>
        z = Shape (y)
    }""",
    "nested": """g (bool c, float[a, b] x) => (float[a, b] z) {
        d = Not (c)
        z = If (c) <
            then_branch = t () => (float[a, b] p) { p = If (d) <
                then_branch = t2 () => (float[a, b] u) { u = Neg (x) },
                else_branch = e2 () => (float[a, b] v) { v = Add (x, x) }> },
            else_branch = e () => (float[a, b] q) { w = Exp (x)  q = If (d) <
                then_branch = t3 () => (float[a, b] u2) { u2 = Add (w, x) },
                else_branch = e3 () => (float[a, b] v2) { v2 = Identity (w) }> }>
    }""",
    "rows found in one branch": """g (bool c, float[a, b] x) => (int64[m, n] z) {
        z = If (c) <
            then_branch = t () => (int64[m, n] p) { p = NonZero (x) },
            else_branch = e () => (int64[m, n] q) { s = Shape (x)  q = Unsqueeze (s, oneone) }>
    }""",
    "ranks differ: the session compiles for the condition": """g (bool c, float[a, b] x) => (float z) {
        y = If (c) <
            then_branch = t () => (float[n] p) { p = Reshape (x, flat) },
            else_branch = e () => (float[m, n] q) { q = Neg (x) }>
        z = ReduceSum <keepdims = 0> (y)
    }""",
}  # fmt: skip


@pytest.mark.parametrize("shape", ["1", "1, 1", "n", "n, 1"])
@pytest.mark.parametrize("c", [TRUE, FALSE])
def test_a_condition_of_any_rank(shape: str, c: np.ndarray) -> None:
    """A condition of one element may have any rank: openwakeword's hey_jarvis has rank 2."""
    model = graph(IFS["nested"].replace("bool c", f"bool[{shape}] c", 1))
    check(model, {"c": c.reshape([1] * (1 + shape.count(","))), "x": X})
    if "n" in shape:
        two = np.array([True, False]).reshape([2] + [1] * shape.count(","))
        with pytest.raises(ShapeError, match='If "z".*the condition must be one element, has shape'):
            by_session(model, {"c": two, "x": X})


@pytest.mark.parametrize("name", IFS)
@pytest.mark.parametrize("c", [TRUE, FALSE])
def test_if(name: str, c: np.ndarray) -> None:
    check(graph(IFS[name]), {"c": c, "x": X})


LOOPS = {
    "sums": """g (int64 n, float[a, b] x) => (float[a, b] y, float[k, a, b] ys) {
        y, ys = Loop (n, , x) <body = b (int64 i, bool c, float[a, b] v) => (bool c2, float[a, b] w, float[a, b] o) {
            c2 = Identity (c)  f = Cast <to = 1> (i)  t = Add (v, x)  w = Add (t, f)  o = Identity (w) }>
    }""",
    "grows": """g (int64 n, float[a, b] x) => (float[m, b] y, float[k, b] ys) {
        y, ys = Loop (n, , x) <body = b (int64 i, bool c, float[m, b] v) => (bool c2, float[m2, b] w, float[b] o) {
            c2 = Identity (c)  w = Concat <axis = 0> (v, x)  o = ReduceSum <keepdims = 0> (w, zero) }>
    }""",
    "stops by itself": """g (int64 n, float[a, b] x) => (float[a, b] y, float[k] ys) {
        y, ys = Loop (n, , x) <body = b (int64 i, bool c, float[a, b] v) => (bool c2, float[a, b] w, float o) {
            w = Add (v, v)  o = ReduceMax <keepdims = 0> (w)  c2 = Less (o, limit) }>
    }""",
    "carried values change places": """g (int64 n, float[a, b] x) => (float[a, b] y, float[a, b] z) {
        x2 = Neg (x)
        y, z = Loop (n, , x, x2) <body = b (int64 i, bool c, float[a, b] u, float[a, b] v)
            => (bool c2, float[a, b] p, float[a, b] q) { c2 = Identity (c)  p = Identity (v)  q = Identity (u) }>
    }""",
    "a branch inside": """g (int64 n, float[a, b] x) => (float[a, b] y) {
        y = Loop (n, , x) <body = b (int64 i, bool c, float[a, b] v) => (bool c2, float[a, b] w) {
            c2 = Identity (c)  m = Mod (i, two)  odd = Cast <to = 9> (m)
            w = If (odd) <then_branch = t () => (float[a, b] p) { p = Add (v, x) },
                          else_branch = e () => (float[a, b] q) { q = Mul (v, x) }> }>
    }""",
    "a loop inside": """g (int64 n, float[a, b] x) => (float[m, b] y, float[k, j, b] ys) {
        y, ys = Loop (n, , x) <body = b (int64 i, bool c, float[m, b] v) => (bool c2, float[m2, b] w, float[j, b] o) {
            c2 = Identity (c)  w = Concat <axis = 0> (v, x)
            o = Loop (two, , ) <body = b2 (int64 i2, bool d) => (bool d2, float[b] r) {
                d2 = Identity (d)  s = ReduceSum <keepdims = 0> (w, zero)  f = Cast <to = 1> (i2)  r = Add (s, f) }> }>
    }""",
    "slices at the iteration": """g (int64 n, float[a, b] x) => (float[b] y, float[k, h] ys) {
        start = ReduceSum <keepdims = 0> (x, zero)
        y, ys = Loop (n, , start) <body = b (int64 i, bool c, float[b] v) => (bool c2, float[b] w, float[h] o) {
            c2 = Identity (c)  at = Mod (i, two)  row = Gather <axis = 0> (x, at)  w = Add (v, row)
            o = Slice (row, zero, oneone) }>
    }""",
    "only shapes are read": """g (int64 n, float[a, b] x) => (int64[2] y, int64[1] ys) {
        v, vs = Loop (n, , x) <body = b (int64 i, bool c, float[m, b] u) => (bool c2, float[m2, b] w, float[b] o) {
            w = Concat <axis = 0> (u, x)  o = ReduceSum <keepdims = 0> (w, zero)  m = ReduceMax <keepdims = 0> (o)
            c2 = Less (m, limit) }>
        y = Shape (v)  ys = Shape <end = 1> (vs)
    }""",
}  # fmt: skip


def check_loop(m: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    """Like `check`; without iterations, dims that onnxruntime does not know are 0 in its results."""
    want = by_onnxruntime(m, feeds)
    raw = m.SerializeToString()
    for got in (run(raw, feeds), run(raw, feeds, True), by_session(m, feeds)):
        same([g.reshape(w.shape) if w.shape[:1] == (0,) else g for g, w in zip(got, want, strict=True)], want)


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("n", [0, 1, 3])
def test_loop(name: str, n: int) -> None:
    check_loop(graph(LOOPS[name]), {"n": np.array(n), "x": X})


@pytest.mark.parametrize("n", [0, 2, 5])
def test_loop_of_known_length_that_grows_is_written_out(n: int) -> None:
    text = (
        LOOPS["grows"]
        .replace("g (int64 n, ", "g (")
        .replace("{\n", f"{{\n        n = Constant <value = int64 {{{n}}}> ()\n", 1)
    )
    check_loop(graph(text), {"x": X})


def test_loop_without_length_runs_until_its_condition_fails() -> None:
    text = """g (float[a, b] x, bool go) => (float[a, b] y, float[k] ys) {
        y, ys = Loop ( , go, x) <body = b (int64 i, bool c, float[a, b] v) => (bool c2, float[a, b] w, float o) {
            w = Add (v, v)  o = ReduceMax <keepdims = 0> (w)  c2 = Less (o, limit) }>
    }"""
    for go in (True, False):
        check_loop(graph(text), {"x": X, "go": np.array(go)})


SEQUENCES = {
    "built in a loop": """g (int64 n, float[a, b] x) => (seq(float[m, b]) s) {
        e = SequenceEmpty <dtype = 1> ()
        s = Loop (n, , e) <body = b (int64 i, bool c, seq(float[m, b]) v) => (bool c2, seq(float[m, b]) w) {
            c2 = Identity (c)  j = Add (i, two)  k = Unsqueeze (j, zero)  r = Unsqueeze (one, zero)
            t = Concat <axis = 0> (k, r)  part = Tile (x, t)  w = SequenceInsert (v, part) }>
    }""",
    "read in a loop": """g (int64 n, float[a, b] x) => (float[b] y) {
        s = SplitToSequence <axis = 0, keepdims = 0> (x)
        l = SequenceLength (s)
        start = ReduceSum <keepdims = 0> (x, zero)
        y = Loop (l, , start) <body = b (int64 i, bool c, float[b] v) => (bool c2, float[b] w) {
            c2 = Identity (c)  at = Mod (i, n)  row = SequenceAt (s, at)  w = Add (v, row) }>
    }""",
    "inserted, erased, joined": """g (int64 n, float[a, b] x) => (float[k, b] y, int64 l) {
        s = SplitToSequence <axis = 0> (x)
        s1 = SequenceInsert (s, x, n)
        s2 = SequenceErase (s1, zero0)
        y = ConcatFromSequence <axis = 0> (s2)
        l = SequenceLength (s2)
    }""",
    "split by sizes": """g (int64 n, float[a, b] x) => (seq(float[a, k]) s, float[a, k] last) {
        m = Unsqueeze (n, zero)
        rest = Sub (three, m)
        sizes = Concat <axis = 0> (m, rest)
        s = SplitToSequence <axis = 1> (x, sizes)
        last = SequenceAt (s, minus)
    }""",
    "out of a branch": """g (int64 n, float[a, b] x) => (float[a, b] y) {
        c = Equal (n, two)
        s = If (c) <then_branch = t () => (seq(float[a, b]) p) { p = SequenceConstruct (x, x) },
                    else_branch = e () => (seq(float[a, b]) q) { q = SequenceConstruct (x) }>
        y = SequenceAt (s, minus)
    }""",
}  # fmt: skip


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("n", [1, 2])
def test_sequences(name: str, n: int) -> None:
    check(graph(SEQUENCES[name]), {"n": np.array(n), "x": X})


SCANS = {
    "backwards and forwards": """g (float[a, b] x, float[a, b] y) => (float[b] s, float[a, b] p, float[a, b] q) {
        start = ReduceSum <keepdims = 0> (x, zero)
        s, p, q = Scan <num_scan_inputs = 2, scan_input_directions = [1, 0], scan_output_directions = [0, 1],
            body = b (float[b] v, float[b] u, float[b] w) => (float[b] v2, float[b] o1, float[b] o2) {
                d = Sub (u, w)  h = Div (v, half)  v2 = Add (h, d)  o1 = Identity (v2)  o2 = Mul (v2, w)
            }> (start, x, y)
    }""",
    "other axes": """g (float[a, b] x, float[b, c] y) => (float[a] s, float[a, b] p, float[b, c] q) {
        start = ReduceSum <keepdims = 0> (x, oneone)
        s, p, q = Scan <num_scan_inputs = 2, scan_input_axes = [1, -2], scan_output_axes = [-1, 0],
            body = b (float[a] v, float[a] u, float[c] w) => (float[a] v2, float[a] o1, float[c] o2) {
                v2 = Add (u, v)  o1 = Identity (v)  o2 = Exp (w) }> (start, x, y)
    }""",
}  # fmt: skip


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("a", [1, 4])
def test_scan(name: str, a: int) -> None:
    x = np.arange(3 * a, dtype=np.float32).reshape(a, 3) / 7
    y = np.cos(x) if name.startswith("back") else np.cos(np.arange(6, dtype=np.float32)).reshape(3, 2)
    check(graph(SCANS[name]), {"x": x, "y": y})


@pytest.mark.parametrize("directions", ["[0]", "[1]"])
@pytest.mark.parametrize("lens", [True, False])
def test_scan_with_batches(directions: str, lens: bool) -> None:
    text = f"""g ({"int64[b] lens, " if lens else ""}float[b, h] s, float[b, t, h] x)
            => (float[b, h] y, float[b, t, h] ys) {{
        y, ys = Scan <num_scan_inputs = 1, directions = {directions},
            body = b (float[h] v, float[h] u) => (float[h] w, float[h] o) {{
                w = Add (u, v)  o = Mul (w, u) }}> ({"lens" if lens else ""}, s, x)
    }}"""
    rng = np.random.default_rng(1)
    feeds = {"s": rng.random((2, 3), np.float32), "x": rng.random((2, 4, 3), np.float32)}
    if lens:
        feeds = {"lens": np.array([4, 2]), **feeds}
    check(parsed(text, opset=8), feeds)


BATCHES = """g (int64[b] lens, float[b, h] s, float[b, t, h] x) => (float[b, h] y) {
    y = Scan <num_scan_inputs = 1, body = b (float[h] v, float[h] u) => (float[h] w) { w = Add (u, v) }> (lens, s, x)
}"""


@pytest.mark.parametrize("wrong", [-1, 4, 2**31, 2**40])
def test_a_batch_scans_no_more_steps_than_there_are(wrong: int) -> None:
    feeds = {"s": np.ones((2, 2), np.float32), "x": np.ones((2, 3, 2), np.float32), "lens": np.array([3, wrong])}
    with pytest.raises(ExecutionError, match=f'Scan "y".*{wrong} is out of range for 4'):
        by_session(parsed(BATCHES, opset=8), feeds)


@pytest.mark.parametrize(("lens", "s", "x", "text"), [
    ((2,), (), (2, 3, 2), "rank 0 has no batch axis"), ((2,), (2, 2), (2,), "rank 1 has no sequence axis"),
    ((2,), (3, 2), (2, 3, 2), "batches of the inputs differ"), ((3,), (2, 2), (2, 3, 2), "sequence_lens"),
])  # fmt: skip
def test_batches_that_do_not_fit(lens: Any, s: Any, x: Any, text: str) -> None:
    made = parsed(BATCHES, opset=8)
    for value in made.graph.input:
        value.type.tensor_type.ClearField("shape")
    feeds = {"lens": np.ones(lens, np.int64), "s": np.ones(s, np.float32), "x": np.ones(x, np.float32)}
    with pytest.raises(ShapeError, match=text):
        by_session(made, feeds)


@pytest.mark.parametrize(("directions", "text"), [("[0, 1]", "has 2 entries, not 1"), ("[-1]", "must be 0 or 1")])
def test_a_scan_has_a_direction_for_each_input(directions: str, text: str) -> None:
    made = parsed(f"""g (float[b, h] s, float[b, t, h] x) => (float[b, h] y) {{
        y = Scan <num_scan_inputs = 1, directions = {directions},
            body = b (float[h] v, float[h] u) => (float[h] w) {{ w = Add (u, v) }}> (, s, x)
    }}""", opset=8)  # fmt: skip
    with pytest.raises(ShapeError, match=text):
        by_session(made, {"s": np.ones((1, 2), np.float32), "x": np.ones((1, 3, 2), np.float32)})


MANY = 2**63 - 1
BODIES_THAT_MAY_NOT_RUN = {  # what h of 4 elements and x of n rows become; ends after two steps
    "an index into an empty axis": ("float[n, 4] x", "r = Gather <axis = 0> (x, i)  w = Add (h, r)", (0, 4), (3, 4)),
    "an index into no rows": ("float[0, 4] x", "r = Gather <axis = 0> (x, i)  w = Add (h, r)", (0, 4), None),
    "an index out of range": ("float[n, 4] x", "r = Gather <axis = 0> (x, far)  w = Add (h, r)", (3, 4), (9, 4)),
    "dims that do not broadcast": ("float[n] x", "w = Add (h, x)", (5,), (4,)),
    "inner dims of a product": ("float[n, 4] x", "w = MatMul (h, x)", (3, 4), (4, 4)),
}
STARTS = {  # limit and condition of a loop
    "a tensor": "count, ",
    "a tensor and a condition": "count, go",
    "a dim": "rows, ",
    "a dim and a condition": "rows, go",
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", BODIES_THAT_MAY_NOT_RUN)
def test_shapes_of_a_body_that_does_not_run(name: str, start: str) -> None:
    """They need not fit, also if the number of steps or the condition is data."""
    x, text, wrong, right = BODIES_THAT_MAY_NOT_RUN[name]
    made = parsed(f"""g (int64 count, bool go, float[T] t, float[4] start, {x}) => (float[4] y, float[k, 4] z) {{
        dims = Shape (t)  rows = Squeeze (dims)  far = Constant <value = int64 {{7}}> ()
        y, z = Loop ({STARTS[start]}, start) <body = b (int64 i, bool c, float[4] h) =>
                (bool go_on, float[4] w, float[4] o) {{
            one = Constant <value = int64 {{1}}> ()  go_on = Less (i, one)  {text}  o = Neg (w) }}> }}""")
    session = InferenceSession(made.SerializeToString(), providers=["wasm"])

    def feeds_of(count: int, shape: tuple[int, ...], go: bool = True) -> dict[str, Any]:
        data = {"start": np.ones(4, np.float32), "x": np.full(shape, 0.5, np.float32)}
        return {**data, "count": np.array(count), "t": np.ones(max(min(count, 5), 0), np.float32), "go": np.array(go)}

    none = [feeds_of(0, wrong), *([feeds_of(-1, wrong)] if "tensor" in start else [])]
    none += [feeds_of(count, wrong, go=False) for count in (1, MANY)] if "condition" in start else []
    for feeds in (*none, *[feeds_of(count, right) for count in (0, 1, 2, MANY) if right is not None]):
        for a, b in zip(session.run(None, feeds), by_onnxruntime(made, feeds), strict=True):
            same(a, b.reshape(0, 4) if b.size == 0 else b)
    for count in (1, MANY):
        with pytest.raises((ShapeError, ExecutionError)):
            session.run(None, feeds_of(count, wrong))


BRANCHES_THAT_MAY_NOT_RUN = {  # what h of 4 elements and x become in a branch that a step takes or not
    "an index into an empty axis": ("float[n, 4] x", "r = Gather <axis = 0> (x, i)  w = Add (h, r)", (0, 4), (3, 4)),
    "an index into no rows": ("float[0, 4] x", "r = Gather <axis = 0> (x, i)  w = Add (h, r)", (0, 4), None),
    "dims that do not broadcast": ("float[n] x", "w = Add (h, x)", (3,), (1,)),
    "inner dims of a product": ("float[n, 4] x", "w = MatMul (h, x)", (5, 4), (4, 4)),
    "a part of an axis": ("float[n] x", "v = Slice (x, zero, four)  w = Add (h, v)", (3,), (1,)),
    "in a loop": ("float[n] x", """two = Constant <value = int64 {2}> ()
        w = Loop (two, , h) <body = l (int64 j, bool d, float[4] a) => (bool e, float[4] f) {
            e = Identity (d)  f = Add (a, x) }>""", (5,), (4,)),
}  # fmt: skip


@pytest.mark.parametrize("name", BRANCHES_THAT_MAY_NOT_RUN)
def test_shapes_of_a_branch_that_no_step_takes(name: str) -> None:
    """They need not fit; if a step takes the branch, they are refused."""
    x, text, wrong, right = BRANCHES_THAT_MAY_NOT_RUN[name]
    made = parsed(f"""g (int64 count, int64 first, float[4] start, {x}) => (float[4] y) {{
        zero = Constant <value = int64[1] {{0}}> ()  one = Constant <value = int64[1] {{1}}> ()
        four = Constant <value = int64[1] {{4}}> ()
        y = Loop (count, , start) <body = b (int64 i, bool c, float[4] h) => (bool go_on, float[4] k) {{
            go_on = Identity (c)  is_taken = Less (first, i)
            k = If (is_taken) <then_branch = t () => (float[m] w) {{ {text} }},
                               else_branch = e () => (float[4] v) {{ v = Tanh (h) }}> }}> }}""")
    session = InferenceSession(made.SerializeToString(), providers=["wasm"])
    for shape, taken in ((wrong, False), (right, False), (right, True)):
        if shape is not None:
            feeds = {"start": np.ones(4, np.float32), "x": np.full(shape, 0.5, np.float32)}
            feeds |= {"count": np.array(3), "first": np.array(1 if taken else 9)}
            same(session.run(None, feeds)[0], by_onnxruntime(made, feeds)[0])
    feeds = {"start": np.ones(4, np.float32), "x": np.full(wrong, 0.5, np.float32)}
    with pytest.raises((ShapeError, ExecutionError)):
        session.run(None, {**feeds, "count": np.array(3), "first": np.array(1)})
