"""Matmul against NumPy over a grid of tile edges, with guard bytes, on relaxed and plain SIMD."""

import itertools

import numpy as np
import onnx
import pytest

from pyruntime import InferenceSession
from pyruntime.providers.wasm.printer.assembler import Module
from pyruntime.providers.wasm.schedules import gemm
from pyruntime.providers.wasm.schedules.arithmetic import Arithmetic
from pyruntime.providers.wasm.schedules.layouts import Dense, Packed
from pyruntime.providers.wasm.schedules.register_tile import Epilogue
from pyruntime.providers.wasm.wasmtime_host import WasmHost
from pyruntime.runtime import planner

from . import native
from .arena import Arena, parallel, share

LAYOUTS = {x.name: x for x in (Packed(), Dense(), Dense(True), Dense(half=True), Dense(True, half=True))}
KINDS = tuple(LAYOUTS)
RELU6 = {"low": 0.0, "high": 6.0}


SETUPS = {"relaxed": (True, 1), "plain": (False, 1), "threads": (True, 2), "cranelift": (True, 1), **native.SETUPS}


@pytest.fixture(scope="module", params=SETUPS)
def setup(request):
    relaxed, threads = SETUPS[request.param]
    host = native.host(request.param, threads, relaxed)
    module = Module(shared=host.shared, cranelift=request.param == "cranelift")
    native.add_imports(module, host)
    epilogues = {"": Epilogue(), "col": Epilogue("col", **RELU6), "row": Epilogue("row", low=0.0)}
    for kind, layout in LAYOUTS.items():
        for name, epilogue in epilogues.items():
            gemm.matmul(module, kind + name, layout, arithmetic=Arithmetic.of_floats(relaxed), epilogue=epilogue)
    for kind in ("rows", "cols"):
        gemm.pack_b(module, "pack_" + kind, kind == "cols")
    yield host, host.load(module.to_bytes())
    host.close()


def reference(a, b, bias, variant):
    with np.errstate(all="ignore"):
        y = np.matmul(a.astype(np.float64), b.astype(np.float64))
    if variant in ("col", "row"):
        y = np.maximum(y + (bias if variant == "col" else bias[:, None]), 0)
        y = np.minimum(y, 6) if variant == "col" else y
    return y


def check(setup, kind, a, b, *, variant="", gap=(0, 0, 0), blocks=None, split=False):
    """a (batch, M, K), b (batch or 1, K, N); gap: floats added to each row stride of A, B, C."""
    host, kernels = setup
    batch, m, k = a.shape
    n = b.shape[2]
    arena = Arena(host)
    rng = np.random.default_rng(1)
    if kind.endswith("16"):
        b = b.copy()
        b.reshape(-1)[::5] *= 1e-6  # subnormal
        b = b.astype(np.float16)
    stored = b.transpose(0, 2, 1) if kind.startswith("cols") else b
    wide = [np.pad(x, ((0, 0), (0, 0), (0, g)), constant_values=np.nan) for x, g in zip((a, stored), gap, strict=False)]
    pa, pb = arena.put(wide[0]), arena.put(wide[1])
    c = rng.standard_normal((batch, m, n + gap[2])).astype(np.float32)
    bias = rng.standard_normal(m if variant == "row" else n).astype(np.float32)
    pc, pbias = arena.put(c), arena.put(bias)
    mc, nc, kc = blocks or gemm.blocks(m, n, k)
    ldb, sb = wide[1].shape[2], wide[1][0].size
    if kind == "panels":
        size = gemm.packed_floats(n, k)
        packed = arena.put(np.full((len(b), size), np.nan, np.float32))
        args = arena.arguments(pb, packed, *gemm.PackParams(n, k, len(b), ldb, sb, size, max(len(b), 1)))
        kernels["pack_rows"](args, 0, gemm.pack_units(n, len(b)), 0)
        pb, sb = packed, size
    sb = sb if len(b) > 1 else 0
    params = gemm.Params(
        m=m, n=n, k=k, batch=batch, lda=k + gap[0], ldb=ldb, ldc=n + gap[2], stride_a=m * (k + gap[0]), stride_b=sb,
        stride_c=m * (n + gap[2]), mc=mc, nc=nc, kc=kc, inner=max(batch, 1),
    )  # fmt: skip
    params = params._replace(own=gemm.scratch_bytes(LAYOUTS[kind], params))
    scratch = arena.put(np.zeros(2 * params.own, np.uint8))
    args = arena.arguments(pa, pb, pc, pbias, scratch, *params)
    units = gemm.units(m, n, batch, mc, nc)
    if split or host.threads == 2:
        share(host, kernels[kind + variant], args, units)
    else:
        kernels[kind + variant](args, 0, units, 0)
    arena.check()
    got = arena.get(pc, c.shape)
    np.testing.assert_array_equal(got[:, :, n:], c[:, :, n:])
    want = reference(a, b, bias, variant)
    np.testing.assert_allclose(got[:, :, :n], want, rtol=1e-4, atol=1e-4 * max(1, k) ** 0.5)


def matrices(batch, m, n, k, b_batch=None):
    rng = np.random.default_rng(m * 10007 + n * 101 + k)
    a = rng.standard_normal((batch, m, k)).astype(np.float32)
    return a, rng.standard_normal((batch if b_batch is None else b_batch, k, n)).astype(np.float32)


EDGES_M = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17)
EDGES_N = (0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17)
EDGES_K = (0, 1, 2, 3, 4, 5, 7, 8, 9, 17)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", EDGES_M)
def test_edges(setup, kind, m):
    for n, k in itertools.product(EDGES_N, EDGES_K):
        check(setup, kind, *matrices(1, m, n, k), gap=(n % 3, k % 2, (n + k) % 4))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", ["col", "row"])
def test_epilogues(setup, kind, variant):
    for m, n, k in itertools.product((1, 2, 5, 6, 7, 13), (1, 3, 4, 5, 8, 11, 20), (0, 1, 9, 40)):
        check(setup, kind, *matrices(2, m, n, k), variant=variant, blocks=(6, 16, 16), gap=(1, 1, 1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [(1, 8, 1), (5, 8, 3), (12, 16, 32), (64, 40, 8)])
def test_blocks_batches_and_sharing(setup, kind, block):
    for b_batch in (1, 3):
        check(setup, kind, *matrices(3, 25, 41, 33, b_batch), blocks=block, split=True)
        check(setup, kind, *matrices(3, 1, 41, 33, b_batch), blocks=block, split=True)


@pytest.mark.parametrize("kind", KINDS)
def test_larger(setup, kind):
    check(setup, kind, *matrices(1, 67, 130, 401), blocks=(24, 64, 384), variant="col")


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("variant", ["", "col"])
@pytest.mark.parametrize("m", range(1, 8))
def test_few_rows(setup, kind, variant, m):
    """Around the numbers of columns that registers hold, of rows that stay in cache, and of k that one turn takes."""
    for n, k in itertools.product((4, 8, 20, 24, 27, 48, 76, 256, 260), (1, 15, 17, 31, 32, 33, 65)):
        check(setup, kind, *matrices(2, m, n, k), variant=variant, gap=(1, 4, 0))


@pytest.mark.parametrize("m", (2, 3, 4, 5, 6, 10, 15, 16, 17))
def test_few_rows_of_panels(setup, m):
    """Around two k and those that are loaded ahead, and with blocks that end before the columns do."""
    for n, k in itertools.product((7, 8, 9, 40), (0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 300)):
        check(setup, "panels", *matrices(2, m, n, k), variant="col", gap=(1, 4, 3), blocks=(24, 16, 8 + k % 5))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [1, 3, 13])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity(setup, kind, m, bad):
    for variant in ("", "col", "row"):
        a, b = matrices(1, m, 11, 9)
        a[0, m // 2, 4] = bad
        check(setup, kind, a, b, variant=variant)
        a, b = matrices(1, m, 11, 9)
        b[0, 8, 10] = bad
        check(setup, kind, a, b, variant=variant)


@pytest.mark.parametrize("kind", ["rows", "cols"])
def test_packing(setup, kind):
    host, kernels = setup
    for n, k in itertools.product((0, 1, 3, 4, 5, 7, 8, 9, 63, 64, 65, 130), (0, 1, 3, 4, 5, 8, 33)):
        arena = Arena(host)
        b = np.random.default_rng(n).standard_normal((2, k, n)).astype(np.float32)
        stored = b.transpose(0, 2, 1) if kind == "cols" else b
        source = arena.put(np.pad(stored, ((0, 0), (0, 0), (0, 1)), constant_values=np.nan))
        size = gemm.packed_floats(n, k)
        packed = arena.put(np.full((2, size), np.nan, np.float32))
        ld = stored.shape[2] + 1
        args = arena.arguments(source, packed, *gemm.PackParams(n, k, 2, ld, stored.shape[1] * ld, size, 2))
        units = gemm.pack_units(n, 2)
        kernels["pack_" + kind](args, 0, units // 2, 0)
        kernels["pack_" + kind](args, units // 2, units, 1)
        arena.check()
        want = np.pad(b, ((0, 0), (0, 0), (0, -n % 8))).reshape(2, k, -(-n // 8), 8).transpose(0, 2, 1, 3)
        np.testing.assert_array_equal(arena.get(packed, want.shape), want)


def test_two_threads_share_a_call():
    host = WasmHost(threads=2)
    module = Module(shared=True)
    gemm.matmul(module, "f", Dense(), arithmetic=Arithmetic.of_floats(host.relaxed))
    kernel = host.load(module.to_bytes())["f"]
    arena = Arena(host, 1 << 22)
    a, b = matrices(1, 200, 300, 64)
    mc, nc, kc = gemm.blocks(200, 300, 64, threads=2)
    buffers = [arena.put(x) for x in (a, b, np.zeros((200, 300), np.float32))]
    params = gemm.Params(200, 300, 64, 1, 64, 300, 300, 0, 0, 0, mc, nc, kc)
    params = params._replace(own=gemm.scratch_bytes(Dense(), params))
    scratch = arena.put(np.zeros(2 * params.own, np.uint8))
    args = arena.arguments(*buffers, 0, scratch, *params)
    units = gemm.units(200, 300, 1, mc, nc)
    assert units >= 4
    parallel(host, [lambda t=t: kernel.calls[t](args, t * units // 2, (t + 1) * units // 2, t) for t in (0, 1)])
    np.testing.assert_allclose(arena.get(buffers[2], (200, 300)), a[0] @ b[0], rtol=1e-4, atol=1e-4)
    host.close()


def test_block_sizes_are_sane():
    for m, n, k, threads in itertools.product((0, 1, 7, 100, 5000), (0, 1, 9, 1000, 50000), (0, 1, 3000), (1, 2, 8)):
        mc, nc, kc = gemm.blocks(m, n, k, threads)
        assert mc > 0
        assert nc > 0
        assert nc % 8 == 0
        assert 0 < kc <= 512
        params = gemm.Params(m, n, k, 1, k, n, n, 0, 0, 0, mc, nc, kc)
        assert gemm.scratch_bytes(Dense(), params) <= 1 << 22


@pytest.mark.parametrize("rows", [2, 9])
def test_operands_across_2_gib(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses from there on are negative as signed numbers; what lies below takes no memory."""
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[M, 24] a, float[24, 700] b) => (float[M, 700] c)'
    model = onnx.parser.parse_model(text + "{ c = MatMul (a, b) }").SerializeToString()
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((rows, 24), np.float32), rng.standard_normal((24, 700), np.float32)
    for below in range(0, 180_000, 2048):
        monkeypatch.setattr(planner, "RESERVED", (1 << 31) - (1 << 16) - below)
        session = InferenceSession(model)
        session.run(None, {"a": a + 1, "b": b})  # leaves something behind
        np.testing.assert_allclose(session.run(None, {"a": a, "b": b})[0], a @ b, rtol=1e-4, atol=1e-4)
