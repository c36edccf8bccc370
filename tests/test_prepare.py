"""`session.prepare`: later runs of the largest shapes and of smaller ones find memory and addresses."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest

from pyruntime import InferenceSession, InvalidInput, OrtValue

STEP = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 20]>
    g (float[1, 2, p, 64] past, float[1, 2, s, 64] x) => (float[1, 2, t, 64] present, float[1, 2, s, t] y) {
      present = Concat <axis = 2> (past, x)
      turned = Transpose <perm = [0, 1, 3, 2]> (present)
      y = MatMul (x, turned)
    }"""
).SerializeToString()
ROWS = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 20]>
    g (float[n, m] x, optional(float[n]) unused, string[k] words) => (float[n, m] y, string[k] w) {
      a = Softmax (x)  b = Softmax <axis = 0> (a)  y = Add (a, b)  w = Identity (words)
    }"""
).SerializeToString()


def rows(count: int) -> OrtValue:
    return OrtValue.ortvalue_from_numpy(np.full((1, 2, count, 64), 2, np.float32))


def decode(session: InferenceSession, tokens: int) -> tuple[int, int]:
    """Bytes of linear memory, and layouts, that a prompt of 16 tokens and `tokens` more added."""
    plan = session._native.latest().plan
    before, layouts = session.memory().arena, plan.layouts
    past = rows(0)
    for count in (16, *[1] * tokens):
        past, y = session.run_with_ort_values(None, {"past": past, "x": rows(count)})
    assert past.shape()[2] == 16 + tokens and (past.numpy() == 2).all() and (y.numpy() == 256).all()
    return session.memory().arena - before, plan.layouts - layouts


def test_a_decoder_that_is_prepared_takes_no_memory() -> None:
    plain, prepared = InferenceSession(STEP), InferenceSession(STEP)
    prepared.prepare({"p": 0, "s": 16})
    prepared.prepare({"p": 1023, "s": 1})
    grown, layouts = decode(plain, 1008)
    assert grown > 1 << 19
    assert decode(prepared, 1008) <= (0, layouts // 2)
    prepared.trim()
    assert prepared.memory().arena < plain.memory().arena


def test_smaller_shapes_use_the_same_addresses() -> None:
    session = InferenceSession(ROWS)
    words = np.array(["a", "b"], object)
    session.prepare({"n": 500, "x": [500, 400], "k": 2})
    plan, arena = session._native.latest().plan, session.memory().arena
    layouts = plan.layouts
    made = session.metrics()["plans"]["made"]
    for shape in ((500, 400), (3, 4), (500, 1), (1, 1)):
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        y, w = session.run(None, {"x": x, "words": words})
        a = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        np.testing.assert_allclose(y, a + np.exp(a) / np.exp(a).sum(0, keepdims=True), rtol=1e-5)
        assert list(w) == ["a", "b"] and (plan.layouts, session.memory().arena) == (layouts, arena)
        assert shape != (500, 400) or session.metrics()["plans"]["made"] == made


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ({"n": 4, "k": 1}, 'axis 1 of input "x" has no size, its dim is "m" (dims: { "x": [a size for each dim] }'),
        ({"n": 4, "m": 4, "k": 1, "batch": 4}, 'dims cannot have "batch": 4 (sizes by name of a dim (n, m, k)'),
        ({"n": -1, "m": 4, "k": 1}, 'dims cannot have "n": -1'),
        ({"x": [1, 2, 3], "k": 1}, 'dims of input "x" are 3 sizes, it has rank 2'),
        ({"x": 4, "k": 1}, 'dims cannot have "x": 4'),
    ],
)
def test_sizes_that_do_not_fit_are_refused(dims: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(text)):
        InferenceSession(ROWS).prepare(dims)
