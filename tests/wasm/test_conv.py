"""Convolution against a direct NumPy sum: kernels, strides, dilations, pads, groups, block edges, guard bytes."""

import itertools

import numpy as np
import pytest

from pyruntime.providers.wasm.printer.assembler import Module
from pyruntime.providers.wasm.schedules import conv
from pyruntime.providers.wasm.schedules.arithmetic import Arithmetic
from pyruntime.providers.wasm.schedules.register_tile import Epilogue

from . import native
from .arena import Arena, share

VARIANTS = {"": Epilogue(), "bias": Epilogue("row"), "relu6": Epilogue("row", low=0.0, high=6.0)}


SETUPS = {"relaxed": (True, 1), "plain": (False, 1), "threads": (True, 2), **native.SETUPS}


@pytest.fixture(scope="module", params=SETUPS)
def setup(request):
    relaxed, threads = SETUPS[request.param]
    host = native.host(request.param, threads, relaxed)
    module = Module(shared=host.shared)
    native.add_imports(module, host)
    for name, epilogue in VARIANTS.items():
        conv.conv(module, "conv" + name, arithmetic=Arithmetic.of_floats(relaxed), epilogue=epilogue)
    yield host, host.load(module.to_bytes())
    host.close()


def three(values, fill):
    return (fill,) * (3 - len(values)) + tuple(values)


def out_size(size, kernel, stride, dilation, begin, end):
    return (size + begin + end - dilation * (kernel - 1) - 1) // stride + 1


def reference(x, w, stride, dilation, pads, groups):
    """x (N, C, D, H, W), w (M, C/groups, kd, kh, kw), pads begin then end -> (N, M, *out), in float64."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *zip(pads[:3], pads[3:], strict=True)))
    kernel = w.shape[2:]
    out = [(s - d * (k - 1) - 1) // t + 1 for s, k, t, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    cg, mg = w.shape[1], w.shape[0] // groups
    for tap in itertools.product(*map(range, kernel)) if y.size else ():
        window = tuple(
            slice(i * d, i * d + (o - 1) * t + 1, t) for i, d, o, t in zip(tap, dilation, out, stride, strict=True)
        )
        for g in range(groups):
            part = x[:, g * cg : (g + 1) * cg][(slice(None), slice(None), *window)]
            with np.errstate(all="ignore"):
                y[:, g * mg : (g + 1) * mg] += np.einsum("ncdhw,mc->nmdhw", part, w[g * mg : (g + 1) * mg, :, *tap])
    return y


def check(
    setup, *, n=1, c=3, m=5, groups=1, size=(9,), kernel=(3,), stride=1, dilation=1, pad=None, blocks=None, variant="",
    bad=None,
):  # fmt: skip
    host, kernels = setup
    size, kernel = three(size, 1), three(kernel, 1)
    stride = three(stride, 1) if isinstance(stride, tuple) else tuple(stride if k > 1 else 1 for k in kernel)
    dilation = tuple(dilation if k > 1 else 1 for k in kernel)
    begin, end = pad or (tuple(k // 2 for k in kernel),) * 2
    begin, end = three(begin, 0), three(end, 0)
    out = [out_size(*v) for v in zip(size, kernel, stride, dilation, begin, end, strict=True)]
    if min(out) < 0:
        return
    rng = np.random.default_rng(sum(size) + m)
    x = rng.standard_normal((n, c, *size)).astype(np.float32)
    w = rng.standard_normal((m, c // groups, *kernel)).astype(np.float32)
    if bad is not None:
        x.reshape(-1)[x.size // 2] = bad
    bias = rng.standard_normal(m).astype(np.float32)
    taps = int(np.prod(kernel))
    mc, nc, cc = blocks or conv.blocks(m // groups, c // groups, int(np.prod(out)), taps)
    nc = max(nc, 40) if host.native.code else nc  # as machine code needs it
    arena = Arena(host, 1 << 22)
    y = np.full((n, m, *out), np.nan, np.float32)
    px, pw, py, pb = (arena.put(v) for v in (x, w, y, bias))
    scratch = arena.put(np.zeros(2 * conv.scratch_bytes(nc, cc, taps), np.uint8))
    params = (n, groups, m // groups, c // groups, *size, *out, *kernel, *stride, *dilation, *begin, mc, nc, cc)
    args = arena.arguments(px, pw, py, pb, scratch, *params)
    units = conv.units(n, groups, m // groups, int(np.prod(out)), mc, nc)
    share(host, kernels["conv" + variant], args, units)
    arena.check()
    want = reference(x, w, stride, dilation, (*begin, *end), groups)
    if variant:
        want = want + bias[:, None, None, None]
    if variant == "relu6":
        want = np.minimum(np.maximum(want, 0), 6)
    np.testing.assert_allclose(arena.get(py, y.shape), want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kernel", [(1,), (2,), (3,), (7,)])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_1d(setup, kernel, stride):
    for size, dilation in itertools.product((1, 3, 4, 5, 8, 9, 17, 33), (1, 2)):
        check(setup, size=(size,), kernel=kernel, stride=(stride,), dilation=dilation)
        check(setup, size=(size,), kernel=kernel, stride=(stride,), dilation=dilation, pad=((0,), (2,)))


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 5), (1, 3), (4, 2)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (2, 1)])
@pytest.mark.parametrize("dilation", [1, 3])
def test_2d(setup, kernel, stride, dilation):
    for size in ((1, 1), (4, 4), (7, 7), (9, 5), (3, 14), (14, 14)):
        check(setup, size=size, kernel=kernel, stride=stride, dilation=dilation, n=2, m=7, variant="bias")
        check(setup, size=size, kernel=kernel, stride=stride, dilation=dilation, pad=((2, 0), (0, 3)))


def test_3d(setup):
    for size, stride in itertools.product(((3, 4, 5), (5, 5, 9), (1, 6, 6)), ((1, 1, 1), (2, 1, 2))):
        check(setup, size=size, kernel=(3, 3, 3), stride=stride, n=2, variant="relu6")
        check(setup, size=size, kernel=(2, 1, 3), stride=stride, dilation=2)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("blocks", [None, (1, 8, 1), (4, 16, 2), (6, 24, 3), (5, 40, 100)])
def test_groups_and_blocks(setup, groups, blocks):
    for m, c in ((4, 4), (12, 8), (28, 12)):
        check(setup, n=2, m=m, c=c, groups=groups, size=(7, 10), kernel=(3, 3), blocks=blocks, variant="bias")


def test_zero_extents(setup):
    check(setup, n=0, size=(4, 4), kernel=(3, 3))
    check(setup, c=0, size=(4, 4), kernel=(3, 3), variant="bias")
    check(setup, m=0, size=(4, 4), kernel=(3, 3))
    check(setup, size=(2, 2), kernel=(3, 3), pad=((0, 0), (0, 0)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_reach_their_window_only(setup, bad):
    check(setup, size=(9, 9), kernel=(3, 3), bad=bad, variant="relu6")
    check(setup, size=(9, 9), kernel=(3, 3), stride=(2, 2), bad=bad)
