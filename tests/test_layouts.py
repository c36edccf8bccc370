"""Runs with growing and changing shapes: their results, and how often they are planned again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from kit.decoders import TINY, Decoder, feeds
from kit.small_models import model
from pyruntime import InferenceSession, SessionOptions
from pyruntime.errors import OutOfMemory, ShapeError
from pyruntime.runtime.states import Change

FLOAT = TensorProto.FLOAT


def peer(made: onnx.ModelProto) -> Any:
    return onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])


def decode(session: Any, lengths: Iterable[int]) -> list[np.ndarray]:
    """Logits of a prompt of the first length, and of one token after another."""
    names = [o.name for o in session.get_outputs()]
    found, given = [], feeds(TINY, "int4", 5, 0)
    for length in lengths:
        outputs = dict(zip(names, session.run(None, given), strict=True))
        found.append(outputs["logits"])
        caches = {name.replace("present", "past"): x for name, x in outputs.items() if name != "logits"}
        given = feeds(TINY, "int4", 1, length) | caches
    return found


def test_caches_that_grow() -> None:
    """Caches of a decoder. Few tokens are planned again."""
    made = Decoder(TINY, "int4", empty=False).model()
    ours, lengths = InferenceSession(made.SerializeToString()), range(5, 165)
    for got, want in zip(decode(ours, lengths), decode(peer(made), lengths), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    assert ours._native.latest().plan.layouts < 160, "each run has several layouts of its own"


def test_many_small_buffers_that_grow() -> None:
    """The spare capacity of all is not too much."""
    nodes = [helper.make_node(op, [f"x{n}"], [f"x{n + 1}"]) for n, op in enumerate(["Softmax", "CumSum"] * 30)]
    for node in nodes[1::2]:
        node.input.append("axis")
    made = model(nodes, [("x0", FLOAT, [4, "t"])], [("x60", FLOAT, None)], {"axis": np.array(1)})
    session = InferenceSession(made.SerializeToString())
    for t in range(10, 300):
        session.run(None, {"x0": np.ones((4, t), np.float32)})
    assert session._native.latest().plan.layouts < 60, "each run has several layouts of its own"


def changing() -> onnx.ModelProto:
    """y = exp(a) + relu(b), which broadcasts: sizes that are equal in one run differ in the next."""
    nodes = [
        helper.make_node("Exp", ["a"], ["e"]), helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("Softmax", ["r"], ["s"], axis=-1), helper.make_node("Add", ["e", "s"], ["y"]),
        helper.make_node("MatMul", ["y", "c"], ["z"]), helper.make_node("Softmax", ["z"], ["w"], axis=-1),
    ]  # fmt: skip
    inputs = [("a", FLOAT, ["m", "k"]), ("b", FLOAT, ["p", "k"]), ("c", FLOAT, ["k", "n"])]
    return model(nodes, inputs, [("y", FLOAT, None), ("w", FLOAT, None)])


CHANGES = [(4, 4, 8, 3), (5, 5, 8, 3), (5, 1, 9, 3), (6, 1, 9, 70), (6, 6, 9, 1), (300, 1, 20, 30), (4, 4, 8, 3),
           (1, 1, 1, 1), (0, 1, 9, 3), (7, 7, 8, 3), (310, 310, 20, 30), (311, 1, 21, 31), (6, 6, 9, 2)]  # fmt: skip


def test_sizes_that_change() -> None:
    made = changing()
    ours, theirs = InferenceSession(made.SerializeToString()), peer(made)
    random = np.random.default_rng(0)
    for m, p, k, n in [*CHANGES, *random.permutation(CHANGES).tolist(), *CHANGES]:
        shapes = {"a": (m, k), "b": (p, k), "c": (k, n)}
        given = {name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
        for got, want in zip(ours.run(None, given), theirs.run(None, given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_negative_size_is_an_error_in_a_layout_with_spare_capacity() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Pad", ["r", "pads"], ["p"]),
             helper.make_node("Exp", ["p"], ["y"])]  # fmt: skip
    made = model(nodes, [("x", FLOAT, ["n"])], [("y", FLOAT, None)], {"pads": np.array([-4, 0])})
    session = InferenceSession(made.SerializeToString())
    for n in (8, 9, 10, 11, 8):
        assert session.run(None, {"x": np.ones(n, np.float32)})[0].shape == (n - 4,)
    with pytest.raises(ShapeError):
        session.run(None, {"x": np.ones(3, np.float32)})
    assert session.run(None, {"x": np.ones(9, np.float32)})[0].shape == (5,)


LOOP = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[n] x, int64 trips) => (float[m] y, float[k] z) {{
        yes = Constant <value = bool {{1}}> ()  axis = Constant <value = int64[1] {{0}}> ()
        y, z = Loop (trips, yes, x) <body = b (int64 i, bool on, float[a] held) => (bool go, float[c] grown, float s) {{
            t = Size (held)  s = Cast <to = 1> (t)  f = Cast <to = 1> ({number})  u = Unsqueeze (f, axis)
            grown = Concat <axis = 0> (held, u)
            limit = Constant <value = float {{2999}}> ()  below = Less (s, limit)  go = {condition}
        }}>
    }}"""


@pytest.mark.parametrize("number", ["i", "t"])
@pytest.mark.parametrize("condition", ["And (on, below)", "Identity (below)", "Identity (on)"])
def test_turns_of_a_loop_are_planned_once(number: str, condition: str) -> None:
    """Values grow in each turn. The body uses the iteration number and the condition, or not."""
    made = onnx.parser.parse_model(LOOP.format(number=number, condition=condition))
    session, theirs = InferenceSession(made.SerializeToString()), peer(made)
    for trips in (0, 1, 500, 500, 1500):
        given = {"x": np.ones(2, np.float32), "trips": np.array(trips)}
        before = session._native.latest().plan.counts.planned
        for got, want in zip(session.run(None, given), theirs.run(None, given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3)
    assert session._native.latest().plan.counts.planned == before + 1
    session.run(None, given)
    assert session._native.latest().plan.counts.planned == before + 1, "it has a plan"


def test_large_and_small_shapes_alternate() -> None:
    """A small run does not use the layout of a large one."""
    session = InferenceSession(changing().SerializeToString())
    for m in (2000, 3, 2000, 3):
        shapes = {"a": (m, 64), "b": (m, 64), "c": (64, 8)}
        given = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
        y, w = session.run(None, given)
        assert np.allclose(w, 1 / 8) and np.allclose(y, np.e + 1 / 64)


def chain() -> onnx.ModelProto:
    nodes = [helper.make_node("Softmax", ["x"], ["s"]), helper.make_node("Softmax", ["s"], ["t"]),
             helper.make_node("Softmax", ["t"], ["y"])]  # fmt: skip
    return model(nodes, [("x", FLOAT, ["n"])], [("y", FLOAT, None)])


def test_the_memory_limit_applies_to_one_run() -> None:
    """A run that fits into memory alone also fits after runs of other shapes, without spare capacity."""
    made, first, last = chain().SerializeToString(), 1 << 18, 1 << 19

    def fits(limit: int, *lengths: int) -> bool:
        session = InferenceSession(made, SessionOptions(memory_limit=limit))
        try:
            return all(session.run(None, {"x": np.ones(n, np.float32)})[0].size == n for n in lengths)
        except OutOfMemory:
            return False

    least = next(limit for limit in range(1 << 20, 1 << 24, 1 << 16) if fits(limit, last))
    for lengths in [(first, last), (last - 4096, last - 2048, last), (first, first + 4096, first + 8192, last)]:
        assert fits(least, *lengths)
    assert not fits(least, first, first + 4096, last + (1 << 16))


def test_feeds_on_the_gpu_need_no_linear_memory() -> None:
    """A tensor is on the GPU in some runs."""
    session = InferenceSession(changing().SerializeToString())
    plan = session._native.latest().plan
    for sizes in ({0: 64, 1: 64}, {0: 64}, {0: 128, 1: 64}, {1: 64}):

        def allocate(change: Change, sizes: dict[int, int] = sizes) -> None:
            for buffer, size in sizes.items():
                change.take(buffer, size, False)

        assert plan.advance(plan.root, f"{sizes}", allocate).place.spans.keys() == sizes.keys()
