"""Coefficients of pyruntime/mathlib, derived: `python scripts/derive_math.py [NAME ...]` prints them.

float32: weighted minimax by Lawson's iteration (least squares whose weights are multiplied by the error until the
error is level), in float64 on a Chebyshev grid, then rounded to float32. float64: interpolation at Chebyshev nodes in
80 digits (within a small factor of minimax), rounded to float64. Needs numpy and mpmath; neither is used at run time.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 80
Number = Any  # mp.mpf
Function = Callable[[Number], Number]


def grid(low: float, high: float, count: int = 1500) -> np.ndarray:
    nodes = np.cos((np.arange(count) + 0.5) * np.pi / count)
    return (low + high) / 2 - (high - low) / 2 * nodes


def minimax(f: Function, low: float, high: float, top: int, bottom: int = 0, weight: Function | None = None) -> list:
    """Numerator [and denominator, constant term 1] of the rational of these degrees that minimises the greatest
    |weight · (p/q - f)|; the weight is 1/f unless given."""
    x = grid(low, high)
    y = np.array([float(f(mp.mpf(v))) for v in x])
    w = 1 / abs(y) if weight is None else np.array([float(weight(mp.mpf(v))) for v in x])
    powers = np.stack([x**k / high**k for k in range(max(top, bottom) + 1)], 1)
    lawson, q = np.ones_like(x), np.ones_like(x)
    best = (np.inf, np.zeros(0), np.zeros(0))
    for _ in range(400):
        scale = np.sqrt(lawson) * w / q
        matrix = np.concatenate([powers[:, : top + 1], -y[:, None] * powers[:, 1 : bottom + 1]], 1)
        norms = np.linalg.norm(matrix * scale[:, None], axis=0)
        solution = np.linalg.lstsq(matrix * scale[:, None] / norms, y * scale, rcond=None)[0] / norms
        p, den = solution[: top + 1], np.concatenate([[1.0], solution[top + 1 :]])
        q = powers[:, : bottom + 1] @ den
        error = abs(w * (powers[:, : top + 1] @ p / q - y))
        if error.max() < best[0]:
            best = (error.max(), p, den)
        lawson *= error / error.max() + 1e-3
        lawson /= lawson.sum()
    unscale = [[c / high**k for k, c in enumerate(part)] for part in best[1:]]
    print(f"#   minimax error {best[0]:.2e} = 2^{np.log2(best[0]):.1f}")
    return unscale if bottom else unscale[0]


def chebyshev(f: Function, low: float, high: float, degree: int) -> list:
    """The polynomial through f at the Chebyshev nodes, by Newton's divided differences, in powers of x."""
    count = degree + 1
    x = [
        (mp.mpf(low) + high) / 2 - (mp.mpf(high) - low) / 2 * mp.cos(mp.pi * (k + mp.mpf(1) / 2) / count)
        for k in range(count)
    ]
    d = [f(v) for v in x]
    for j in range(1, count):
        for i in range(count - 1, j - 1, -1):
            d[i] = (d[i] - d[i - 1]) / (x[i] - x[i - j])
    out = [mp.mpf(0)]
    for k in range(count - 1, -1, -1):
        shifted = [mp.mpf(0), *out]
        for i, c in enumerate(out):
            shifted[i] -= c * x[k]
        shifted[0] += d[k]
        out = shifted
    return out[:count]


def chunks(value: Number, bits: list[int]) -> list:
    """Return a value as a sum of parts with these numbers of significant bits, each rounded to nearest."""
    parts = []
    for n in bits:
        exponent = mp.floor(mp.log(abs(value), 2)) - n + 1
        parts.append(mp.nint(value / mp.mpf(2) ** exponent) * mp.mpf(2) ** exponent)
        value -= parts[-1]
    return parts


def halves(value: Number, bits: int) -> list:
    """Return a value, its upper bits/2 bits, and the rest."""
    return [value, *chunks(value, [bits // 2, bits])]


def even(f: Function) -> Function:
    """Return f(√z) as a function of z, for odd and even functions divided by a known factor; z = 0 is approximated."""
    return lambda z: f(mp.sqrt(max(z, mp.mpf(10) ** -25)))


def half(t: Number, rest: Number | None = None) -> Number:
    """Return s with 2s / (1 + s²) = t; rest: 1 - t, if known more exactly."""
    rest = 1 - t if rest is None else rest
    return t / (1 + mp.sqrt(rest * (1 + t)))


def damped(f: Function) -> Function:
    """Return a weight for half(f): the effect of a relative error of s on 2s / (1 + s²), which is flat at s = 1."""

    def weight(x: Number) -> Number:
        s = half(f(x))
        return x / s * ((1 - s * s) / (1 + s * s) + mp.mpf("1e-4"))

    return even(weight)


EXP1 = lambda r: mp.expm1(r) / r if abs(r) > 1e-30 else mp.mpf(1)  # noqa: E731
EXP2 = lambda r: (mp.expm1(r) - r) / r**2 if abs(r) > 1e-30 else mp.mpf(1) / 2  # noqa: E731
SIN = even(lambda r: (mp.sin(r) / r - 1) / r**2)
COS = even(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4)
LOG = even(lambda s: (2 * mp.atanh(s) - 2 * s) / s**3)
POW_LOG = even(lambda s: 3 * (mp.atanh(s) / s - 1 - s**2 / 3) / s**4)
ATAN = even(lambda r: (mp.atan(r) / r - 1) / r**2)
ASIN = even(lambda r: (mp.asin(r) / r - 1) / r**2)
SINH = even(lambda r: (mp.sinh(r) / r - 1) / r**2)
TANH = even(lambda r: (mp.tanh(r) / r - 1) / r**2)
TANH_HALF = even(lambda x: half(mp.tanh(x)) / x)
ERF_HALF = even(lambda x: half(mp.erf(x), mp.erfc(x)) / x)
ERF = even(lambda r: mp.erf(r) / r)


def erfc_scaled(v: Number) -> Number:
    """e^x² · erfc(x) · (x + 2) of v = 9.6 / (x + 2) - 2.2, which is -1 .. 1 for x = 6 .. 1."""
    x = mp.mpf("9.6") / (v + mp.mpf("2.2")) - 2
    return mp.exp(x * x) * mp.erfc(x) * (x + 2)


PI, LN2 = mp.pi, mp.log(2)
S2 = (3 - 2 * mp.sqrt(2)) ** 2  # (f/(2+f))² at the ends of log's range
T2 = (mp.sqrt(2) - 1) ** 2  # tan²(π/8)

FLOAT32: dict[str, Callable[[], list]] = {
    "EXP": lambda: polish_exp(minimax(EXP1, -0.3473, 0.3473, 4, weight=lambda r: abs(r) * (2 if r < 0 else 1))),
    "LOG": lambda: minimax(LOG, 0, float(S2) * 1.001, 3),
    "SIN": lambda: minimax(SIN, 0, float((PI / 2) ** 2) * 1.001, 4, weight=even(lambda r: r**3 / mp.sin(r))),
    "COS": lambda: minimax(COS, 0, float((PI / 4) ** 2) * 1.001, 2, weight=even(lambda r: r**4)),
    "TANH": lambda: polish_saturating(minimax(TANH_HALF, 0, 9.02**2, 2, 3, damped(mp.tanh)), math.tanh, 9.02),
    "ERF": lambda: polish_saturating(minimax(ERF_HALF, 0, 3.93**2, 3, 4, damped(mp.erf)), math.erf, 3.93),
    "ATAN": lambda: minimax(ATAN, 0, float(T2) * 1.001, 3, weight=even(lambda r: r**3 / mp.atan(r))),
    "ASIN": lambda: minimax(ASIN, 0, 0.25, 4, weight=even(lambda r: r**3 / mp.asin(r))),
    "SINH": lambda: minimax(SINH, 0, 1, 3, weight=even(lambda r: r**3 / mp.sinh(r))),
    "ATAN_BASE": lambda: chunks(PI / 4, [24, 24]) + chunks(PI / 2, [24, 24]),
    "POW_LOG": lambda: minimax(POW_LOG, 0, float(S2) * 1.001, 3),
    "POW_EXP": lambda: minimax(EXP2, -0.3475, 0.3475, 4, weight=lambda r: r * r),
    "POW_SCALE": lambda: halves(2 / (3 * LN2), 24),
    "POW_LN2": lambda: halves(LN2, 24),
    "LN2": lambda: chunks(LN2, [15, 24]),
    "PI": lambda: chunks(PI, [8, 8, 8, 8, 24]),
}
FLOAT64: dict[str, Callable[[], list]] = {
    "LN2": lambda: chunks(LN2, [40, 53]),
    "PI": lambda: chunks(PI, [30, 30, 30, 30, 53]),
    "EXP": lambda: chebyshev(EXP1, -0.3473, 0.3473, 10),
    "LOG": lambda: chebyshev(LOG, 0, S2, 8),
    "SIN": lambda: chebyshev(SIN, 0, (PI / 2) ** 2, 8),
    "COS": lambda: chebyshev(COS, 0, (PI / 4) ** 2, 6),
    "ATAN": lambda: chebyshev(ATAN, 0, T2, 11),
    "ATAN_BASE": lambda: chunks(PI / 4, [53, 53]) + chunks(PI / 2, [53, 53]),
    "ASIN": lambda: chebyshev(ASIN, 0, mp.mpf(1) / 4, 13),
    "SINH": lambda: chebyshev(SINH, 0, 1, 7),
    "TANH": lambda: chebyshev(TANH, 0, mp.mpf("0.55") ** 2, 10),
    "ERF": lambda: chebyshev(ERF, 0, 1, 14),
    "ERFC": lambda: chebyshev(erfc_scaled, -1, 1, 21),
    "POW_LOG": lambda: chebyshev(POW_LOG, 0, S2, 7),
    "POW_EXP": lambda: chebyshev(EXP2, -0.3475, 0.3475, 10),
    "POW_SCALE": lambda: halves(2 / (3 * LN2), 53),
    "POW_LN2": lambda: halves(LN2, 53),
}


# ── float32 coefficients that rounding errors matter to ───────────────────────────────────────────────────────────


def horner(z: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    total = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = z * total + c
    return total


def polish(
    start: list[list], run: Callable[..., np.ndarray], x: np.ndarray, true: np.ndarray, tries: int = 3000
) -> list:
    """Hill climbing from minimax coefficients to the least greatest error in ULPs of the float32 formula `run` over the
    samples. A common factor of a quotient's two polynomials is free; it matters where in a binade they lie."""
    rng = np.random.default_rng(1)
    unit = np.ldexp(1.0, np.frexp(true)[1] - 24)
    start32 = [np.array(part, np.float64) for part in start]
    best: tuple[float, list[np.ndarray]] = (math.inf, [])
    for n in range(tries):
        if n < tries // 10:
            factor = rng.uniform(0.8, 2) if len(start) > 1 and n else 1.0
            parts = [(part * factor).astype(np.float32) for part in start32]
        else:
            size = 2.0**-23 * 10 ** rng.uniform(-0.5, 1.5)
            steps = [rng.normal(size=len(p)) * (rng.random(len(p)) < 0.5) * 3.0 ** np.arange(len(p)) for p in best[1]]
            parts = [(p * (1 + size * step)).astype(np.float32) for p, step in zip(best[1], steps, strict=True)]
        error = abs(run(x, *parts).astype(np.float64) - true) / unit
        score = float(error.max() + 0.02 * np.sqrt((error * error).mean()))
        if score < best[0]:
            best = (score, parts)
    print(f"#   polished: {best[0]:.2f} ULP")
    return [part.tolist() for part in best[1]]


def saturating(x: np.ndarray, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    z = x * x
    a, b = x * horner(z, p), horner(z, q)
    return (a + a) * b / (a * a + b * b)


def polish_saturating(start: list, f: Callable[[float], float], edge: float) -> list:
    rng = np.random.default_rng(2)
    small = np.exp(rng.uniform(math.log(1e-4), math.log(edge), 200_000))
    x = np.concatenate([small, rng.uniform(0.01, edge, 100_000)]).astype(np.float32)
    return polish(start, saturating, x, np.array([f(float(v)) for v in x]))


def polish_exp(start: list) -> list:
    x = np.random.default_rng(2).uniform(-8, 30, 300_000).astype(np.float32)
    ln2, rest = np.float32(0.693145751953125), np.float32(1.428606765330187e-06)
    n = np.rint(x * np.float32(1 / math.log(2)))
    true = np.ldexp(np.exp(x.astype(np.float64)), -n.astype(int))
    return polish([start], lambda r, c: r * horner(r, c) + np.float32(1), x - n * ln2 - n * rest, true)[0]


def main() -> None:
    wanted = sys.argv[1:]
    for table, to in ((FLOAT32, np.float32), (FLOAT64, np.float64)):
        for name, derive in table.items():
            if wanted and name not in wanted:
                continue
            result = derive()
            for part in result if isinstance(result[0], list) else [result]:
                print(f"{name} = ({', '.join(repr(float(to(str(c)))) for c in part)})  # {to.__name__}")


if __name__ == "__main__":
    main()
