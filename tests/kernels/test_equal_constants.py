"""Equal maps of constants are computed once (passes/constants/equal_constants.py)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.compare import by_onnx, by_session, parsed, same


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_one_constant_that_begin_alike(axis: int) -> None:
    """The formula of an element is the same, but one map has fewer elements."""
    parts = "\n".join(
        f"""e{n} = Constant <value = int64[1] {{{n}}}> ()  s{n} = Slice (w, zero, e{n}, axis)  p{n} = Exp (s{n})
        r{n} = ReduceSum <keepdims = 0> (p{n})  o{n} = Add (p{n}, x)  q{n} = Mul (r{n}, x)"""
        for n in (2, 3)
    )
    m = parsed(f"""g (float x) => (o2, o3, q2, q3) <float[3,3] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9}}> {{
        zero = Constant <value = int64[1] {{0}}> ()  axis = Constant <value = int64[1] {{{axis}}}> ()
        {parts} }}""")
    feeds = {"x": np.float32(2)}
    same(by_session(m, feeds), by_onnx(m, feeds), 1e-5)
