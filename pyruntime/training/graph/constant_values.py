"""What the numbers of a constant tell: whether they may be those of a weight."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod

from pyruntime.onnx.graph import Weight
from pyruntime.onnx.weight_values import numbers_of

_LARGE = 1e4  # no weight is this large; masks of attention are
_SAMPLE = 1 << 16  # numbers whose pattern is looked at
_REPEATS = 4  # a constant each of whose numbers occurs so often on average is no weight
_FEWEST, _PLACES, _COLUMNS = 6, 32, 48  # of a table: places at least, places and columns that are looked at
_SKIPPED = 2  # places before these: some tables have rows for padding
_EXACT = 2e-5  # of the range: how far a table in float32 is from its rule
_ROUNDING = 4e-7


def unlike_a_weight(numbers: Sequence[float]) -> str:
    """Why a constant is no weight, by the size of its numbers; "" if it may be one."""
    if not isfinite(sum(numbers)):
        return "has numbers that are not finite"
    is_large = bool(numbers) and max(max(numbers), -min(numbers)) >= _LARGE
    return "has numbers as large as those of masks" if is_large else ""


def collapsed(numbers: Sequence[float], shape: tuple[int, ...]) -> tuple[Sequence[float], tuple[int, ...]]:
    """Without the axes along which nothing changes: a vector that was broadcast is how some weights begin."""
    for axis, extent in reversed(list(enumerate(shape))):
        inner = prod(shape[axis + 1 :])
        step = extent * inner
        rows = [numbers[n : n + inner] for n in range(0, len(numbers), step)] if step else []
        if extent > 1 and all(
            numbers[n * step + m * inner : n * step + (m + 1) * inner] == row
            for n, row in enumerate(rows) for m in range(1, extent)
        ):  # fmt: skip
            numbers, shape = [x for row in rows for x in row], (*shape[:axis], 1, *shape[axis + 1 :])
    return numbers, shape


def repeats(numbers: Sequence[float]) -> bool:
    """Whether few numbers occur often. All equal is how many weights begin."""
    sample = numbers[:_SAMPLE]
    distinct = len(set(sample))
    return distinct > 1 and len(sample) >= _FEWEST and distinct * _REPEATS <= len(sample)


SINES, SERIES = "sines", "a line or a geometric series"


def rule(numbers: Sequence[float], shape: tuple[int, ...]) -> str:
    """The rule by which somebody computed a constant: SINES go up and down, SERIES (also of squares) do not; "" if
    there is none."""
    found = {_rule_along(numbers, shape, axis) for axis, d in enumerate(shape) if d >= _FEWEST}
    return SINES if SINES in found else SERIES if SERIES in found else ""


def _rule_along(numbers: Sequence[float], shape: tuple[int, ...], axis: int) -> str:
    inner = prod(shape[axis + 1 :])
    outer = prod(shape[:axis])
    first = min(_SKIPPED, shape[axis] - _FEWEST)
    places = range(first, min(shape[axis], first + _PLACES))
    step = max(1, inner * outer // _COLUMNS)
    starts = (n // inner * shape[axis] * inner + n % inner for n in range(0, inner * outer, step))
    columns = [[numbers[start + n * inner] for n in places] for start in starts]
    moving = [column for column in columns if max(column) - min(column) > 1e-5 * max(map(abs, column))]
    if not moving or not all(map(_is_regular, moving)):
        return ""
    return SERIES if all(column in (sorted(column), sorted(column, reverse=True)) for column in moving) else SINES


def _is_regular(column: Sequence[float]) -> bool:
    """Whether the differences d of neighbours obey d[n + 1] + d[n - 1] = k·d[n] for one k, as in sines, lines and
    geometric series."""
    d = [b - a for a, b in zip(column, column[1:], strict=False)]
    around = [a + b for a, b in zip(d, d[2:], strict=False)]
    middle = d[1:-1]
    square = sum(x * x for x in middle)
    k = sum(a * x for a, x in zip(around, middle, strict=True)) / square if square else 0.0
    limit = _EXACT * (max(column) - min(column)) + _ROUNDING * max(map(abs, column))
    return all(abs(a - k * x) <= limit for a, x in zip(around, middle, strict=True))


def is_uniform(w: Weight) -> bool:
    """Whether all numbers are equal, as those of many weights at the start."""
    return len(set(numbers_of(w))) == 1
