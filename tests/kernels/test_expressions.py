"""Every expression over every type, on every provider, against the reference evaluator."""

import itertools
import math
import random

import numpy as np
import pytest

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import dtype as dt
from pyruntime.ir import expr as ex
from pyruntime.ir import reference
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import X, Y, cast, const, guard, select
from pyruntime.providers.webgpu.printer.loops import print_kernel

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.75, 7.0, -8.0, 100.0, -127.6, 255.7, 1e-3, math.inf, -math.inf, math.nan]
WHOLE = [0, 1, 2, 3, 5, 7, 31, 100, 127, -1, -2, -7, -8, -100, -128]
FLOATS = (dt.F32, dt.F16, dt.BF16)
INTEGERS = (dt.I8, dt.U8, dt.I16, dt.U16, dt.I32, dt.U32, dt.I64, dt.U64, dt.I4, dt.U4)
HALF_ULP = {dt.F16: 2**-10, dt.BF16: 2**-7}


def values(dtype):
    if dtype is dt.BOOL:
        return [True, False, True]
    if dtype.is_float:
        return [reference.store_value(v, dtype) for v in SPECIAL]
    stored = [reference.store_value(v, dtype) for v in WHOLE]
    return [v for v in stored if abs(v) < 2**32]


def check(bench, out, arrays, symbols=None, rtol=2e-6, atol=1e-6, printer=print_kernel):
    kernel = out.kernel
    shapes = [tuple(sh.evaluate(d, symbols or {}) for d in t.shape) for t in kernel.outputs]
    want = reference.evaluate(kernel, arrays, shapes, symbols)
    got = bench.run(kernel, arrays, symbols, printer)
    for t, (shape, g), (_, w) in zip(kernel.outputs, got, want, strict=True):
        assert shape == shapes[t.index]
        scale = max(rtol, HALF_ULP.get(t.dtype, 0))
        wrong = [(n, a, b) for n, (a, b) in enumerate(zip(g, w, strict=True)) if not close(a, b, scale, atol)]
        assert not wrong, f"{len(wrong)} of {len(w)} differ; (index, got, want): {wrong[:5]}"


def close(a, b, rtol, atol):
    if b != b:
        return a != a
    return a == b or (not math.isinf(b) and abs(a - b) <= atol + rtol * abs(b))


def pairs(dtype):
    found = list(itertools.product(values(dtype), repeat=2))
    return [a for a, _ in found], [b for _, b in found]


def operand(t, dtype, data, arrays):
    x = t.leaf("feed", (len(data),), dtype)
    arrays[x.uid] = ((len(data),), data)
    return x


def unary_operations(dtype):
    if dtype.is_int:
        if dtype.size == 8:  # the GPU stores these in 32 bits and refuses operations on the high bits
            return ["neg", "abs", "bitnot"] if dtype.kind == "i" else []
        return ["neg", "abs", "bitnot", "popcount"]
    return ["not"] if dtype is dt.BOOL else sorted(ex.UNARY - {"not", "bitnot", "popcount"})


def binary_operations(dtype):
    bits, shifts = {"and", "or", "xor"}, {"shl", "shr"}
    if dtype is dt.BOOL:
        return sorted(bits | {"eq", "ne"})
    every = ex.BINARY | ex.COMPARE
    return sorted(every - bits - shifts if dtype.is_float else every - {"pow"} if dtype.bits < 8 else every)


def cases(operations):
    return [(op, dtype) for dtype in (*FLOATS, *INTEGERS, dt.BOOL) for op in operations(dtype)]


@pytest.mark.parametrize("op,dtype", cases(unary_operations), ids=str)
def test_unary(bench, op, dtype):
    t, arrays = Tracer(lambda w: []), {}
    x = operand(t, dtype, values(dtype) + ([0.1 * n for n in range(-40, 40)] if dtype is dt.F32 else []), arrays)
    check(bench, t.map(ex.unary(op, X), x), arrays, rtol=4e-6)


@pytest.mark.parametrize("op,dtype", cases(binary_operations), ids=str)
def test_binary(bench, op, dtype):
    t, arrays = Tracer(lambda w: []), {}
    a, b = pairs(dtype)
    if op in ("shl", "shr"):
        b = [abs(v) % 40 for v in b]
        keep = [n for n, v in enumerate(b) if dtype.kind == "u" or v <= dtype.bits]
        a, b = [a[n] for n in keep], [b[n] for n in keep]
        b = [reference.store_value(v, dtype) % 64 for v in b]
    if op == "pow" and dtype.is_int:
        b = [v % 7 for v in b]
    if dtype.is_float and op in ("mod", "rem", "pow"):  # the reference raises for other operands, or is not exact
        keep = [
            n for n in range(len(a)) if math.isfinite(a[n]) and 0 < abs(b[n]) < 10 and (op == "pow" or b[n] % 1 == 0)
        ]
        a, b = [a[n] for n in keep], [b[n] for n in keep]
    if dtype.size == 8:  # values that fit 32 bits
        keep = [n for n in range(len(a)) if fits(op, a[n], b[n], dtype)]
        a, b = [a[n] for n in keep], [b[n] for n in keep]
    x, y = operand(t, dtype, a, arrays), operand(t, dtype, b, arrays)
    check(bench, t.map(ex.binary(op, X, Y), x, y), arrays, rtol=1e-4 if op == "pow" else 3e-6)


@pytest.mark.parametrize("uniform", [False, True], ids=["lanes", "uniform"])
@pytest.mark.parametrize("op", ["shl", "shr"])
@pytest.mark.parametrize("dtype", [d for d in INTEGERS if 8 <= d.bits < 64], ids=str)
def test_a_shift_by_the_width_or_more_leaves_nothing_or_the_sign(bench, op, dtype, uniform):
    low, high = dt.bounds(dtype)
    data = [low, high, 1, 85, *([-1, -86] if low else [])]
    for count in (0, 1, dtype.bits - 1, dtype.bits, 31, 32, 33, 40, 64, 100):
        t, arrays = Tracer(lambda w: []), {}
        x = operand(t, dtype, data, arrays)
        y = operand(t, dtype, [count] if uniform else [count] * len(data), arrays)
        kernel = t.map(ex.binary(op, X, Y), x, y)
        shift = np.left_shift if op == "shl" else np.right_shift
        told = shift(np.array(data, dtype.name), np.array(count, dtype.name)).tolist()
        assert list(reference.evaluate(kernel.kernel, arrays, [(len(data),)])[0][1]) == told
        check(bench, kernel, arrays)


def fits(op, a, b, dtype):
    if max(abs(a), abs(b)) > 2**31 - 1:
        return False
    if op in ex.COMPARE:
        return True
    if op in ("shl", "shr") and b > 31:
        return False
    low, high = (0, 2**32 - 1) if dtype.kind == "u" else (-(2**31), 2**31 - 1)
    return low <= reference.BINARY[op](a, b, dtype) <= high


@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, dt.BOOL], ids=str)
@pytest.mark.parametrize("to", [*FLOATS, *INTEGERS, dt.BOOL], ids=str)
def test_cast(bench, source, to):
    t, arrays = Tracer(lambda w: []), {}
    data = [v for v in values(source) if source.size < 8 or abs(v) < 2**31]
    if to.size == 8:
        limit = 2**31 if to.kind == "i" else 2**32
        data = [v for v in data if v != v or (-limit * (to.kind == "i") <= v < limit)]
    x = operand(t, source, data, arrays)
    check(bench, t.compute(x.shape, lambda i: cast(x.at(i), to), to), arrays)


@pytest.mark.parametrize(
    "source,to",
    [(dt.F32, dt.I32), (dt.I32, dt.F32), (dt.F32, dt.U32), (dt.F16, dt.U16), (dt.U16, dt.F16), (dt.BF16, dt.I16),
     (dt.U16, dt.BF16), (dt.I8, dt.U8), (dt.U8, dt.I8), (dt.I32, dt.U32), (dt.F8E5M2, dt.U8), (dt.U8, dt.F8E4M3FN)],
    ids=str,
)  # fmt: skip
def test_bitcast(bench, source, to):
    t, arrays = Tracer(lambda w: []), {}
    data = list(range(256)) if source.size == 1 and source.kind == "f" else values(source)
    data = [v for v in data if v == v]
    x = operand(t, source, data, arrays)
    check(bench, t.compute(x.shape, lambda i: ex.bitcast(x.at(i), to), to), arrays)


def test_every_half(bench):
    """All 65536 bit patterns, decoded and encoded."""
    for half in (dt.F16, dt.BF16):
        t, arrays = Tracer(lambda w: []), {}
        x = operand(t, dt.U16, list(range(65536)), arrays)
        check(
            bench,
            t.compute(x.shape, lambda i, x=x, h=half: cast(ex.bitcast(x.at(i), h), dt.F32)),
            arrays,
            rtol=0,
            atol=0,
        )
        rng = random.Random(1)
        spread = [rng.uniform(-1, 1) * 2.0 ** rng.randint(-20, 15) for _ in range(4096)]
        y = operand(t, dt.F32, [reference.round_float(v, dt.F32) for v in spread], arrays)
        check(bench, t.compute(y.shape, lambda i, y=y, h=half: cast(cast(y.at(i), h), dt.F32)), arrays, rtol=0, atol=0)


def test_constants(bench):
    t = Tracer(lambda w: [])
    for dtype, numbers in ((dt.F32, [*SPECIAL, 1e38, 1e-38, 16777217.0, 0.1]), (dt.I32, [-(2**31), 2**31 - 1, 0, -1]),
                           (dt.U32, [2**32 - 1, 0]), (dt.I8, [-128]), (dt.BOOL, [True, False])):  # fmt: skip
        for v in numbers:
            check(bench, t.compute((3,), lambda i, v=v, d=dtype: const(v, d), dtype), {}, rtol=1e-7)
    big = const(1e30, dt.F32)  # overflows while compiling
    check(bench, t.compute((2,), lambda i: big * big), {})
    check(bench, t.compute((2,), lambda i: const(3, dt.U32) / const(0, dt.U32)), {})


# ── shapes and addresses ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", [dt.F32, dt.U8, dt.F16, dt.BOOL, dt.I16, dt.I64], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 1, 3), (2, 3, 4), (0, 3), (129,)], ids=str)
def test_shapes(bench, dtype, shape):
    t, arrays = Tracer(lambda w: []), {}
    n = math.prod(shape)
    x = t.leaf("feed", shape, dtype)
    arrays[x.uid] = (shape, [reference.store_value(k * 7 % 100, dtype) for k in range(n)])
    perm = list(range(len(shape)))[::-1]
    check(bench, t.compute([shape[p] for p in perm], lambda *i: x.at(*[i[p] for p in perm])), arrays)


def test_broadcast_and_symbols(bench):
    n = sh.symbol("n")
    t, arrays = Tracer(lambda w: []), {}
    x, y = t.leaf("feed", (n, 4, 1), dt.F32), t.leaf("feed", (4, 5), dt.F32)
    for size in (1, 6, 0):
        arrays = {
            x.uid: ((size, 4, 1), [0.5 * k for k in range(4 * size)]),
            y.uid: ((4, 5), [float(k) for k in range(20)]),
        }
        check(bench, t.map(X - Y, x, y), arrays, dict.fromkeys(sh.symbols(n), size))


def test_an_index_is_replaced_once():
    """Folding returns an operand that is already a replacement of an index."""
    i, j = ex.index(0), ex.index(1)
    places = (const(0, dt.I32), ex.index(2), ex.index(3))
    for e in (i + j, j - i, (i + j) + i):
        new = ex.rewrite(e, lambda x: places[x.value] if x.op == "index" else None)
        assert new.op == "index" and new.value == 2, (e, new)


def test_guard_and_gather(bench):
    t, arrays = Tracer(lambda w: []), {}
    x = operand(t, dt.F32, [1.0, 2.0, 3.0], arrays)
    k = operand(t, dt.I64, [2, -1, 0, 5], arrays)
    pad = t.compute((7,), lambda i: guard((i >= 2) & (i < 5), x.at(i - 2) * 2.0, -1.0))
    check(bench, pad, arrays)
    inside = lambda i: (k.at(i) >= 0) & (k.at(i) < 3)  # noqa: E731
    check(bench, t.compute((4,), lambda i: guard(inside(i), x.at(k.at(i)), math.nan)), arrays)
    nested = t.compute((7,), lambda i: guard(i < 5, guard(i >= 2, x.at(i - 2), 7.0), select(i == 6, const(1.0), 0.0)))
    check(bench, nested, arrays)


def test_more_than_one_row_of_workgroups(bench):
    """5 million work units are more than 65535 workgroups of 64."""
    t = Tracer(lambda w: [])
    n = 65535 * 64 + 1000
    out = t.compute((n,), lambda i: cast(i, dt.F32))
    ((_, got),) = bench.run(out.kernel, {})
    assert all(got[k] == k for k in (0, 1, 65535 * 64 - 1, 65535 * 64, n - 1))
