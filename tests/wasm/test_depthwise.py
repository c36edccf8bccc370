"""Depthwise convolution against NumPy: windows, strides, dilations, pads, all widths."""

import itertools

import numpy as np
import pytest

from pyruntime.providers.wasm.printer.assembler import Module
from pyruntime.providers.wasm.schedules import depthwise
from pyruntime.providers.wasm.schedules.arithmetic import Arithmetic
from pyruntime.providers.wasm.schedules.register_tile import Epilogue

from . import native
from .arena import Arena, share

SETUPS = {"relaxed": (True, 1), "plain": (False, 1), "threads": (True, 2), "cranelift": (True, 1), **native.SETUPS}


@pytest.fixture(scope="module", params=SETUPS)
def setup(request):
    relaxed, threads = SETUPS[request.param]
    host, sums = native.host(request.param, threads, relaxed), Arithmetic.of_floats(relaxed)
    module = Module(shared=host.shared, cranelift=request.param == "cranelift")
    native.add_imports(module, host)
    depthwise.depthwise(module, "depthwise", arithmetic=sums)
    depthwise.depthwise(module, "relu6", arithmetic=sums, epilogue=Epilogue("row", low=0.0, high=6.0))
    depthwise.depthwise(module, "col", arithmetic=sums, epilogue=Epilogue("col"))
    yield host, host.load(module.to_bytes())
    host.close()


def reference(x, w, stride, dilation, pads, out):
    mult = w.shape[0] // max(x.shape[1], 1)
    x = np.pad(np.repeat(x.astype(np.float64), mult, 1), ((0, 0), (0, 0), (pads[0], 99), (pads[1], 99)))
    y = np.zeros((*x.shape[:2], *out))
    for r, s in itertools.product(*map(range, w.shape[2:])):
        y0, x0 = r * dilation[0], s * dilation[1]
        part = x[:, :, y0 :: stride[0], x0 :: stride[1]][:, :, : out[0], : out[1]]
        with np.errstate(all="ignore"):
            y += part * w[None, :, 0, r, s, None, None]
    return y


def check(
    setup, size, kernel, stride=(1, 1), dilation=(1, 1), pads=None, n=1, c=2, mult=1, relu6=False, col=False, bad=None
):  # fmt: skip
    host, kernels = setup
    pads = tuple(k // 2 for k in kernel) if pads is None else pads
    out = tuple(
        (s + 2 * p - d * (k - 1) - 1) // t + 1
        for s, k, t, d, p in zip(size, kernel, stride, dilation, pads, strict=True)
    )
    if min(out) < 0:
        return
    rng = np.random.default_rng(sum(size))
    x = rng.standard_normal((n, c, *size)).astype(np.float32)
    w = rng.standard_normal((c * mult, 1, *kernel)).astype(np.float32)
    if bad is not None:
        x.reshape(-1)[x.size // 2] = bad
    bias = rng.standard_normal(out if col else (c * mult, 1, 1)).astype(np.float32)
    arena = Arena(host)
    y = np.full((n, c * mult, *out), np.nan, np.float32)
    px, pw, py, pb = (arena.put(v) for v in (x, w, y, bias))
    if col:
        pb = len(arena.memory) - bias.nbytes - 12  # as far as an epilogue may read
        arena.memory[pb:-12] = bias.view(np.uint8).reshape(-1)
    copy = depthwise.copied(out, kernel, stride, dilation)
    taps = kernel[0] * kernel[1]
    scratch = arena.put(np.full(2 * depthwise.scratch_bytes(*copy, stride[1], taps), 0xA5, np.uint8))
    args = arena.arguments(
        px, pw, py, pb, scratch, n, c, mult, *size, *out, *kernel, *stride, *dilation, *pads, *copy
    )  # fmt: skip
    units = depthwise.units(n, c, mult)
    share(host, kernels["relu6" if relu6 else "col" if col else "depthwise"], args, units)
    arena.check()
    want = reference(x, w, stride, dilation, pads, out)
    if relu6:
        want = np.minimum(np.maximum(want + bias, 0), 6)
    if col:
        want += bias
    np.testing.assert_allclose(arena.get(py, y.shape), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (1, 4), (7, 7), (2, 3)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 3), (3, 1)])
def test_widths(setup, kernel, stride):
    for width, dilation in itertools.product((1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 23, 31, 33), (1, 2, 5)):
        check(setup, (3, width), kernel, stride, (1, dilation), n=2)
        check(setup, (6, width), kernel, stride, (dilation, dilation), mult=2, relu6=True)


@pytest.mark.parametrize("pads", [(0, 0), (1, 3), (4, 0), (2, 9)])
def test_pads(setup, pads):
    for kernel, stride in itertools.product(((3, 3), (5, 5), (4, 2)), ((1, 1), (2, 2), (4, 4))):
        for width in (3, 6, 14):
            check(setup, (5, width), kernel, stride, pads=pads)


def test_bias_of_places_at_the_end_of_memory(setup):
    for width in range(1, 40):
        check(setup, (2, width), (3, 3), col=True)


def test_zero_extents(setup):
    check(setup, (4, 4), (3, 3), n=0)
    check(setup, (4, 4), (3, 3), c=0)
    check(setup, (2, 2), (3, 3), pads=(0, 0))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_reach_their_window_only(setup, bad):
    for kernel, stride in itertools.product(((3, 3), (5, 5), (2, 2)), ((1, 1), (2, 2), (3, 3))):
        check(setup, (7, 9), kernel, stride, bad=bad, relu6=True)
