"""Register tiles against the plain schedule's meaning, over edges of the tile."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import dtype as dt
from pyruntime.ir.expr import X, Y, index, select
from pyruntime.ir.kernel import Call
from pyruntime.ops.standard.conv import conv
from pyruntime.ops.standard.matmul import product
from pyruntime.providers.webgpu.adapter import Adapter
from pyruntime.providers.webgpu.code_writer import one_binding_each
from pyruntime.providers.webgpu.printer.loops import print_kernel, print_workgroup_tile
from pyruntime.providers.webgpu.schedules.register_tile import tiled
from pyruntime.providers.webgpu.schedules.workgroup_tile import workgroup_tiled


def run(bench, out, arrays):
    small = once(bench, out, arrays, False)
    np.testing.assert_array_equal(once(bench, out, arrays, True), small)
    return small


def shader_of(bench, out, software=True):
    kernel = out.kernel.definition() if isinstance(out.kernel, Call) else out.kernel
    low, arrays = tiled(kernel, replace(bench.host.adapter, software=software))
    low = one_binding_each(low)
    return kernel, low, print_kernel(low.code, False, bench.host.adapter.f16, arrays)


def once(bench, out, arrays, software):
    kernel, low, shader = shader_of(bench, out, software)
    flat = {t.uid: (a.shape, a.ravel().tolist()) for t, a in arrays.items()}
    ((shape, values),) = bench.call(shader, low.tensors, low.params, low.work, kernel.outputs, flat, {})
    return np.array(values).reshape(shape)


def feed(t, shape, arrays, dtype=dt.F32):
    x = t.leaf("feed", shape, dtype)
    rng = np.random.default_rng(len(arrays))
    arrays[x] = rng.integers(-4, 5, shape).astype(np.float32 if dtype.is_float else np.int32)
    return x


# a product of one row and one column is a sum with nothing to tile
SIZES = [s for s in itertools.product((1, 3, 4, 5, 7, 8, 9), (2, 7), (1, 4, 7, 8, 9)) if s[0] * s[2] > 1]


@pytest.mark.parametrize("m,k,n", SIZES)
def test_matmul(bench, m, k, n):
    t, arrays = Tracer(lambda w: []), {}
    a, b = feed(t, (2, 1, m, k), arrays), feed(t, (3, k, n), arrays)
    out = product(t, a, b)
    np.testing.assert_allclose(run(bench, out, arrays), arrays[a] @ arrays[b])


FOURS = [*itertools.product((1, 4, 5, 8, 12, 36), (4, 8, 12), (4, 8, 12, 36)), (8, 7, 12), (8, 12, 7), (7, 12, 7)]


@pytest.mark.parametrize("m,k,n", FOURS)
def test_loads_by_fours(bench, m, k, n):
    """Columns of b, or where these are no whole quads, the sum's steps of a."""
    t, arrays = Tracer(lambda w: []), {}
    a, b = feed(t, (2, m, k), arrays), feed(t, (2, k, n), arrays)
    out = product(t, a, b)
    assert ("vec4<f32>>;" in shader_of(bench, out)[2].source) == (n % 4 == 0 or k % 4 == 0)
    np.testing.assert_allclose(run(bench, out, arrays), arrays[a] @ arrays[b])


@pytest.mark.parametrize("row,column", [(0, 0), (1, 0), (0, 1), (0, 4), (2, 4), (0, 6)])
def test_fours_of_a_part(bench, row, column):
    """A part that does not begin at a multiple of four is loaded one by one."""
    t, arrays = Tracer(lambda w: []), {}
    a, b = feed(t, (5, 7), arrays), feed(t, (9, 16), arrays)
    out = t.reduce_compute("sum", (5, 8), (7,), lambda i, j, r: a.at(i, r) * b.at(r + row, j + column))
    assert ("vec4<f32>>;" in shader_of(bench, out)[2].source) == (column % 4 == 0)
    want = arrays[a] @ arrays[b][row : row + 7, column : column + 8]
    np.testing.assert_allclose(run(bench, out, arrays), want)


def test_one_by_one_from_a_buffer_of_fours(bench):
    """The epilogue reads the operand that the product reads by fours."""
    t, arrays = Tracer(lambda w: []), {}
    a, b = feed(t, (8, 8), arrays), feed(t, (8, 8), arrays)
    out = product(t, a, b)
    out.kernel.epilogue = X + b.at(index(1), index(0)) + a.at(index(0), index(1))
    want = arrays[a] @ arrays[b] + arrays[b].T + arrays[a]
    np.testing.assert_allclose(run(bench, out, arrays), want)


@pytest.mark.parametrize("dtype", [dt.F16, dt.BF16, dt.I32, dt.U8], ids=str)
@pytest.mark.parametrize("k,n", [(6, 7), (8, 12)])
def test_types(bench, dtype, k, n):
    t, arrays = Tracer(lambda w: []), {}
    a, b = feed(t, (5, k), arrays, dtype), feed(t, (k, n), arrays, dtype)
    arrays = {x: np.abs(v) for x, v in arrays.items()}
    np.testing.assert_allclose(run(bench, product(t, a, b), arrays), arrays[a] @ arrays[b])


def test_epilogue_with_bias_and_position(bench):
    t, arrays = Tracer(lambda w: []), {}
    a, b, bias, residual = (feed(t, s, arrays) for s in ((5, 6), (6, 7), (7,), (5, 7)))
    out = product(t, a, b)
    held = select(index(0) > index(1), X, -X) + bias.at(index(1)) + residual.at(index(0), index(1))
    out.kernel.epilogue = held
    i, j = np.indices((5, 7))
    y = arrays[a] @ arrays[b]
    np.testing.assert_allclose(run(bench, out, arrays), np.where(i > j, y, -y) + arrays[bias] + arrays[residual])


def test_both_operands_in_one_buffer(bench):
    t, arrays = Tracer(lambda w: []), {}
    a = feed(t, (5, 5), arrays)
    b = t.reshape(a, (1, 5, 5))
    out = t.reduce_compute("sum", (5, 5), (5,), lambda i, j, r: a.at(i, r) * b.at(0, j, r))
    np.testing.assert_allclose(run(bench, out, arrays), arrays[a] @ arrays[a].T)


WINDOWS = [(1, 1, 0, 1), (3, 1, 1, 1), (3, 2, 1, 1), (2, 1, 1, 2)]
# depthwise with a window of one element has sums of one product: no contraction
CONVS = [(g, *w) for g, w in itertools.product((1, 2, 4), WINDOWS) if g < 4 or w[0] > 1]


@pytest.mark.parametrize("group,kernel,stride,pad,dilation", CONVS)
def test_conv(bench, group, kernel, stride, pad, dilation):
    out, arrays, want = windows(group, kernel, stride, pad, dilation)
    np.testing.assert_allclose(run(bench, out, arrays), want)


def windows(group, kernel, stride, pad, dilation):
    """A convolution, its operands and what it gives."""
    t, arrays = Tracer(lambda w: []), {}
    x, w = feed(t, (2, 4, 7, 6), arrays), feed(t, (8, 4 // group, kernel, kernel), arrays)
    out = conv(t, x, w, group=group, strides=[stride] * 2, pads=[pad] * 4, dilations=[dilation] * 2)
    padded = np.pad(arrays[x], ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    reach = (kernel - 1) * dilation + 1
    views = np.lib.stride_tricks.sliding_window_view(padded, (reach, reach), (2, 3))
    views = views[:, :, ::stride, ::stride, ::dilation, ::dilation]
    views = views.reshape(2, group, 4 // group, *views.shape[2:])
    filters = arrays[w].reshape(group, 8 // group, 4 // group, kernel, kernel)
    return out, arrays, np.einsum("ngchwij,gmcij->ngmhw", views, filters).reshape(out.shape)


# ── through workgroup memory ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def paying(monkeypatch):
    """Whatever the size."""
    monkeypatch.setattr("pyruntime.providers.webgpu.schedules.workgroup_tile.pays", lambda *_: True)


def through_panels(bench, out, arrays):
    kernel = out.kernel.definition() if isinstance(out.kernel, Call) else out.kernel
    low, shared = workgroup_tiled(kernel, bench.host.adapter)
    low = one_binding_each(low)
    shader = print_workgroup_tile(low.code, shared, bench.host.adapter.f16)
    assert shader.source.count("var<workgroup>") == 2
    flat = {t.uid: (a.shape, a.ravel().tolist()) for t, a in arrays.items()}
    ((shape, values),) = bench.call(shader, low.tensors, low.params, low.work, kernel.outputs, flat, {})
    return np.array(values).reshape(shape)


PANELS = [(32, 16, 32), (31, 15, 33), (33, 17, 31), (64, 32, 65), (2, 3, 5), (100, 2, 40)]


@pytest.mark.parametrize("dtype", [dt.F32, dt.F16, dt.I32, dt.U8], ids=str)
@pytest.mark.parametrize("m,k,n", PANELS)
def test_panels(bench, paying, m, k, n, dtype):
    t, arrays = Tracer(lambda w: []), {}
    a, b = feed(t, (2, m, k), arrays, dtype), feed(t, (n, k), arrays, dtype)
    arrays = {x: np.abs(v) % 3 for x, v in arrays.items()}
    out = t.reduce_compute("sum", (2, m, n), (k,), lambda z, i, j, r: a.at(z, i, r) * b.at(j, r))
    np.testing.assert_allclose(through_panels(bench, out, arrays), arrays[a] @ arrays[b].T)


def test_panels_with_an_epilogue(bench, paying):
    t, arrays = Tracer(lambda w: []), {}
    a, b, bias = feed(t, (40, 20), arrays), feed(t, (20, 36), arrays), feed(t, (36,), arrays)
    out = product(t, a, b)
    out.kernel.epilogue = select(index(0) > index(1), X, -X) + bias.at(index(1))
    i, j = np.indices((40, 36))
    y = arrays[a] @ arrays[b]
    np.testing.assert_allclose(through_panels(bench, out, arrays), np.where(i > j, y, -y) + arrays[bias])


@pytest.mark.parametrize("group,kernel,stride,pad,dilation", [c for c in CONVS if c[0] == 1])
def test_panels_of_windows(bench, paying, group, kernel, stride, pad, dilation):
    out, arrays, want = windows(group, kernel, stride, pad, dilation)
    np.testing.assert_allclose(through_panels(bench, out, arrays), want)


def test_panels_are_for_large_products_on_gpus():
    t = Tracer(lambda w: [])
    gpu = Adapter()

    def made(m, k, n, adapter):
        out = product(t, t.leaf("feed", (m, k), dt.F32), t.leaf("feed", (k, n), dt.F32))
        return workgroup_tiled(out.kernel.definition(), adapter) is not None

    assert made(32, 16, 32, gpu)
    assert not made(31, 16, 32, gpu) and not made(32, 16, 31, gpu) and not made(32, 15, 32, gpu)
    assert not made(32, 16, 32, replace(gpu, software=True))
    assert not made(32, 16, 32, replace(gpu, shared_bytes=4095))


def test_what_is_not_a_contraction():
    t = Tracer(lambda w: [])
    x, y = t.leaf("feed", (3, 4), dt.F32), t.leaf("feed", (3, 4), dt.F32)
    assert tiled(t.reduce("sum", x, [1], keepdims=False).kernel, Adapter()) is None
    assert tiled(t.reduce("max", t.map(X * Y, x, y), [1], keepdims=False).kernel, Adapter()) is None
    same = t.reduce_compute("sum", (3,), (4,), lambda i, r: x.at(i, r) * y.at(i, r))
    assert tiled(same.kernel, Adapter()) is None
