"""Every function of mathlib against a wider float type: errors in units of the last place, specials, denormals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pyruntime.codegen.half_floats import rounded
from pyruntime.ir.dtype import F16, F32, F64, I8, I32, I64, U8, DType
from pyruntime.ir.expr import BINARY, COMPARE, GRADUAL, Expr, binary, const, unary, walk
from pyruntime.mathlib import expand
from tests.numpy_expr import Array, evaluate, numpy_type

BASIC = (BINARY - {"pow", "rem", "mod"}) | COMPARE
BASIC |= set("neg abs sqrt floor ceil trunc round not select guard cast bitcast const index".split())

# The float32 bounds hold for every 13th of all floats (measured once, in C made from the same expressions).
# function -> greatest error in ULP (float32, float64), operations (float32, float64), range where the bound holds.
BOUNDS: dict[str, tuple[float, float, int, int, tuple[float, float]]] = {
    "exp": (2.2, 1.3, 25, 37, (-math.inf, math.inf)),
    "log": (0.9, 0.9, 37, 47, (-math.inf, math.inf)),
    "sin": (2.4, 2.4, 45, 53, (-1e5, 1e5)),
    "cos": (2.4, 2.4, 45, 53, (-1e5, 1e5)),
    "tan": (3.9, 3.7, 63, 79, (-1e5, 1e5)),
    "asin": (1.7, 1.7, 27, 45, (-math.inf, math.inf)),
    "acos": (1.2, 1.2, 35, 53, (-math.inf, math.inf)),
    "atan": (2.1, 1.2, 28, 44, (-math.inf, math.inf)),
    "sinh": (2.8, 1.8, 42, 62, (-math.inf, math.inf)),
    "cosh": (2.6, 1.8, 28, 40, (-math.inf, math.inf)),
    "tanh": (3.4, 1.7, 22, 70, (-math.inf, math.inf)),
    "asinh": (1.9, 1.8, 48, 58, (-math.inf, math.inf)),
    "acosh": (2.3, 1.8, 46, 56, (-math.inf, math.inf)),
    "atanh": (2.0, 2.0, 43, 53, (-math.inf, math.inf)),
    "erf": (4.2, 2.3, 26, 125, (-math.inf, math.inf)),
}


def np_erf(x: Array) -> Array:
    return np.array([math.erf(v) for v in x.astype(np.float64)], x.dtype)


NUMPY_NAMES = {f"a{name}": f"arc{name}" for name in "sin cos tan sinh cosh tanh".split()}


def reference(name: str) -> Callable[[Array], Array]:
    return np_erf if name == "erf" else getattr(np, NUMPY_NAMES.get(name, name))


def variable(dtype: DType, n: int = 0) -> Expr:
    return Expr("index", (), dtype, n)


def wider(dtype: DType) -> Any:
    return np.float64 if dtype is F32 else np.longdouble


def samples(dtype: DType, count: int = 15_000) -> Array:
    """All magnitudes of both signs, the usual ones densely, whole numbers and multiples of ¼π, and the specials."""
    rng = np.random.default_rng(7)
    bits = rng.integers(-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1, count).astype(f"int{dtype.bits}")
    parts = [rng.uniform(-r, r, count) for r in (1, 10, 100, 750, 1e5)]
    parts += [np.arange(-300, 300), np.arange(-60_000, 60_000, 31) * math.pi / 4, rng.normal(size=count) * 2.0**-12]
    info = np.finfo(numpy_type(dtype))
    edges = [0.0, 0.25, 0.5, 1.0, 2.0, math.inf, math.nan, info.tiny, info.smallest_subnormal, info.tiny / 3, info.max]
    parts += [np.array(edges), -np.array(edges)]
    parts += [np.nextafter(numpy_type(dtype).type(1), numpy_type(dtype).type(v)).reshape(1) for v in (0, 2)]
    return np.concatenate([p.astype(numpy_type(dtype)) for p in parts] + [bits.view(numpy_type(dtype))])


def ulps(found: Array, true: Array) -> Array:
    """Errors in units of the last place of the true value; infinite where a NaN, infinity or zero is not matched."""
    info = np.finfo(found.dtype)
    with np.errstate(all="ignore"):
        rounded = true.astype(found.dtype)
        exponent = np.maximum(np.frexp(np.where(np.isfinite(true), true, 1))[1], info.minexp + 1)
        error = abs(found.astype(true.dtype) - true) / np.ldexp(true.dtype.type(1), exponent - info.nmant - 1)
    special = ~np.isfinite(found) | ~np.isfinite(rounded) | (true == 0)
    same = (found == rounded) | np.isnan(found) & np.isnan(rounded)
    same &= (found != 0) | (true != 0) | (np.signbit(found) == np.signbit(true))
    return np.where(special, np.where(same, 0.0, np.inf), error).astype(np.float64)


def operations(e: Expr) -> int:
    """Those that are always done: the second side of a guard is for rare values."""
    usual, todo = {}, [e]
    while todo:
        x = todo.pop()
        if id(x) not in usual:
            usual[id(x)] = x
            todo += x.args[:2] if x.op == "guard" else x.args
    return sum(x.op not in ("const", "index", "bitcast") for x in usual.values())


@pytest.mark.parametrize("dtype", [F32, F64], ids=repr)
def test_exp_ends_in_zero(dtype: DType) -> None:
    """Where a result is not within the bound of ULP, it is 0 instead of a number below 1.01 times the smallest normal
    one. It takes fewer operations than the exact function, ends at the largest number, and any NaN stays NaN."""
    e, exact = (expand(Expr("exp", (variable(dtype),), dtype, value)) for value in (None, GRADUAL))
    assert operations(e) < operations(exact)
    x = samples(dtype)
    last = np.log(np.finfo(x.dtype).max, dtype=wider(dtype)).astype(x.dtype)
    words = np.dtype(f"u{x.itemsize}")
    with_payload = (np.array(np.nan, x.dtype).view(words) + np.arange(1, 512).astype(words)).view(x.dtype)
    edges = np.array([np.nextafter(last, -np.inf), last, np.nextafter(last, np.inf), np.finfo(x.dtype).max], x.dtype)
    low, high = ((-104, -86), (88, 89)) if dtype is F32 else ((-746, -707), (709, 710))
    x = np.concatenate([x, *[np.linspace(*ends, 5001).astype(x.dtype) for ends in (low, high)], edges, with_payload])
    with np.errstate(all="ignore"):
        y, true = evaluate(e, x), np.exp(x.astype(wider(dtype)))
        good = ulps(y, true) <= BOUNDS["exp"][dtype is F64]
        want = np.exp(x)
    tiny = np.finfo(x.dtype).tiny
    assert not ((y != 0) & (abs(y) < tiny)).any()
    assert not y[~good].any() and (true[~good] < 1.01 * tiny).all() and (~good).sum() > 1000
    np.testing.assert_array_equal(y[~np.isfinite(x)], want[~np.isfinite(x)])


@pytest.mark.parametrize("dtype", [F32, F64], ids=repr)
@pytest.mark.parametrize("name", BOUNDS)
def test_unary(name: str, dtype: DType) -> None:
    e = expand(Expr(name, (variable(dtype),), dtype, GRADUAL if name == "exp" else None))
    which = 0 if dtype is F32 else 1
    assert {node.op for node in walk(e)} <= BASIC
    assert {node.dtype.bits for node in walk(e)} <= {dtype.bits, 8}
    *numbers, (low, high) = BOUNDS[name]
    bound, most = numbers[which], numbers[2 + which]
    x = samples(dtype)
    x = x[(x >= low) & (x <= high) | ~np.isfinite(x)]
    with np.errstate(all="ignore"):
        error = ulps(evaluate(e, x), reference(name)(x.astype(wider(dtype))))
    worst = int(error.argmax())
    assert error[worst] <= bound, f"{error[worst]:.3f} ULP at {x[worst]!r}"
    assert operations(e) <= most, operations(e)


@pytest.mark.parametrize(("dtype", "first", "most"), [(F32, 1e5, 5e-7), (F64, 1e6, 1e-15)], ids=["F32", "F64"])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_large_angles_have_an_absolute_error(name: str, dtype: DType, first: float, most: float) -> None:
    """Up to the largest number; where exponents change, and at the numbers nearest to multiples of π/2."""
    rng = np.random.default_rng(7)
    kind = numpy_type(dtype).type
    limits = np.finfo(kind)
    x = [np.exp(rng.uniform(math.log(first), math.log(float(limits.max)), 200_000)).astype(kind)]
    powers = np.ldexp(kind(1), np.arange(20, limits.maxexp))
    x += [powers, np.nextafter(powers, kind(0)), powers * kind(1.5), -powers]
    x += [np.array([limits.max, 16367173 * 2.0**72])]  # the second is near to a multiple of π/2
    angles = np.concatenate([part.astype(kind) for part in x])
    found = evaluate(expand(unary(name, variable(dtype))), angles)
    assert abs(found - getattr(np, name)(angles.astype(wider(dtype)))).max() < most
    special = evaluate(expand(unary(name, variable(dtype))), np.array([math.inf, -math.inf, math.nan], kind))
    assert np.isnan(special).all()


@pytest.mark.parametrize("dtype", [F32, F64], ids=repr)
def test_sine_and_cosine_reach_one(dtype: DType) -> None:
    kind = numpy_type(dtype)
    sine, cosine = (expand(unary(name, variable(dtype))) for name in ("sin", "cos"))
    quarters = np.array([np.pi / 2, -np.pi / 2], kind)
    assert evaluate(sine, quarters).tolist() == [1.0, -1.0]
    assert evaluate(cosine, np.array([0.0, -0.0, np.pi, -np.pi], kind)).tolist() == [1.0, 1.0, -1.0, -1.0]


@pytest.mark.parametrize(("name", "most"), [("tanh", 2.0e-7), ("erf", 2.2e-7)])
def test_absolute_error(name: str, most: float) -> None:
    x = samples(F32)
    x = x[~np.isnan(x)]
    found = evaluate(expand(unary(name, variable(F32))), x)
    assert abs(found - reference(name)(x.astype(np.float64))).max() < most
    assert abs(found).max() == 1
    assert (found[abs(x) > 9.1] == np.sign(x[abs(x) > 9.1])).all()


SPECIALS = [0.0, 1.0, 2.0, 0.5, 3.0, 2.5, 3.5, math.inf, math.nan, 1e-45, 1e38, 2.0**24, 2.0**24 + 2, 1e30]


def grid(values: list[float], dtype: DType) -> tuple[Array, Array]:
    both = np.array([*values, *[-v for v in values]], numpy_type(dtype))
    x, y = np.meshgrid(both, both)
    return x.ravel().copy(), y.ravel().copy()


@pytest.mark.parametrize("dtype", [F32, F64], ids=repr)
def test_pow(dtype: DType) -> None:
    e = expand(binary("pow", variable(dtype), variable(dtype, 1)))
    rng = np.random.default_rng(7)
    pairs = [grid(SPECIALS, dtype)]
    for most, exponent in ((1e3, 8.0), (1e38, 1.0), (2.0, 126.0), (1.1, 800.0), (1e43, 0.95)):
        x = np.exp(rng.uniform(-math.log(most), math.log(most), 30_000))
        pairs.append((x, rng.uniform(-exponent, exponent, x.size)))
    with np.errstate(all="ignore"):
        x, y = (np.concatenate(part).astype(numpy_type(dtype)) for part in zip(*pairs, strict=True))
        error = ulps(evaluate(e, x, y), np.power(x.astype(wider(dtype)), y.astype(wider(dtype))))
    worst = int(error.argmax())
    assert error[worst] <= 0.85, f"{error[worst]:.3f} ULP at {x[worst]!r} ** {y[worst]!r}"
    assert operations(e) <= (138 if dtype is F32 else 158), operations(e)


def test_pow_is_exact_where_the_power_is_a_float() -> None:
    e = expand(binary("pow", variable(F32), variable(F32, 1)))
    cases = [(b, n, float(b) ** n) for b in range(-1000, 1001) if b for n in range(-8, 25)]
    cases = [(b, n, true) for b, n, true in cases if abs(true) < 1e38 and float(np.float32(true)) == true]
    x, y, true = np.array(cases, np.float32).T.copy()
    assert len(cases) > 5000
    assert (evaluate(e, x, y) == true).all()


@pytest.mark.parametrize("n", [0.0, 0.5, 1.0, 2.0, 3.0, -1.0])
def test_pow_of_a_constant(n: float) -> None:
    e = expand(binary("pow", variable(F32), const(n, F32)))
    x = samples(F32)
    with np.errstate(all="ignore"):
        assert ulps(evaluate(e, x), np.power(x.astype(np.float64), np.full(x.shape, n))).max() <= 1.5
    assert operations(e) <= 4


@pytest.mark.parametrize("dtype", [I8, U8, I32, I64], ids=repr)
def test_integer_pow(dtype: DType) -> None:
    signed = dtype.kind == "i"
    bases = [0, 1, 2, 3, 5, 7, 10, 100, *([-1, -2, -3, -7, -128] if signed else [])]
    exponents = [*range(64), 100, 101, *([-1, -2, -3, -100, -101, -128] if signed else [])]
    pairs = [(b, n) for b in bases for n in exponents if n < 64 or b in (-1, 0, 1) or b % 2 == 0]
    e = expand(binary("pow", variable(dtype), variable(dtype, 1)))
    x, y = np.array(pairs, numpy_type(dtype)).T.copy()
    half = 1 << (dtype.bits - 1)
    true = [b**n if n >= 0 else {1: 1, -1: 1 - 2 * (n & 1)}.get(b, 0) for b, n in pairs]
    wrapped = [(t + half) % (2 * half) - half if signed else t % (2 * half) for t in true]
    assert evaluate(e, x, y).tolist() == wrapped


def test_integer_pow_of_a_float() -> None:
    e = expand(binary("pow", variable(I32), variable(F32, 1)))
    x, y = np.array([3, 10, -2, 9], np.int32), np.array([2, 5, 3, 0.5], np.float32)
    assert evaluate(e, x, y).tolist() == [9, 100_000, -8, 3]


@pytest.mark.parametrize("dtype", [F32, F64], ids=repr)
@pytest.mark.parametrize(("name", "true"), [("rem", np.fmod), ("mod", np.mod)])
def test_rem_and_mod_are_exact(name: str, true: Callable[[Array, Array], Array], dtype: DType) -> None:
    e = expand(binary(name, variable(dtype), variable(dtype, 1)))
    rng, largest = np.random.default_rng(7), math.log2(np.finfo(numpy_type(dtype)).max)
    parts = [[rng.normal(size=50_000) * 2.0 ** rng.uniform(-n, n, 50_000) for _ in "ab"] for n in (20, largest - 3)]
    parts += [[rng.integers(-9999, 9999, 20_000), rng.integers(-50, 50, 20_000) / 4], grid(SPECIALS, dtype)]
    parts += [[2.0 ** np.linspace(-largest, largest - 1, 4000) * 1.2345, np.tile([0.0, -0.0], 2000)]]
    with np.errstate(all="ignore"):
        a, b = (np.concatenate(p).astype(numpy_type(dtype)) for p in zip(*parts, strict=True))
        np.testing.assert_array_equal(evaluate(e, a, b), true(a, b))


def test_half_floats_compute_in_float32() -> None:
    x = np.linspace(-5, 5, 1001).astype(np.float16)
    found = evaluate(expand(unary("tanh", variable(F16))), x)
    assert found.dtype == np.float16
    assert (found == np.tanh(x.astype(np.float64)).astype(np.float16)).mean() > 0.99


def test_float32_is_rounded_to_halves_where_halves_meet() -> None:
    """Between each half and the next, and one step of float32 beside that; what overflows, NaN, signs of zeros."""
    halves = np.arange(1 << 15, dtype=np.uint16)[:0x7C01].view(np.float16).astype(np.float32)
    halves[-1] = 65536  # where the next one would be
    ties = (halves[1:] + halves[:-1]) / 2
    each = [halves, ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(1e9))]
    each += [2.0 ** np.arange(-149, 128), [np.inf, np.nan, np.finfo(np.float32).max, 1e-45, 65519.996]]
    x = np.concatenate([np.asarray(part, np.float32) for part in each])
    x = np.concatenate([x, -x])
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16).astype(np.float32)
    found = evaluate(rounded(variable(F32), F16), x)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_shared_subexpressions_stay_shared() -> None:
    x = unary("exp", variable(F32))
    assert operations(expand(x + x)) == operations(expand(x)) + 1
