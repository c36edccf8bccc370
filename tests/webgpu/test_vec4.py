"""Maps and reductions in groups of four against NumPy, at the edges of the group and of the workgroup."""

from dataclasses import replace

import numpy as np
import pytest

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import dtype as dt
from pyruntime.ir.expr import X, Y, Z, cast, exp, guard, index, select
from pyruntime.providers.webgpu.code_writer import one_binding_each
from pyruntime.providers.webgpu.printer.loops import print_kernel
from pyruntime.providers.webgpu.schedules.vec4 import LONG, vectorized
from pyruntime.providers.webgpu.schedules.workgroup_reduction import print_reduction

KINDS = {dt.F32: np.float32, dt.F16: np.float16, dt.I32: np.int32, dt.I64: np.int64, dt.U8: np.uint8}


def feed(t, shape, arrays, dtype=dt.F32):
    x = t.leaf("feed", shape, dtype)
    values = np.random.default_rng(len(arrays)).integers(-9 if dtype.kind != "u" else 0, 10, shape)
    arrays[x] = values.astype(KINDS[dtype])
    return x


def run(bench, out, arrays, shared=""):
    adapter = bench.host.adapter
    low = one_binding_each(vectorized(out.kernel, adapter))
    by = replace(adapter, subgroups=shared == "subgroups")
    shader = print_reduction(low.code, by) if shared else print_kernel(low.code, False, adapter.f16)
    assert "vec4" in shader.source.split("@compute")[0].replace("array<vec4<i32>, ", "")
    flat = {t.uid: (a.shape, a.ravel().tolist()) for t, a in arrays.items()}
    ((shape, values),) = bench.call(shader, low.tensors, low.params, low.work, out.kernel.outputs, flat, {})
    return np.array(values).reshape(shape)


@pytest.mark.parametrize("shape", [(4,), (252,), (256,), (260,), (3, 4), (5, 3, 8), (2, 0, 4)], ids=str)
def test_map(bench, shape):
    """A row of its own, a column and a number broadcast."""
    t, arrays = Tracer(lambda w: []), {}
    x, row, column, one = (feed(t, s, arrays) for s in (shape, shape[-1:], (*shape[:-1], 1), ()))
    out = t.map(select(X < Y, X * 2.0, X - Y), x, row)
    np.testing.assert_array_equal(
        run(bench, out, {x: arrays[x], row: arrays[row]}),
        np.where(arrays[x] < arrays[row], arrays[x] * 2, arrays[x] - arrays[row]),
    )
    out = t.map(X * Y + Z, x, column, one)
    want = arrays[x] * arrays[column] + arrays[one]
    np.testing.assert_array_equal(run(bench, out, {k: arrays[k] for k in (x, column, one)}), want)


def test_places_that_are_read(bench):
    """x[rows][:, columns]: a row's place is loaded once for its four, a column's is one of a vec4."""
    t, arrays = Tracer(lambda w: []), {}
    x, rows, columns = feed(t, (3, 5), arrays), t.leaf("feed", (6,), dt.I32), t.leaf("feed", (8,), dt.I32)
    arrays[rows], arrays[columns] = np.int32([2, 0, 1, 2, 2, 1]), np.int32([4, 1, 0, 3, 2, 2, 4, 0])
    out = t.compute((6, 8), lambda i, j: x.at(rows.at(i), columns.at(j)))
    np.testing.assert_array_equal(run(bench, out, arrays), arrays[x][arrays[rows]][:, arrays[columns]])


@pytest.mark.parametrize("dtype", [dt.F16, dt.I32, dt.I64], ids=str)
def test_types(bench, dtype):
    t, arrays = Tracer(lambda w: []), {}
    x, y = feed(t, (6, 8), arrays, dtype), feed(t, (6, 8), arrays, dt.U8)
    out = t.map(X + cast(Y, dtype), x, y)
    if dtype is dt.F16 and not bench.host.adapter.f16:  # halves share words there
        assert refused(out, bench)
        return
    np.testing.assert_array_equal(run(bench, out, arrays), arrays[x] + arrays[y])


def test_positions_and_strides(bench):
    """The index itself, a transposed operand, one that is gathered."""
    t, arrays = Tracer(lambda w: []), {}
    x, y, at = feed(t, (8, 12), arrays), feed(t, (12, 8), arrays), feed(t, (12,), arrays, dt.I64)
    arrays[at] = np.arange(12)[::-1] % 7
    out = t.compute((8, 12), lambda i, j: x.at(i, j) * cast(j, dt.F32) + y.at(j, i) + x.at(i, at.at(j)), dt.F32)
    want = arrays[x] * np.arange(12) + arrays[y].T + arrays[x][:, arrays[at]]
    np.testing.assert_array_equal(run(bench, out, arrays), want)


@pytest.mark.parametrize("offset", [0, 1, 3, 4])
def test_parts(bench, offset):
    t, arrays = Tracer(lambda w: []), {}
    x, y = feed(t, (3, 12), arrays), feed(t, (3, 8), arrays)
    out = t.compute((3, 8), lambda i, j: x.at(i, j + offset) - y.at(i, j), dt.F32)
    np.testing.assert_array_equal(run(bench, out, arrays), arrays[x][:, offset : offset + 8] - arrays[y])


OPS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}


@pytest.mark.parametrize("shared", ["", "halves", "subgroups"])
@pytest.mark.parametrize("count", [4, 252, 256, 260])
@pytest.mark.parametrize("op", OPS)
def test_reduce(bench, op, count, shared):
    t, arrays = Tracer(lambda w: []), {}
    x, y = feed(t, (3, 2, count), arrays), feed(t, (3,), arrays)
    arrays[x] = np.sign(arrays[x])
    arrays[x][1, 1, count // 2] = np.nan
    out = t.reduce_compute(op, (3,), (2, count), lambda i, r, s: x.at(i, r, s) * y.at(i))
    out.kernel.epilogue = X + y.at(index(0))
    want = OPS[op](arrays[x] * arrays[y][:, None, None], axis=(1, 2)) + arrays[y]
    np.testing.assert_array_equal(run(bench, out, arrays, shared), want)


def refused(out, bench):
    return vectorized(out.kernel, bench.host.adapter) is None


def test_what_has_no_fours(bench):
    t, arrays = Tracer(lambda w: []), {}
    x, odd, bytes_ = feed(t, (3, 8), arrays), feed(t, (8, 3), arrays), feed(t, (3, 8), arrays, dt.U8)
    assert refused(t.compute((8, 3), lambda i, j: odd.at(i, 0) + cast(j, dt.F32), dt.F32), bench)
    assert refused(t.map(X + X, bytes_), bench)
    assert refused(t.compute((3, 8), lambda i, j: guard(j < 4, x.at(i, j), 0.0), dt.F32), bench)
    assert refused(t.reduce("argmax", x, [1], keepdims=False), bench)
    assert refused(t.reduce("sum", odd, [1], keepdims=False), bench)
    long = X
    for _ in range(LONG):
        long = exp(long)
    assert refused(t.map(long, x), bench)
