"""Fourier transforms of known lengths: Cooley and Tukey's method, whose factors are matrix products, and Bluestein's.

A length N = F·L is F transforms of the length L after L transforms of the length F. The latter are a product with a
constant matrix, and the routine for products is fast: factors of about 16 need more arithmetic than radix 4, but fewer
passes over memory. A length with a large prime factor becomes a convolution, by transforms of a longer, smooth length.
"""

# R rows, N length, P parts of a number in planes: 1 real, 2 complex; F factor, L rest

from __future__ import annotations

import math
from collections.abc import Callable

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import I64, DType
from pyruntime.ir.expr import Expr, cast, const, guard, select, sin
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.standard.matmul import product

BEST, LARGEST = 16, 32  # factors
MOST_PRIME = 100  # a larger prime factor is not worth a matrix
PASSES = 200  # what the passes over memory cost, in operations an element


def factors(length: int) -> list[int]:
    """The factors of a length in order, each of which becomes a product."""
    out = []
    while length > LARGEST:
        fitting = [d for d in range(2, LARGEST + 1) if length % d == 0]
        if not fitting:
            break
        out.append(min(fitting, key=lambda d: (abs(math.log2(d / BEST)), d)))
        length //= out[-1]
    return [*out, length]


def pays(parts: int, length: int, bins: int) -> bool:
    """Whether a fast transform takes less time than one product with a matrix of length x bins."""
    found = factors(length)
    steps = sum(found) if found[-1] <= MOST_PRIME else 2.5 * (sum(factors(convolution_length(length))) + PASSES / 8)
    return 8 * steps + PASSES < 4 * parts * bins


def convolution_length(length: int) -> int:
    """The least length of 2^a, 3·2^a or 5·2^a that holds a linear convolution."""
    return min(odd << max(0, (2 * length - 2) // odd).bit_length() for odd in (1, 3, 5))


def fast_transform(t: Tracer, x: Tensor, inverse: bool) -> Tensor:
    """Σn x[n] · exp(∓2πi·kn/N), divided by N if inverse. Shapes: x (R, P, N) -> (R, N, 2), in x's type"""
    length = x.shape[2]
    assert isinstance(length, int)
    found = factors(length)
    return _smooth(t, x, found, inverse) if found[-1] <= MOST_PRIME else _convolved(t, x, length, inverse)


def _smooth(t: Tracer, x: Tensor, found: list[int], inverse: bool) -> Tensor:
    rows, length = x.shape[0], math.prod(found)
    rest, before = length, 1
    for f in found[:-1]:
        rest //= f
        turned = product(
            t, _matrix(t, f, x.shape[1], x.dtype, inverse), t.reshape(x, (rows * before, x.shape[1] * f, rest))
        )
        x = _twiddled(t, t.reshape(turned, (rows * before, 2, f, rest)), f, rest, inverse)
        before *= f
    last = found[-1]
    matrix = t.transpose(_matrix(t, last, x.shape[1], x.dtype, inverse, length if inverse else 1), [1, 0])
    y = product(t, t.reshape(x, (rows * before, x.shape[1] * last)), matrix)
    count = len(found)
    split = t.reshape(y, (rows, *found[:-1], 2, last))
    ordered = t.transpose(split, [0, count + 1, *range(count - 1, 0, -1), count])
    return t.reshape(ordered, (rows, length, 2))


def _matrix(t: Tracer, length: int, parts: AnyDim, dtype: DType, inverse: bool, divisor: int = 1) -> Tensor:
    """The matrix of a transform from planes to planes: ((q, k), (p, n)) for part q of frequency k and part p of
    element n. (2 N, P N)"""

    def element(row: Expr, column: Expr) -> Expr:
        q, k = row / length, row % length
        p, n = column / length, column % length
        cosine, sine = waves(cast(k, I64) * cast(n, I64), length, dtype)
        sine = sine * (1.0 if inverse else -1.0)
        value = select(q == p, cosine, select(q > p, sine, -sine))
        return value / float(divisor) if divisor > 1 else value

    return t.compute((2 * length, parts * length), element, dtype)


def waves(turns: Expr, length: int, dtype: DType) -> tuple[Expr, Expr]:
    """The cosine and sine of turns/length turns, for int64 turns that are not negative."""
    total = const(length, I64)
    quarters = turns % total * 4
    return quarter_sine(quarters + total, total, dtype), quarter_sine(quarters, total, dtype)


def quarter_sine(m: Expr, total: Expr, dtype: DType) -> Expr:
    """sin(m·π / 2N) for m in [0, 5N). Integers reduce m to the first quarter turn, so that zeros are exact."""
    m = select(m >= total * 4, m - total * 4, m)
    negative = m >= total * 2
    m = select(negative, m - total * 2, m)
    m = select(m > total, total * 2 - m, m)
    value = sin(cast(m, dtype) * (math.pi / 2) / cast(total, dtype))
    return select(negative, -value, value)


def _twiddled(t: Tracer, x: Tensor, f: int, rest: int, inverse: bool) -> Tensor:
    """x[r, ·, k, n] · exp(∓2πi·kn/(F L)), as rows of the transforms that remain: (R, 2, F, L) -> (R F, 2, L)"""
    sign = 1.0 if inverse else -1.0

    def factor(part: int) -> Tensor:
        def element(k: Expr, q: Expr, n: Expr) -> Expr:
            cosine, sine = waves(cast(k, I64) * cast(n, I64), f * rest, x.dtype)
            sine = sine * sign
            return select(q == part, cosine, -sine if part else sine)

        return t.compute((f, 2, rest), element, x.dtype)

    real, imaginary = factor(0), factor(1)
    shape = (x.shape[0], f, 2, rest)
    y = t.compute(shape, lambda r, k, q, n: x[r, 0, k, n] * real[k, q, n] + x[r, 1, k, n] * imaginary[k, q, n], x.dtype)
    return t.reshape(y, (x.shape[0] * f, 2, rest))


# ── Bluestein ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _convolved(t: Tracer, x: Tensor, length: int, inverse: bool) -> Tensor:
    """kn = (k² + n² - (k - n)²) / 2 makes the transform a convolution with a chirp, between two products with it."""
    rows, parts, size = x.shape[0], x.shape[1], convolution_length(length)
    chirp = _chirp(t, length, x.dtype, inverse)

    def weighted(r: Expr, q: Expr, n: Expr) -> Expr:
        inside = n < length
        if parts == 1:
            return guard(inside, x[r, 0, n] * chirp[q, n], 0.0)
        return guard(inside, _times(lambda p: x[r, p, n], lambda p: chirp[p, n], q), 0.0)

    def kernel(r: Expr, q: Expr, n: Expr) -> Expr:
        place = select(n < length, n, size - n)
        value = guard(place < length, chirp[q, place], 0.0)
        return select(q == 0, value, -value)

    spectrum = fast_transform(t, t.compute((rows, 2, size), weighted, x.dtype), False)
    other = fast_transform(t, t.compute((1, 2, size), kernel, x.dtype), False)
    shape = (rows, 2, size)
    made = t.compute(shape, lambda r, q, k: _times(lambda p: spectrum[r, k, p], lambda p: other[0, k, p], q), x.dtype)
    y = fast_transform(t, made, True)
    scale = 1.0 / length if inverse else 1.0
    return t.compute(
        (rows, length, 2), lambda r, k, q: _times(lambda p: y[r, k, p], lambda p: chirp[p, k], q) * scale, x.dtype
    )


def _chirp(t: Tracer, length: int, dtype: DType, inverse: bool) -> Tensor:
    """exp(∓πi·n²/N) in planes: (2, N)"""

    def element(q: Expr, n: Expr) -> Expr:
        cosine, sine = waves(cast(n, I64) * cast(n, I64), 2 * length, dtype)
        return select(q == 0, cosine, sine * (1.0 if inverse else -1.0))

    return t.compute((2, length), element, dtype)


def _times(a: Callable[[Expr | int], Expr], b: Callable[[Expr | int], Expr], q: Expr) -> Expr:
    """Part q of the product of two complex numbers."""
    real = a(0) * b(0) - a(1) * b(1)
    return select(q == 0, real, a(0) * b(1) + a(1) * b(0))
