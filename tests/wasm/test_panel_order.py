"""GEMV over panels of codes against NumPy, around the columns of a stream and the k of a turn, with guard bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pyruntime.codegen.linear_memory import CODES_READ, IN_TURNS, PANEL_ORDER, PREFETCH
from pyruntime.providers.wasm.printer.assembler import Module
from pyruntime.providers.wasm.schedules import gemm
from pyruntime.providers.wasm.schedules.arithmetic import Arithmetic
from pyruntime.providers.wasm.schedules.gemv_panels import IN_CACHE
from pyruntime.providers.wasm.schedules.layouts import Packed
from pyruntime.providers.wasm.schedules.register_tile import PANEL, Epilogue
from pyruntime.providers.wasm.schedules.weight_codes import ROUND, WeightCodes
from pyruntime.providers.wasm.wasmtime_host import WasmHost

from .arena import Arena, share

WIDTHS = ((2, 0), *[(bits, digits) for bits in (4, 8) for digits in (0, 1, 2)])
QUANTISED = [WeightCodes(16), *[WeightCodes(b, zeros, digits) for b, digits in WIDTHS for zeros in (False, True)]]
KINDS = {layout.name: layout for layout in QUANTISED}
COLUMNS = (1, 8, 9, 16, 17, 24, 25, 33, 47, 48, 49, 73)
ROWS = (2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17)
TURN_OF = {bits: 1024 // bits for bits in (2, 4, 8, 16)}  # k
VARIANTS = {"": {}, "col": {"epilogue": Epilogue("col", low=0.0)}}
# Whether instructions are relaxed, threads, and the order
SETUPS = {
    "relaxed": (True, 1, IN_TURNS), "plain": (False, 1, IN_TURNS | PREFETCH), "threads": (True, 2, 0),
    "prefetch": (True, 1, PREFETCH), "cranelift": (True, 1, 0), "cranelift in turns": (True, 1, IN_TURNS),
}  # fmt: skip


@pytest.fixture(scope="module", params=SETUPS)
def setup(request: Any) -> Iterator[Any]:
    relaxed, threads, order = SETUPS[request.param]
    host = WasmHost(threads=threads, relaxed=relaxed)
    module = Module(shared=host.shared, cranelift=request.param.startswith("cranelift"))
    for layout in (*KINDS.values(), Packed()):
        for name, how in VARIANTS.items():
            gemm.matmul(module, layout.name + name, layout, arithmetic=Arithmetic.of_floats(relaxed), **how)
    yield host, host.load(module.to_bytes()), order
    host.close()


def panels(x: np.ndarray, rows: int) -> np.ndarray:
    """(n, .. rows .., 8): of eight columns each, 0 beyond."""
    padded = np.pad(x, ((0, -len(x) % rows), (0, -x.shape[1] % PANEL)))
    return padded.reshape(-1, rows, padded.shape[1] // PANEL, PANEL).transpose(2, 0, 1, 3)


def laid_out(layout: WeightCodes, codes: np.ndarray) -> np.ndarray:
    """The bytes of unsigned codes, or of half floats, as the docstring of weight_codes.py says."""
    if layout.bits == 16:
        return panels(codes, ROUND).astype(np.float16)
    groups = panels(codes, ROUND).reshape(-1, 4, PANEL).astype(np.uint8)
    if layout.bits == 8:
        pairs = groups.reshape(-1, 2, 2, PANEL).swapaxes(2, 3)
        return pairs if layout.digits else groups
    if layout.bits == 4:
        low, high = groups[:, :2], groups[:, 2:]
        return (low | high << 4).swapaxes(1, 2)
    return np.bitwise_or.reduce(groups << (2 * np.arange(4, dtype=np.uint8))[:, None], axis=1)


def weights(layout: WeightCodes, k: int, n: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes and steps as they lie, and the (k, n) floats that they mean."""
    rng = np.random.default_rng(k * 101 + n)
    if layout.bits == 16:
        halves = rng.standard_normal((k, n)).astype(np.float16)
        return laid_out(layout, halves), np.zeros(16, np.uint8), halves.astype(np.float64)
    codes = rng.integers(0, 1 << layout.bits, (k, n))
    scale, added = rng.random((2, -(-k // size), n)).astype(np.float32)
    steps = np.stack([panels(scale, 1), panels(added, 1)][: 1 + layout.zeros], axis=2)
    signed = codes - layout.middle if layout.middle else codes.astype(np.int8)
    meant = signed * np.repeat(scale, size, axis=0)[:k] + layout.zeros * np.repeat(added, size, axis=0)[:k]
    return laid_out(layout, codes), steps, meant.astype(np.float64)


def check(setup: Any, layout: WeightCodes, shape: tuple[int, int, int], size: int, variant: str, columns: int) -> None:
    host, kernels, order = setup
    m, n, k = shape
    rng = np.random.default_rng(n)
    a = rng.standard_normal((m, k)).astype(np.float32)
    codes, steps, meant = weights(layout, k, n, size)
    c, bias = rng.standard_normal((m, n)).astype(np.float32), rng.standard_normal(n + 4).astype(np.float32)
    arena = Arena(host)
    pa, pb, pc = arena.put(a), arena.put(codes), arena.put(c)
    numbers = gemm.Params(m, n, k, 1, k, size, n, 0, 0, 0, m, columns, min(k, 384))
    numbers = numbers._replace(own=gemm.scratch_bytes(layout, numbers))
    scratch = arena.put(np.full(2 * numbers.own, 0xFF, np.uint8))
    args = arena.arguments(pa, pb, pc, arena.put(bias), scratch, arena.put(steps), *numbers)
    words = host.memory.view("<i4")
    words[[PANEL_ORDER // 4, CODES_READ // 4]] = order, 0
    share(host, kernels[layout.name + variant], args, gemm.units(m, n, 1, m, columns))
    arena.check()
    assert words[CODES_READ // 4] <= n * k * layout.bits >> 13
    want = a @ meant
    if variant == "col":
        want = np.maximum(want + bias[:n], 0)
    most = 2e-6 * (np.abs(a) @ np.abs(meant)).max()  # of codes of one digit half steps of 1/32767 and more
    np.testing.assert_allclose(arena.get(pc, (m, n)), want, rtol=1e-5, atol=(20 if layout.digits == 1 else 1) * most)


@pytest.mark.parametrize("kind", KINDS)
def test_columns(setup: Any, kind: str) -> None:
    layout = KINDS[kind]
    k = TURN_OF[layout.bits] + 32
    for n in COLUMNS:
        for m, variant in ((1, ""), (2, "col")):
            check(setup, layout, (m, n, k), k if layout.bits == 16 else 32, variant, 24 if n > 48 else 80)


@pytest.mark.parametrize("kind", KINDS)
def test_k(setup: Any, kind: str) -> None:
    layout = KINDS[kind]
    turn = TURN_OF[layout.bits]
    for k in (0, 1, 16, 17, turn - 16, turn - 1, turn, turn + 1, turn + 16, 2 * turn, 2 * turn + 33):
        whole = -(-max(k, 1) // ROUND) * ROUND
        for size in {whole} if layout.bits == 16 else {16, 48, 256} if layout.digits else {16, 48, whole}:
            check(setup, layout, (1, 33, k), size, "", 80)


@pytest.mark.parametrize("kind", KINDS)
def test_few_rows(setup: Any, kind: str) -> None:
    """Around the rows of tiles, the k that share bytes, blocks of k, and what is loaded ahead."""
    layout = KINDS[kind]
    for k in (0, 1, 2, 3, 4, 5, 31, 32, 33, 48, 101, 256, 513):
        whole = -(-max(k, 1) // ROUND) * ROUND
        for m in ROWS:
            size = whole if layout.bits == 16 else (16, 32, 48, 256)[(m + k) % 4]
            check(setup, layout, (m, 9 + m, k), size, "col" if m % 2 else "", 16)


@pytest.mark.parametrize("m", ROWS)
def test_few_rows_by_special_halves(setup: Any, m: int) -> None:
    """Infinite, NaN and subnormal half floats in B."""
    host, kernels, order = setup
    rng = np.random.default_rng(m)
    n, k = 11, 37
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float16)
    b[5, 1], b[6, 2], b[7, 3], b[:, 4] = np.inf, -np.inf, np.nan, 3e-7
    arena = Arena(host)
    numbers = gemm.Params(m, n, k, 1, k, 48, n, 0, 0, 0, m, 16, k)
    numbers = numbers._replace(own=gemm.scratch_bytes(WeightCodes(16), numbers))
    pc, scratch = arena.put(np.zeros((m, n), np.float32)), arena.put(np.zeros(2 * numbers.own, np.uint8))
    special = arena.put(np.ones(16, np.uint8))
    args = arena.arguments(arena.put(a), arena.put(laid_out(WeightCodes(16), b)), pc, pc, scratch, special, *numbers)
    host.memory.view("<i4")[PANEL_ORDER // 4] = order
    share(host, kernels["nbits16"], args, gemm.units(m, n, 1, m, 16))
    arena.check()
    want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(arena.get(pc, (m, n)), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_large_panels_of_floats(setup: Any, variant: str) -> None:
    """A block of columns of so many elements that no cache may hold it, and one row."""
    host, kernels, order = setup
    for n, k in ((513, 512), (520, 513), (8, 33000), (2011, 131), (16, 16385), (24, 11000)):
        rng = np.random.default_rng(n)
        a, b = rng.standard_normal((1, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
        c, bias = rng.standard_normal((1, n)).astype(np.float32), rng.standard_normal(n + 4).astype(np.float32)
        arena = Arena(host, 1 << 22)
        pa, pb, pc = arena.put(a), arena.put(panels(b, k)), arena.put(c)
        params = gemm.Params(1, n, k, 1, k, n, n, 0, 0, 0, 1, -(-n // PANEL) * PANEL, k)
        args = arena.arguments(pa, pb, pc, arena.put(bias), 0, *params)
        assert n * k > IN_CACHE
        host.memory[PANEL_ORDER] = order
        share(host, kernels["panels" + variant], args, 1)
        arena.check()
        want = a.astype(np.float64) @ b
        want = np.maximum(want + bias[:n], 0) if variant == "col" else want
        np.testing.assert_allclose(arena.get(pc, (1, n)), want, rtol=1e-4, atol=1e-4 * k**0.5)
