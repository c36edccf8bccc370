"""Compares two answers, within a tolerance and within the movement that last bits of the inputs cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from fuzz.draw import is_float


def epsilon(dtype: Any) -> float:
    return float(ml_dtypes.finfo(dtype).eps)


def widen(x: np.ndarray) -> np.ndarray:
    """Floats as float64; integers in NumPy's own types."""
    if is_float(x.dtype):
        return x.astype(np.float32).astype(np.float64) if x.dtype.kind == "V" else x.astype(np.float64)
    return x.astype(np.int64) if x.dtype.kind == "V" else x


FLOAT32 = float(np.finfo(np.float32).eps)
# Errors of functions such as exp and tanh, which are polynomials, and of short chains of operations in an operator.
FUNCTIONS = 32
# Rounding errors of a sum are a random walk: the root of the number of its terms times the unit roundoff and the
# largest partial sum. Four times an epsilon are eight standard deviations of steps of one roundoff.
DEVIATIONS = 4


@dataclass(frozen=True)
class Tolerance:
    """By how much an element may differ, from the number formats and the lengths of sums.

    terms: of the longest sum. nodes: how many there are; each may round what it stores. step: units of quantised
    integers. floor: the least magnitude of the numbers inside. epsilon: of the shortest float type that values pass
    through, the distance of 1 to the next number: twice the unit roundoff."""

    terms: int
    step: int = 0
    floor: float = 0.0
    epsilon: float = 0.0
    nodes: int = 1

    def stored(self, dtype: Any) -> float:
        """Epsilon of the type that values are rounded to where they are stored."""
        return max(epsilon(dtype), self.epsilon)

    def computed(self, dtype: Any) -> float:
        """Epsilon of the type in which sums and functions are computed: halves and shorter types in float32."""
        return min(self.stored(dtype), FLOAT32)

    def of(self, dtype: Any, b: np.ndarray) -> np.ndarray:
        """The allowed difference of each element of b."""
        if not is_float(dtype):
            return np.zeros(b.shape) + self.step
        largest = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
        scale = max(largest, self.floor)
        computed, stored = self.computed(dtype), self.stored(dtype)
        allowed = computed * (FUNCTIONS * np.abs(b) + DEVIATIONS * np.sqrt(self.terms) * scale)
        if stored > computed:
            # Both sides round each stored value by half an epsilon, and one intermediate value of an operator, which
            # may be as large as the largest output.
            allowed = allowed + stored * (self.nodes * np.abs(b) + 0.5 * largest)
        return allowed + float(ml_dtypes.finfo(dtype).tiny)

    def noise_factor(self, dtype: Any) -> float:
        """How many times the movement of an answer under `MOVES` its own error may be. A sum in the type itself has an
        error of up to the root of its terms more than one of its inputs. A half is moved by whole units, the error of
        one stored value is half a unit, and sums are computed in float32: once is enough."""
        computed, stored = self.computed(dtype), self.stored(dtype)
        sums = 2 * np.sqrt(self.terms)
        return float(1 + sums * computed / stored if stored > computed else max(16.0, sums))


def difference(got: Any, want: Any, tolerance: Tolerance, noise: Any = None) -> str:
    """The first difference, in words; empty if there is none. noise: how far each element of `want` moves when inputs
    move in their last bits."""
    if isinstance(want, list) or isinstance(got, list):
        if not (isinstance(want, list) and isinstance(got, list)) or len(want) != len(got):
            return f"{_shape(got)} for {_shape(want)}"
        pairs = zip(got, want, noise if isinstance(noise, list) else [None] * len(got), strict=False)
        return next((d for g, w, n in pairs if (d := difference(g, w, tolerance, n))), "")
    if want is None or got is None or isinstance(want, dict) or isinstance(got, dict):
        return "" if type(want) is type(got) else f"{_shape(got)} for {_shape(want)}"
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return f"shape {list(got.shape)} for {list(want.shape)}"
    if want.dtype.kind in "OUS":
        return _strings(got, want)
    if got.dtype != want.dtype:
        return f"type {got.dtype} for {want.dtype}"
    return _numbers(got, want, tolerance, noise) if got.size else ""


def _strings(got: np.ndarray, want: np.ndarray) -> str:
    pairs = zip(got.ravel().tolist(), want.ravel().tolist(), strict=True)
    return next((f"{g!r} for {w!r}" for g, w in pairs if not _same_text(_text(g), _text(w))), "")


def _numbers(got: np.ndarray, want: np.ndarray, tolerance: Tolerance, noise: Any) -> str:
    a, b = widen(got), widen(want)
    with np.errstate(all="ignore"):
        same = (a == b) | ((a != a) & (b != b))
        if same.all():
            return ""
        allowed = tolerance.of(got.dtype, b)
        if (beyond := np.isinf(b)).any():  # infinity may be rounded to the largest number
            largest = float(ml_dtypes.finfo(want.dtype).max)
            allowed, b = np.where(beyond, 0.01 * largest, allowed), np.where(beyond, np.copysign(largest, b), b)
        off = np.abs(a.astype(np.float64) - b.astype(np.float64))
        if noise is not None and np.shape(noise) == b.shape:
            moved = tolerance.noise_factor(got.dtype) * noise if is_float(got.dtype) else 2 * noise
            allowed = allowed + moved
            # b may have divided by what is 0 but for a last bit; or be NaN, its root, which last bits make a number.
            same |= np.isinf(moved) | ~np.isfinite(a) & (moved >= np.abs(b))
        bad = ~same & ~(off <= allowed)
    if not bad.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{got[at]} for {want[at]} at {list(at)}, {int(bad.sum())} of {bad.size} differ"


def largest_changes(answers: Sequence[Any], base: Any) -> Any:
    """The largest change of each element of `base` over answers of the same structure; infinite if an element is
    finite in some answers and not in others."""
    if isinstance(base, list):
        return [largest_changes([a[n] if isinstance(a, list) and n < len(a) else None for a in answers], b)
                for n, b in enumerate(base)]  # fmt: skip
    if not isinstance(base, np.ndarray) or base.dtype.kind in "OUS":
        return None
    b = widen(base).astype(np.float64)
    out: Any = np.zeros(b.shape)
    for answer in answers:
        if isinstance(answer, np.ndarray) and answer.shape == b.shape:
            with np.errstate(all="ignore"):
                a = widen(answer).astype(np.float64)
                moved = np.where((a == b) | ((a != a) & (b != b)), 0, np.abs(a - b))
            out = np.maximum(out, np.where(moved != moved, np.inf, moved))
        elif isinstance(answer, np.ndarray):
            out = out + np.inf
    return out


def nudge(x: Any, rng: np.random.Generator, ulps: float) -> Any:
    """Moves each float of an array by some units in the last place, up or down at random."""
    if isinstance(x, list):
        return [nudge(v, rng, ulps) for v in x]
    if not isinstance(x, np.ndarray) or not is_float(x.dtype) or not x.size:
        return x
    with np.errstate(all="ignore"):
        moved = np.asarray(widen(x) * (1 + ulps * epsilon(x.dtype) * rng.choice([-1.0, 1.0], x.shape)))
        return moved.astype(x.dtype)


def _same_text(a: str, b: str) -> bool:
    """Whether two texts are equal, or write the same number, as a Cast to strings may."""
    if a == b:
        return True
    try:
        return (
            abs(float(a) - float(b)) <= 1e-6 * abs(float(b)) or float(a) == float(b) or a.lower() == b.lower() == "nan"
        )
    except ValueError:
        return False


def _text(v: Any) -> str:
    return v.decode(errors="replace") if isinstance(v, bytes) else str(v)


def _shape(x: Any) -> str:
    if isinstance(x, list):
        return f"a list of {len(x)}"
    return f"{x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else type(x).__name__
