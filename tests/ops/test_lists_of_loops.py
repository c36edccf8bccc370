"""Lists that scripted PyTorch loops append to and read, which exporters write as sequences."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from pyruntime import InferenceSession
from pyruntime.errors import ShapeError, UnsupportedOp
from tests.ops.compare import by_onnxruntime, parsed, same

LOOP = """{last} = Loop ({count}, , h, {start}) <body = b (int64 i, bool c, float[2, 3] p, seq({kind}) l) =>
    (bool go, float[2, 3] q, seq({kind}) l2) {{ u = Gather <axis = 0> (x, i)  a = Mul (p, half)  k = Add (a, u)
    q = Tanh (k)  {append} }}>"""


def loop(append: str, last: str = "v, s", start: str = "e", kind: str = "float[2, 3]", count: str = "n") -> str:
    if "go =" not in append:
        append += "  go = Identity (c)"
    return LOOP.format(last=last, start=start, kind=kind, append=append, count=count)


JOINED = "y = ConcatFromSequence <axis = 0, new_axis = 1> (s)"
APPEND = loop("l2 = SequenceInsert (l, q)")
TWO = """v, s, r = Loop (n, , h, e, e) <body = b (
    int64 i, bool c, float[2, 3] p, seq(float[2, 3]) l, seq(float[2, 3]) k) =>
    (bool go, float[2, 3] q, seq(float[2, 3]) l2, seq(float[2, 3]) k2) {{
    u = Gather <axis = 0> (x, i)  a = Add (p, u)  q = Tanh (a)  o = Neg (q)  go = Identity (c)  {} }}>  """
PAIR = "g = Neg (h)  f = SequenceConstruct (h, g)  "
SOME = "f = SequenceConstruct (h)  " + loop(
    """m = ReduceMax <keepdims = 0> (q)  small = Less (m, most)  l0 = SequenceInsert (l, u)
    l2 = If (small) <then_branch = t () => (seq(float[2, 3]) l3) { o = Neg (q)  l1 = SequenceInsert (l0, q)
                                                                   l3 = SequenceInsert (l1, o) },
                     else_branch = r () => (seq(float[2, 3]) l4) { l4 = Identity (l0) }>""", start="f")  # fmt: skip
LISTS = {  # the graph, which has the output y
    "stacked": f"{APPEND}  {JOINED}",
    "stacked along an inner axis": f"{APPEND}  y = ConcatFromSequence <axis = 1, new_axis = 1> (s)",
    "joined": f"{APPEND}  y = ConcatFromSequence <axis = -1> (s)",
    "two items a step": loop("o = Neg (u)  l1 = SequenceInsert (l, q)  l2 = SequenceInsert (l1, o)") + JOINED,
    "with a first item": "f = SequenceConstruct (h)  " + loop("l2 = SequenceInsert (l, q)", start="f") + JOINED,
    "of two loops": APPEND + loop("o = Neg (q)  l2 = SequenceInsert (l, o)", "v2, s2", "s")
    + "y = ConcatFromSequence <axis = 0> (s2)",
    "of numbers": loop("m = ReduceMax <keepdims = 0> (q)  l2 = SequenceInsert (l, m)", kind="float") + JOINED,
    "until a condition fails": loop(
        "m = ReduceMax <keepdims = 0> (q)  go = Less (m, most)  l2 = SequenceInsert (l, q)") + JOINED,
    "of few steps, until a condition fails": loop(
        "m = ReduceMax <keepdims = 0> (q)  go = Less (m, most)  l2 = SequenceInsert (l, q)", count="two") + JOINED,
    "read by another loop": APPEND + """r = SequenceLength (s)
        y = Loop (r, , h) <body = b2 (int64 j, bool d, float[2, 3] g) => (bool on, float[2, 3] w) {
            on = Identity (d)  back = Sub (minus, j)  z = SequenceAt (s, back)  t = Sub (z, g)  w = Mul (t, half) }>""",
    "an item that changes": PAIR + loop(
        "o = SequenceAt (l, minus)  w = Add (o, q)  l1 = SequenceErase (l)  l2 = SequenceInsert (l1, w)", start="f")
    + JOINED,
    "items in rotation, until a condition fails": PAIR + loop(
        """m = ReduceMax <keepdims = 0> (q)  go = Less (m, most)  l1 = SequenceErase (l, zero)
        l2 = SequenceInsert (l1, q)""", start="f") + JOINED,
    "layers with a state each": PAIR + loop(
        """q2, l2 = Loop (two, , q, l) <body = layer (int64 j, bool more, float[2, 3] p2, seq(float[2, 3]) k) =>
            (bool on, float[2, 3] p3, seq(float[2, 3]) k3) {
        on = Identity (more)  o = SequenceAt (k, j)  w = Add (p2, o)  p3 = Tanh (w)  k2 = SequenceErase (k, j)
        k3 = SequenceInsert (k2, p3, j) }>""", start="f") + JOINED,
    "a list of states and one of results": PAIR + TWO.format(
        """l1 = SequenceErase (l, zero)  w = SequenceAt (l, zero)  l2 = SequenceInsert (l1, q)
        k2 = SequenceInsert (k, w)""").replace("e, e)", "f, e)") + JOINED.replace("(s)", "(r)"),
    "a branch changes an item": PAIR + loop(
        """m = ReduceMax <keepdims = 0> (q)  small = Less (m, most)
        l2 = If (small) <then_branch = t () => (seq(float[2, 3]) l3) { l1 = SequenceErase (l)
                                                                       l3 = SequenceInsert (l1, q) },
                         else_branch = r () => (seq(float[2, 3]) l4) { l4 = Identity (l) }>""", start="f") + JOINED,
    "both branches append": loop(
        """m = ReduceMax <keepdims = 0> (q)  small = Less (m, most)
        l2 = If (small) <then_branch = t () => (seq(float[2, 3]) l3) { l3 = SequenceInsert (l, q) },
                         else_branch = r () => (seq(float[2, 3]) l4) { l4 = SequenceInsert (l, p) }>""") + JOINED,
    "a branch appends": SOME + JOINED,
    "the other branch appends": SOME.replace("Less", "GreaterOrEqual") + JOINED,
    "branches append in an inner branch": loop(
        """m = ReduceMax <keepdims = 0> (q)  small = Less (m, most)  tiny = Less (m, half)
        l2 = If (small) <then_branch = t () => (seq(float[2, 3]) l3) {
            l3 = If (tiny) <then_branch = t2 () => (seq(float[2, 3]) l5) { l5 = SequenceInsert (l, q) },
                            else_branch = r2 () => (seq(float[2, 3]) l6) { l6 = Identity (l) }> },
                         else_branch = r () => (seq(float[2, 3]) l4) { l7 = SequenceInsert (l, u)
                                                                       l4 = SequenceInsert (l7, p) }>""")
    + "y = SequenceAt (s, minus)",
    "longer and shorter after the loop": SOME + """s1 = SequenceInsert (s, h)  s2 = SequenceErase (s1, zero)
        s3 = SequenceInsert (s2, v)  s4 = SequenceErase (s3)  y = ConcatFromSequence <axis = 0> (s4)""",
    "a condition chooses a list": PAIR + """m = ReduceMax <keepdims = 0> (x)  small = Less (m, most)
        s = If (small) <then_branch = t () => (seq(float[2, 3]) l3) { l3 = Identity (f) },
                        else_branch = r () => (seq(float[2, 3]) l4) { l4 = SequenceConstruct (h, h) }>""" + JOINED,
    "a tensor, taken apart": """z = SplitToSequence <axis = 1, keepdims = 0> (x)  r = SequenceLength (z)
        y = Loop (r, , d) <body = b2 (int64 j, bool k, float[m, 3] g) => (bool on, float[m, 3] w) {
            on = Identity (k)  t = SequenceAt (z, j)  a = Mul (g, half)  w = Add (a, t) }>""",
    "a tensor, taken apart and joined": """z = SplitToSequence <axis = 0> (x)
        y = ConcatFromSequence <axis = 1> (z)""",
}  # fmt: skip


def graph(text: str, output: str = "y") -> Any:
    return parsed(f"""g (float[T, 2, 3] x, float[2, 3] h) => ({output}) {{
        one = Constant <value = int64 {{1}}> ()  minus = Constant <value = int64 {{-1}}> ()
        two = Constant <value = int64 {{2}}> ()  half = Constant <value = float {{0.5}}> ()
        zero = Constant <value = int64 {{0}}> ()  most = Constant <value = float {{0.8}}> ()
        shape = Shape <start = 0, end = 1> (x)  n = Squeeze (shape)  e = SequenceEmpty <dtype = 1> ()
        row = Gather <axis = 1> (x, one)  d = Neg (row)  {text} }}""")


def feeds_of(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    return {"x": rng.standard_normal((rows, 2, 3), np.float32), "h": rng.standard_normal((2, 3), np.float32)}


@pytest.mark.parametrize("name", LISTS)
def test_one_program_for_all_lengths(name: str) -> None:
    m = graph(LISTS[name])
    session = InferenceSession(m.SerializeToString())
    program = session._native.latest()  # compiled before any feed
    for rows in (1, 2, 33, 5):
        same(session.run(None, feeds_of(rows))[0], by_onnxruntime(m, feeds_of(rows))[0])
    assert session._native.latest() is program
    assert "runs step by step" not in str([n["loop"] for n in session.explain()["nodes"]])


OTHERS = {  # lists whose items must be known when the model is compiled, or that the loop itself reads
    "an output": (APPEND, "s"),
    "an erased item": (f"{APPEND}  s2 = SequenceErase (s)  y = ConcatFromSequence <axis = 0> (s2)", "y"),
    "the last item in the next step": (
        loop("l1 = SequenceInsert (l, q)  z = SequenceAt (l1, minus)  l2 = SequenceInsert (l1, z)") + JOINED, "y"),
    "a new first item": (loop("z = Mul (i, one)  o = Sub (z, z)  l2 = SequenceInsert (l, q, o)") + JOINED, "y"),
    "items that grow": (
        loop("t = Add (i, one)  t1 = Reshape (t, shape1)  t2 = Concat <axis = 0> (t1, ones)"
             "  r = Tile (q, t2)  l2 = SequenceInsert (l, r)", kind="float[k, 3]").replace("v, s =", """
        shape1 = Constant <value = int64[1] {1}> ()  ones = Constant <value = int64[1] {1}> ()  v, s =""")
        + "y = ConcatFromSequence <axis = 0> (s)", "y"),
    "an item that grows": (PAIR + loop(
        "o = SequenceAt (l, zero)  w = Concat <axis = 0> (o, q)  l1 = SequenceErase (l, zero)"
        "  l2 = SequenceInsert (l1, w)", start="f") + "y = ConcatFromSequence <axis = 0> (s)", "y"),
    "a list that a condition chooses": (LISTS["a condition chooses a list"], "s"),
    "items that a condition decides": (SOME, "s"),
    "a condition in a loop of no rounds": (SOME.replace("Loop (n,", "Loop (zero,") + JOINED, "y"),
    "a condition in a loop of known length": (SOME.replace("Loop (n,", "Loop (two,") + JOINED, "y"),
    "an item that only later steps erase": (loop(
        """p1, l1 = Loop (i, , q, l) <body = inner (int64 j, bool more, float[2, 3] p2, seq(float[2, 3]) l0) =>
            (bool on, float[2, 3] p3, seq(float[2, 3]) l4) {
        on = Identity (more)  p3 = Identity (p2)  l3 = SequenceErase (l0, zero)  l4 = SequenceInsert (l3, p2) }>
        l2 = SequenceInsert (l1, q)""") + JOINED, "y"),
    "two lists that change places": (
        TWO.format("l2 = SequenceInsert (k, q)  k2 = SequenceInsert (l, o)") + JOINED, "y"),
    "a list that replaces another one": (
        TWO.format("l2 = SequenceInsert (l, q)  k2 = SequenceInsert (l, o)") + JOINED.replace("(s)", "(r)"), "y"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_lists_that_a_program_for_some_lengths_has(name: str) -> None:
    m = graph(*OTHERS[name])
    session = InferenceSession(m.SerializeToString())
    for rows in (2, 3, 18):
        got, want = session.run(None, feeds_of(rows))[0], by_onnxruntime(m, feeds_of(rows))[0]
        for a, b in zip(got, want, strict=True):
            same(a, b)


def test_lists_that_are_refused() -> None:
    """Nothing can be joined; a list of a length that data decide has no items when the model is compiled."""
    with pytest.raises(ShapeError, match="an empty sequence has nothing to join"):
        InferenceSession(graph(LISTS["stacked"]).SerializeToString()).run(None, feeds_of(0))
    text = LISTS["until a condition fails"].replace(JOINED, "s2 = SequenceErase (s, one)  y = SequenceLength (s2)")
    for m, what in [(graph(text), "a sequence"), (graph(text, "s"), 'the output "s"')]:
        with pytest.raises(UnsupportedOp, match=f"the length of {what} is known only when a loop has ended"):
            InferenceSession(m.SerializeToString()).run(None, feeds_of(18))


INTERRUPTED = """
import sys
from pyruntime import InferenceSession
from pyruntime.frontend import registry
add, model = registry._add, sys.stdin.buffer.read()
def interrupted(operator, replaces):
    if operator.name == "Compress":
        raise KeyboardInterrupt
    add(operator, replaces)
registry._add = interrupted
try:
    InferenceSession(model)._native.latest()
except KeyboardInterrupt:
    registry._add = add
InferenceSession(model)._native.latest()
assert registry._add is add
"""


def test_an_interrupted_session_leaves_no_operator_half_defined() -> None:
    """Lists to which conditions append need the module of Compress."""
    model = graph(LISTS["a branch appends"]).SerializeToString()
    subprocess.run([sys.executable, "-c", INTERRUPTED], input=model, check=True)
