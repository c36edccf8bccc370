"""Gradients of tensors from outside a loop, of which each step reads a part: the time is linear in the number of
steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pyruntime import InferenceSession
from pyruntime.errors import ExecutionError, NotDifferentiable
from pyruntime.frontend.trace_graph import TensorSpec, trace_graph
from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.dtype import F64, I64
from pyruntime.ir.expr import walk
from pyruntime.ir.kernel import Block, Loop
from pyruntime.ir.statements import expressions_of
from pyruntime.onnx import load
from pyruntime.onnx.weight_values import elements
from tests.ops.compare import parsed

TRAINING = "ai.onnx.preview.training"
# How a step i of T gets `row` (double[3]) of x (double[R, 3]), R = 2 T + 3, or of the list n (int64[R]).
READS = {
    "the row of the step": "row = Gather(x, i)",
    "a later row": "j = Add(i, three)  row = Gather(x, j)",
    "an earlier row, at first from the end": "j = Sub(i, two)  row = Gather(x, j)",
    "every other row": "j = Mul(i, two)  row = Gather(x, j)",
    "every other row, the last one first": "t = Mul(i, two)  j = Sub(last_row, t)  row = Gather(x, j)",
    "two rows": "j = Add(i, one)  a = Gather(x, i)  b = Gather(x, j)  row = Sub(a, b)",
    "five rows again and again": "j = Mod(i, five)  row = Gather(x, j)",
    "each row three times": "j = Div(i, three)  row = Gather(x, j)",
    "rows that a list tells": "j = Gather(n, i)  row = Gather(x, j)",
    "rows that a list of lists tells": "k = Gather(n, i)  j = Gather(n, k)  row = Gather(x, j)",
    "an index of one element": "k = Reshape(i, flat)  j = Add(k, one)  r = Gather(x, j)  row = Squeeze(r, axis)",
    "pairs of rows": """k = Reshape(i, flat)  k2 = Mul(k, two)  pair = Add(k2, ends)  r = Gather(x, pair)
        row = ReduceSum<keepdims = 0>(r, axis)""",
    "windows": """k = Reshape(i, flat)  places = Add(k, near)  r = Gather(x, places)
        row = ReduceMax<keepdims = 0>(r, axis)""",
    "an element of each row": """r = Gather(x, i)  k = Gather(n, i)  m = Mod(k, three)  e = Gather(r, m)
        row = Mul(e, w0)""",
}
BODY = """last, y = Loop(count, "", w) <body = b (int64 i, bool on, double[5, 3] h)
            => (bool go, double[5, 3] next, double[3] out) {{
            go = Identity(on)
            {read}
            p = Mul(h, row)
            q = Add(p, w)
            next = Sin(q)
            wide = Mul(next, row)
            out = ReduceSum<keepdims = 0>(wide, axis) }}>"""


def model(read: str, rows: int | str = "R") -> bytes:
    text = f"""g (double[{rows}, 3] x, double[5, 3] w, int64[{rows}] n)
        => (double s, double[{rows}, 3] dx, double[5, 3] dw)
        <int64[1] axis = {{0}}, int64[1] flat = {{1}}, int64 one = {{1}}, int64 two = {{2}}, int64 three = {{3}},
         int64 five = {{5}}, int64[2] ends = {{0, 1}}, int64[3] near = {{0, 1, 2}}> {{
        shape = Shape<end = 1>(x)
        all = Squeeze(shape)
        last_row = Sub(all, one)
        most = Sub(all, three)
        count = Div(most, two)
        first = Gather(w, axis)
        w0 = Squeeze(first, axis)
        {BODY.format(read=read)}
        yy = Mul(y, y)
        total = ReduceSum<keepdims = 0>(yy)
        more = ReduceSum<keepdims = 0>(last)
        s = Add(total, more)
        dx, dw = {TRAINING}.Gradient<xs = ["x", "w"], y = "s">(x, w) }}"""
    return parsed(text, 22, **{TRAINING: 1}).SerializeToString()


def loops(block: Block) -> Iterator[Loop]:
    for kernel in block.kernels:
        if isinstance(kernel, Loop):
            yield kernel
        for inner in kernel.blocks:
            yield from loops(inner)


@pytest.mark.parametrize("name", READS)
def test_gradients_agree_with_differences(name: str) -> None:
    """Of few steps, and of those that are divided into chunks; no loop carries a tensor as large as x."""
    one = InferenceSession(model(READS[name]), providers=["wasm"])
    for steps in (1, 5, 131):
        rows, rng = 2 * steps + 3, np.random.default_rng(steps)
        given: dict[str, Any] = {"x": rng.normal(size=(rows, 3)), "w": rng.normal(size=(5, 3))}
        given["n"] = rng.integers(-rows, rows, rows)
        _, dx, dw = one.run(None, given)
        along = {"x": rng.normal(size=(rows, 3)), "w": rng.normal(size=(5, 3))}
        moved = [{**given, **{k: given[k] + step * v for k, v in along.items()}} for step in (1e-6, -1e-6)]
        ends = [float(one.run(["s"], feeds)[0]) for feeds in moved]
        got = (dx * along["x"]).sum() + (dw * along["w"]).sum()
        np.testing.assert_allclose(got, (ends[0] - ends[1]) / 2e-6, rtol=1e-5, err_msg=f"{steps} steps")
    specs = {"x": TensorSpec(F64, (265, 3)), "w": TensorSpec(F64, (5, 3)), "n": TensorSpec(I64, (265,))}
    traced = trace_graph(load(model(READS[name], 265)), specs, elements, {})
    carried = {x.shape for loop in loops(traced.block) for x in loop.carried}
    assert (5, 3) in carried and (265, 3) not in carried


def test_chains_of_numbers_do_not_double() -> None:
    """Each number of the chain reads the one before twice: the coordinate is not computed from its start each time."""
    chain = [f"m{k} = Add(k{k}, k{k})  k{k + 1} = Mod(m{k}, five)" for k in range(10)]
    read = f"k0 = Mod(i, three)  {'  '.join(chain)}  row = Gather(x, k10)"
    specs = {"x": TensorSpec(F64, (265, 3)), "w": TensorSpec(F64, (5, 3)), "n": TensorSpec(I64, (265,))}
    traced = trace_graph(load(model(read, 265)), specs, elements, {})
    assert max(len(walk(e)) for k in all_kernels(traced.block) for e in expressions_of(k)) < 500


def test_an_index_out_of_range_is_found() -> None:
    one = InferenceSession(model("j = Add(i, five)  k = Mul(j, two)  row = Gather(x, k)"), providers=["wasm"])
    feeds = {"x": np.ones((265, 3)), "w": np.ones((5, 3)), "n": np.zeros(265, np.int64)}
    with pytest.raises(ExecutionError):
        one.run(None, feeds)


@pytest.mark.parametrize("rows", ["R", 13])
def test_slices_whose_length_a_step_decides_are_refused(rows: int | str) -> None:
    read = """k = Gather(n, i)  j = Reshape(k, flat)  end = Add(j, two)  r = Slice(x, j, end, axis)
        row = ReduceSum<keepdims = 0>(r, axis)"""
    with pytest.raises(NotDifferentiable, match="a dim that a run decides inside If or Loop has no gradient"):
        InferenceSession(model(read, rows), providers=["wasm"])
